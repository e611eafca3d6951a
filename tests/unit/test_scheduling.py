"""`ScheduledProducer` and its asyncio twin, on the in-memory Kafka: what needs no broker to be told."""

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors import AsyncScheduledProducer, PendingReceipt, Receipt, ScheduledProducer, ScheduleError
from connectors.contract import ErrorCode, TopicNames
from connectors.event_log import begin_anew
from connectors.receipt import ReceiptError
from connectors.testing import InMemoryKafka, ManualClock
from sidecar.intake.copies import Copied, Copies
from sidecar.intake.parse import Parser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.plan import Plan
from sidecar.records import Rejection


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("SCHEDULE_TOPIC_XXXX-wheel", "SCHEDULE_TOPIC_XXXX-3", "SCHEDULE_TOPIC_XXXX-18"):
        kafka.create_topic(topic)
    return kafka


def test_what_was_scheduled_before_is_no_answer_to_when(kafka: InMemoryKafka) -> None:
    producer = ScheduledProducer({}, clients=kafka)
    for when in ({"delay_ms": 250}, {"delay": "1s"}, {"level": 3}):
        producer.begin_send("orders", b"v", **when)
        with pytest.raises(ScheduleError, match="give one of"):
            producer.begin_send("orders", b"v")


@pytest.mark.parametrize(("level", "topic", "delay_ms"), [(3, 3, 10_000), (99, 18, 7_200_000)])
def test_levels_are_the_default_ones_unless_others_are_given(
    kafka: InMemoryKafka, level: int, topic: int, delay_ms: int
) -> None:
    receipt = ScheduledProducer({}, clients=kafka).send("orders", "v", level=level)
    assert receipt.schedule_topic == f"SCHEDULE_TOPIC_XXXX-{topic}"
    assert receipt.deliver_ms - kafka.clock.now_ms() == delay_ms


def test_what_a_callback_raises_is_logged_and_comes_out_of_no_other_call(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    begin_anew()
    producer = ScheduledProducer({}, clients=kafka)

    def fail(_told: object) -> None:
        raise RuntimeError("the user's own")

    pending = producer.begin_send("orders", "v", fail, delay="1h")
    receipt = producer.send("orders", "v", delay="1h")
    producer.begin_cancel(receipt, fail)
    assert producer.begin_send("orders", "v", fail, delay="1h").result().offset == 3
    assert (pending.result().offset, receipt.offset, producer.flush()) == (0, 1, 0)
    assert [record.event for record in caplog.records] == ["receipt callback failed"] * 3  # type: ignore[attr-defined]
    assert "the user's own" in caplog.text


def test_a_callback_may_begin_more_and_wait_for_nothing(kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture) -> None:
    begin_anew()
    producer = ScheduledProducer({}, clients=kafka)
    kept = producer.send("orders", "v", delay="1h")
    waits: list[Callable[[], object]] = [
        producer.poll,
        producer.flush,
        lambda: producer.cancel(kept),
        lambda: producer.send("orders", "v", delay="1h"),
        lambda: producer.begin_send("orders", "v", delay="1h").result(),
    ]
    for wait in waits:
        producer.begin_send("orders", "v", lambda _: wait(), delay="1h")  # noqa: B023
        producer.flush()
    assert caplog.text.count("cannot wait for Kafka") == len(waits)
    more: list[PendingReceipt] = []
    producer.begin_send(
        "orders", "v", lambda _: more.append(producer.begin_send("orders", "w", delay="1h")), delay="1h"
    )
    producer.flush()
    producer.flush()
    assert more[0].is_answered


WAITS_IN_A_CALLBACK = """
from connectors import ScheduledProducer

producer = ScheduledProducer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 200, "log_level": 0})
told = []

def wait(answer):
    told.append(answer)
    producer.flush()

for _ in range(3):
    producer.begin_send("orders", "v", wait, delay="1h")
print(producer.flush(), len(told))
"""


def test_a_callback_that_waits_does_not_end_the_process() -> None:
    """As the client itself would have it."""
    program = [sys.executable, "-c", WAITS_IN_A_CALLBACK]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("0 3\n", 0), ended.stderr


def leave(kafka: InMemoryKafka, pendings: list[PendingReceipt], error: Exception | None = None) -> None:
    with ScheduledProducer({}, clients=kafka) as producer:
        kafka.make_unavailable(3_600_000)
        pendings.append(producer.begin_send("orders", "v", delay="1h"))
        if error is not None:
            raise error


def test_an_async_producer_has_room_for_one_record_at_least(kafka: InMemoryKafka) -> None:
    with pytest.raises(ValueError, match="max_in_flight is 0; the least is 1"):
        AsyncScheduledProducer({}, clients=kafka, max_in_flight=0)


def test_a_record_that_the_client_refuses_is_not_kept_in_memory() -> None:
    producer = ScheduledProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    is_there = weakref.ref(producer)
    with suppress(KafkaException):
        producer.begin_send("orders", bytes(2_000_000), delay="1h")
    del producer
    gc.collect()
    assert is_there() is None


def test_what_is_unanswered_at_the_end_is_raised_and_its_receipt_has_an_error(kafka: InMemoryKafka) -> None:
    pendings: list[PendingReceipt] = []
    with pytest.raises(KafkaException, match="1 records had no answer"):
        leave(kafka, pendings)
    assert pendings[0].is_answered
    with pytest.raises(KafkaException, match="_PURGE_QUEUE"):
        pendings[0].result()


def test_a_callback_that_is_told_at_the_end_may_wait_for_nothing(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    begin_anew()
    told: list[object] = []

    def fall_back(answer: object) -> None:
        told.append(answer)
        producer.send("fallback", "v", delay="1m")

    producer = ScheduledProducer({}, clients=kafka)
    kafka.make_unavailable(3_600_000)
    producer.begin_send("orders", "v", fall_back, delay="1h")
    with pytest.raises(KafkaException, match="1 records had no answer"):
        producer.__exit__(None, None, None)
    assert len(told) == 1
    assert "cannot wait for Kafka" in caplog.text


def test_an_exception_of_the_users_is_not_hidden_by_what_is_unanswered(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    begin_anew()
    pendings: list[PendingReceipt] = []
    with pytest.raises(ZeroDivisionError):
        leave(kafka, pendings, ZeroDivisionError())
    assert "1 records had no answer" in caplog.text
    error = pendings[0].error
    assert error is not None
    assert error.code() == KafkaError._PURGE_QUEUE


@pytest.mark.parametrize("given", [None, {"receipt": "a"}, b"a", 5])
def test_what_is_no_receipt_is_told(kafka: InMemoryKafka, given: Any) -> None:
    producer = ScheduledProducer({}, clients=kafka)
    for change in (producer.cancel, lambda it: producer.reschedule(it, delay="1s")):
        with pytest.raises(ReceiptError, match="is not a receipt; pass a Receipt"):
            change(given)


def test_another_time_does_not_wait_for_a_transaction_that_is_open_on_the_schedule_topic(kafka: InMemoryKafka) -> None:
    other = kafka.producer({"transactional.id": "another"})
    other.init_transactions(1)
    other.begin_transaction()
    other.produce("SCHEDULE_TOPIC_XXXX-wheel", b"open")
    other.flush(1)
    producer = ScheduledProducer({}, clients=kafka)
    receipt = producer.send("orders", b"v", delay="1h")
    assert producer.reschedule(receipt, delay="2h").offset == receipt.offset + 1


def test_a_copy_that_is_given_another_time_is_held_to_the_longest_delay_again(kafka: InMemoryKafka) -> None:
    """Receipts that pending lists may be of copies, which the sidecar knows by a proof among their headers."""
    wheel, copies = TopicNames().wheel, Copies(b"key")
    before = Receipt(schedule_topic=wheel, partition=0, offset=1, id="m", topic="orders", deliver_ms=9)
    writer = kafka.producer({})
    writer.produce(wheel, b"the original")
    writer.produce(wheel, b"v", headers=[("REAL_TOPIC", b"orders"), *copies.headers(b"m", 9, Copied(0, 1, 7, 8))])
    writer.flush()
    again = ScheduledProducer({}, clients=kafka).reschedule(before, delay="2s")
    log = kafka.log(wheel, 0)
    assert log is not None
    written = log.entries[again.offset][3] or []
    plan = Plan(roll_window_ms=10_000, precision_ms=1_000, max_delay_ms=1_999, levels="1s")
    judged = WheelParser(Parser(TopicNames()), wheel, 0, copies).parse(written, again.offset, 0, plan)
    assert isinstance(judged, Rejection)
    assert judged.code is ErrorCode.DELAY_TOO_LONG


@pytest.mark.parametrize("topic", [None, b"orders", ["orders"]])
def test_a_destination_is_text(kafka: InMemoryKafka, topic: Any) -> None:
    producer = ScheduledProducer({}, clients=kafka)
    for send in (producer.send, producer.begin_send):
        with pytest.raises(ScheduleError, match="is not text"):
            send(topic, "v", delay="1s")


def test_asyncio_moves_no_clock_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[float] = []
    clock = ManualClock()
    monkeypatch.setattr(clock, "advance", moved.append)
    kafka = InMemoryKafka(clock)
    kafka.create_topic("SCHEDULE_TOPIC_XXXX-wheel")

    async def schedule() -> Receipt:
        async with AsyncScheduledProducer({}, clients=kafka) as producer:
            looked = asyncio.Event()
            loop, poll = asyncio.get_running_loop(), producer._producer.poll

            def look(timeout_s: float = 0.0) -> int:
                told = poll(timeout_s)
                loop.call_soon_threadsafe(looked.set)
                return told

            monkeypatch.setattr(producer._producer, "poll", look)
            producer._has_begun.set()
            await looked.wait()  # the thread has looked, and nothing was on its way
            receipt = await producer.send("orders", "v", delay_ms=60_000)
            return await producer.reschedule(receipt, delay_ms=90_000)

    assert asyncio.run(schedule()).deliver_ms == clock.now_ms() + 90_000
    assert moved == []
