"""One sidecar through all its lives: killed, stopped, suspended, without power, and always started again."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from connectors.testing import InMemoryKafka, ManualClock, Process, SimulatedCrash
from sidecar.clock import HighWaterClock
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.errors import ClientsLostError, DataDirectoryError, KafkaUnreachableError
from sidecar.loop import Loop
from sidecar.observability.health import Health
from sidecar.pending import PendingAnswer, PendingQuery
from sidecar.settings import Settings
from sidecar.store import opening, timer_store
from tests.simulation.disk import Disk, Mount
from tests.simulation.ledger import Violation, errors_as_violations
from tests.simulation.oracle import METRICS
from tests.simulation.stretches import small_stretches
from tests.simulation.test_loop_on_fake import make_clients
from tests.support.callers import InlineCaller, LateCaller
from tests.support.host_clock import ClockAhead
from tests.support.steps import result_of

END_OF_SESSION = (ClientsLostError, KafkaUnreachableError, DataDirectoryError)
EXPECTED = (os.strerror(errno.ENOSPC), "of another lap")
"""Why a partition may be closed for a moment: a full disk, and what waits over more than a lap gets a larger wheel."""


class World(Protocol):
    """What a replica lives in."""

    seed: int
    chance: random.Random
    clock: ManualClock
    kafka: InMemoryKafka
    settings: Settings
    disk_rate: float
    """How often a disk fails."""
    damages: bool
    """Whether a disk is damaged between two lives."""
    at_work: "Replica"
    """Whose turn it is: it tells by which machine's boot the files are judged."""

    @property
    def may_fail(self) -> bool:
        """Whether a disk or Kafka may refuse something without a crash, but for a disk that is full."""

    def tell(self, text: str) -> None:
        """Something has happened."""


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """A history goes on in here: by its seed's bounds, on the machine at work; raises Violation for any error."""
    with (
        patch.object(timer_store, "boot_id", lambda: world.at_work.boot_id),
        patch.object(opening, "boot_id", lambda: world.at_work.boot_id),
        small_stretches(world.seed),
        errors_as_violations(),
    ):
        yield


class Replica:
    """What runs, on a machine with a disk and a clock of its own."""

    def __init__(self, world: World, name: str, ahead_ms: int = 0) -> None:
        self.name = name
        self.settings = world.settings
        """Which hold from its next life on."""
        self.host_clock = ClockAhead(world.clock, ahead_ms)
        self.disk = Disk(random.Random(f"{world.seed}-{name}-disk"), world.disk_rate, self.host_clock)
        self.loop: Loop | None = None
        self.clock = HighWaterClock(self.host_clock)
        self._world = world
        self._process: Process | None = None
        self._mount: Mount | None = None
        self.health = Health(self.clock)

    @property
    def boot_id(self) -> str:
        """The machine's, this time."""
        return f"{self.name}-{self.disk.boots}"

    def begin(self) -> None:
        """A new life."""
        world = self._world
        self.end()
        if world.damages and world.chance.random() < 0.35:
            world.tell(f"{self.name}: disk {self.disk.damage()}")
        self.clock = HighWaterClock(self.host_clock)
        self._connect()

    def _connect(self) -> None:
        world = self._world
        world.at_work = self
        self.health = Health(self.clock)
        self._process = world.kafka.process(self.name)
        self._mount = self.disk.mount(self._process)
        settings = self.settings.model_copy(update={"instance_id": self.name, "data_dir": Path("/", self.name)})
        caller = InlineCaller() if world.chance.random() < 0.5 else LateCaller()
        try:
            clients = make_clients(self._process, settings, self.clock, caller)
            self.loop = Loop(settings, clients, self.clock, self.health, METRICS, file_system=self._mount)
        except SimulatedCrash as crash:
            world.tell(f"{self.name}: dies at its start: {crash}")
        except END_OF_SESSION as error:
            world.tell(f"{self.name}: no session: {error}")

    def end(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
        if self._mount is not None:
            self.disk.boot(self._mount)
        self.loop = self._process = self._mount = None

    def lose_power(self) -> None:
        """Its machine goes down, and takes with it what was not synced."""
        self.end()
        self.disk.lose_power()

    def suspend(self) -> None:
        if self._process is not None:
            self._process.suspend()

    def stop(self) -> None:
        """SIGTERM: the transaction in hand is finished, the files are closed, the clients are left."""
        if self.loop is None:
            return
        self._world.at_work = self
        try:
            self.loop.run(lambda: True)
        except SimulatedCrash as crash:
            self._world.tell(f"{self.name}: dies while it stops: {crash}")
        except END_OF_SESSION as error:
            self._world.tell(f"{self.name}: stops without a session: {error}")
        self.end()

    def turn(self) -> None:
        """One turn of its loop; where it is dead, or its session is over, the next life or session."""
        if self.loop is None:
            self.begin()
            return
        self._world.at_work = self
        try:
            self.loop.turn()
            told = [cause.words for cause in self.health.failing.values()]
            reasons = [reason for reason in told if not any(expected in reason for expected in EXPECTED)]
            if reasons and not self._world.may_fail:
                raise Violation(f"{self.name} closes a partition though nothing is wrong: {reasons}")
        except SimulatedCrash as crash:
            self._world.tell(f"{self.name}: dies: {crash}")
            self.begin()
        except END_OF_SESSION as error:
            self._world.tell(f"{self.name}: session over: {error}")
            self._close(error)

    def _close(self, error: Exception) -> None:
        """As the daemon does: the sources are closed, new clients are made in the same process."""

        def ends() -> bool:
            raise error

        try:
            if self.loop is not None:
                self.loop.run(ends)
        except SimulatedCrash as crash:
            self._world.tell(f"{self.name}: dies: {crash}")
            self.begin()
        except END_OF_SESSION:
            clock = self.clock
            self.end()
            self.clock = clock
            self._connect()

    @property
    def trouble(self) -> str:
        """What it still has to do; empty where all it has is read, sent and committed."""
        if self.loop is None:
            return "does not run"
        told = []
        for source in self.loop.sources:
            log = self._world.kafka.log(source.topic, source.partition)
            assert log is not None
            is_at_work = source.next_due_ms is not None or source.has_progress or source.waiting
            # A slot more than a lap away is not seen as the next one.
            is_pending = not is_at_work and isinstance(source, WheelPartition) and source.figures.pending
            if source.position < log.end or is_at_work or is_pending:
                told.append(
                    f"{source.topic}-{source.partition} at {source.position} of {log.end}, next {source.next_due_ms}, "
                    f"{source.waiting} waiting, {source.trouble}"
                )
        return ", ".join(told)

    @property
    def is_failing(self) -> bool:
        """Whether it has closed a partition that it means to open again."""
        return self.loop is not None and bool(self.health.failing)

    @property
    def wheel_partitions(self) -> set[int]:
        sources = self.loop.sources if self.loop is not None else []
        return {source.partition for source in sources if isinstance(source, WheelPartition)}

    def count_pending(self) -> int:
        """What it tells of as waiting."""
        if self.loop is None:
            return 0
        answer: PendingAnswer = result_of(self.loop.pending(PendingQuery()))[0]
        return answer.total
