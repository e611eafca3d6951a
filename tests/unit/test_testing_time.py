"""The in-memory Kafka and time: waiting moves the clock, and time-outs happen on it."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.testing import Fault, InMemoryKafka, Kind, ManualClock, Process

MEMBER = {
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6_000,
}


def code(call: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        call()
    found: int = caught.value.args[0].code()
    return found


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("t", 2)
    return kafka


def advance(kafka: InMemoryKafka, ms: int) -> None:
    assert isinstance(kafka.clock, ManualClock)
    kafka.clock.advance(ms)


def subscribed(process: Process, told: list[tuple[str, int]], **config: Any) -> Any:
    consumer = process.consumer({**MEMBER, **{key.replace("_", "."): value for key, value in config.items()}})
    consumer.subscribe(
        ["t"],
        on_assign=lambda _c, places: told.append(("assign", len(places))),
        on_revoke=lambda _c, places: told.append(("revoke", len(places))),
        on_lost=lambda _c, places: told.append(("lost", len(places))),
    )
    consumer.poll(0)
    return consumer


def test_wall_and_monotonic_time_can_be_moved_apart() -> None:
    clock = ManualClock(1_000)
    clock.advance(500)
    clock.step_wall(-700)
    assert (clock.now_ms(), clock.monotonic_ms()) == (800, 500)
    with pytest.raises(ValueError, match="does not pass backwards"):
        clock.advance(-1)


def test_a_wait_for_nothing_passes_its_timeout(kafka: InMemoryKafka) -> None:
    consumer = kafka.consumer(MEMBER)
    consumer.assign([TopicPartition("t", 0, 0)])
    assert consumer.poll(0.037) is None
    assert kafka.clock.monotonic_ms() == 37
    assert consumer.poll(0) is None
    assert kafka.clock.monotonic_ms() == 37


def test_a_wait_can_be_spent_by_the_test() -> None:
    waited: list[int] = []
    clock = ManualClock()

    def wait(ms: int) -> None:
        waited.append(ms)
        clock.advance(ms)
        producer.produce("t", b"meanwhile", partition=0)
        producer.flush()

    kafka = InMemoryKafka(clock, wait=wait)
    kafka.create_topic("t")
    producer = kafka.producer({})
    consumer = kafka.consumer(MEMBER)
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(0.5)
    assert message is not None
    assert (message.value(), waited) == (b"meanwhile", [500])


def test_a_clock_that_cannot_be_moved_is_not_waited_for() -> None:
    class Frozen:
        def now_ms(self) -> int:
            return 5

        def monotonic_ms(self) -> float:
            return 5.0

    kafka = InMemoryKafka(Frozen())
    kafka.create_topic("t")
    consumer = kafka.consumer(MEMBER)
    consumer.assign([TopicPartition("t", 0, 0)])
    assert consumer.poll(10) is None


def test_an_endless_wait_for_what_never_comes_is_an_error(kafka: InMemoryKafka) -> None:
    with pytest.raises(TimeoutError, match="wait for ever"):
        kafka.consumer(MEMBER).poll()


def test_an_abandoned_transaction_times_out(kafka: InMemoryKafka) -> None:
    producer = kafka.producer({"transactional.id": "x", "transaction.timeout.ms": 10_000})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush()
    other = kafka.producer({})
    other.produce("t", b"behind", partition=0)
    other.flush()
    reader = kafka.consumer({**MEMBER, "isolation.level": "read_committed"})
    reader.assign([TopicPartition("t", 0, 0)])
    assert reader.poll(9.999) is None
    message = reader.poll(1)
    assert message is not None
    assert message.value() == b"behind"
    assert kafka.clock.monotonic_ms() == 10_000
    assert code(lambda: producer.commit_transaction(1)) == KafkaError._FENCED


def test_late_markers_hold_readers_and_progress(kafka: InMemoryKafka) -> None:
    reader = kafka.consumer({**MEMBER, "isolation.level": "read_committed"})
    reader.assign([TopicPartition("t", 0, 0)])
    producer = kafka.producer({"transactional.id": "x"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"late", partition=0)
    producer.send_offsets_to_transaction([TopicPartition("t", 1, 7)], reader.consumer_group_metadata(), 1)
    kafka.faults.at("commit_transaction:markers", Fault(Kind.LATE_MARKERS, ms=800))
    producer.commit_transaction(1)
    assert reader.poll(0.799) is None
    assert kafka.committed("g") == {}
    (answer,) = reader.committed([TopicPartition("t", 1)], 1)
    assert (answer.offset, kafka.clock.monotonic_ms()) == (7, 800)
    message = reader.poll(0)
    assert message is not None
    assert message.value() == b"late"


def test_a_sleeper_loses_its_partitions_and_is_told(kafka: InMemoryKafka) -> None:
    told: list[tuple[str, int]] = []
    sleeper = subscribed(kafka.process("sleeper"), told)
    stale = sleeper.consumer_group_metadata()
    other = subscribed(kafka.process("other"), [])
    other.poll(0)
    sleeper.poll(0)
    other.poll(0)
    assert len(other.assignment()) == 1
    kafka.suspend_client(sleeper)
    assert other.poll(7) is None
    assert len(other.assignment()) == 2
    producer = kafka.producer({"transactional.id": "x"})
    producer.init_transactions()
    for metadata in (stale, sleeper.consumer_group_metadata()):
        producer.begin_transaction()
        offsets = [TopicPartition("t", 0, 1)]
        refused = code(lambda: producer.send_offsets_to_transaction(offsets, metadata, 1))  # noqa: B023
        assert refused == KafkaError.UNKNOWN_MEMBER_ID
        producer.abort_transaction(1)
    assert sleeper.memberid() is None
    told.clear()
    sleeper.poll(0)
    assert told[0] == ("lost", 1)
    assert sleeper.memberid() != stale.member_id


def test_a_nap_costs_nothing(kafka: InMemoryKafka) -> None:
    told: list[tuple[str, int]] = []
    sleeper = subscribed(kafka.process("sleeper"), told)
    for _ in range(3):
        kafka.suspend_client(sleeper)
        advance(kafka, 5_999)
        sleeper.poll(0)
    assert told == [("assign", 2)]


def test_a_static_member_returns_within_its_session(kafka: InMemoryKafka) -> None:
    first = subscribed(kafka.process("one"), [], group_instance_id="i")
    kafka.kill_client(first)
    advance(kafka, 5_999)
    told: list[tuple[str, int]] = []
    subscribed(kafka.process("one"), told, group_instance_id="i")
    assert told == [("assign", 2)]
    assert kafka.groups.group("g").generation == 1


def test_a_dead_member_is_waited_for_until_its_session_ends(kafka: InMemoryKafka) -> None:
    dead = subscribed(kafka.process("dead"), [])
    kafka.kill_client(dead)
    told: list[tuple[str, int]] = []
    other = subscribed(kafka.process("other"), told)
    assert other.poll(5.9) is None
    assert told == []
    assert other.poll(0.2) is None
    assert told == [("assign", 2)]


def test_offsets_are_committed_now_and_then_where_that_is_automatic(kafka: InMemoryKafka) -> None:
    producer = kafka.producer({})
    producer.produce("t", b"0", partition=0)
    producer.flush()
    consumer = kafka.consumer({"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    consumer.poll(0)
    assert kafka.committed("g") == {}
    consumer.poll(5)
    consumer.poll(0)
    assert kafka.committed("g") == {("t", 0): (1, None)}
