"""Reading a log from one offset to another, of whichever replica the consumer has found."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.errors import NotAnsweredError
from connectors.testing import ManualClock

PLACE = ("DLQ-billing", 0)


def record(offset: int) -> Message:
    return Message(topic=PLACE[0], partition=PLACE[1], offset=offset, value=b"v")


def end(offset: int) -> Message:
    return Message(
        topic=PLACE[0], partition=PLACE[1], offset=offset, error=KafkaError(KafkaError._PARTITION_EOF, "the end")
    )


class Replica:
    """Hands out one message after the other, and then nothing any more."""

    def __init__(self, clock: ManualClock, messages: list[Message]) -> None:
        self._clock = clock
        self._messages = messages
        self.config: Mapping[str, Any] = {}

    def assign(self, _partitions: list[TopicPartition]) -> None: ...

    def consume(self, _most: int, _timeout_s: float) -> list[Message]:
        return []

    def poll(self, timeout_s: float) -> Message | None:
        if self._messages:
            return self._messages.pop(0)
        self._clock.advance(timeout_s * 1000)
        return None

    def close(self) -> None: ...


class Clients:
    def __init__(self, *messages: Message) -> None:
        self.clock = ManualClock()
        self.replica = Replica(self.clock, list(messages))

    def admin(self, _config: Mapping[str, Any]) -> None:
        """Nothing is asked of it."""

    def consumer(self, config: Mapping[str, Any]) -> Replica:
        self.replica.config = config
        return self.replica


def scanned(clients: Any, until: int) -> list[int]:
    cluster = Cluster({"bootstrap.servers": "localhost:1", "client.rack": "a"}, clients)
    with cluster.scan({PLACE: (0, until)}, lambda: 10) as batches:
        return [message.offset() or 0 for batch in batches for message in batch]


def test_the_end_of_a_replica_that_lags_is_not_the_end() -> None:
    """What is missed would be redriven once more, or carried out again under the same Idempotency-Key."""
    clients = Clients(end(0), record(0), end(1), record(1), record(2), record(3))
    assert scanned(clients, 3) == [0, 1, 2]


@pytest.mark.parametrize("last", [end(3), end(4), record(3)], ids=["end", "markers behind it", "a record behind it"])
def test_an_end_without_a_record_is_one(last: Message) -> None:
    assert scanned(Clients(record(0), last), 3) == [0]


def test_an_end_that_does_not_come_is_told() -> None:
    with pytest.raises(NotAnsweredError, match="nothing of DLQ-billing-0 has come for 30 s"):
        scanned(Clients(record(0), end(1)), 3)


def test_leaders_are_read_which_lag_behind_nobody() -> None:
    clients = Clients(record(0))
    scanned(clients, 1)
    assert clients.replica.config["client.rack"] == ""
