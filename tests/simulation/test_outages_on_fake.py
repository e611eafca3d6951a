"""The loop while a destination partition has no leader: from the levels by way of the wheel, and back."""

import pytest

from connectors.murmur2 import partition_of_key
from sidecar.dispatch.outages import Replicas
from sidecar.kafka import topic_admin
from tests.simulation.test_loop_on_fake import TIME_OUT, World, run, watched

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


@pytest.mark.parametrize("seed", range(2))
def test_a_schedule_partition_without_a_leader_is_opened_when_it_has_one(seed: int) -> None:
    world = World(seed)
    world.kafka.create_topic(world.names.wheel, 2, {"message.timestamp.type": "LogAppendTime"})
    world.schedule(60)
    topic = world.names.level(1)
    world.kafka.take_leader(topic, 1, OUTAGE_MS)
    back_ms = world.clock.monotonic_ms() + OUTAGE_MS
    log = world.kafka.log(topic, 1)
    assert log is not None
    assert log.end > 0
    loop, health = watched(world)
    # 1. Nobody can tell where reading it begins: all others go on, and it is told.
    run(world, loop, lambda: len(world.delivered()) == 60 - log.end)
    assert world.clock.monotonic_ms() < back_ms - OUTAGE_MS / 2
    assert health.verdict().words == f"{topic}-1 failed: no broker leads the partition"
    # 2. When it is back: the rest.
    run(world, loop, lambda: len(world.delivered()) == 60)
    assert world.clock.monotonic_ms() >= back_ms
    assert not health.failing
    world.judge()


def test_a_partition_that_kafka_calls_healthy_and_that_is_not_reached_holds_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way from this host to its leader is cut, and nobody else's is."""
    world = World(0)
    world.kafka.create_topic(world.names.wheel, 2, {"message.timestamp.type": "LogAppendTime"})
    whole = dict.fromkeys(range(PARTITIONS), Replicas(True, 1, 1))
    monkeypatch.setattr(topic_admin.TopicAdmin, "replicas", lambda _admin, _topic: whole)
    world.schedule(60)
    world.kafka.take_leader("orders", AWAY, OUTAGE_MS)
    began_ms = world.clock.monotonic_ms()
    others = [name for name in world.due_ms if partition_of_key(name, PARTITIONS) != AWAY]
    loop, health = watched(world)
    run(world, loop, lambda: sorted(value for value, _ in world.delivered()) == sorted(others))
    assert world.clock.monotonic_ms() - began_ms < OUTAGE_MS / 2
    run(world, loop, lambda: f"orders-{AWAY}" in health.destinations_away)
    run(world, loop, lambda: len(world.delivered()) == 60, turns=20_000)
    world.judge()


def test_many_topics_that_are_not_created_in_time_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "_TIMEOUT_S", 1.0)  # as long as a real client waits for a creation
    world = World(2)
    world.kafka.create_topic(world.names.wheel, 2, {"message.timestamp.type": "LogAppendTime"})
    world.kafka.faults.policy = lambda label, _: TIME_OUT if label == "create_topics:before" else None
    loop = world.sidecar()
    for number in range(40):
        world.schedule_for_level(1, b"RETRY-g%d" % number)
    world.schedule(60)
    longest_ms, lives = 0.0, len(world.processes)
    while len(world.delivered()) < 60:
        began_ms = world.clock.monotonic_ms()
        loop.turn()
        longest_ms = max(longest_ms, world.clock.monotonic_ms() - began_ms)
    assert longest_ms <= 2_000
    assert len(world.processes) == lives


def test_a_topic_that_is_not_created_in_time_holds_up_nothing_else_and_gets_its_records_later() -> None:
    world = World(2)
    world.kafka.create_topic(world.names.wheel, 2, {"message.timestamp.type": "LogAppendTime"})
    world.kafka.faults.policy = lambda label, _: TIME_OUT if label == "create_topics:before" else None
    loop = world.sidecar()
    for _ in range(30):
        world.schedule_for_level(1, b"RETRY-billing")
        world.schedule_for_level(1)
    world.schedule(0)
    # 1. While Kafka does not create it: the others of the same partitions.
    run(world, loop, lambda: len(world.delivered()) == 30)
    assert world.kafka.faults.hits["create_topics:before"] == 1
    # 2. Once it does, what has waited on the wheel meanwhile.
    run(world, loop, lambda: world.metrics.postponed._value.get() >= 30)
    world.kafka.faults.policy = lambda _label, _: None
    run(world, loop, lambda: "RETRY-billing" in world.kafka.topics and len(world.retried("billing")) == 30)
    assert len({value for value, _ in world.retried("billing") + world.delivered()}) == 60
    assert world.dead() == []
