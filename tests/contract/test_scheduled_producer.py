"""What `ScheduledProducer` writes and hands out, on either cluster."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from msgspec import structs

from connectors import (
    DelayLevels,
    PendingReceipt,
    Receipt,
    RecordGoneError,
    ScheduledProducer,
    ScheduleError,
    TopicNames,
)
from connectors.kafka_errors import MISSING
from connectors.murmur2 import partition_of_key
from tests.contract.cluster import Bench, FakeCluster, read

Names = Callable[..., str]


@pytest.fixture
def names(bench: Bench) -> TopicNames:
    return TopicNames(f"{bench.name}.")


@pytest.fixture
def wheel(bench: Bench, names: TopicNames) -> str:
    return bench.topic(3, names.wheel, message_timestamp_type="LogAppendTime")


@pytest.fixture
def producer(bench: Bench, names: TopicNames, wheel: str) -> ScheduledProducer:
    return ScheduledProducer({}, names=names, levels=DelayLevels.parse("1s 2s"), clients=bench.cluster)


def written(bench: Bench, topic: str, count: int, partitions: int = 3) -> list[Message]:
    return read(bench.reader(topic, partitions=range(partitions)), count)


def headers_of(message: Message) -> dict[str, bytes | None]:
    headers = message.headers() or []
    assert len(dict(headers)) == len(headers)
    return dict(headers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        ("90s", b"90000"),
        ("1h30m", b"5400000"),
        (timedelta(hours=3), b"10800000"),
        (timedelta(microseconds=1), b"1"),
        (timedelta(0), b"0"),
    ],
)
def test_a_delay_is_a_timedelta_or_a_text_and_never_rounded_down(
    bench: Bench, producer: ScheduledProducer, wheel: str, delay: timedelta | str, milliseconds: bytes
) -> None:
    receipt = producer.send("orders", "v", key="k", headers={"TAGS": "a"}, delay=delay)
    (message,) = written(bench, wheel, 1)
    assert headers_of(message) == {
        "TAGS": b"a",
        "UNIQ_KEY": receipt.id.encode(),
        "REAL_TOPIC": b"orders",
        "TIMER_DELAY_MS": milliseconds,
    }
    assert (message.value(), message.key()) == (b"v", b"k")
    assert receipt.deliver_ms == message.timestamp()[1] + int(milliseconds)
    assert (receipt.partition, receipt.offset) == (message.partition(), message.offset())


def test_a_time_counts_in_its_own_zone_and_is_never_early(
    bench: Bench, producer: ScheduledProducer, wheel: str
) -> None:
    at = datetime.fromisoformat("2030-01-01T01:00:00.000001+01:00")
    assert producer.send("orders", "v", deliver_at=at).deliver_ms == 1_893_456_000_001
    (message,) = written(bench, wheel, 1)
    assert headers_of(message)["TIMER_DELIVER_MS"] == b"1893456000001"


def test_a_level_goes_to_its_topic_and_cannot_be_cancelled(
    bench: Bench, names: TopicNames, producer: ScheduledProducer
) -> None:
    topic = bench.topic(1, names.level(2), message_timestamp_type="LogAppendTime")
    receipt = producer.send("orders", "v", level=9)
    (message,) = written(bench, topic, 1, partitions=1)
    assert headers_of(message) == {"UNIQ_KEY": receipt.id.encode(), "REAL_TOPIC": b"orders"}
    assert receipt.deliver_ms == message.timestamp()[1] + 2_000
    for change in (producer.cancel, lambda it: producer.reschedule(it, delay="1s")):
        with pytest.raises(ScheduleError, match="waits on a level topic"):
            change(receipt)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give one of deliver_at, delay and level"),
        ({"delay": "1s", "level": 1}, "give one of deliver_at, delay and level"),
        ({"delay": "1s", "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "give one of"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"delay": "90"}, "'90' is not a duration"),
        ({"delay": 90}, "neither a timedelta nor a text"),
        ({"delay": timedelta(seconds=-1)}, "negative"),
        ({"delay_ms": -1}, "negative"),
        ({"delay": timedelta(days=40_000)}, "too long"),
        ({"delay": [1]}, "neither a timedelta nor a text"),
        ({"delay_ms": 60_000.5}, "delay_ms is 60000.5; give a whole number"),
        ({"delay_ms": "5"}, "delay_ms is '5'"),
        ({"deliver_at": "2030-01-01T00:00:00Z"}, "give a datetime with a zone"),
        ({"deliver_at": date(2030, 1, 1)}, "give a datetime with a zone"),
        ({"level": 2.0}, "level is 2.0; give a whole number"),
        ({"level": True}, "level is True"),
        ({"level": "3"}, "level is '3'"),
        ({"delay": "1s", "headers": {b"TIMER_DELIVER_MS": "1"}}, "header name b'TIMER_DELIVER_MS' is not text"),
        ({"delay": "1s", "headers": {"\ud800": "1"}}, "cannot be written as UTF-8"),
        ({"delay": "1s", "headers": {"UNIQ_KEY": b"\xff1"}}, "UNIQ_KEY is .* not UTF-8 text"),
        ({"delay": "1s", "headers": [("REAL_QID", "1"), ("REAL_QID", "")]}, "REAL_QID is '', which is not a partition"),
        ({"delay": "1s", "headers": {"REAL_QID": "2147483648"}}, "REAL_QID is '2147483648', which is not a partition"),
        ({"delay": "1s", "headers": {"REAL_QID": "-1"}}, "REAL_QID is '-1', which is not a partition number"),
        ({"level": 0}, "levels are counted from 1"),
        ({"delay": timedelta.max}, "is too long; the longest is 36500d"),
        ({"delay": "1s", "headers": [("DELAY", "1")]}, "is an instruction to the sidecar"),
        ({"delay": "1s", "headers": [("DELAY\0b", "1")]}, "has a NUL in it"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_at_once(
    producer: ScheduledProducer, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(ScheduleError, match=words):
        producer.send("orders", "v", **arguments)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=words):
        producer.begin_send("orders", "v", **arguments)  # type: ignore[arg-type]
    assert producer.flush() == 0


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"value": "v", "key": 17}, "the key is of type int; give str or bytes"),
        ({"value": {"order": 17}}, "the value is of type dict; give str or bytes"),
        ({"value": bytearray(b"v")}, "the value is of type bytearray; give str or bytes"),
        ({"value": "v", "key": "\ud800"}, "the key cannot be written as UTF-8; take out its surrogates, or give bytes"),
        ({"value": "v", "headers": {"a": 1}}, "the header a is of type int; give str, bytes or None"),
        ({"value": "v", "headers": {"UNIQ_KEY": 17}}, "the header UNIQ_KEY is of type int; give str, bytes or None"),
        (
            {"value": "v", "headers": {"a": "\ud800"}},
            "the header a cannot be written as UTF-8; take out its surrogates",
        ),
    ],
)
def test_a_value_key_or_header_that_is_no_text_is_named(
    producer: ScheduledProducer, record: dict[str, Any], words: str
) -> None:
    for schedule in (producer.send, producer.begin_send):
        with pytest.raises(ScheduleError, match=words):
            schedule("orders", **record, delay="1s")
    assert producer.flush() == 0


def test_what_is_too_large_for_the_client_is_told_with_the_client_s_own_limit(producer: ScheduledProducer) -> None:
    for schedule in (producer.send, producer.begin_send):
        with pytest.raises(KafkaException, match=r"too large; raise message\.max\.bytes of the producer"):
            schedule("orders", b"v" * 1_000_000, delay="1s")
    assert producer.flush() == 0


@pytest.mark.parametrize("topic", ["", "a b", "x" * 250, ".."])
def test_a_destination_that_no_topic_can_be_is_refused(producer: ScheduledProducer, topic: str) -> None:
    with pytest.raises(ScheduleError, match="not a valid topic name"):
        producer.send(topic, "v", delay="1s")


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "SCHEDULE_TOPIC_XXXX", "{0}SCHEDULE_TOPIC_XXXX-3", "{0}SCHEDULE_TOPIC_XXXX-wheel"]
)
def test_a_destination_that_the_sidecar_would_reject_is_refused(
    bench: Bench, producer: ScheduledProducer, topic: str
) -> None:
    with pytest.raises(ScheduleError, match="name the topic to deliver to"):
        producer.send(topic.format(f"{bench.name}."), "v", delay="1s")


def test_logical_destinations_are_understood(bench: Bench, producer: ScheduledProducer, wheel: str) -> None:
    producer.send("%DLQ%billing", "v", delay="1s")
    (message,) = written(bench, wheel, 1)
    assert headers_of(message)["REAL_TOPIC"] == f"{bench.name}.DLQ-billing".encode()


def test_a_cancel_finds_its_message_where_a_java_producer_would_put_the_key(
    bench: Bench, producer: ScheduledProducer, wheel: str
) -> None:
    keys = [f"key-{number}".encode() for number in range(20)]
    receipts = [producer.send("orders", "v", key=key, delay="1h") for key in keys]
    assert [receipt.partition for receipt in receipts] == [partition_of_key(key, 3) for key in keys]
    places = [producer.cancel(receipt if number % 2 else receipt.encode()) for number, receipt in enumerate(receipts)]
    messages = {(message.partition(), message.offset()): message for message in written(bench, wheel, 40)}
    for receipt, place in zip(receipts, places, strict=True):
        assert place[0] == receipt.partition
        assert (messages[place].value(), messages[place].key()) == (None, receipt.key)
        assert headers_of(messages[place]) == {
            "TIMER_DEL_UNIQKEY": receipt.id.encode(),
            "TIMER_DELIVER_MS": b"%d" % receipt.deliver_ms,
            "REAL_TOPIC": b"orders",
        }


def test_another_time_is_one_record_that_replaces(bench: Bench, producer: ScheduledProducer, wheel: str) -> None:
    receipt = producer.send("orders", "v", key="k", headers=[("TAGS", "a"), ("REAL_QID", "2")], delay="1h")
    again = producer.reschedule(receipt, delay=timedelta(hours=2))
    once_more = producer.reschedule(again.encode(), deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
    last = written(bench, wheel, 3)[2]
    assert headers_of(last) == {
        "TAGS": b"a",
        "REAL_QID": b"2",
        "UNIQ_KEY": receipt.id.encode(),
        "REAL_TOPIC": b"orders",
        "TIMER_REPLACE_UNIQKEY": receipt.id.encode(),
        "TIMER_DELIVER_MS": b"1893456000000",
    }
    assert (last.value(), last.key(), last.partition()) == (b"v", b"k", receipt.partition)
    assert (once_more.id, once_more.offset, once_more.deliver_ms) == (receipt.id, last.offset(), 1_893_456_000_000)


def test_another_time_is_not_given_to_what_stands_in_the_message_s_place(
    bench: Bench, producer: ScheduledProducer, wheel: str
) -> None:
    """On another cluster the receipt's offset is another message's, or a cancel's: its payload is not to be sent."""
    receipt, other = (producer.send("orders", value, key="k", delay="1h") for value in ("v", "other"))
    _, cancel_offset = producer.cancel(other)
    for offset in (other.offset, cancel_offset):
        with pytest.raises(RecordGoneError, match="another record stands at "):
            producer.reschedule(structs.replace(receipt, offset=offset), delay="2h")
    assert len(written(bench, wheel, 3)) == 3


def test_another_time_of_a_record_without_an_id_is_that_of_its_place(
    bench: Bench, producer: ScheduledProducer, wheel: str
) -> None:
    """As `timewheel pending` gives its receipt."""
    plain = bench.cluster.producer({})
    plain.produce(wheel, b"v", partition=1, headers=[("REAL_TOPIC", b"orders"), ("TIMER_DELAY_SEC", b"3600")])
    plain.flush()
    receipt = Receipt(schedule_topic=wheel, partition=1, id=f"{wheel}-1-0", topic="orders", deliver_ms=1)
    assert producer.reschedule(receipt, delay="2h").id == receipt.id
    assert headers_of(written(bench, wheel, 2)[1])["TIMER_REPLACE_UNIQKEY"] == receipt.id.encode()


def test_another_time_of_what_waits_nowhere_is_refused_soon(
    bench: Bench, producer: ScheduledProducer, names: TopicNames, wheel: str
) -> None:
    elsewhere = TopicNames(f"{bench.name}-absent.").wheel
    for topic, partition, code in (
        (elsewhere, 0, KafkaError.UNKNOWN_TOPIC_OR_PART),
        (wheel, 3, KafkaError._UNKNOWN_PARTITION),
    ):
        receipt = Receipt(schedule_topic=topic, partition=partition, id="a", topic="orders", deliver_ms=5)
        began_ms = bench.cluster.clock.monotonic_ms()
        with pytest.raises(KafkaException) as raised:
            producer.reschedule(receipt, delay="1s")
        assert raised.value.args[0].code() == code
        assert bench.cluster.clock.monotonic_ms() - began_ms < 10_000
    assert elsewhere not in bench.admin.list_topics(timeout=5).topics


def test_a_schedule_topic_that_is_not_there_is_named_with_the_command_that_makes_it(bench: Bench) -> None:
    names = TopicNames(f"{bench.name}-absent.")
    producer = ScheduledProducer({}, names=names, clients=bench.cluster)
    told: list[Receipt | tuple[int, int] | KafkaError] = []
    pending = producer.begin_send("orders", "v", told.append, delay="1h")
    producer.begin_cancel(
        Receipt(schedule_topic=names.wheel, partition=0, id="a", topic="t", deliver_ms=1), told.append
    )
    for call in (pending.result, lambda: producer.send("orders", "v", delay="1h")):
        with pytest.raises(KafkaException) as raised:
            call()
        error = raised.value.args[0]
        assert error.code() in MISSING
        assert f"; make {names.wheel} with 'timewheel topics create'" in error.str()
    assert len(told) == 2
    for answer in told:
        assert isinstance(answer, KafkaError)
        assert f"; make {names.wheel} with 'timewheel topics create'" in answer.str()


def test_a_batch_is_not_waited_for_one_by_one(bench: Bench, producer: ScheduledProducer, wheel: str) -> None:
    told: list[Receipt | KafkaError] = []
    with producer:
        pending = [producer.begin_send("orders", b"%d" % i, told.append, delay="1h") for i in range(1_000)]
    receipts = [one.result() for one in pending]
    assert len({receipt.id for receipt in receipts}) == 1_000
    assert [one.id for one in pending] == [receipt.id for receipt in receipts]
    assert sorted(told, key=str) == sorted(receipts, key=str)
    assert len(written(bench, wheel, 1_000)) == 1_000


def test_a_pending_receipt_can_be_waited_for_by_itself(producer: ScheduledProducer) -> None:
    pending = producer.begin_send("orders", "v", delay="1h")
    assert isinstance(pending, PendingReceipt)
    assert pending.result().id == pending.id
    assert pending.is_answered


def test_a_missing_schedule_topic_is_told_and_not_made(bench: Bench, names: TopicNames) -> None:
    producer = ScheduledProducer({"message.timeout.ms": 500}, names=names, clients=bench.cluster)
    with pytest.raises(KafkaException):
        producer.send("orders", "v", delay="1s")
    assert names.wheel not in bench.admin.list_topics(timeout=5).topics


# --- RocketMQ's rules for attempts, where only the in-memory Kafka can refuse on request ------------------------------


@pytest.fixture
def faulty(fake_bench: Bench) -> tuple[Bench, ScheduledProducer]:
    assert isinstance(fake_bench.cluster, FakeCluster)
    fake_bench.topic(4, "SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    return fake_bench, ScheduledProducer({}, clients=fake_bench.cluster)


def refuse(bench: Bench, code: int, *partitions: int) -> None:
    assert isinstance(bench.cluster, FakeCluster)
    for partition in partitions:
        bench.cluster.kafka.faults.refuse("SCHEDULE_TOPIC_XXXX-wheel", partition=partition, code=code)


def attempts(bench: Bench) -> int:
    assert isinstance(bench.cluster, FakeCluster)
    return bench.cluster.kafka.faults.hits["send:before"]


def test_a_record_with_a_free_place_tries_other_partitions(faulty: tuple[Bench, ScheduledProducer]) -> None:
    bench, producer = faulty
    refuse(bench, KafkaError.NOT_ENOUGH_REPLICAS, 0, 1)
    assert {producer.send("orders", "v", delay="1h").partition for _ in range(8)} == {2, 3}
    assert len(written(bench, "SCHEDULE_TOPIC_XXXX-wheel", 8, partitions=4)) == 8


def test_a_sync_send_is_tried_three_times_and_an_async_one_once(faulty: tuple[Bench, ScheduledProducer]) -> None:
    bench, producer = faulty
    refuse(bench, KafkaError.NOT_ENOUGH_REPLICAS, 0, 1, 2, 3)
    with pytest.raises(KafkaException, match="NOT_ENOUGH_REPLICAS"):
        producer.send("orders", "v", delay="1h")
    assert attempts(bench) == 3
    pending = producer.begin_send("orders", "v", delay="1h")
    with pytest.raises(KafkaException, match="not answered yet"):
        pending.receipt()
    for call in (pending.result, pending.receipt):
        with pytest.raises(KafkaException, match="NOT_ENOUGH_REPLICAS"):
            call()
    assert attempts(bench) == 4


@pytest.mark.parametrize("place", [{"key": "k"}, {"headers": {"REAL_QID": "1"}}])
def test_a_record_with_a_place_of_its_own_is_not_sent_elsewhere(
    faulty: tuple[Bench, ScheduledProducer], place: dict[str, object]
) -> None:
    bench, producer = faulty
    refuse(bench, KafkaError.NOT_ENOUGH_REPLICAS, 0, 1, 2, 3)
    with pytest.raises(KafkaException):
        producer.send("orders", "v", delay="1h", **place)  # type: ignore[arg-type]
    assert attempts(bench) == 1


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaError._MSG_TIMED_OUT, KafkaError.MSG_SIZE_TOO_LARGE]
)
def test_what_may_have_been_taken_or_cannot_be_is_not_tried_again(
    faulty: tuple[Bench, ScheduledProducer], code: int
) -> None:
    bench, producer = faulty
    refuse(bench, code, 0, 1, 2, 3)
    with pytest.raises(KafkaException):
        producer.send("orders", "v", delay="1h")
    assert attempts(bench) == 1


def test_a_broker_that_does_not_answer_is_waited_for_within_the_timeout(
    faulty: tuple[Bench, ScheduledProducer],
) -> None:
    bench, producer = faulty
    assert isinstance(bench.cluster, FakeCluster)
    kafka = bench.cluster.kafka
    kafka.make_unavailable(5_000)
    assert producer.send("orders", "v", delay="1h").offset == 0
    kafka.make_unavailable(60_000)
    began_ms = kafka.clock.monotonic_ms()
    with pytest.raises(KafkaException, match="no acknowledgement from the schedule topic within 2 s"):
        producer.send("orders", "v", delay="1h", timeout_s=2)
    assert kafka.clock.monotonic_ms() - began_ms == 2_000


def test_a_negative_timeout_is_refused_before_anything_is_written(faulty: tuple[Bench, ScheduledProducer]) -> None:
    bench, producer = faulty
    receipt = producer.send("orders", "v", delay="1h")
    calls: list[Callable[[], object]] = [
        lambda: producer.send("orders", "v", delay="1h", timeout_s=-1),
        lambda: producer.cancel(receipt, timeout_s=-1),
        lambda: producer.reschedule(receipt, delay="2h", timeout_s=-1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="timeout_s is -1; give the seconds"):
            call()
    assert producer.flush() == 0
    assert attempts(bench) == 1


def test_a_full_queue_is_waited_for_no_longer_than_the_timeout(fake_bench: Bench) -> None:
    assert isinstance(fake_bench.cluster, FakeCluster)
    fake_bench.topic(1, "SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    producer = ScheduledProducer({"queue.buffering.max.messages": 1}, clients=fake_bench.cluster)
    receipt, kafka = producer.send("orders", "v", delay="1h"), fake_bench.cluster.kafka
    kafka.make_unavailable(60_000)
    pending = producer.begin_send("orders", "v", delay="1h")
    calls: list[Callable[[], object]] = [
        lambda: producer.send("orders", "v", delay="1h", timeout_s=2),
        lambda: producer.cancel(receipt, timeout_s=2),
        lambda: producer.begin_send("orders", "v", delay="1h", wait_for_room=False),
        lambda: producer.begin_cancel(receipt, lambda _told: None, wait_for_room=False),
    ]
    took_ms = []
    for call in calls:
        began_ms = kafka.clock.monotonic_ms()
        with pytest.raises(KafkaException, match="_QUEUE_FULL"):
            call()
        took_ms.append(kafka.clock.monotonic_ms() - began_ms)
    assert took_ms == [2_000, 2_000, 0, 0]
    assert pending.result(60).offset == 1
