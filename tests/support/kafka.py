"""Plain Kafka clients for tests, and the ledger that judges what came out against what went in."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tests.support.waiting import wait_until

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record as a reader saw it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def header(self, name: str) -> bytes | None:
        """The only header of that name; None where there is none."""
        values = [value for header, value in self.headers if header == name]
        assert len(values) <= 1, f"{name} stands {len(values)} times in {self.headers}"
        return values[0] if values else None

    def text(self, name: str) -> str:
        return (self.header(name) or b"").decode()

    @property
    def lateness_ms(self) -> int:
        """Publish time less due time."""
        return self.timestamp_ms - int(self.text("TIMER_OUT_MS"))


def as_record(message: Message) -> Record:
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],  # type: ignore[arg-type]
    )


@dataclass
class Kafka:
    """A broker and clients for it."""

    bootstrap_servers: str
    _admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})

    @property
    def admin(self) -> AdminClient:
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 1, **config: str) -> str:
        """Config names with underscores for dots (``max_message_bytes="1000"``)."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        self._admin.create_topics([NewTopic(name, partitions, replicas, config=named)])[name].result(30)
        return name

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=10).topics)

    def producer(self, **config: object) -> Producer:
        options = {"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"}
        return Producer({**options, **{key.replace("_", "."): value for key, value in config.items()}})

    def produce(self, records: Iterable[tuple[str, bytes | None, bytes | None, Headers]], **config: object) -> int:
        """Produce (topic, key, value, headers) and wait for every acknowledgement; how many there were."""
        producer = self.producer(linger_ms=5, queue_buffering_max_messages=1_000_000, **config)
        failures: list[str] = []

        def on_delivery(error: object, _message: object) -> None:
            if error is not None:
                failures.append(str(error))

        count = 0
        for topic, key, value, headers in records:
            producer.produce(topic, value, key, headers=list(headers), on_delivery=on_delivery)
            count += 1
            if count % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0, "not everything was acknowledged"
        assert not failures, failures[:3]
        return count

    def lag(self, group: str, topic: str) -> int:
        """Offsets of a topic that the group has still to go through; all of them where it has committed none."""
        committed, ends = self.committed(group, topic), self.ends(topic)
        return sum(end - committed[number] for number, end in ends.items())

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that a group has committed, by partition; 0 where it has committed none."""
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, n) for n in self._partitions(topic)])]
        told = self._admin.list_consumer_group_offsets(asked)[group].result(10).topic_partitions
        return {place.partition: max(0, place.offset) for place in told}

    def ends(self, topic: str) -> dict[int, int]:
        """The next offsets of a topic, by partition."""
        latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in self._partitions(topic)}
        return {place.partition: told.result(10).offset for place, told in self._admin.list_offsets(latest).items()}

    @contextmanager
    def followed(self, topic: str) -> Iterator["Follower"]:
        """To see when a topic grows, whatever is in it already."""
        consumer, partitions = self._reader(committed=True), self._partitions(topic)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        try:
            yield Follower(consumer, len(partitions))
        finally:
            consumer.close()

    def read(
        self, topics: Sequence[str], count: int, timeout_s: float = 30.0, *, committed: bool = True
    ) -> list[Record]:
        """Read from the beginning until ``count`` records have come, then until the ends; fails when fewer come."""
        consumer = self._reader(committed=committed)
        assigned = [TopicPartition(topic, number, 0) for topic in topics for number in self._partitions(topic)]
        consumer.assign(assigned)
        records: list[Record] = []
        at_end: set[tuple[str | None, int | None]] = set()
        deadline = time.monotonic() + timeout_s
        try:
            while len(records) < count or len(at_end) < len(assigned):
                assert time.monotonic() < deadline, (
                    f"{len(records)} of {count} records after {timeout_s:.0f} s in {', '.join(topics)}"
                )
                for message in consumer.consume(10_000, 0.1):
                    place = message.topic(), message.partition()
                    if message.error() is not None:
                        at_end.add(place)
                    else:
                        at_end.discard(place)
                        records.append(as_record(message))
        finally:
            consumer.close()
        return records

    def count_aborted(self, topic: str) -> int:
        """Records that are not visible: those that a kill has left in a transaction, open or ended since."""
        written, visible = (len(self.read([topic], 0, committed=committed)) for committed in (False, True))
        return written - visible

    def _partitions(self, topic: str) -> list[int]:
        return list(self._admin.list_topics(timeout=10).topics[topic].partitions)

    def _reader(self, *, committed: bool) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"test-reader-{time.time_ns()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": 50,
            }
        )


class Follower:
    """Reads on in a topic, committed records only."""

    def __init__(self, consumer: Consumer, partitions: int) -> None:
        self._consumer = consumer
        self._partitions = partitions

    def catch_up(self) -> None:
        """Read what is there now."""
        at_end: set[int | None] = set()

        def is_at_every_end() -> bool:
            for message in self._consumer.consume(10_000, 0.1):
                if message.error() is not None:
                    at_end.add(message.partition())
                else:
                    at_end.discard(message.partition())
            return len(at_end) == self._partitions

        wait_until(is_at_every_end, "every partition is read to its end")

    def has_more(self) -> bool:
        """Whether a record has come since the last look."""
        return any(message.error() is None for message in self._consumer.consume(10_000, 0.1))


@dataclass(frozen=True)
class Verdict:
    """Deliveries judged by id."""

    lost: list[str]
    twice: list[str]
    early: list[str]
    lateness_ms: list[int]

    def percentile(self, share: float) -> int:
        """Lateness in ms that ``share`` of the deliveries stay within."""
        ordered = sorted(self.lateness_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def assert_exactly_once(self) -> None:
        assert not self.lost, f"{len(self.lost)} lost, such as {self.lost[:3]}"
        assert not self.twice, f"{len(self.twice)} twice, such as {self.twice[:3]}"
        assert not self.early, f"{len(self.early)} early, such as {self.early[:3]}"


def judge(expected: Iterable[str], delivered: Sequence[Record]) -> Verdict:
    """Hold deliveries against the ids that were scheduled."""
    seen = Counter(record.text("UNIQ_KEY") for record in delivered)
    wanted = set(expected)
    unknown = set(seen) - wanted
    assert not unknown, f"delivered, but never scheduled: {sorted(unknown)[:3]}"
    return Verdict(
        lost=sorted(wanted - set(seen)),
        twice=sorted(name for name, count in seen.items() if count > 1),
        early=sorted(record.text("UNIQ_KEY") for record in delivered if record.lateness_ms < 0),
        lateness_ms=[record.lateness_ms for record in delivered],
    )
