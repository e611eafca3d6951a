"""What is measured: the same topics and records for the product and for the floor under it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

KEYS = [b"k%d" % number for number in range(100)]
BATCH = 10_000
"""Most records in one transaction, the sidecar's default."""
FLOOR_BATCH = 5_000
"""Most records in one transaction of a floor, but for those with as many as the sidecar: what the goals were set by."""
BATCH_BYTES = 16 * 2**20
"""Most bytes of values in one transaction, the sidecar's default."""
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}

BYTES_AT_MOST = 500_000_000
"""Of values in one run, where ``--records`` says nothing."""

Header = tuple[str, str | bytes | None]
Headers = list[Header]
HeadersOf = Callable[[int], Headers]


class Load(NamedTuple):
    """How much of it, as the command line says."""

    records: int
    value_bytes: int
    seconds: float
    """How long a steady rate is kept up."""
    pending: int
    """Records that wait on the wheel."""

    def of_size(self, value_bytes: int) -> "Load":
        """Another size, and fewer of them where it would be too many bytes."""
        return self._replace(records=min(self.records, BYTES_AT_MOST // value_bytes), value_bytes=value_bytes)

    def at_most(self, records: int) -> "Load":
        return self._replace(records=min(self.records, records))


@dataclass(frozen=True)
class Cluster:
    """The broker that product and floor share."""

    bootstrap_servers: str

    @contextmanager
    def room(self) -> Iterator[str]:
        """A prefix for topics; all that begin with it are deleted at the end, so that runs do not fill the disk."""
        prefix = f"bench{time.time_ns()}."
        try:
            yield prefix
        finally:
            admin = self._admin()
            names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
            for future in admin.delete_topics(names).values() if names else ():
                future.result(30)

    def create(self, name: str, *, partitions: int = 1, config: Mapping[str, str] = LOG_APPEND_TIME) -> str:
        """A topic; its name."""
        admin = self._admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=dict(config))])[name].result(30)
        return name

    def fill(self, topic: str, count: int, value_bytes: int, headers_of: HeadersOf) -> None:
        """Write records to all partitions in turn as fast as it goes; nothing here is measured."""
        partitions = self._partitions(topic)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "batch.num.messages": 100_000,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 262_144,
                "delivery.report.only.error": True,
            }
        )
        value = b"x" * value_bytes
        for number in range(count):
            key, partition = KEYS[number % 100], number % partitions
            try:
                producer.produce(topic, value, key, partition, headers=headers_of(number))
            except BufferError:  # the broker sets the pace
                producer.flush(120)
                producer.produce(topic, value, key, partition, headers=headers_of(number))
        if left := producer.flush(120):
            raise RuntimeError(f"{left} records could not be written to {topic}")

    def reader(self, topic: str, partitions: int = 1) -> Consumer:
        """A ``read_committed`` consumer at the beginning of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"bench-{time.time_ns()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        return consumer

    @contextmanager
    def watched(self, topic: str) -> Iterator[Callable[[], int]]:
        """A function that asks where the partitions end, in all: records, and a marker for each transaction."""
        consumer = self.reader(topic)
        places = [TopicPartition(topic, partition) for partition in range(self._partitions(topic))]
        try:
            yield lambda: sum(int(consumer.get_watermark_offsets(place, timeout=10)[1]) for place in places)
        finally:
            consumer.close()

    def rate(self, topic: str, count: int, timeout_s: float = 120.0) -> float:
        """Records per second, from the first append to the last, of those that a ``read_committed`` reader sees.

        What was appended together with the first record is not counted: it was made before the clock began.
        """
        consumer = self.reader(topic, self._partitions(topic))
        stamps: list[Sequence[int]] = []
        seen = 0
        deadline_s = time.monotonic() + timeout_s
        while seen < count:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{seen} of {count} records in {topic}")
            messages = [message for message in consumer.consume(10_000, 0.5) if message.error() is None]
            stamps.append([message.timestamp()[1] for message in messages])
            seen += len(messages)
        consumer.close()
        appended_ms = np.concatenate([np.asarray(batch, np.int64) for batch in stamps])
        first_ms, last_ms = int(appended_ms.min()), int(appended_ms.max())
        return int((appended_ms > first_ms).sum()) / max(1, last_ms - first_ms) * 1_000

    def _partitions(self, topic: str) -> int:
        admin = self._admin()
        is_just_created = Retrying(
            retry=retry_if_result(lambda partitions: partitions == 0), wait=wait_fixed(0.05), stop=stop_after_delay(30)
        )
        return is_just_created(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 4})  # not every client's end
