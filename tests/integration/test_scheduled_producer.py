"""`ScheduledProducer` against a real broker: what it writes, and what it hands out."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.contract import DelayLevels, TopicNames
from connectors.producer import ScheduledProducer, ScheduleError
from connectors.receipt import Receipt
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def wheel(kafka: Kafka, prefix: str) -> str:
    return kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", 3, message_timestamp_type="LogAppendTime")


@pytest.fixture
def producer(kafka: Kafka, prefix: str, wheel: str) -> ScheduledProducer:
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    return ScheduledProducer(config, names=TopicNames(prefix), levels=DelayLevels.parse("1s 2s"))


def test_a_batch_does_not_wait_for_each_record(kafka: Kafka, wheel: str, producer: ScheduledProducer) -> None:
    receipts: dict[int, Receipt | KafkaError] = {}
    at = datetime(2030, 1, 1, tzinfo=UTC)
    for number in range(1_000):

        def on_receipt(answer: Receipt | KafkaError, number: int = number) -> None:
            receipts[number] = answer

        producer.begin_send("orders", str(number), on_receipt, deliver_at=at, key=str(number))
    assert producer.flush() == 0
    records = {(record.partition, record.offset): record for record in kafka.read([wheel], 1_000)}
    for number in range(1_000):
        receipt = receipts[number]
        assert isinstance(receipt, Receipt)
        record = records[receipt.partition, receipt.offset]
        assert (record.value, record.text("UNIQ_KEY")) == (b"%d" % number, receipt.id)
        assert receipt.deliver_ms == int(record.text("TIMER_DELIVER_MS")) == 1_893_456_000_000


def test_a_batch_of_cancels_tells_where_each_stands(kafka: Kafka, wheel: str, producer: ScheduledProducer) -> None:
    receipts = [producer.send("orders", "v", delay_ms=3_600_000, key=str(number)) for number in range(10)]
    places: list[tuple[int, int] | KafkaError] = []
    for receipt in receipts:
        producer.begin_cancel(receipt, places.append)
    while len(places) < 10:
        producer.poll(0.1)
    cancels = {
        (record.partition, record.offset): record
        for record in kafka.read([wheel], 20)
        if record.header("TIMER_DEL_UNIQKEY")
    }
    assert set(places) == set(cancels)
    assert sorted(record.text("TIMER_DEL_UNIQKEY") for record in cancels.values()) == sorted(r.id for r in receipts)


def test_a_record_that_the_client_refuses_is_raised_and_not_told_of(producer: ScheduledProducer) -> None:
    answers: list[Receipt | KafkaError] = []
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.begin_send("orders", bytes(2_000_000), answers.append, delay_ms=1)
    assert producer.flush() == 0
    assert answers == []


@pytest.mark.parametrize("name", ["REAL_TOPIC", "DELAY", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"])
def test_a_header_that_would_win_over_the_arguments_is_refused(producer: ScheduledProducer, name: str) -> None:
    with pytest.raises(ScheduleError, match=f"the header {name} is an instruction"):
        producer.send("orders", "v", delay_ms=1, headers=[(name, "1")])


def test_the_id_is_the_last_that_the_headers_name(kafka: Kafka, wheel: str, producer: ScheduledProducer) -> None:
    assert producer.send("orders", "v", delay_ms=1, headers=[("UNIQ_KEY", "a"), ("UNIQ_KEY", "b")]).id == "b"
    made = producer.send("orders", "v", delay_ms=1, headers=[("UNIQ_KEY", "a"), ("UNIQ_KEY", "")]).id
    assert made not in ("", "a")
    ids = [value for record in kafka.read([wheel], 2) for name, value in record.headers if name == "UNIQ_KEY"]
    assert made.encode() in ids


def test_another_time_keeps_the_destination_partition(kafka: Kafka, wheel: str, producer: ScheduledProducer) -> None:
    headers = [("REAL_QID", "2"), ("TAGS", "a"), ("TAGS", None)]
    receipt = producer.send("orders", "v", delay_ms=3_600_000, key="k", headers=headers)
    again = producer.reschedule(receipt, delay_ms=7_200_000)
    assert (again.id, again.partition) == (receipt.id, receipt.partition)
    replacement = max(kafka.read([wheel], 2), key=lambda record: record.offset)
    assert (replacement.value, replacement.key, replacement.text("REAL_QID")) == (b"v", b"k", "2")
    assert [value for name, value in replacement.headers if name == "TAGS"] == [b"a", None]
    assert replacement.text("TIMER_REPLACE_UNIQKEY") == receipt.id
    assert again.deliver_ms == replacement.timestamp_ms + 7_200_000


def test_a_message_on_a_level_cannot_be_cancelled(kafka: Kafka, prefix: str, producer: ScheduledProducer) -> None:
    kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-2", message_timestamp_type="LogAppendTime")
    receipt = producer.send("orders", "v", level=9, key="k")
    assert (receipt.cancellable, receipt.schedule_topic) == (False, f"{prefix}SCHEDULE_TOPIC_XXXX-2")
    with pytest.raises(ScheduleError, match="waits on a level topic"):
        producer.cancel(receipt)
