"""How much is read at a time, and how it is handed over."""

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sidecar.clock import SystemClock
from sidecar.errors import ClientsLostError
from sidecar.health import Health
from sidecar.intake.enqueue_get import EnqueueGet
from sidecar.intake.start_finder import StartFinder
from sidecar.metrics import Metrics

BATCH_RECORDS, BATCH_BYTES = 5_000, 8_000_000


class Fetched:
    """A consumer that has fetched records of one size after another, as many as are asked for."""

    def __init__(self, *sizes: int | None) -> None:
        self._sizes = list(sizes)
        self.asked: list[int] = []

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        pass

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.asked.append(count)
        size = self._sizes.pop(0)
        value = None if size is None else b"v" * size
        return [Message(topic="SCHEDULE_TOPIC_XXXX-wheel", partition=0, offset=0, value=value)] * count


def reading(consumer: Fetched, starts: object = None) -> EnqueueGet:
    clock = SystemClock()

    def nobody(*_: object) -> Any:
        raise AssertionError

    return EnqueueGet(
        cast(Consumer, consumer),
        [],
        cast(StartFinder, starts),
        nobody,
        lambda: None,
        clock=clock,
        health=Health(clock),
        metrics=Metrics("0"),
        batch_records=BATCH_RECORDS,
        batch_bytes=BATCH_BYTES,
        queue_of=str,
    )


@pytest.mark.parametrize(
    ("size", "next_count"),
    [
        (None, 5_000),
        (0, 5_000),
        (200, 5_000),
        (1_100, 5_000),
        (1_500, 4_000),
        (10_000, 761),
        (1_000_000, 7),
        (9_000_000, 1),
    ],
)
def test_of_large_records_fewer_are_read_at_a_time(size: int | None, next_count: int) -> None:
    consumer = Fetched(200, size, 200, 200)
    intake = reading(consumer)
    for _ in range(4):
        intake.read(0)
    assert consumer.asked == [BATCH_RECORDS, BATCH_RECORDS, next_count, BATCH_RECORDS]


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_what_kafka_refuses_in_a_rebalance_ends_the_session_and_not_the_process(callback: str) -> None:
    class Refused(Fetched):
        def subscribe(self, topics: list[str], **callbacks: Any) -> None:
            self._callback = callbacks[callback]

        def consume(self, count: int, timeout_s: float) -> list[Message]:
            self._callback(self, [])
            return []

        def assign(self, partitions: list[TopicPartition]) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "not now"))

        def resume(self, partitions: list[TopicPartition]) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "not now"))

    class NoStarts:
        def find(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], object]:
            return {}

    with pytest.raises(ClientsLostError, match="not now"):
        reading(Refused(), NoStarts()).read(0)


def test_a_partition_is_handed_all_of_its_records_at_once_though_others_stand_between_them() -> None:
    """Twelve partitions whose records alternate are twelve writes to disk, not one a record; an end keeps its place."""

    def record(topic: str, partition: int, offset: int) -> Message:
        return Message(topic=topic, partition=partition, offset=offset)

    def end(topic: str, partition: int, offset: int) -> Message:
        return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF))

    read = [
        record("wheel", 0, 0),
        record("wheel", 1, 7),
        record("wheel", 0, 1),
        record("1", 0, 3),
        record("wheel", 1, 8),
    ]
    read += [end("wheel", 1, 9), record("wheel", 0, 2), record("wheel", 1, 9), record("wheel", 1, 10), end("1", 0, 4)]
    runs = reading(Fetched())._runs(read)
    assert [(run.place, [message.offset() for message in run.messages], run.end_offset) for run in runs] == [
        (("wheel", 0), [0, 1, 2], None),
        (("wheel", 1), [7, 8], None),
        (("1", 0), [3], None),
        (("wheel", 1), [], 9),
        (("wheel", 1), [9, 10], None),
        (("1", 0), [], 4),
    ]
