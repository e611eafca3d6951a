"""A process as Kafka sees it: clients that live, stop and die together."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from connectors.testing.errors import SimulatedCrash
from connectors.testing.faults import Fault, Kind

if TYPE_CHECKING:
    from connectors.testing.admin import InMemoryAdmin
    from connectors.testing.consumer import InMemoryConsumer
    from connectors.testing.kafka import InMemoryKafka
    from connectors.testing.producer import InMemoryProducer

Config = Mapping[str, Any]


class Life(Enum):
    """What a process is doing."""

    RUNNING = "running"  # -> SUSPENDED (SIGSTOP) or DEAD (SIGKILL)
    SUSPENDED = "suspended"  # -> RUNNING, with its next call
    DEAD = "dead"


class Process:
    """Makes clients and ends them. A crash at a label takes every client of the process with it."""

    def __init__(self, kafka: "InMemoryKafka", name: str) -> None:
        self.name = name
        self.life = Life.RUNNING
        self._kafka = kafka
        self._clients: list[Client] = []

    def consumer(self, config: Config) -> "InMemoryConsumer":
        from connectors.testing.consumer import InMemoryConsumer

        return self._adopt(InMemoryConsumer(self._kafka, self, config))

    def producer(self, config: Config) -> "InMemoryProducer":
        from connectors.testing.producer import InMemoryProducer

        return self._adopt(InMemoryProducer(self._kafka, self, config))

    def admin(self, config: Config) -> "InMemoryAdmin":
        from connectors.testing.admin import InMemoryAdmin

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

    def _adopt[ClientT: Client](self, client: ClientT) -> ClientT:
        self._clients.append(client)
        return client


class Client:
    """What consumer, producer and admin share: every call passes `_before` and `_after`, where faults come in."""

    def __init__(self, kafka: "InMemoryKafka", process: Process, config: Config) -> None:
        self.process = process
        self._kafka = kafka
        self._config = dict(config)

    def stopped(self, *, was_heard: bool) -> None:
        """The process runs no more, for now or for good."""

    def woken(self) -> None:
        """The process runs again."""

    def _before(self, call: str, timeout_s: float = 0.0) -> Fault | None:
        """Let time-outs and background sends happen, then ask for a fault. A time-out has passed when TIME_OUT is
        returned; so has the call's share of an unavailability."""
        process, kafka = self.process, self._kafka
        if process.life is not Life.RUNNING:
            self._wake()
        kafka.timers.ring()
        if kafka.senders:
            kafka.send_queued(self)
        fault = kafka.faults.decide(f"{call}:before", process.name)
        if fault is not None:
            fault = self._suffer(fault, timeout_s)
        if not kafka.is_available and not kafka.wait(timeout_s, lambda: kafka.is_available):
            return Fault(Kind.TIME_OUT)
        return fault

    def _after(self, call: str, timeout_s: float = 0.0) -> Fault | None:
        fault = self._kafka.faults.decide(f"{call}:after", self.process.name)
        return None if fault is None else self._suffer(fault, timeout_s)

    def _suffer(self, fault: Fault, timeout_s: float) -> Fault | None:
        """Do what every call does alike; the rest is the caller's."""
        if fault.kind is Kind.CRASH:
            self._crash()
        if fault.kind is Kind.TIME_OUT:
            self._kafka.wait(timeout_s, _never)
        elif fault.kind is Kind.UNAVAILABLE:
            self._kafka.make_unavailable(fault.ms)
            return None
        return fault

    def _local(self, label: str) -> None:
        """A point at which nothing but a crash can happen."""
        fault = self._kafka.faults.decide(label, self.process.name)
        if fault is not None and fault.kind is Kind.CRASH:
            self._crash()

    def _crash(self) -> None:
        self.process.kill()
        raise SimulatedCrash(f"{self.process.name}: {self._kafka.faults.injected[-1][0]}")

    def _wake(self) -> None:
        if self.process.life is Life.DEAD:
            raise SimulatedCrash(f"{self.process.name} is dead")
        self.process.wake()


def _never() -> bool:
    return False


Callback = Callable[..., object]
