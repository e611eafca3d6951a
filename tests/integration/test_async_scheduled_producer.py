"""`AsyncScheduledProducer` on a real broker: what is awaited is Kafka's answer, and the event loop is never held up."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaException

from connectors import AsyncScheduledProducer, ScheduleError, TopicNames
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

Steps = Callable[[AsyncScheduledProducer], Awaitable[None]]


@pytest.fixture
def wheel(kafka: Kafka, prefix: str) -> str:
    return kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", 3, message_timestamp_type="LogAppendTime")


def run(kafka: Kafka, prefix: str, steps: Steps, *, max_in_flight: int = 10_000, **config: object) -> None:
    async def application() -> None:
        options = {"bootstrap.servers": kafka.bootstrap_servers, **config}
        async with AsyncScheduledProducer(options, names=TopicNames(prefix), max_in_flight=max_in_flight) as producer:
            await steps(producer)

    asyncio.run(application())


def test_many_are_sent_together(kafka: Kafka, prefix: str, wheel: str) -> None:
    ids: dict[str, str] = {}

    async def steps(producer: AsyncScheduledProducer) -> None:
        at = datetime(2030, 1, 1, tzinfo=UTC)
        sends = (producer.send("orders", str(number), key=str(number), deliver_at=at) for number in range(2_000))
        for number, receipt in enumerate(await asyncio.gather(*sends)):
            assert receipt.deliver_ms == 1_893_456_000_000
            ids[receipt.id] = str(number)

    run(kafka, prefix, steps, max_in_flight=100)
    records = kafka.read([wheel], 2_000)
    assert {record.text("UNIQ_KEY"): (record.value or b"").decode() for record in records} == ids


def test_a_message_is_given_another_time_and_taken_back(kafka: Kafka, prefix: str, wheel: str) -> None:
    async def steps(producer: AsyncScheduledProducer) -> None:
        receipt = await producer.send("orders", "v", key="k", delay="1h")
        again = await producer.reschedule(receipt, delay="2h")
        assert (again.id, again.partition) == (receipt.id, receipt.partition)
        assert await producer.cancel(again) == (again.partition, again.offset + 1)

    run(kafka, prefix, steps)
    assert [record.text("UNIQ_KEY") == "" for record in kafka.read([wheel], 3)] == [False, False, True]


def test_what_kafka_does_not_take_is_raised_where_it_is_awaited(kafka: Kafka, prefix: str) -> None:
    async def steps(producer: AsyncScheduledProducer) -> None:
        with pytest.raises(KafkaException):
            await producer.send("orders", "there is no wheel topic", delay="1h")
        with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
            await producer.send("orders", bytes(2_000_000), delay="1h")
        with pytest.raises(ScheduleError, match="give one of"):
            await producer.send("orders", "v")

    run(kafka, prefix, steps, **{"message.timeout.ms": 500})


def test_the_event_loop_turns_while_kafka_is_waited_for(kafka: Kafka, prefix: str, wheel: str) -> None:
    async def steps(producer: AsyncScheduledProducer) -> None:
        turns = 0
        sending = asyncio.ensure_future(producer.send("orders", "v", delay="1h"))
        while not sending.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 1
        assert sending.result().offset == 0

    run(kafka, prefix, steps, **{"linger.ms": 50})


def test_whoever_waits_may_be_cancelled(kafka: Kafka, prefix: str, wheel: str) -> None:
    async def steps(producer: AsyncScheduledProducer) -> None:
        sending = asyncio.ensure_future(producer.send("orders", "v", delay="1h"))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await producer.send("orders", "w", delay="1h")).topic == "orders"

    run(kafka, prefix, steps)
    assert sorted(record.value or b"" for record in kafka.read([wheel], 2)) == [b"v", b"w"]


def test_it_is_a_context_manager(kafka: Kafka) -> None:
    async def application() -> None:
        producer = AsyncScheduledProducer({"bootstrap.servers": kafka.bootstrap_servers})
        with pytest.raises(RuntimeError, match="use the producer as 'async with"):
            await producer.send("orders", "v", delay="1h")

    asyncio.run(application())
