"""What Kafka is asked for before a partition is read."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from connectors.testing import InMemoryKafka, ManualClock
from sidecar.errors import KafkaUnreachableError, StoppedWaitingError
from sidecar.intake.progress import LastRead, Mark, NoLeader, Start, Stop
from sidecar.intake.start_finder import DEFAULT_OFFSETS_RETENTION_MS, KafkaStartFinder
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.settings import Settings
from tests.support.logged import logged

TOPIC = "SCHEDULE_TOPIC_XXXX-1"
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


class Answer:
    """What `Consumer.committed` gives for a partition; a `TopicPartition` cannot be made with an error."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self.topic, self.partition, self.offset, self.metadata, self.error = TOPIC, 0, offset, "", error


class Group:
    """A consumer whose group has committed something; Kafka says so at last."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def committed(self, _asked: Sequence[TopicPartition], timeout: float) -> list[Answer]:
        assert timeout > 0
        return [self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]]


def admin_of_ten_records() -> Any:
    """An admin client of a cluster that has them in the topic."""
    kafka = InMemoryKafka(ManualClock())
    kafka.create_topic(TOPIC)
    producer = kafka.producer({})
    for number in range(10):
        producer.produce(TOPIC, b"%d" % number)
    while producer.flush(1):
        pass
    return kafka.process("sidecar").admin({})


def finder(
    *answers: Answer,
    is_stopping: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _words: None,
) -> KafkaStartFinder:
    admin = admin_of_ten_records()
    look = TopicAdmin(admin, Settings()).look
    return KafkaStartFinder(cast(Consumer, Group(*answers)), admin, look, ManualClock(), is_stopping, tell)


def test_progress_that_is_not_known_of_a_partition_is_not_taken_for_none() -> None:
    """The partition would be read from its beginning, and all that is in it sent again."""
    told: list[str] = []
    (found,) = finder(Answer(-1001, UNSTABLE), Answer(7), tell=told.append).find([(TOPIC, 0)]).values()
    assert isinstance(found, Start)
    assert found[:3] == (7, "", 10)
    (words,) = told
    assert all(part in words for part in ("committed progress", "UNSTABLE_OFFSET_COMMIT", "find-hanging"))


def test_who_begins_without_progress_is_warned_that_all_there_is_goes_out() -> None:
    """The group is new; or somebody has deleted its progress, or given it another name."""
    with logged() as logs:
        (found,) = finder(Answer(-1001)).find([(TOPIC, 0)]).values()
    assert isinstance(found, Start)
    assert found[:3] == (0, "", 10)
    (line,) = [line for line in logs if line["event"] == "no progress yet"]
    assert (line["partition"], line["read_from"], line["end"]) == (f"{TOPIC}-0", 0, 10)


def test_progress_at_the_first_offset_of_all_is_progress() -> None:
    """Taken for none, it would be without what stands beside it, and stop where the first record is from long ago."""
    committed = Answer(0)
    committed.metadata = '{"l":0}'
    with logged() as logs:
        (found,) = finder(committed).find([(TOPIC, 0)]).values()
    assert isinstance(found, Start)
    assert found[:3] == (0, '{"l":0}', 10)
    assert logs == []


def test_who_does_not_begin_is_not_told_that_all_there_is_goes_out() -> None:
    admin = admin_of_ten_records()
    clock = ManualClock()
    clock.advance(DEFAULT_OFFSETS_RETENTION_MS)
    starts = KafkaStartFinder(cast(Consumer, Group(Answer(-1001))), admin, TopicAdmin(admin, Settings()).look, clock)
    with logged() as logs:
        (found,) = starts.find([(TOPIC, 0)]).values()
    assert isinstance(found, Stop)
    assert logs == []


def test_a_log_that_has_lost_its_end_is_found_by_the_first_record_that_is_later_than_what_was_read() -> None:
    admin = admin_of_ten_records()
    asked: list[int] = []

    class Elected:
        """The same cluster, under leaders whose epoch it tells."""

        def list_offsets(self, specs: dict[TopicPartition, OffsetSpec], **options: Any) -> dict[TopicPartition, Any]:
            asked.extend(int(spec._value) for spec in specs.values())
            answers: dict[TopicPartition, Any] = admin.list_offsets(specs, **options)
            later: Future[ListOffsetsResultInfo] = Future()
            later.set_result(ListOffsetsResultInfo(4, 101, 3))
            return {place: later if int(specs[place]._value) == 101 else answers[place] for place in answers}

    committed = Answer(7)
    committed.metadata = Mark("", LastRead(8, 100, 2)).put_on("{}")
    look = TopicAdmin(admin, Settings()).look
    starts = KafkaStartFinder(cast(Consumer, Group(committed)), cast(AdminClient, Elected()), look, ManualClock())
    (stop,) = starts.find([(TOPIC, 0)]).values()
    assert isinstance(stop, Stop)
    assert "from offset 4 on the log holds other records" in stop.reason
    assert asked[-1] == 101


def test_progress_that_does_not_become_known_ends_the_attempt() -> None:
    with pytest.raises(KafkaUnreachableError, match="committed progress cannot be read"):
        finder(Answer(-1001, UNSTABLE)).find([(TOPIC, 0)])


def test_a_client_that_ends_is_not_asked_again() -> None:
    ends = KafkaError(KafkaError._DESTROY)
    with logged() as lines, pytest.raises(KafkaUnreachableError, match="committed progress cannot be read"):
        finder(Answer(-1001, ends), Answer(7)).find([(TOPIC, 0)])
    assert lines == []


def test_a_partition_without_a_leader_leaves_no_other_unanswered() -> None:
    kafka = InMemoryKafka(ManualClock())
    kafka.create_topic(TOPIC, 3)
    kafka.create_topic("SCHEDULE_TOPIC_XXXX-2")
    process = kafka.process("sidecar")
    admin: Any = process.admin({})
    consumer: Any = process.consumer({"group.id": "timewheel"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 2, 7)], asynchronous=False)
    starts = KafkaStartFinder(consumer, admin, TopicAdmin(admin, Settings()).look, ManualClock())
    for partition in (1, 2):
        kafka.take_leader(TOPIC, partition, 60_000)
    found = starts.find([(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), ("SCHEDULE_TOPIC_XXXX-2", 0)])
    ids = [kafka.topics[topic].id for topic in (TOPIC, "SCHEDULE_TOPIC_XXXX-2")]
    first, other = (Start(0, "", 0, mark=Mark(str(topic_id))) for topic_id in ids)
    assert list(found.values()) == [first, NoLeader(0), NoLeader(7), other]
    assert starts.find([(TOPIC, 1)]) == {(TOPIC, 1): NoLeader(0)}


def test_a_stop_is_heard_while_progress_is_not_known() -> None:
    stops = iter([False, True])
    with pytest.raises(StoppedWaitingError):
        finder(Answer(-1001, UNSTABLE), is_stopping=lambda: next(stops)).find([(TOPIC, 0)])


def test_a_stop_is_heard_while_no_leader_answers() -> None:
    kafka = InMemoryKafka(ManualClock())
    kafka.create_topic(TOPIC)
    admin: Any = kafka.process("sidecar").admin({})
    kafka.make_unavailable(3_600_000)
    look = TopicAdmin(admin, Settings()).look
    stops = iter([False, True])
    starts = KafkaStartFinder(
        cast(Consumer, Group(Answer(7))), admin, look, ManualClock(), is_stopping=lambda: next(stops)
    )
    with pytest.raises(StoppedWaitingError):
        starts.find([(TOPIC, 0)])
