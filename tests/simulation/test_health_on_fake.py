"""What the loop says of Kafka's refusals: in words, with the topic, until they are over."""

import re

from confluent_kafka import KafkaError

from sidecar.clock import HighWaterClock
from sidecar.dispatch.call_thread import InlineCaller
from sidecar.health import Health, State
from sidecar.loop import Loop
from tests.simulation.test_loop_on_fake import World, all_committed, make_clients, run


def test_behind_names_who_refuses_what_and_forgets_it_afterwards() -> None:
    world = World(0)
    clock = HighWaterClock(world.clock)
    health = Health(clock)
    process = world.processes["sidecar"] = world.kafka.process("sidecar")
    clients = make_clients(process, world.settings, clock, InlineCaller())
    loop = Loop(world.settings, clients, clock, health, world.metrics)
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
