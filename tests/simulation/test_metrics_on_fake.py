"""What the loop tells of itself, on an in-memory Kafka whose clock the test moves."""

from pathlib import Path

import pytest

from sidecar.loop import NOW_AND_THEN_MS, Loop
from sidecar.observability.health import Health
from tests.simulation.test_pending_on_fake import WheelWorld
from tests.simulation.test_send_back_on_fake import World
from tests.support.logged import logged


@pytest.fixture
def world() -> World:
    return World(1)


def value_of(world: World, name: str, **labels: str) -> float | None:
    return world.metrics.registry.get_sample_value(name, labels)


def turn(world: World, loop: Loop, times: int = 6) -> None:
    for _ in range(times):
        loop.turn()
        world.clock.advance(NOW_AND_THEN_MS)


def test_lag_is_what_is_unread_and_what_is_not_committed(world: World) -> None:
    loop = world.sidecar()
    turn(world, loop)
    topic = world.names.level(5)  # 20 s
    producer = world.kafka.producer({"partitioner": "murmur2_random"})
    for _ in range(7):
        producer.produce(topic, b"v", headers=[("REAL_TOPIC", b"nowhere")])
    producer.flush(1)
    turn(world, loop, 3)
    assert value_of(world, "timewheel_unread_offsets", queue="5") == 0
    assert value_of(world, "timewheel_uncommitted_offsets", queue="5") == 7
    assert value_of(world, "timewheel_waiting_records", queue="5") == 7
    turn(world, loop, 30)
    assert value_of(world, "timewheel_uncommitted_offsets", queue="5") == 0
    assert value_of(world, "timewheel_rejected_records_total", code="UNKNOWN_DESTINATION") == 7
    assert value_of(world, "timewheel_dead_letters_total", group="g") == 7


def test_what_is_on_the_wheel_waits_on_the_disk_too(tmp_path: Path) -> None:
    world = WheelWorld(tmp_path)
    loop = world.begun()
    producer = world.kafka.producer({})
    for _ in range(5):
        headers = [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_SEC", b"600")]
        producer.produce(world.names.wheel, b"v", headers=headers)
    producer.flush(1)
    for _ in range(3):
        loop.turn()
        world.clock.advance(NOW_AND_THEN_MS)
    assert sum(wheel.waiting for wheel in world.wheels(loop)) == 0, "none of them is at hand"
    assert world.metrics.registry.get_sample_value("timewheel_waiting_records", {"queue": "wheel"}) == 5


def test_dead_letters_are_counted_by_group(world: World) -> None:
    loop = world.sidecar()
    turn(world, loop)
    producer = world.kafka.producer({"partitioner": "murmur2_random"})
    for group, delay in (("billing", b"-1"), ("billing", b"-1"), ("orders", b"-1"), ("orders", b"1")):
        headers = [("CONSUMER_GROUP", group.encode()), ("RETRY_TOPIC", b"t"), ("DELAY", delay)]
        producer.produce(world.names.send_back, b"v", headers=headers)
    producer.flush(1)
    turn(world, loop)
    assert value_of(world, "timewheel_dead_letters_total", group="billing") == 2
    assert value_of(world, "timewheel_dead_letters_total", group="orders") == 1
    assert value_of(world, "timewheel_delivered_records_total", queue="sendback") == 4


def test_transactions_tell_when_the_last_was_and_how_long_they_take(world: World) -> None:
    loop = world.sidecar()
    turn(world, loop)
    world.fail(5)
    turn(world, loop)
    committed = value_of(world, "timewheel_transactions_total", outcome="committed")
    assert committed
    assert value_of(world, "timewheel_transaction_duration_seconds_count") == committed
    last_s = value_of(world, "timewheel_last_transaction_timestamp_seconds")
    assert last_s is not None
    assert 0 < world.clock.now_ms() / 1000 - last_s <= 6 * NOW_AND_THEN_MS / 1000
    assert (value_of(world, "timewheel_rebalances_total", event="assigned") or 0) >= 1


def test_a_record_that_is_rejected_when_it_is_read_is_not_behind_since_1970(world: World) -> None:
    health = Health(world.clock)
    loop = world.sidecar(health=health)
    turn(world, loop)
    producer = world.kafka.producer({})
    producer.produce(world.names.level(1), b"v")
    producer.flush(1)
    highest_s = 0.0
    for _ in range(20):
        loop.turn()
        highest_s = max(highest_s, health.behind_ms / 1000)
    assert value_of(world, "timewheel_rejected_records_total", code="MISSING_REAL_TOPIC") == 1
    assert highest_s < 60


@pytest.mark.parametrize(("step_ms", "direction"), [(60_000, "forward"), (-60_000, "back")])
def test_a_step_of_the_clock_is_counted_and_logged(world: World, step_ms: int, direction: str) -> None:
    loop = world.sidecar()
    turn(world, loop)
    world.clock.step_wall(step_ms)
    with logged() as lines:
        turn(world, loop)
    assert value_of(world, "timewheel_clock_steps_total", direction=direction) == 1
    told = [line for line in lines if line["event"] == "clock stepped"]
    assert [line["step_ms"] for line in told] == [step_ms]
