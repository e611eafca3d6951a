"""The loop while a destination partition has no leader: from the levels by way of the wheel, and back."""

import pytest

from connectors.murmur2 import partition_of_key
from tests.simulation.test_loop_on_fake import World, run

AWAY, PARTITIONS = 1, 3
OUTAGE_MS = 300_000


@pytest.mark.parametrize("seed", range(4))
def test_the_records_of_a_level_for_the_other_partitions_go_on(seed: int) -> None:
    world = World(seed)
    world.kafka.create_topic(world.names.wheel, 2, {"message.timestamp.type": "LogAppendTime"})
    loop = world.sidecar()
    world.schedule(60)
    world.kafka.take_leader("orders", AWAY, OUTAGE_MS)
    back_ms = world.clock.monotonic_ms() + OUTAGE_MS
    others = [name for name in world.due_ms if partition_of_key(name, PARTITIONS) != AWAY]
    assert len(others) < 60
    # 1. While it is away: everybody else's, once.
    loop = run(world, loop, lambda: sorted(value for value, _ in world.delivered()) == sorted(others))
    assert world.clock.monotonic_ms() < back_ms - OUTAGE_MS / 2
    # 2. When it is back: the rest.
    run(world, loop, lambda: len(world.delivered()) == 60)
    assert world.clock.monotonic_ms() >= back_ms
    world.judge()
    assert world.metrics.postponed._value.get() >= 60 - len(others)
