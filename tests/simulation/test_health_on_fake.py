"""What the loop says of Kafka's refusals: in words, with the topic, until they are over."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sidecar.clock import HighWaterClock
from sidecar.dispatch.call_thread import Call
from sidecar.dispatch.levels import LevelPartition
from sidecar.loop import Loop
from sidecar.observability.health import Health, State
from tests.simulation.test_loop_on_fake import World, all_committed, make_clients, run, watched
from tests.support.callers import InlineCaller
from tests.support.host_clock import ClockAhead


def test_behind_names_who_refuses_what_and_forgets_it_afterwards() -> None:
    world = World(0)
    loop, health = watched(world)
    world.schedule(20)
    refusal = world.kafka.faults.refuse("orders", code=KafkaError.NOT_ENOUGH_REPLICAS)

    def is_behind() -> bool:
        world.clock.advance(100)  # what a transaction takes that is refused
        return health.behind_ms > 4_000

    run(world, loop, is_behind)
    health.probed(None)  # the broker answers: so it is not away, it refuses
    verdict = health.verdict()
    assert verdict.state is State.BEHIND
    assert verdict.words.startswith("behind by 4.")
    why = r" s because Kafka refuses what is sent: 'orders-[0-2]': Broker: Not enough in-sync replicas"
    assert re.search(f"{why}$", verdict.words), verdict.words
    assert world.delivered() == []
    world.kafka.faults.allow(refusal)
    run(world, loop, all_committed(world))
    loop.turn()
    assert health.broker_error == ""
    assert health.verdict().state is State.HEALTHY
    world.judge()


def test_it_is_told_that_messages_go_out_early_after_the_clock_was_set_back() -> None:
    world = World(0)
    loop, health = watched(world)
    run(world, loop, lambda: bool(loop.sources))
    world.clock.step_wall(-3_600_000)
    loop.turn()
    assert health.verdict().state is State.HEALTHY
    told = "messages were delivered by a clock that was 1h ahead: what is due within that time goes out at once"
    assert health.warnings() == [f"the clock: {told}"]
    world.clock.advance(3_600_000)
    loop.turn()
    assert health.warnings() == []


def test_it_is_told_that_this_hosts_clock_is_behind_until_it_is_set() -> None:
    world = World(0)
    host = ClockAhead(world.clock, -40_000)
    loop, health = watched(world, host)
    world.schedule(5)
    run(world, loop, lambda: bool(health.warnings()))
    told = "this host's clock is 40s behind Kafka's: by Kafka's, messages are delivered late by as much"
    assert health.warnings() == [f"the clock: {told}"]
    run(world, loop, all_committed(world))
    assert world.metrics.registry.get_sample_value("timewheel_clock_ahead_seconds") == -40
    host.ahead_ms = 0
    loop.turn()
    assert health.warnings() == []
    world.schedule(5)
    run(world, loop, all_committed(world))
    assert health.warnings() == []
    assert world.metrics.registry.get_sample_value("timewheel_clock_ahead_seconds") == 0
    world.judge()


def test_what_was_read_while_kafka_is_waited_for_is_behind_as_soon_as_it_is_due() -> None:
    """Nothing was due when the transaction began, which is of progress alone, and no turn is taken before it ends."""
    world = World(0)
    clock = HighWaterClock(world.clock)
    health = Health(clock)
    behind_ms: list[float] = []

    class SlowKafka(InlineCaller):
        """A record of level 1 arrives with each commit, which is answered after 5 s."""

        def submit(self, call: Call) -> None:
            if health.assigned:
                world.schedule_for_level(1)
            super().submit(call)

        def result(self, give_up: Callable[[], bool]) -> None:
            if health.assigned:
                world.clock.advance(5_000)
                behind_ms.append(health.behind_ms)
            super().result(give_up)

    process = world.processes["sidecar"] = world.kafka.process("sidecar")
    loop = Loop(world.settings, make_clients(process, world.settings, clock, SlowKafka()), clock, health, world.metrics)
    aborted = world.kafka.producer({"transactional.id": "aborts"})
    aborted.init_transactions(1)
    aborted.begin_transaction()
    aborted.produce(world.names.level(1), b"nobody sees it", headers=[("REAL_TOPIC", b"orders")])
    aborted.flush(1)
    aborted.abort_transaction(1)
    run(world, loop, lambda: bool(behind_ms))
    assert behind_ms == [4_000]


def test_a_loop_that_opens_and_closes_many_large_partitions_is_alive_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """/healthz would have it restarted otherwise, and the next start would take as long again."""
    world = World(0)
    loop, health = watched(world)
    alive: list[bool] = []

    def slowly(call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any) -> Any:
            world.clock.advance(20_000)
            alive.append(health.is_alive())
            return call(*args)

        return slow

    loop._assignment._make_source = slowly(loop._assignment._make_source)
    monkeypatch.setattr(LevelPartition, "close", slowly(LevelPartition.close))
    run(world, loop, lambda: len(loop.sources) == 6)
    loop.run(lambda: True)
    assert alive == [True] * 12
