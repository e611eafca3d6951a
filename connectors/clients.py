"""Where the library's Kafka clients come from: librdkafka, or an in-memory Kafka in users' tests.

from connectors.testing import InMemoryKafka

kafka = InMemoryKafka()
producer = ScheduledProducer({}, clients=kafka)      # an InMemoryKafka is a `Clients`
"""

from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from connectors.clock import Clock, SystemClock


class Clients(Protocol):
    """Makes clients with the methods of confluent-kafka's, and tells the time they live in."""

    @property
    def clock(self) -> Clock: ...

    def producer(self, config: Mapping[str, Any], /) -> Any: ...

    def consumer(self, config: Mapping[str, Any], /) -> Any: ...

    def admin(self, config: Mapping[str, Any], /) -> Any: ...


class KafkaClients:
    """Real ones."""

    clock: Clock = SystemClock()

    def producer(self, config: Mapping[str, Any], /) -> Producer:
        return Producer(dict(config))

    def consumer(self, config: Mapping[str, Any], /) -> Consumer:
        return Consumer(dict(config))

    def admin(self, config: Mapping[str, Any], /) -> AdminClient:
        return AdminClient(dict(config))
