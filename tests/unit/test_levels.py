"""One partition of a delay level: order, due times, progress, and a model of any sequence of its calls."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connectors.contract import Headers, TopicNames
from connectors.kafka import BY_KEY
from sidecar.dispatch import levels
from sidecar.dispatch.levels import LevelPartition, LevelProgress
from sidecar.intake.parse import PARSER_VERSION, Parser
from sidecar.records import Outgoing, Rejection
from tests.support.outages import no_outages

TOPIC, PARTITION = "SCHEDULE_TOPIC_XXXX-2", 4
DELAY_MS, SKEW_MS, NOW_MS = 5_000, 5_000, 1_000_000
MANY = 10**9


def a_partition(
    start_offset: int = 0,
    metadata: str | None = None,
    max_delay_ms: int = MANY,
    *,
    is_committed: bool = True,
    **limits: int,
) -> LevelPartition:
    return LevelPartition(
        TOPIC,
        PARTITION,
        DELAY_MS,
        start_offset=start_offset,
        progress=LevelProgress.decode(metadata),
        parser=Parser(TopicNames()),
        outages=no_outages(),
        max_delay_ms=max_delay_ms,
        max_clock_skew_ms=SKEW_MS,
        is_committed=is_committed,
        **{"max_records": MANY, "max_bytes": MANY, **limits},
    )


def a_message(offset: int, timestamp_ms: int = NOW_MS, headers: Headers | None = None, **parts: Any) -> Message:
    headers = [("REAL_TOPIC", b"orders")] if headers is None else headers
    return Message(
        topic=TOPIC,
        partition=PARTITION,
        offset=offset,
        headers=headers,
        timestamp=(2, timestamp_ms),
        **{"key": b"k%d" % offset, "value": b"v%d" % offset, **parts},
    )


def an_undeliverable(offset: int, **parts: Any) -> Message:
    """A record without a destination."""
    return a_message(offset, headers=[("TAGS", b"a")], **parts)


def offsets(records: Sequence[Outgoing]) -> list[int]:
    return [record[6] for record in records]


def take(partition: LevelPartition, now_ms: int = MANY, max_records: int = MANY, max_bytes: int = MANY) -> list[int]:
    return offsets(partition.take(now_ms, max_records, max_bytes))


def header(record: Outgoing, name: str) -> list[bytes | None]:
    return [value for key, value in record[4] if key == name]


# --- what goes out ----------------------------------------------------------------------------------------------------


def test_a_due_record_goes_out_as_it_came_with_its_id_and_its_time() -> None:
    partition = a_partition(start_offset=7)
    headers: Headers = [("TAGS", b"a"), ("REAL_TOPIC", b"orders"), ("TAGS", None), ("REAL_QID", b"3"), ("X", b"")]
    partition.offer([a_message(7, headers=headers)], NOW_MS)
    assert partition.take(NOW_MS + DELAY_MS, 10, MANY) == [
        (
            "orders",
            3,
            b"k7",
            b"v7",
            [
                ("TAGS", b"a"),
                ("TAGS", None),
                ("X", b""),
                ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-2-4-7"),
                ("TIMER_OUT_MS", b"1005000"),
            ],
            1_005_000,
            7,
            headers,
        )
    ]


def test_an_id_of_its_own_is_kept_and_generated_headers_are_replaced() -> None:
    partition = a_partition()
    headers: Headers = [("UNIQ_KEY", b"mine"), ("REAL_TOPIC", b"orders"), ("TIMER_OUT_MS", b"1"), ("UNIQ_KEY", b"last")]
    partition.offer([a_message(0, headers=headers)], NOW_MS)
    (record,) = partition.take(MANY, 10, MANY)
    assert header(record, "UNIQ_KEY") == [b"last"]
    assert header(record, "TIMER_OUT_MS") == [b"1005000"]
    assert record[1] == BY_KEY


@pytest.mark.parametrize("value", [None, b"", b"\x00\xff", bytes(2**20)], ids=["tombstone", "empty", "bytes", "1 MB"])
@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_any_key_and_value_go_through_untouched(key: bytes | None, value: bytes | None) -> None:
    partition = a_partition()
    partition.offer([a_message(0, key=key, value=value)], NOW_MS)
    (record,) = partition.take(MANY, 10, 1)
    assert record[2:4] == (key, value)
    assert partition.waiting == 0


@pytest.mark.parametrize(
    ("timestamp_ms", "first_seen_ms", "due_ms"),
    [
        (1_000_000, 1_000_010, 1_005_000),
        (1_000_000, 999_998, 1_005_000),  # the broker's clock is 2 ms ahead: not early
        (9_000_000, 1_000_000, 1_010_000),  # a timestamp from the future does not block the partition
        (100, 1_000_000, 5_100),  # overdue: at once
        (1_005_000, 1_000_000, 1_010_000),  # the last timestamp that is believed
        (1_005_001, 1_000_000, 1_010_000),
    ],
)
def test_a_record_is_due_by_its_timestamp_and_not_a_moment_sooner(
    timestamp_ms: int, first_seen_ms: int, due_ms: int
) -> None:
    partition = a_partition()
    partition.offer([a_message(0, timestamp_ms)], first_seen_ms)
    assert partition.next_due_ms == due_ms
    assert take(partition, due_ms - 1) == []
    (record,) = partition.take(due_ms, 10, MANY)
    assert record[5] == due_ms
    assert header(record, "TIMER_OUT_MS") == [b"%d" % due_ms]


def test_what_was_cut_by_a_clock_that_was_behind_is_read_again_by_the_clock_as_it_was_set() -> None:
    partition = a_partition()
    partition.offer([a_message(0)], NOW_MS)
    partition.offer([an_undeliverable(1), a_message(2, NOW_MS + 600_000)], NOW_MS)
    partition.offer([a_message(3), an_undeliverable(4)], NOW_MS)
    assert partition.unsee()
    assert partition.position == 2
    assert partition.waiting == 2
    partition.offer([a_message(2, NOW_MS + 600_000), a_message(3), an_undeliverable(4)], NOW_MS + 600_000)
    assert not partition.unsee()
    assert take(partition, NOW_MS + 600_000 + DELAY_MS - 1) == [1, 4, 0]
    partition.confirm()
    assert take(partition, NOW_MS + 600_000 + DELAY_MS) == [2, 3]


def test_a_clock_that_is_set_forward_has_nothing_read_again_that_was_not_cut() -> None:
    partition = a_partition()
    partition.offer([a_message(0, NOW_MS + SKEW_MS - 1), a_message(1)], NOW_MS)
    assert not partition.unsee()
    assert partition.position == 2


def test_records_go_out_in_the_order_of_their_offsets_whatever_their_timestamps_say() -> None:
    partition = a_partition()
    partition.offer([a_message(0, NOW_MS + 9), a_message(1, NOW_MS)], NOW_MS)
    assert take(partition, NOW_MS + DELAY_MS + 8) == []
    assert take(partition, NOW_MS + DELAY_MS + 9) == [0, 1]


def test_each_record_is_told_its_own_due_time() -> None:
    partition = a_partition()
    partition.offer([a_message(at, NOW_MS + at // 2) for at in range(6)], NOW_MS)
    for record in partition.take(MANY, 10, MANY):
        assert header(record, "TIMER_OUT_MS") == [b"%d" % (NOW_MS + DELAY_MS + record[6] // 2)]


def test_what_was_read_before_is_not_taken_in_twice() -> None:
    partition = a_partition(start_offset=5)
    partition.offer([a_message(offset) for offset in (3, 4, 5, 6)], NOW_MS)
    partition.offer([a_message(6), a_message(7)], NOW_MS)
    assert take(partition) == [5, 6, 7]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_transaction_takes_no_more_records_than_it_may() -> None:
    partition = a_partition()
    partition.offer([a_message(offset) for offset in range(5)], NOW_MS)
    for expected in ([0, 1], [2, 3], [4], []):
        assert take(partition, max_records=2) == expected
        partition.confirm()


@pytest.mark.parametrize("made", [a_message, an_undeliverable])
def test_a_transaction_takes_about_as_many_bytes_as_it_may_but_always_one_record(made: Callable[..., Message]) -> None:
    partition = a_partition()
    partition.offer([made(offset, value=bytes(10_000)) for offset in range(5)], NOW_MS)
    assert take(partition, max_bytes=25_000) == [0, 1, 2]
    partition.confirm()
    assert take(partition, max_bytes=1) == [3]


def test_a_partition_is_full_by_records_or_by_bytes_and_has_room_again_at_half() -> None:
    for limits in ({"max_records": 4}, {"max_bytes": 40_000}):
        partition = a_partition(**limits)
        for offset in range(4):
            assert not partition.is_full
            partition.offer([a_message(offset, value=bytes(9_999))], NOW_MS)
        assert partition.is_full
        assert not partition.has_room
        take(partition, max_records=1)
        assert not partition.is_full
        assert not partition.has_room
        partition.put_back()
        assert partition.is_full
        take(partition, max_records=3)
        assert partition.has_room
        assert partition.waiting == 1


@pytest.mark.parametrize(
    ("sizes", "most"),
    [([0] + [10_000] * 9, {"max_records": 9}), ([10_000] + [0] * 9, {"max_bytes": 20_000})],
    ids=["larger than told", "smaller than told"],
)
def test_what_has_gone_out_counts_no_more_though_sizes_are_known_about_only(
    sizes: list[int], most: dict[str, int]
) -> None:
    """The first of a few records stands for all of them, as far as keys and headers go."""

    def read(partition: LevelPartition) -> None:
        begin = partition.position
        headers: list[Headers] = [[("REAL_TOPIC", b"orders"), ("X", bytes(size))] for size in sizes]
        partition.offer([a_message(begin + n, headers=each, key=b"k") for n, each in enumerate(headers)], NOW_MS)

    def batches_until_full(partition: LevelPartition) -> int:
        for count in range(1_000):
            if partition.is_full:
                return count
            read(partition)
        raise AssertionError("it is never full")

    partition = a_partition(max_bytes=1_000_000)
    for _ in range(100):
        read(partition)
        take(partition, **most)
        partition.confirm()
        take(partition)
        partition.confirm()
    assert partition.waiting == 0
    assert batches_until_full(partition) == batches_until_full(a_partition(max_bytes=1_000_000))


# --- undeliverable records --------------------------------------------------------------------------------------------


def test_an_undeliverable_record_is_rejected_when_it_is_read() -> None:
    partition = a_partition()
    partition.offer([a_message(0), an_undeliverable(1), a_message(2)], NOW_MS)
    assert partition.next_due_ms is not None
    assert partition.next_due_ms <= NOW_MS
    (letter,) = partition.take(NOW_MS, 10, MANY)
    rejection, *rest = letter
    assert isinstance(rejection, Rejection)
    assert rejection.code == "MISSING_REAL_TOPIC"
    assert rest[:3] == [BY_KEY, b"k1", b"v1"]
    assert (letter[6], letter[7]) == (1, [("TAGS", b"a")])


def test_a_level_beyond_the_longest_delay_rejects_its_records_in_their_turn() -> None:
    partition = a_partition(max_delay_ms=DELAY_MS - 1)
    partition.offer([a_message(0), a_message(1)], NOW_MS)
    letters = partition.take(NOW_MS, 10, MANY)
    assert [isinstance(letter[0], Rejection) and letter[0].code for letter in letters] == ["DELAY_TOO_LONG"] * 2
    assert partition.progress == (2, "{}")


@pytest.mark.parametrize("error", [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), SystemError("exception set")])
def test_a_record_whose_headers_cannot_be_read_is_rejected_and_holds_up_nothing(error: Exception) -> None:
    class Unreadable(Message):
        def headers(self) -> list[tuple[str, bytes]]:
            raise error

    partition = a_partition()
    unreadable = Unreadable(topic=TOPIC, partition=PARTITION, offset=0, key=b"k", value=b"v", timestamp=(2, NOW_MS))
    partition.offer([unreadable, a_message(1)], NOW_MS)
    letter, record = partition.take(MANY, 10, MANY)
    assert isinstance(letter[0], Rejection)
    assert letter[0].code == "UNREADABLE_HEADERS"
    assert letter[2:4] == (b"k", b"v")
    assert record[6] == 1


def test_progress_says_how_far_ahead_of_its_offset_records_were_rejected() -> None:
    partition = a_partition()
    partition.offer([a_message(0), an_undeliverable(1), a_message(2), an_undeliverable(3), a_message(4)], NOW_MS)
    assert take(partition, NOW_MS) == [1, 3]
    offset, metadata = partition.progress
    assert offset == 0
    assert LevelProgress.decode(metadata).rejected_below == 4
    partition.confirm()
    again = a_partition(offset, metadata)
    again.offer([a_message(0), an_undeliverable(1), a_message(2), an_undeliverable(3), an_undeliverable(4)], NOW_MS)
    assert take(again) == [4, 0, 2]


def test_what_stands_in_the_place_of_lost_rejected_records_is_rejected_too() -> None:
    partition = a_partition()
    partition.offer([a_message(0), an_undeliverable(1), an_undeliverable(2), an_undeliverable(3)], NOW_MS)
    assert take(partition, NOW_MS) == [1, 2, 3]
    offset, metadata = partition.progress
    partition.confirm()
    again = a_partition(offset, metadata)
    again.lost_end(2)
    again.offer([a_message(0), an_undeliverable(1), an_undeliverable(2), a_message(3)], NOW_MS)
    assert take(again) == [2, 0, 3]


def test_a_rejection_that_was_not_taken_is_not_lost_at_a_restart() -> None:
    partition = a_partition()
    partition.offer([an_undeliverable(0), an_undeliverable(1), an_undeliverable(2)], NOW_MS)
    assert take(partition, max_records=1) == [0]
    assert partition.progress[0] <= 1
    again = a_partition(*partition.progress)
    again.offer([an_undeliverable(1), an_undeliverable(2)], NOW_MS)
    assert take(again) == [1, 2]


def test_a_rejection_read_while_a_transaction_is_in_hand_is_not_lost_at_a_restart() -> None:
    partition = a_partition()
    partition.offer([a_message(0)], NOW_MS)
    assert take(partition) == [0]
    partition.offer([an_undeliverable(1)], NOW_MS)  # read while Kafka acknowledges
    assert partition.progress[0] == 1


def test_a_rejection_that_was_put_back_is_rejected_again() -> None:
    partition = a_partition()
    partition.offer([a_message(0), an_undeliverable(1)], NOW_MS)
    assert take(partition, NOW_MS) == [1]
    partition.offer([an_undeliverable(2)], NOW_MS)
    partition.put_back()
    assert LevelProgress.decode(partition.progress[1]).rejected_below <= 1
    assert take(partition, NOW_MS) == [1, 2]


@pytest.mark.parametrize(
    "metadata", [None, "", "{}", "other", "[]", '{"r":"1"}', '{"r":-', f'{{"r":7,"p":{PARSER_VERSION + 1}}}']
)
def test_metadata_that_is_not_of_this_parser_reads_as_no_progress(metadata: str | None) -> None:
    assert LevelProgress.decode(metadata) == LevelProgress()


def test_what_was_rejected_by_other_rules_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to an earlier version nor to a later one: by the rules of either it might be deliverable."""
    before = LevelProgress(rejected_below=7).encode()
    with monkeypatch.context() as newer:
        newer.setattr(levels, "PARSER_VERSION", PARSER_VERSION + 1)
        assert LevelProgress.decode(before).rejected_below == 0
        after = LevelProgress(rejected_below=7).encode()
        assert LevelProgress.decode(after).rejected_below == 7
    assert LevelProgress.decode(after).rejected_below == 0


def test_metadata_reads_back() -> None:
    assert LevelProgress.decode(LevelProgress(rejected_below=7).encode()).rejected_below == 7


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_the_first_offset_that_is_not_published() -> None:
    partition = a_partition(start_offset=10)
    assert partition.progress == (10, LevelProgress().encode())
    assert not partition.has_progress
    partition.offer([a_message(offset) for offset in (10, 12, 15)], NOW_MS)
    assert partition.progress[0] == 10
    take(partition, max_records=2)
    assert partition.progress[0] == 15
    partition.put_back()
    assert partition.progress[0] == 10
    take(partition)
    assert partition.progress[0] == 16
    partition.confirm()
    assert not partition.has_progress


def test_what_waits_under_no_progress_is_committed_once() -> None:
    partition = a_partition(start_offset=3, is_committed=False)
    assert not partition.has_progress
    partition.offer([a_message(3)], NOW_MS)
    for settle in (partition.put_back, partition.confirm):
        assert partition.has_progress
        assert take(partition, max_records=0) == []
        assert partition.progress[0] == 3
        settle()
    assert not partition.has_progress


def test_the_end_of_the_log_moves_progress_over_offsets_without_records() -> None:
    partition = a_partition()
    partition.reached_end(9)
    assert partition.has_progress
    assert partition.take(NOW_MS, 0, 0) == []
    assert partition.progress[0] == 9
    partition.confirm()
    assert not partition.has_progress
    partition.offer([a_message(12)], NOW_MS)
    partition.reached_end(14)
    assert partition.progress[0] == 12
    assert take(partition) == [12]
    assert partition.progress[0] == 14
    partition.reached_end(3)
    assert partition.position == 14


# --- the model --------------------------------------------------------------------------------------------------------


class LevelMachine(RuleBasedStateMachine):
    """The model: every record of the log by offset, how often each was published, and the last commit."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Message] = []
        self.published: dict[int, int] = {}
        self.committed: tuple[int, str | None] = (0, None)
        self.now_ms = NOW_MS
        self.next_offset = 0
        self.restart()

    # What happened to each record; a record is open from being read until it is committed.

    @property
    def open(self) -> list[Message]:
        """Records that were read and are neither published nor in the transaction in hand."""
        in_hand = offsets(self.in_hand or [])
        read = self.log[: self.read]
        return [message for message in read if message.offset() not in (*self.published, *in_hand)]

    @rule(
        kinds=st.lists(st.tuples(st.booleans(), st.integers(0, 2_000), st.integers(-3_000, 9_000)), max_size=5),
        gap=st.integers(0, 3),
    )
    def write(self, kinds: list[tuple[bool, int, int]], gap: int) -> None:
        """Producers append records, some of which cannot be delivered; transaction markers leave a gap."""
        for deliverable, size_bytes, ahead_ms in kinds:
            make = a_message if deliverable else an_undeliverable
            message = make(self.next_offset, timestamp_ms=self.now_ms + ahead_ms, value=bytes(size_bytes))
            self.log.append(message)
            self.next_offset += 1
        self.next_offset += gap

    @rule(count=st.integers(1, 8))
    def offer(self, count: int) -> None:
        batch = self.log[self.read : self.read + count]
        if batch:
            self.partition.offer(batch, self.now_ms)
            for message in batch:
                self.first_seen_ms[message.offset()] = self.now_ms
        self.read += len(batch)
        if self.read == len(self.log):
            self.partition.reached_end(self.next_offset)

    @rule(by_ms=st.sampled_from([1, 700, 5_000, 20_000]))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @precondition(lambda self: self.in_hand is None)
    @rule(by_ms=st.sampled_from([1_001, 3_000, 20_000]))
    def set_the_clock_forward(self, by_ms: int) -> None:
        """What is read again is first seen by the clock as it is now; whatever was cut by the one before is."""
        self.now_ms += by_ms
        held = [message.offset() for message in self.open if self.is_deliverable(message)]
        if self.partition.unsee():
            self.read = sum((message.offset() or 0) < self.partition.position for message in self.log)
            held = [offset for offset in held if (offset or 0) < self.partition.position]
        timestamps_ms = {message.offset(): message.timestamp()[1] for message in self.log}
        assert all(timestamps_ms[offset] < self.first_seen_ms[offset] + SKEW_MS for offset in held)

    @precondition(lambda self: self.in_hand is None)
    @rule(max_records=st.integers(1, 6), max_bytes=st.sampled_from([1, 1_500, 4_000, MANY]))
    def take(self, max_records: int, max_bytes: int) -> None:
        open_before = self.open
        taken = self.partition.take(self.now_ms, max_records, max_bytes)
        letters = [record for record in taken if isinstance(record[0], Rejection)]
        records = taken[len(letters) :]
        undeliverable = [message.offset() for message in open_before if not self.is_deliverable(message)]
        deliverable = [message for message in open_before if self.is_deliverable(message)]
        # Rejected records first, then those that are due, each from the oldest on.
        assert offsets(letters) == undeliverable[: len(letters)]
        assert offsets(records) == [message.offset() for message in deliverable[: len(records)]]
        assert all(record[5] == self.due_ms(record[6]) <= self.now_ms for record in records)
        # Within the limits, and never fewer than the limits allow.
        assert len(taken) <= max_records
        assert sum(len(record[3] or b"") for record in records[:-1]) < max_bytes
        is_filled = len(taken) == max_records or sum(len(record[3] or b"") + 1_000 for record in taken) >= max_bytes
        if not is_filled:
            assert len(letters) == len(undeliverable)
            left = deliverable[len(records) :]
            assert not left or self.due_ms(left[0].offset()) > self.now_ms
        self.in_hand = taken
        self.told = self.partition.progress

    @precondition(lambda self: self.in_hand is not None)
    @rule()
    def commit(self) -> None:
        self.committed = self.told
        self.partition.confirm()
        for offset in offsets(self.in_hand or []):
            self.published[offset] = self.published.get(offset, 0) + 1
        self.in_hand = None
        assert self.partition.has_progress == (self.partition.progress[0] > self.committed[0])

    @precondition(lambda self: self.in_hand is not None)
    @rule()
    def abort(self) -> None:
        self.partition.put_back()
        self.in_hand = None

    @precondition(lambda self: self.in_hand is None and self.partition.has_progress)
    @rule()
    def commit_idle_progress(self) -> None:
        self.partition.take(NOW_MS, 0, 0)
        self.committed = self.partition.progress
        self.partition.confirm()

    @rule()
    def restart(self) -> None:
        """A kill: the open transaction is aborted, and another life begins at the committed progress."""
        offset, metadata = self.committed
        self.partition = a_partition(offset, metadata, max_records=4, max_bytes=5_000)
        self.read = sum(message.offset() < offset for message in self.log)
        self.in_hand: list[Outgoing] | None = None
        self.first_seen_ms: dict[int | None, int] = {}

    @invariant()
    def progress_is_the_first_record_that_is_not_published(self) -> None:
        first = self.open[0].offset() if self.open else self.partition.position
        assert self.partition.progress[0] == first

    @invariant()
    def no_record_is_published_twice(self) -> None:
        assert all(count == 1 for count in self.published.values())

    @invariant()
    def what_waits_is_counted(self) -> None:
        assert self.partition.waiting == len(self.open)
        assert not (self.partition.is_full and self.partition.has_room)

    def teardown(self) -> None:
        """After a last restart and enough time, everything is published once."""
        self.restart()
        self.offer(len(self.log))
        self.now_ms += MANY
        self.take(MANY, MANY)
        self.commit()
        self.no_record_is_published_twice()
        assert sorted(self.published) == [message.offset() for message in self.log]
        assert self.partition.progress[0] == self.next_offset

    @staticmethod
    def is_deliverable(message: Message) -> bool:
        return ("REAL_TOPIC", b"orders") in (message.headers() or [])

    def due_ms(self, offset: int | None) -> int:
        message = next(message for message in self.log if message.offset() == offset)
        return min(message.timestamp()[1], self.first_seen_ms[offset] + SKEW_MS) + DELAY_MS


TestLevelModel = LevelMachine.TestCase
TestLevelModel.settings = settings(max_examples=150, stateful_step_count=40)
