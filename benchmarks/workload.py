"""What is measured: the same records for the product and for the floor under it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

VALUE_BYTES = 200
KEYS = 100
BATCH = 5_000


@dataclass(frozen=True)
class Cluster:
    """The broker under test and a way to make topics."""

    bootstrap_servers: str

    def create(self, *names: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topics = [NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]
        for future in admin.create_topics(topics).values():
            future.result(30)

    def fill(self, topic: str, count: int, headers_of: Callable[[int], Sequence[tuple[str, bytes]]]) -> None:
        """Write ``count`` records of VALUE_BYTES to partition 0 as fast as it goes."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "batch.num.messages": 100_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        value = b"x" * VALUE_BYTES
        for number in range(count):
            producer.produce(topic, value, b"k%d" % (number % KEYS), 0, headers=list(headers_of(number)))
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0

    def rate(self, topic: str, count: int, timeout_s: float = 120.0) -> float:
        """Records per second by the destination's own timestamps, first to last, for a ``read_committed`` reader."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"bench-{time.time_ns()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        first_ms, last_ms = 2**62, 0
        deadline = time.monotonic() + timeout_s
        while seen < count:
            assert time.monotonic() < deadline, f"{seen} of {count} records in {topic}"
            messages = [message for message in consumer.consume(10_000, 0.5) if message.error() is None]
            if messages:
                stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
                first_ms, last_ms = min(first_ms, int(stamps.min())), max(last_ms, int(stamps.max()))
                seen += len(messages)
        consumer.close()
        return seen / max(1, last_ms - first_ms) * 1_000


class Run(NamedTuple):
    """One measured run."""

    per_second: float
    cpu_us: float
    """CPU time of the measured process, per record."""
