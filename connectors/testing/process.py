"""A process as Kafka sees it: clients that live, stop and die together."""

from typing import TYPE_CHECKING, TypeVar

from connectors.clock import Clock
from connectors.testing.admin import InMemoryAdmin
from connectors.testing.client import Client, Config, Life
from connectors.testing.consumer import InMemoryConsumer
from connectors.testing.producer import InMemoryProducer

if TYPE_CHECKING:
    from connectors.testing.kafka import InMemoryKafka

ClientT = TypeVar("ClientT", bound=Client)


class Process:
    """Makes clients and ends them. A crash at a label takes every client of the process with it."""

    def __init__(self, kafka: "InMemoryKafka", name: str) -> None:
        self.name = name
        self.life = Life.RUNNING
        self._kafka = kafka
        self._clients: list[Client] = []

    @property
    def is_running(self) -> bool:
        return self.life is Life.RUNNING

    @property
    def is_dead(self) -> bool:
        return self.life is Life.DEAD

    @property
    def clock(self) -> Clock:
        return self._kafka.clock

    def consumer(self, config: Config, /) -> InMemoryConsumer:
        return self._adopt(InMemoryConsumer(self._kafka, self, config))

    def producer(self, config: Config, /) -> InMemoryProducer:
        return self._adopt(InMemoryProducer(self._kafka, self, config))

    def admin(self, config: Config, /) -> InMemoryAdmin:
        return self._adopt(InMemoryAdmin(self._kafka, self, config))

    def kill(self) -> None:
        """SIGKILL: nothing is closed. Membership lingers until the session times out or the static member returns;
        an open transaction until its time-out or until ``init_transactions`` with its id."""
        if self.life is not Life.DEAD:
            was_heard = self.life is Life.RUNNING
            self.life = Life.DEAD
            for client in self._clients:
                client.stopped(was_heard=was_heard)
            self._clients.clear()

    def suspend(self) -> None:
        """SIGSTOP: no heartbeats from here on. The next call of any of its clients wakes the process."""
        if self.life is Life.RUNNING:
            self.life = Life.SUSPENDED
            for client in self._clients:
                client.stopped(was_heard=True)

    def wake(self) -> None:
        """SIGCONT."""
        if self.life is Life.SUSPENDED:
            self.life = Life.RUNNING
            for client in self._clients:
                client.woken()

    def _adopt(self, client: ClientT) -> ClientT:
        self._clients.append(client)
        return client
