"""Partitions whose files cannot be read when they are opened, on an in-memory Kafka."""

from pathlib import Path

import pytest

from sidecar.clock import HighWaterClock
from sidecar.loop import Loop
from sidecar.observability.health import Health
from sidecar.store.recovery import Case
from tests.simulation.test_loop_on_fake import make_clients, run
from tests.simulation.test_pending_on_fake import WheelWorld
from tests.support.bad_sector import BadSectors
from tests.support.callers import InlineCaller


@pytest.mark.parametrize("file", ["checkpoint", "timerlog/*"])
def test_what_cannot_be_read_twice_in_a_row_is_rebuilt_from_kafka(tmp_path: Path, file: str) -> None:
    world = WheelWorld(tmp_path)
    producer = world.kafka.producer({})
    in_a_while_ms = world.clock.now_ms() + 60_000
    due = [("REAL_TOPIC", b"orders"), ("TIMER_DELIVER_MS", b"%d" % in_a_while_ms)]
    for partition in range(2):
        producer.produce(world.names.wheel, b"%d" % partition, partition=partition, headers=due)
    producer.flush()
    loop = world.begun()
    run(world, loop, lambda: sum(wheel.figures.pending for wheel in world.wheels(loop)) == 2)
    loop.run(lambda: True)
    disk = BadSectors(tmp_path.glob(f"wheel-1/{file}"))
    assert disk.bad
    clock = HighWaterClock(world.clock)
    health = Health(clock)
    settings = world.settings.model_copy(update={"instance_id": "sidecar"})
    clients = make_clients(world.kafka.process("sidecar"), settings, clock, InlineCaller())
    again = Loop(settings, clients, clock, health, world.metrics, file_system=disk)
    failing: list[str] = []

    def both_are_open() -> bool:
        failing.extend(health.failing)
        return len(world.wheels(again)) == 2

    run(world, again, both_are_open)
    assert {wheel.partition: wheel.case for wheel in world.wheels(again)} == {0: Case.CLEAN, 1: Case.CORRUPT}
    assert f"{world.names.wheel}-1" in failing
    run(world, again, lambda: len(world.delivered()) == 2)
    assert {at_ms >= in_a_while_ms for _, at_ms in world.delivered()} == {True}
