"""What every client has in common: it belongs to a process, and each of its calls may go wrong."""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from connectors.testing.errors import SimulatedCrash
from connectors.testing.faults import Fault, Kind

if TYPE_CHECKING:
    from connectors.testing.kafka import InMemoryKafka
    from connectors.testing.process import Process

Config = Mapping[str, Any]


class Life(Enum):
    """What a process is doing."""

    RUNNING = "running"  # -> SUSPENDED (SIGSTOP) or DEAD (SIGKILL)
    SUSPENDED = "suspended"  # -> RUNNING, with its next call
    DEAD = "dead"


class Client:
    """What consumer, producer and admin share: every call passes `_before` and `_after`, where faults come in."""

    def __init__(self, kafka: "InMemoryKafka", process: "Process", config: Config) -> None:
        self.process = process
        self._kafka = kafka
        self._config = dict(config)

    def stopped(self, *, was_heard: bool) -> None:
        """The process runs no more, for now or for good."""

    def woken(self) -> None:
        """The process runs again."""

    def _before(self, call: str, timeout_s: float = 0.0, *, waits: bool = True) -> Fault | None:
        """Let time-outs and background sends happen, then ask for a fault. With TIME_OUT the time has passed.

        `waits`: for a broker that does not answer; else the call sees to that itself.
        """
        process, kafka = self.process, self._kafka
        self._alive()
        kafka.timers.ring()
        if kafka.senders:
            kafka.send_queued(self)
        fault = kafka.faults.decide(f"{call}:before", process.name)
        if fault is not None:
            fault = self._suffer(fault, timeout_s)
        if waits and not kafka.is_available and not kafka.wait(timeout_s, lambda: kafka.is_available):
            return Fault(Kind.TIME_OUT)
        return fault

    def _left_s(self, timeout_s: float, began_ms: float) -> float:
        """What is left of a timeout; negative ones have no end."""
        return (
            timeout_s if timeout_s < 0 else max(0.0, timeout_s - (self._kafka.clock.monotonic_ms() - began_ms) / 1000)
        )

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

    def _alive(self) -> None:
        """Wake the process where it is suspended.

        Raises:
            SimulatedCrash: it is dead.
        """
        if self.process.life is not Life.RUNNING:
            self._wake()

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
