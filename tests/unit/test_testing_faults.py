"""Faults of the in-memory Kafka: each kind does what its table says, and every label is reached."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType
from confluent_kafka.cimpl import NewTopic

from connectors.testing import CRASH, LABELS, POSSIBLE, TIME_OUT, Fault, InMemoryKafka, Kind, Process, SimulatedCrash


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("t")
    return kafka


def raised(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def transactional(process: InMemoryKafka | Process, **config: Any) -> Any:
    producer = process.producer({"transactional.id": "x", **config})
    producer.init_transactions(1)
    return producer


def visible(kafka: InMemoryKafka) -> list[bytes | None]:
    reader = kafka.consumer({"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False})
    reader.assign([TopicPartition("t", 0, 0)])
    return [message.value() for message in reader.consume(1_000, 0)]


def test_a_crash_kills_all_clients_of_the_process(kafka: InMemoryKafka) -> None:
    process = kafka.process("p")
    producer, admin = transactional(process), process.admin({})
    kafka.faults.at("produce:before")
    producer.begin_transaction()
    with pytest.raises(SimulatedCrash, match="p: produce:before"):
        producer.produce("t", b"x")
    for call in (
        lambda: admin.list_topics(timeout=1),
        lambda: producer.flush(0),
        lambda: producer.abort_transaction(1),
    ):
        with pytest.raises(SimulatedCrash):
            call()


def test_a_crash_is_no_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_before_a_commit_leaves_the_transaction_open(kafka: InMemoryKafka) -> None:
    kafka.faults.at("commit_transaction:sent")
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    with pytest.raises(SimulatedCrash):
        producer.commit_transaction(1)
    log = kafka.log("t", 0)
    assert log is not None
    assert (log.end, log.stable_end) == (1, 0)
    transactional(kafka)
    assert (log.end, log.stable_end) == (2, 2)
    assert visible(kafka) == []


def test_a_crash_after_a_commit_leaves_it_committed(kafka: InMemoryKafka) -> None:
    kafka.faults.at("commit_transaction:after")
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    with pytest.raises(SimulatedCrash):
        producer.commit_transaction(1)
    assert visible(kafka) == [b"x"]


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_commit_that_timed_out_is_repeated(kafka: InMemoryKafka, side: str) -> None:
    kafka.faults.at(f"commit_transaction:{side}", TIME_OUT)
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    error = raised(lambda: producer.commit_transaction(1))
    assert (error.code(), error.retriable(), error.fatal(), error.txn_requires_abort()) == (
        KafkaError._TIMED_OUT,
        True,
        False,
        False,
    )
    assert kafka.clock.monotonic_ms() == 1_000
    assert visible(kafka) == ([] if side == "before" else [b"x"])
    for call in (lambda: producer.abort_transaction(1), producer.begin_transaction):
        conflict = raised(call)
        assert (conflict.code(), conflict.retriable()) == (KafkaError._CONFLICT, True)
    producer.commit_transaction(1)
    producer.begin_transaction()
    assert visible(kafka) == [b"x"]


def test_offsets_that_timed_out_are_sent_again(kafka: InMemoryKafka) -> None:
    consumer = kafka.consumer({"group.id": "g"})
    producer = transactional(kafka)
    for label in ("send_offsets:before", "send_offsets:after"):
        kafka.faults.at(label, TIME_OUT)
        producer.begin_transaction()
        offsets, metadata = [TopicPartition("t", 0, 3)], consumer.consumer_group_metadata()
        assert raised(lambda: producer.send_offsets_to_transaction(offsets, metadata, 1)).retriable()  # noqa: B023
        producer.send_offsets_to_transaction(offsets, metadata, 1)
        producer.commit_transaction(1)
    assert kafka.committed("g") == {("t", 0): (3, None)}


def test_an_unavailable_broker_answers_again(kafka: InMemoryKafka) -> None:
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    kafka.make_unavailable(2_500)
    assert raised(lambda: producer.commit_transaction(1)).code() == KafkaError._TIMED_OUT
    assert producer.flush(1) == 1
    producer.commit_transaction(1)
    assert kafka.clock.monotonic_ms() == 2_500
    assert visible(kafka) == [b"x"]


def test_records_that_wait_too_long_fail(kafka: InMemoryKafka) -> None:
    told: list[int] = []
    producer = transactional(
        kafka, **{"message.timeout.ms": 1_000, "on_delivery": lambda error, _message: told.append(error.code())}
    )
    producer.begin_transaction()
    producer.produce("t", b"x")
    kafka.make_unavailable(2_500)
    assert producer.flush(2) == 0
    assert told == [KafkaError._MSG_TIMED_OUT]
    kafka.faults.stop()
    assert raised(lambda: producer.commit_transaction(3)).txn_requires_abort()
    producer.abort_transaction(1)


def test_a_moved_coordinator_is_retriable(kafka: InMemoryKafka) -> None:
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    kafka.faults.at("commit_transaction:before", Fault(Kind.NOT_COORDINATOR))
    error = raised(lambda: producer.commit_transaction(1))
    assert (error.code(), error.retriable()) == (KafkaError.NOT_COORDINATOR, True)
    producer.commit_transaction(1)
    assert visible(kafka) == [b"x"]


def test_an_abort_by_the_broker_takes_everything_back(kafka: InMemoryKafka) -> None:
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    kafka.faults.at("commit_transaction:before", Fault(Kind.ABORT))
    assert raised(lambda: producer.commit_transaction(1)).txn_requires_abort()
    assert raised(lambda: producer.commit_transaction(1)).txn_requires_abort()
    producer.abort_transaction(1)
    assert visible(kafka) == []


def test_a_fenced_producer_stays_fenced(kafka: InMemoryKafka) -> None:
    producer = transactional(kafka)
    producer.begin_transaction()
    producer.produce("t", b"x")
    kafka.faults.at("commit_transaction:before", Fault(Kind.FENCE))
    for _ in range(2):
        error = raised(lambda: producer.commit_transaction(1))
        assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    assert visible(kafka) == []


def test_refusals_are_by_topic_partition_and_size(kafka: InMemoryKafka) -> None:
    kafka.create_topic("other")
    told: list[tuple[bytes, int | None]] = []
    producer = kafka.producer({"on_delivery": lambda error, m: told.append((m.value(), error and error.code()))})
    rule = kafka.faults.refuse("t", partition=0, larger_than_bytes=3, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)

    def deliver(topic: str, value: bytes) -> None:
        producer.produce(topic, value, partition=0)
        producer.flush()

    deliver("t", b"123")
    deliver("t", b"1234")
    deliver("other", b"1234")
    kafka.faults.allow(rule)
    deliver("t", b"1234")
    assert [code for _, code in told] == [None, KafkaError.TOPIC_AUTHORIZATION_FAILED, None, None]


def test_a_short_read_returns_at_once_with_less(kafka: InMemoryKafka) -> None:
    producer = kafka.producer({})
    for _ in range(5):
        producer.produce("t", b"x", partition=0)
    consumer = kafka.consumer({"group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    kafka.faults.at("consume:before", Fault(Kind.SHORT_READ, count=2))
    assert len(consumer.consume(10, 1)) == 2
    assert len(consumer.consume(10, 0)) == 3


def test_an_expelled_member_is_told(kafka: InMemoryKafka) -> None:
    told: list[str] = []
    consumer = kafka.consumer({"group.id": "g"})
    consumer.subscribe(["t"], on_assign=lambda *_: told.append("assign"), on_lost=lambda *_: told.append("lost"))
    consumer.poll(0)
    kafka.faults.at("consume:before", Fault(Kind.EXPEL))
    consumer.poll(0)
    assert told == ["assign", "lost", "assign"]


def test_faults_can_be_meant_for_one_process(kafka: InMemoryKafka) -> None:
    kafka.faults.at("produce:before", CRASH, nth=2, process="b")
    a, b = kafka.process("a").producer({}), kafka.process("b").producer({})
    for producer in (a, a, a, b):
        producer.produce("t", b"x")
    with pytest.raises(SimulatedCrash):
        b.produce("t", b"x")


def test_impossible_appointments_are_refused(kafka: InMemoryKafka) -> None:
    with pytest.raises(ValueError, match="no label"):
        kafka.faults.at("nowhere:before")
    with pytest.raises(ValueError, match="does not happen at produce:before"):
        kafka.faults.at("produce:before", TIME_OUT)


def test_a_seed_gives_the_same_faults_again() -> None:
    def life(seed: int) -> list[tuple[str, str, Fault]]:
        kafka = InMemoryKafka()
        kafka.create_topic("t")
        kafka.faults.seed(random.Random(seed), 0.1)
        for _ in range(20):
            try:
                producer = transactional(kafka.process("p"))
                producer.begin_transaction()
                producer.produce("t", b"x")
                producer.commit_transaction(1)
            except (SimulatedCrash, KafkaException):
                continue
        return kafka.faults.injected

    assert life(1) == life(1) != life(2)
    assert all(fault.kind in POSSIBLE[label] for label, _, fault in life(1))


def test_every_label_is_reached(kafka: InMemoryKafka) -> None:
    process = kafka.process("p")
    admin = process.admin({})
    admin.create_topics([NewTopic("u", 2)])["u"].result()
    admin.list_topics()
    admin.describe_topics(TopicCollection(["u"]))["u"].result()
    resource = ConfigResource(ResourceType.TOPIC, "u")
    admin.describe_configs([resource])[resource].result()
    place = TopicPartition("u", 0)
    admin.list_offsets({place: OffsetSpec.latest()})[place].result()
    config = {"group.id": "g", "enable.auto.commit": False, "partition.assignment.strategy": "cooperative-sticky"}
    one, two = process.consumer(config), process.consumer(config)
    for consumer in (one, two):
        consumer.subscribe(["u"])
        consumer.poll(0)
    one.poll(0)
    producer = transactional(process)
    producer.begin_transaction()
    producer.produce("u", b"x")
    producer.flush()
    producer.poll(0)
    producer.send_offsets_to_transaction([TopicPartition("u", 0, 1)], one.consumer_group_metadata(), 1)
    producer.commit_transaction(1)
    producer.begin_transaction()
    producer.abort_transaction(1)
    one.commit(offsets=[TopicPartition("u", 0, 1)], asynchronous=False)
    one.committed([place], 1)
    one.get_watermark_offsets(place, 1)
    one.close()
    kafka.faults.at("consume:before", Fault(Kind.EXPEL))
    two.poll(0)
    two.poll(0)
    kafka.faults.at("consume:before", Fault(Kind.EXPEL))
    two.poll(0)
    admin.delete_records([TopicPartition("u", 0, 1)])
    admin.delete_topics(["u"])["u"].result()
    assert kafka.faults.unreached() == []
    assert set(kafka.faults.hits) == set(LABELS)
