"""How much is read at a time, and how it is handed over."""

from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from sidecar.clock import SystemClock
from sidecar.errors import ClientsLostError, DataDirectoryError, UsageError
from sidecar.intake.assignment import Assignment, SourceFactory
from sidecar.intake.enqueue_get import PIECE_RECORDS, EnqueueGet
from sidecar.intake.held_back import HELD_BACK_AFTER_MS
from sidecar.intake.progress import LastRead, Mark, Start
from sidecar.intake.reading import Reading
from sidecar.intake.start_finder import StartFinder
from sidecar.observability.health import CHOOSE_PROGRESS, Cause, Health
from sidecar.observability.metrics import Metrics
from sidecar.source import Source
from tests.support.logged import logged

BATCH_RECORDS, BATCH_BYTES = 5_000, 8_000_000
WHEEL = "SCHEDULE_TOPIC_XXXX-wheel"


class Fetched:
    """A consumer that has fetched many records of one size."""

    def __init__(self, size: int | None = 200, fetched: int = 1_000_000) -> None:
        self.size = size
        self.fetched = fetched
        self.asked: list[int] = []

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        pass

    def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
        """Not known yet."""
        return -1001, -1001

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.asked.append(count)
        count = min(count, self.fetched)
        self.fetched -= count
        value = None if self.size is None else b"v" * self.size
        return [Message(topic="SCHEDULE_TOPIC_XXXX-wheel", partition=0, offset=0, value=value)] * count

    def poll(self, timeout_s: float) -> Message | None:
        raise AssertionError("waited for more, with records in hand")


def nobody(*_: object) -> Any:
    raise AssertionError


def reading(consumer: Fetched, starts: object = None, make_source: SourceFactory = nobody) -> EnqueueGet:
    clock = SystemClock()
    health, metrics, client = Health(clock), Metrics("0"), cast(Consumer, consumer)
    assignment = Assignment(
        client,
        [],
        cast(StartFinder, starts),
        make_source,
        lambda **_: None,
        clock=clock,
        health=health,
        metrics=metrics,
    )
    return EnqueueGet(
        client,
        assignment,
        clock=clock,
        health=health,
        metrics=metrics,
        batch_records=BATCH_RECORDS,
        batch_bytes=BATCH_BYTES,
        queue_of=str,
    )


@pytest.mark.parametrize(
    ("size", "next_count"),
    [
        (None, 5_000),
        (0, 5_000),
        (200, 5_000),
        (1_100, 5_000),
        (1_500, 4_000),
        (10_000, 761),
        (1_000_000, 7),
        (9_000_000, 1),
    ],
)
def test_of_large_records_fewer_are_read_at_a_time(size: int | None, next_count: int) -> None:
    consumer = Fetched()
    intake = reading(consumer)

    def count_read() -> int:
        consumer.asked.clear()
        intake.read(0)
        return sum(consumer.asked)

    assert count_read() == BATCH_RECORDS
    consumer.size = size
    assert count_read() == max(next_count, PIECE_RECORDS)  # the first piece shows how large they are
    assert count_read() == next_count
    consumer.size = 200
    assert count_read() == next_count
    assert count_read() == BATCH_RECORDS


def test_a_batch_is_read_in_pieces_and_nobody_waits_for_more_of_it() -> None:
    consumer = Fetched(fetched=2 * PIECE_RECORDS + 1)
    reading(consumer).read(1.0)
    assert consumer.asked == [PIECE_RECORDS] * 3  # the last is not whole: there is no more


def test_a_whole_piece_may_be_the_last() -> None:
    consumer = Fetched(fetched=PIECE_RECORDS)
    reading(consumer).read(1.0)
    assert consumer.asked == [PIECE_RECORDS] * 2


class Asking:
    """A source that is best read whole, and takes what it is offered."""

    topic, partition, is_best_read_whole, is_full, position = "SCHEDULE_TOPIC_XXXX-wheel", 0, True, False, 1

    def offer(self, messages: list[Message], now_ms: int) -> None:
        pass


@pytest.mark.parametrize(("partition", "asked"), [(0, BATCH_RECORDS), (1, PIECE_RECORDS)])
def test_a_source_may_ask_for_whole_batches_while_its_records_come(partition: int, asked: int) -> None:
    """All records are of partition 0."""
    consumer = Fetched()
    intake = reading(consumer)
    intake._readings["SCHEDULE_TOPIC_XXXX-wheel", partition] = Reading(cast(Source, Asking()), Start(0, ""))
    intake.read(0)
    consumer.asked.clear()
    intake.read(0)
    assert set(consumer.asked) == {asked}


def test_a_source_that_asks_for_whole_batches_has_to_be_among_the_last_that_were_read() -> None:
    intake = reading(consumer := Fetched())
    intake._readings[WHEEL, 0] = Reading(cast(Source, Asking()), Start(0, ""))
    intake.read(0)
    consumer.fetched = 0
    intake.read(0)
    consumer.fetched = 1_000_000
    consumer.asked.clear()
    intake.read(0)
    assert set(consumer.asked) == {PIECE_RECORDS}


def test_what_follows_the_record_that_was_waited_for_is_read_with_it() -> None:
    class Slow(Fetched):
        def poll(self, timeout_s: float) -> Message | None:
            self.fetched = 10
            return self.consume(1, 0)[0]

    intake = reading(Slow(fetched=0))
    intake._readings[WHEEL, 0] = Reading(cast(Source, Asking()), Start(0, ""))
    assert intake.read(1.0) == 10


class Full(Asking):
    """A source that has no room."""

    is_full, has_room, position = True, False, 0


def test_what_a_full_source_leaves_is_not_counted_as_taken_in() -> None:
    """It is read again as long as there is no room: an intake that stands still would look busy."""
    intake = reading(consumer := Fetched(fetched=10))
    consumer.pause = lambda _partitions: None  # type: ignore[attr-defined]
    intake._readings["SCHEDULE_TOPIC_XXXX-wheel", 0] = Reading(cast(Source, Full()), Start(0, ""))
    intake.read(0)
    assert intake._metrics.ingested.labels("SCHEDULE_TOPIC_XXXX-wheel")._value.get() == 0


def test_nothing_counts_as_taken_in_where_the_store_fails() -> None:
    class Failing(Full):
        is_recovering = False

        def offer(self, messages: list[Message], now_ms: int) -> None:
            raise OSError

        def close(self) -> None:
            pass

    intake = reading(consumer := Fetched(fetched=10))
    consumer.pause = lambda _partitions: None  # type: ignore[attr-defined]
    partition = intake._readings[WHEEL, 0] = Reading(cast(Source, Failing()), Start(0, ""))
    intake.read(0)
    assert intake._metrics.ingested.labels(WHEEL)._value.get() == 0
    assert (intake._readings, partition.is_behind) == ({}, False)


class Waiting(Asking):
    """A source that takes no more than it may, and leaves the rest for the end of the transaction in hand."""

    is_recovering = False

    def __init__(self, may_take: int = 1_000_000) -> None:
        self.may_take = may_take
        self.position = 0  # type: ignore[misc]
        self.offered: list[list[int | None]] = []
        self.ends: list[int] = []

    def offer(self, messages: list[Message], now_ms: int) -> None:
        self.offered.append([message.offset() for message in messages])
        self.position = min((messages[-1].offset() or 0) + 1, self.may_take)  # type: ignore[misc]

    def reached_end(self, offset: int) -> None:
        self.ends.append(offset)

    def close(self) -> None:
        pass


class Given(Fetched):
    """A consumer that hands out these, each list by one call."""

    def __init__(self, *batches: list[Message]) -> None:
        super().__init__()
        self.batches = list(batches)
        self.sought: list[int] = []

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        return self.batches.pop(0) if self.batches else []

    def seek(self, place: TopicPartition) -> None:
        self.sought.append(place.offset)


def records(*offsets: int) -> list[Message]:
    return [Message(topic=WHEEL, partition=0, offset=offset, timestamp=(2, 1)) for offset in offsets]


def end_at(offset: int) -> Message:
    return Message(topic=WHEEL, partition=0, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF))


def test_what_a_source_has_left_is_offered_again_before_what_came_behind_it() -> None:
    intake = reading(Given(records(0, 1, 2), [*records(3, 4), end_at(5)]))
    source = Waiting(may_take=1)
    intake._readings[WHEEL, 0] = Reading(cast(Source, source), Start(0, ""))
    assert intake.read(0) == 1
    assert intake.read(0) == 0
    source.may_take = 2
    intake.go_on()
    assert (source.offered, source.ends) == ([[0, 1, 2], [1, 2]], [])
    source.may_take = 10
    intake.go_on()
    assert (source.offered[2:], source.ends) == ([[2], [3, 4]], [5])
    intake.go_on()
    assert len(source.offered) == 4
    assert intake._metrics.ingested.labels(WHEEL)._value.get() == 5


def test_what_comes_in_the_very_call_that_assigns_a_partition_is_read_anew() -> None:
    """It may be of an assignment before, from elsewhere in the log."""

    class Assigning(Given):
        def subscribe(self, topics: list[str], **callbacks: Any) -> None:
            self.on_assign = callbacks["on_assign"]

        def assign(self, partitions: list[TopicPartition]) -> None:
            pass

        def consume(self, count: int, timeout_s: float) -> list[Message]:
            if len(self.batches) == 2:
                self.on_assign(self, [TopicPartition(WHEEL, 0)])
            return super().consume(count, timeout_s)

    class Starts:
        def find(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], object]:
            return dict.fromkeys(places, Start(0, "{}"))

    source = Waiting()
    consumer = Assigning(records(7, 8), records(0, 1))
    intake = reading(consumer, Starts(), lambda *_: cast(Source, source))
    assert intake.read(0) == 0
    assert consumer.sought == [0]
    assert intake.read(0) == 2
    assert source.offered == [[0, 1]]


def test_where_reading_ends_is_where_it_is_held_back_until_it_goes_on() -> None:
    intake = reading(Given([end_at(0)], records(0, 1)))
    partition = intake._readings[WHEEL, 0] = Reading(cast(Source, Waiting()), Start(0, ""))
    intake.read(0)
    assert [partition.held_back.look(2, now_ms) for now_ms in (0, HELD_BACK_AFTER_MS)] == [False, True]
    intake.read(0)
    assert not partition.held_back.look(2, 2 * HELD_BACK_AFTER_MS)


def test_a_broker_that_hands_out_records_answers() -> None:
    intake = reading(Given([end_at(0)], records(0)))
    intake._readings[WHEEL, 0] = Reading(cast(Source, Waiting()), Start(0, ""))
    intake._health.broker_is_silent("timed out")
    intake.read(0)
    assert intake._health.broker_error == "timed out"
    intake.read(0)
    assert intake._health.broker_error == ""


def test_the_end_of_a_log_is_not_known_before_the_first_fetch() -> None:
    class Asked(Fetched):
        ends: list[int | KafkaError]

        def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
            end = self.ends.pop(0)
            if isinstance(end, KafkaError):
                raise KafkaException(end)
            return 0, end

    intake = reading(consumer := Asked())
    consumer.ends = [OFFSET_INVALID, KafkaError(KafkaError._STATE), 0, 7]
    assert [intake.known_end((WHEEL, 0)) for _ in range(4)] == [None, None, 0, 7]


def test_what_was_read_last_is_remembered_with_its_leaders_epoch() -> None:
    class Read:
        """A record as librdkafka gives it; one that is made has no epoch."""

        def __init__(self, offset: int, epoch: int | None) -> None:
            self.offset, self.leader_epoch, self.timestamp = lambda: offset, lambda: epoch, lambda: (2, 100 + offset)

    partition = Reading(cast(Source, Asking()), Start(0, "", mark=Mark("one")))
    for epoch in (None, -1):
        partition.remember(cast(Message, Read(6, epoch)))
        assert partition.mark == Mark("one")
    partition.remember(cast(Message, Read(7, 3)))
    assert partition.mark == Mark("one", LastRead(7, 107, 3))


def opened_at(committed: int, position: int, last: LastRead | None, begin: int = 0) -> Reading:
    source = Asking()
    source.position = position  # type: ignore[misc]
    return Reading(cast(Source, source), Start(committed, "{}", 20, begin, Mark("one", last), last))


@pytest.mark.parametrize(
    ("position", "begin", "expected"),
    [
        (8, 0, (8, 3)),
        (5, 0, (5, 3)),  # what was read ahead is read again
        (9, 0, (8, 3)),  # behind what was read last there is a marker, whose epoch nobody knows
        (9, 9, (9, None)),  # and retention has taken all before
    ],
)
def test_reading_begins_with_the_epoch_of_what_was_read_last(
    position: int, begin: int, expected: tuple[int, int | None]
) -> None:
    """Else a log that loses its end before anything comes, and grows again, looks like itself."""
    first = opened_at(5, position, LastRead(7, 107, 3), begin).first
    assert (first.offset, first.leader_epoch) == expected
    assert opened_at(5, position, None).first == TopicPartition(WHEEL, 0, position)


@pytest.mark.parametrize(("position", "expected"), [(8, 3), (5, 3), (9, None)])
def test_reading_goes_on_after_a_pause_with_that_epoch(position: int, expected: int | None) -> None:
    sought: list[TopicPartition] = []

    class Sought(Fetched):
        def seek(self, place: TopicPartition) -> None:
            sought.append(place)

        def resume(self, places: list[TopicPartition]) -> None:
            pass

    partition = opened_at(5, position, LastRead(7, 107, 3))
    partition.is_behind = True
    partition.resume(cast(Consumer, Sought()))
    assert [(place.offset, place.leader_epoch) for place in sought] == [(position, expected)]


@pytest.mark.parametrize(
    ("epochs", "committed", "other_from"),
    [
        ({5: 2, 6: 3, 7: 3, 8: 4}, 8, None),  # an election since, as ever so often
        ({5: 2, 6: 4, 7: 4}, 8, 6),
        ({5: 4, 6: 4}, 8, 5),
        ({8: 4}, 9, 8),  # where a marker stood
        ({7: 4}, 6, 7),  # what was read ahead
        ({9: 4}, 9, None),
        ({5: None, 6: None}, 8, None),
    ],
)
def test_a_record_of_a_later_epoch_than_all_that_were_read_is_another(
    epochs: dict[int, int | None], committed: int, other_from: int | None
) -> None:
    partition = opened_at(committed, 5, LastRead(7, 107, 3))
    messages = [
        Message(topic=WHEEL, partition=0, offset=offset, leader_epoch=-1 if epoch is None else epoch)
        for offset, epoch in epochs.items()
    ]
    assert partition.other_from(messages) == other_from


@pytest.mark.parametrize(("offset", "is_stopped"), [(4, True), (5, False)])
def test_a_partition_whose_log_holds_others_stops_unless_they_are_behind_the_committed_offset(
    offset: int, is_stopped: bool
) -> None:
    told: list[int] = []

    class Source5(Asking):
        position = 9

        def lost_end(self, other_from: int) -> None:
            told.append(other_from)

        def close(self) -> None:
            pass

        is_recovering = False

    class Others(Fetched):
        def consume(self, count: int, timeout_s: float) -> list[Message]:
            return [Message(topic=WHEEL, partition=0, offset=offset, leader_epoch=4, timestamp=(2, 1))]

        def pause(self, places: list[TopicPartition]) -> None:
            pass

    intake = reading(Others())
    last = LastRead(7, 107, 3)
    start = Start(5, "{}", 20, 0, Mark("one", last), last)
    intake._readings[WHEEL, 0] = Reading(cast(Source, Source5()), start)
    with logged() as lines:
        intake.read(0)
    told_of = str(intake._health.stopped.get(f"{WHEEL}-0", ""))
    assert (f"from offset {offset} on the log holds other records" in told_of) is is_stopped
    assert told == ([] if is_stopped else [5])
    assert [line["event"] for line in lines] == ["partition stopped" if is_stopped else "log has lost its end"]


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_what_kafka_refuses_in_a_rebalance_ends_the_session_and_not_the_process(callback: str) -> None:
    class Refused(Fetched):
        def subscribe(self, topics: list[str], **callbacks: Any) -> None:
            self._callback = callbacks[callback]

        def consume(self, count: int, timeout_s: float) -> list[Message]:
            self._callback(self, [])
            return []

        def assign(self, partitions: list[TopicPartition]) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "not now"))

        def resume(self, partitions: list[TopicPartition]) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "not now"))

    class NoStarts:
        def find(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], object]:
            return {}

    with pytest.raises(ClientsLostError, match="not now"):
        reading(Refused(), NoStarts()).read(0)


@pytest.mark.parametrize(("position", "is_read"), [(3, False), (4, True)])
def test_a_partition_stops_where_kafka_no_longer_has_what_waits(position: int, is_read: bool) -> None:
    """Its directory is lost, and retention has taken what a rebuild would read: a fetch would say that less clearly."""
    place = ("SCHEDULE_TOPIC_XXXX-wheel", 0)
    closed: list[Source] = []

    class Assigned(Fetched):
        def subscribe(self, topics: list[str], **callbacks: Any) -> None:
            self.assign_to = callbacks["on_assign"]

        def assign(self, partitions: list[TopicPartition]) -> None:
            self.assigned = [(partition.topic, partition.partition) for partition in partitions]

    class Starts:
        def find(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], object]:
            return dict.fromkeys(places, Start(9, '{"l":3}', 12, 4))

    class Rebuilt(Asking):
        def __init__(self) -> None:
            self.position = position

        def close(self) -> None:
            closed.append(cast(Source, self))

        is_recovering = False

    intake = reading(consumer := Assigned(), Starts(), lambda *_: cast(Source, Rebuilt()))
    consumer.assign_to(consumer, [TopicPartition(*place)])
    assert consumer.assigned == ([place] if is_read else [])
    assert len(closed) == (not is_read)
    told = str(intake._health.stopped.get("SCHEDULE_TOPIC_XXXX-wheel-0", ""))
    assert ("read again from offset 3, but the log begins at 4: retention has removed" in told) is not is_read


def test_a_partition_is_handed_all_of_its_records_at_once_though_others_stand_between_them() -> None:
    """Twelve partitions whose records alternate are twelve writes to disk, not one a record; an end keeps its place."""

    def record(topic: str, partition: int, offset: int) -> Message:
        return Message(topic=topic, partition=partition, offset=offset)

    def end(topic: str, partition: int, offset: int) -> Message:
        return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF))

    read = [
        record("wheel", 0, 0),
        record("wheel", 1, 7),
        record("wheel", 0, 1),
        record("1", 0, 3),
        record("wheel", 1, 8),
    ]
    read += [end("wheel", 1, 9), record("wheel", 1, 9), record("wheel", 0, 2), record("wheel", 1, 10), end("1", 0, 4)]
    runs = reading(Fetched())._runs(read)
    assert [(run.place, [message.offset() for message in run.messages], run.end_offset) for run in runs] == [
        (("wheel", 0), [0, 1, 2], None),
        (("wheel", 1), [7, 8], None),
        (("1", 0), [3], None),
        (("wheel", 1), [], 9),
        (("wheel", 1), [9, 10], None),
        (("1", 0), [], 4),
    ]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "another application is a member of this group"),
        (KafkaError.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "the sidecar's rights"),
    ],
)
def test_where_the_group_does_not_let_it_in_the_advice_fits(code: int, advice: str) -> None:
    intake = reading(Fetched())
    with logged() as lines:
        intake._runs([Message(error=KafkaError(code, "JoinGroup failed"))])
    assert advice in lines[0]["operator_action"]
    assert (advice in intake._health.broker_error) == (code != KafkaError.GROUP_AUTHORIZATION_FAILED)


def test_a_session_timeout_that_the_brokers_do_not_allow_is_a_setting_to_correct() -> None:
    with pytest.raises(UsageError, match="session_timeout is not one that the brokers allow"):
        reading(Fetched())._runs([Message(error=KafkaError(KafkaError.INVALID_SESSION_TIMEOUT))])


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError.FENCED_INSTANCE_ID),
        KafkaError(KafkaError._FATAL, "Static consumer fenced by other consumer with same group.instance.id"),
    ],
)
def test_another_process_under_this_identity_is_told_as_that(error: KafkaError) -> None:
    with pytest.raises(DataDirectoryError, match="another process has taken this sidecar's identity"):
        reading(Fetched())._runs([Message(error=error)])


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._FATAL, "something else"),
        KafkaError(KafkaError._STATE, "flagged", True),
        KafkaError(KafkaError._MAX_POLL_EXCEEDED),
        KafkaError(KafkaError.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_consumer_that_is_of_no_more_use_ends_the_session(error: KafkaError) -> None:
    with pytest.raises(ClientsLostError, match="consumer: "):
        reading(Fetched())._runs([Message(error=error)])


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET])
def test_a_partition_whose_offset_the_log_does_not_have_stops_and_the_others_go_on(code: int) -> None:
    intake = reading(Fetched())
    error = KafkaError(code, "gone")
    runs = intake._runs([Message(topic=WHEEL, partition=3, error=error), *records(0)])
    assert [run.place for run in runs] == [(WHEEL, 0)]
    assert intake._health.stopped == {f"{WHEEL}-3": Cause("out of the log's range: gone", CHOOSE_PROGRESS)}
    intake._runs([Message(error=error)])  # of no partition: there is nothing to stop
    assert len(intake._health.stopped) == 1
    assert intake._health.broker_error == "gone"
