"""The two clusters that every contract test runs on, and how a test waits on either."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.clock import Clock, SystemClock
from connectors.testing import InMemoryKafka

DEADLINE_S = 20.0
POLL_S = 0.1

T = TypeVar("T")


class Cluster(Protocol):
    """Makes clients; which ones is all that differs. The library takes it for its `connectors.clients.Clients`."""

    @property
    def clock(self) -> Clock: ...

    def consumer(self, config: Mapping[str, Any], /) -> Any: ...

    def producer(self, config: Mapping[str, Any], /) -> Any: ...

    def admin(self, config: Mapping[str, Any] = {}, /) -> Any: ...


class FakeCluster:
    def __init__(self) -> None:
        self.kafka = InMemoryKafka()

    @property
    def clock(self) -> Clock:
        return self.kafka.clock

    def consumer(self, config: Mapping[str, Any], /) -> Any:
        return self.kafka.consumer(config)

    def producer(self, config: Mapping[str, Any], /) -> Any:
        return self.kafka.producer(config)

    def admin(self, config: Mapping[str, Any] = {}, /) -> Any:
        return self.kafka.admin(config)


class RealCluster:
    clock: Clock = SystemClock()

    def __init__(self, bootstrap_servers: str) -> None:
        self._common = {"bootstrap.servers": bootstrap_servers, "log_level": 0}

    def consumer(self, config: Mapping[str, Any], /) -> Any:
        quick = {"fetch.wait.max.ms": 50, "heartbeat.interval.ms": 200, "group.protocol": "classic"}
        return Consumer({**self._common, **quick, **config})

    def producer(self, config: Mapping[str, Any], /) -> Any:
        return Producer({**self._common, "linger.ms": 20, "retry.backoff.ms": 5, **config})

    def admin(self, config: Mapping[str, Any] = {}, /) -> Any:
        return AdminClient({**self._common, **config})


class Bench:
    """One test's cluster: short ways to topics, clients and records; closes every consumer at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"contract-{uuid.uuid4().hex[:10]}"
        self.admin = cluster.admin()
        self._consumers: list[Any] = []
        self._topics = 0

    def close(self) -> None:
        for consumer in self._consumers:
            try:
                consumer.close()
            except RuntimeError:
                continue  # closed by the test

    # --- making -------------------------------------------------------------------------------------------------------

    def topic(self, partitions: int = 1, name: str = "", **configs: str) -> str:
        """A new topic; underscores stand for dots."""
        self._topics += 1
        name = name or f"{self.name}-{self._topics}"
        self.admin.create_topics([NewTopic(name, partitions, 1, config=_dotted(configs))])[name].result(DEADLINE_S)
        wait_until(lambda: name in self.admin.list_topics(timeout=5).topics, f"{name} is known")
        return name

    def consumer(self, group: str = "", **config: Any) -> Any:
        """As the sidecar's, unless told otherwise; underscores stand for dots."""
        options = {
            "group.id": group or f"{self.name}-{uuid.uuid4().hex[:6]}",
            "session.timeout.ms": 6_000,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **_dotted(config),
        }
        consumer = self.cluster.consumer(options)
        self._consumers.append(consumer)
        return consumer

    def reader(self, topic: str, offset: int = 0, partitions: Sequence[int] = (0,), **config: Any) -> Any:
        """A consumer that is assigned partitions of a topic."""
        consumer = self.consumer(**config)
        consumer.assign([TopicPartition(topic, partition, offset) for partition in partitions])
        return consumer

    def producer(self, **config: Any) -> Any:
        options = {"enable.idempotence": True, "partitioner": "murmur2_random"}
        return self.cluster.producer({**options, **_dotted(config)})

    def transactional(self, name: str = "", *, is_initialised: bool = True, **config: Any) -> Any:
        producer = self.producer(transactional_id=name or f"{self.name}-{uuid.uuid4().hex[:6]}", **config)
        if is_initialised:
            producer.init_transactions(DEADLINE_S)
        return producer

    def produce(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(DEADLINE_S) == 0


def _dotted(config: dict[str, Any]) -> dict[str, Any]:
    """Underscores become dots, but in the names of callbacks."""
    return {key if key.startswith("on_") else key.replace("_", "."): value for key, value in config.items()}


def wait_until(condition: Callable[[], T], what: str) -> T:
    """The first true value of `condition`, which does its own polling."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"


def read(consumer: Any, count: int) -> list[Message]:
    """That many records, past every event; an error that is no event fails."""
    messages: list[Message] = []

    def enough() -> bool:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            messages.append(message)
        elif message is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        return len(messages) >= count

    wait_until(enough, f"{count} records have been read")
    return messages


def read_to_end(consumer: Any, partitions: int = 1) -> tuple[list[Message], list[int]]:
    """Everything up to the first end of each partition, and the offsets of those ends."""
    messages: list[Message] = []
    ends: dict[int, int] = {}

    def all_ended() -> bool:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            messages.append(message)
        elif message is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ends[message.partition()] = message.offset()
        return len(ends) >= partitions

    wait_until(all_ended, "the end of every partition has been told")
    return messages, [ends[partition] for partition in sorted(ends)]


def next_error(consumer: Any) -> Message:
    """The next message that is an error, events aside."""

    def found() -> Message | None:
        message: Message | None = consumer.poll(POLL_S)
        if message is None or message.error() is None or message.error().code() == KafkaError._PARTITION_EOF:
            return None
        return message

    message = wait_until(found, "an error has been told")
    assert message is not None
    return message


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def flags(error: KafkaError) -> tuple[int, bool, bool, bool]:
    """Code, fatal, retriable, abortable."""
    return error.code(), error.fatal(), error.retriable(), error.txn_requires_abort()


def refusal(call: Callable[[], object]) -> KafkaError:
    """The error of a call that has to fail."""
    try:
        call()
    except KafkaException as exception:
        error = exception.args[0]
        assert isinstance(error, KafkaError)
        return error
    raise AssertionError("nothing was raised")


def at(topic: str, partition: int = 0, offset: int = -1001, metadata: str | None = None) -> TopicPartition:
    return (
        TopicPartition(topic, partition, offset)
        if metadata is None
        else TopicPartition(topic, partition, offset, metadata)
    )
