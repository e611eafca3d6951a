"""`AsyncScheduledProducer` on a real broker: what is awaited is Kafka's answer, and the event loop is never held up."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import repeat

import pytest
from confluent_kafka import KafkaException

from connectors import AsyncScheduledProducer, ScheduleError, TopicNames
from connectors.testing import InMemoryKafka
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


def test_a_fatal_error_is_told_to_all_who_wait_and_scheduling_goes_on(kafka: Kafka, prefix: str) -> None:
    wheel = kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", max_message_bytes="1000")

    async def steps(producer: AsyncScheduledProducer) -> None:
        for _ in range(2):
            sends = [producer.send("orders", bytes(2_000), delay="1h") for _ in range(20)]
            async with asyncio.timeout(20):
                told = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(one, KafkaException) for one in told)
        assert (await producer.send("orders", "v", delay="1h")).offset == 0

    run(kafka, prefix, steps, **{"enable.gapless.guarantee": True})
    assert [record.value for record in kafka.read([wheel], 1)] == [b"v"]


def test_the_event_loop_turns_while_the_clients_queue_is_full(kafka: Kafka, prefix: str, wheel: str) -> None:
    async def steps(producer: AsyncScheduledProducer) -> None:
        sends = asyncio.gather(*(producer.send("orders", "v", delay="1h") for _ in range(3)))
        longest_s, loop = 0.0, asyncio.get_running_loop()
        while not sends.done():
            began_s = loop.time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, loop.time() - began_s)
        assert len(sends.result()) == 3
        assert longest_s < 0.5, "half the time for which the queue is full"

    run(kafka, prefix, steps, **{"queue.buffering.max.messages": 1, "linger.ms": 1_000})


def test_headers_that_can_be_read_once_outlast_a_full_queue(kafka: Kafka, prefix: str, wheel: str) -> None:
    async def steps(producer: AsyncScheduledProducer) -> None:
        sends = (
            producer.send("orders", "v", headers=iter([("UNIQ_KEY", f"id-{number}")]), delay="1h")
            for number in range(3)
        )
        assert {receipt.id for receipt in await asyncio.gather(*sends)} == {"id-0", "id-1", "id-2"}

    run(kafka, prefix, steps, **{"queue.buffering.max.messages": 1, "linger.ms": 50})


def test_who_waits_for_room_may_give_up_and_nobody_waits_for_a_closed_producer() -> None:
    async def application() -> None:
        nobody = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 1, "log_level": 0}
        producer = AsyncScheduledProducer(nobody)
        async with producer:
            first = asyncio.ensure_future(producer.send("orders", "v", delay="1h"))
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await producer.send("orders", "w", delay="1h")
            waiting = asyncio.ensure_future(producer.send("orders", "x", delay="1h"))
            assert await producer.close(0.2) == 1
        with pytest.raises(KafkaException, match="closed before Kafka has answered"):
            await first
        for late in (waiting, producer.send("orders", "y", delay="1h")):
            with pytest.raises(RuntimeError, match="is closed"):
                await late

    asyncio.run(application())


def test_nobody_waits_for_a_producer_whose_closing_was_given_up() -> None:
    async def application() -> None:
        producer = AsyncScheduledProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        async with producer:
            sending = asyncio.ensure_future(producer.send("orders", "v", delay="1h"))
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await producer.close(2)
            async with asyncio.timeout(5):
                with pytest.raises(KafkaException, match="closed before Kafka has answered"):
                    await sending

    asyncio.run(application())


def test_a_callback_of_the_users_that_raises_ends_nothing(kafka: Kafka, prefix: str, wheel: str) -> None:
    def fail(_statistics: str) -> None:
        raise RuntimeError("no")

    async def steps(producer: AsyncScheduledProducer) -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            async with asyncio.timeout(20):
                await producer.send("orders", "v", delay="1h")

    # confluent-kafka never frees what a callback raises, so that this client sees the broker's end.
    run(kafka, prefix, steps, **{"statistics.interval.ms": 20, "stats_cb": fail, "log_level": 0})


@pytest.mark.parametrize("times", [1, None])
def test_one_that_raises_while_it_is_closed_ends_nothing_either(
    kafka: Kafka, prefix: str, wheel: str, times: int | None
) -> None:
    async def steps() -> None:
        producer = AsyncScheduledProducer({"bootstrap.servers": kafka.bootstrap_servers}, names=TopicNames(prefix))
        async with producer:
            await producer.send("orders", "v", delay="1h")
            flush, raises = producer._producer.flush, repeat(RuntimeError("no"), *([times] if times else []))

            def failing(timeout_s: float) -> int:
                for error in raises:
                    raise error
                return flush(timeout_s)

            producer._producer.flush = failing  # type: ignore[method-assign]
            assert await producer.close(0.05) == 0
        assert producer._thread is not None
        assert not producer._thread.is_alive()

    asyncio.run(steps())


def test_it_is_a_context_manager(kafka: Kafka) -> None:
    async def application() -> None:
        producer = AsyncScheduledProducer({"bootstrap.servers": kafka.bootstrap_servers})
        with pytest.raises(RuntimeError, match="use the producer as 'async with"):
            await producer.send("orders", "v", delay="1h")

    asyncio.run(application())


def test_another_event_loop_is_refused_before_anything_is_written() -> None:
    """Its answer could not be awaited there, and whoever tries again would schedule twice."""
    kafka = InMemoryKafka()
    kafka.create_topic("SCHEDULE_TOPIC_XXXX-wheel")

    async def application() -> None:
        async with AsyncScheduledProducer({}, clients=kafka) as producer:
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(producer.send("orders", "v", delay="1h")))

    asyncio.run(application())
    assert kafka.log("SCHEDULE_TOPIC_XXXX-wheel", 0).end == 0
