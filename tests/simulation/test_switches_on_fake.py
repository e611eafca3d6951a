"""Intake and delivery stopped and started on the in-memory Kafka, whatever else happens."""

import random
from pathlib import Path

import pytest

from sidecar.clock import HighWaterClock
from sidecar.loop import Loop
from sidecar.observability.health import WAITS_FOR_DELIVERY, Health
from sidecar.switches import Switches
from tests.simulation.test_loop_on_fake import World, all_committed, begin, make_clients, run
from tests.support.callers import InlineCaller


class SwitchedWorld(World):
    """A world whose sidecars have switches."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.switches = Switches()

    def sidecar(self, name: str = "sidecar") -> Loop:
        process = self.processes[name] = self.kafka.process(name)
        settings = self.settings.model_copy(update={"instance_id": name})
        clock = HighWaterClock(self.clock)
        clients = make_clients(process, settings, clock, InlineCaller())
        return Loop(settings, clients, clock, Health(clock), self.metrics, switches=self.switches)

    def ingested(self, queue: str) -> float:
        value: float = self.metrics.ingested.labels(queue)._value.get()
        return value


@pytest.mark.parametrize("seed", range(20))
def test_switches_at_random_lose_nothing_and_repeat_nothing(seed: int) -> None:
    world = SwitchedWorld(seed)
    world.kafka.faults.seed(random.Random(seed), 0.01, processes=("sidecar",))
    loop = begin(world)
    for _ in range(8):
        world.schedule(10)
        world.switches.stop_enqueue = world.chance.random() < 0.4
        world.switches.stop_dequeue = world.chance.random() < 0.4
        loop = run(world, loop, lambda: world.chance.random() < 0.1)
    world.kafka.faults.stop()
    world.switches.stop_enqueue = world.switches.stop_dequeue = False
    run(world, loop, all_committed(world))
    world.judge()


def test_nothing_goes_out_while_delivery_is_stopped_and_everything_afterwards() -> None:
    world = SwitchedWorld(0)
    loop = world.sidecar()
    world.switches.stop_dequeue = True
    world.schedule(60)
    last_ms = world.clock.now_ms() + 12_000
    loop = run(world, loop, lambda: world.clock.now_ms() > last_ms)
    assert sum(world.ingested(str(level)) for level in (1, 2, 3)) == 60
    assert world.delivered() == []
    world.switches.stop_dequeue = False
    run(world, loop, all_committed(world))
    world.judge()


def test_nothing_is_read_while_intake_is_stopped() -> None:
    world = SwitchedWorld(0)
    loop = world.sidecar()
    loop = run(world, loop, lambda: bool(loop.sources))
    world.switches.stop_enqueue = True
    loop.turn()
    world.schedule(60)
    last_ms = world.clock.now_ms() + 12_000
    loop = run(world, loop, lambda: world.clock.now_ms() > last_ms)
    assert sum(world.ingested(str(level)) for level in (1, 2, 3)) == 0
    world.switches.stop_enqueue = False
    run(world, loop, all_committed(world))
    world.judge()


def test_what_only_delivery_can_take_off_a_wheel_is_held_up_to_a_size(tmp_path: Path) -> None:
    world = SwitchedWorld(0)
    world.settings = world.settings.model_copy(update={"data_dir": tmp_path, "read_ahead_records": 50})
    world.kafka.create_topic(world.names.wheel, 1, {"message.timestamp.type": "LogAppendTime"})
    world.switches.stop_dequeue = True
    producer = world.kafka.producer({})
    loop = world.sidecar()
    for number in range(40):  # rejected: their dead letters cannot go out
        for _ in range(20):
            producer.produce(world.names.wheel, b"%d" % number)
        while producer.flush(1):
            pass
        later_ms = world.clock.monotonic_ms() + 2_000
        loop = run(world, loop, lambda later_ms=later_ms: world.clock.monotonic_ms() > later_ms)  # type: ignore[misc]
    assert 250 <= world.ingested("wheel") <= 300
    assert loop._health.warnings() == [f"{world.names.wheel}-0: {WAITS_FOR_DELIVERY}"]
    world.switches.stop_dequeue = False
    run(world, loop, lambda: len(world._read(world.names.dead_letter("g"))) == 800)
    loop.turn()
    assert loop._health.warnings() == []
