"""What a fatal error does to a producer, and how the library's producers outlive it, on either cluster.

With ``enable.gapless.guarantee`` a record that Kafka refuses is fatal: the one way there that a test can take at will.
"""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from connectors import ScheduledProducer, TopicNames
from connectors.lasting_producer import LastingProducer
from connectors.testing import InMemoryKafka
from tests.contract.cluster import Bench, read, read_to_end, refusal, values, wait_until

GAPLESS = {"enable.idempotence": True, "enable.gapless.guarantee": True}
TOO_LARGE = bytes(5_000)


@pytest.fixture
def small(bench: Bench) -> str:
    return bench.topic(1, max_message_bytes="1000")


class Told:
    """A delivery callback."""

    def __init__(self) -> None:
        self.codes: list[int | None] = []

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        self.codes.append(None if error is None else error.code())


def test_a_fatal_error_is_raised_once_then_all_is_told_and_nothing_more_is_taken(bench: Bench, small: str) -> None:
    producer, told = bench.cluster.producer(GAPLESS), Told()
    producer.produce(small, TOO_LARGE, on_delivery=told)
    raised: list[KafkaError] = []

    def has_failed() -> bool:
        try:
            producer.poll(0.1)
        except KafkaException as exception:
            raised.append(exception.args[0])
        return bool(raised)

    wait_until(has_failed, "the fatal error is raised")
    assert (raised[0].code(), raised[0].fatal()) == (KafkaError._GAPLESS_GUARANTEE, True)
    assert producer.flush(10) == 0
    assert told.codes == [KafkaError.MSG_SIZE_TOO_LARGE]
    refused = refusal(lambda: producer.produce(small, b"v"))
    assert (refused.code(), refused.fatal()) == (KafkaError._FATAL, False)


@pytest.mark.parametrize("is_noticed_by", ["poll", "flush", "produce"])
def test_another_takes_its_place_and_everybody_is_answered(bench: Bench, small: str, is_noticed_by: str) -> None:
    producer, lost, told = LastingProducer(bench.cluster, GAPLESS), Told(), Told()  # type: ignore[arg-type]
    first: Any = producer.client
    producer.produce(small, TOO_LARGE, None, 0, lost, None, 0, [])
    if is_noticed_by == "poll":
        wait_until(lambda: producer.poll(0.1) and lost.codes, "the one that was lost is told")
    elif is_noticed_by == "flush":
        assert producer.flush(10) == 0
    else:
        bench.produce(small, [b"of another"])  # the in-memory producer has its turn then
        wait_until(lambda: refuses(first, small), "the fatal error has come")
        producer.produce(small, b"first", None, 0, told, None, 0, [])
        assert producer.flush(10) == 0
    assert lost.codes == [KafkaError.MSG_SIZE_TOO_LARGE]
    if is_noticed_by != "produce":  # there is nothing to make another for
        assert producer.client is first
    producer.produce(small, b"last", None, 0, told, None, 0, [])
    assert producer.client is not first
    assert producer.flush(10) == 0
    assert set(told.codes) == {None}
    assert wait_until(lambda: values(read_to_end(bench.reader(small))[0])[-1] == b"last", "the last is there")


def refuses(client: Any, topic: str) -> bool:
    """Whether the client knows of its fatal error, without its being told."""
    try:
        client.produce(topic, None, partition=7)
    except KafkaException as exception:
        return bool(exception.args[0].code() == KafkaError._FATAL)
    return False


def test_scheduling_goes_on_after_a_fatal_error(bench: Bench) -> None:
    names = TopicNames(f"{bench.name}.")
    bench.topic(1, names.wheel, message_timestamp_type="LogAppendTime", max_message_bytes="1000")
    producer = ScheduledProducer({"enable.gapless.guarantee": True}, names=names, clients=bench.cluster)  # type: ignore[arg-type]
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.send("orders", TOO_LARGE, delay="1h")
    receipt = producer.send("orders", b"v", delay="1h")
    assert values(read(bench.reader(names.wheel), 1)) == [b"v"]
    assert producer.cancel(receipt) == (0, receipt.offset + 1)
    begun = [producer.begin_send("orders", value, delay="1h") for value in (b"w", b"x")]
    assert [pending.result().offset for pending in begun] == [receipt.offset + 2, receipt.offset + 3]
    assert values(read(bench.reader(names.wheel), 4)) == [b"v", None, b"w", b"x"]


def test_a_flush_without_a_limit_waits_for_as_long_as_it_takes() -> None:
    kafka, told = InMemoryKafka(), Told()
    kafka.create_topic("t")
    producer = LastingProducer(kafka, {})
    kafka.take_leader("t", 0, 60_000)
    producer.produce("t", b"v", None, 0, told, None, 0, [])
    assert producer.flush(1) == 1
    assert producer.flush(-1) == 0
    assert told.codes == [None]


def test_of_two_threads_that_find_it_lost_one_makes_another() -> None:
    """The records of a second one would be in nobody's hands."""
    producer = LastingProducer(InMemoryKafka(), {})
    lost = producer.client
    producer._replace(lost)
    second = producer.client
    producer._replace(lost)
    assert lost is not second
    assert producer.client is second


def test_what_a_lost_one_has_not_sent_is_given_up_with_the_rest() -> None:
    kafka, told = InMemoryKafka(), Told()
    kafka.create_topic("t")
    kafka.take_leader("t", 0, 60_000)
    producer = LastingProducer(kafka, {})
    producer.produce("t", b"of the lost one", None, 0, told, None, 0, [])
    producer._replace(producer.client)
    producer.produce("t", b"of the other", None, 0, told, None, 0, [])
    assert producer.give_up() == 0
    assert told.codes == [KafkaError._PURGE_QUEUE] * 2
