"""Consumers that crash, are expelled, and meet a Kafka that times out, refuses and goes away: no record is lost.

One seed, one run; a failure prints the seed. Listeners succeed, ask for another attempt and raise at random. After
every step the one rule is checked: what lies below a committed offset has been handled, or stands on the send-back
topic.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaException

from connectors import ConsumedMessage, ConsumeResult, RetryingConsumer
from connectors.clock import Clock
from connectors.testing import InMemoryKafka, Kind, Process, SimulatedCrash

TOPIC, RETRY, SEND_BACK = "orders", "RETRY-g", "SCHEDULE_TOPIC_XXXX-sendback"
PARTITIONS = 3
STEPS = 120
KINDS = (Kind.CRASH, Kind.TIME_OUT, Kind.UNAVAILABLE, Kind.EXPEL, Kind.SHORT_READ, Kind.NOT_COORDINATOR)


class ProcessClients:
    """The clients of one process, which die together."""

    def __init__(self, kafka: InMemoryKafka, process: Process) -> None:
        self.clock: Clock = kafka.clock
        self._process = process

    def consumer(self, config: Mapping[str, Any], /) -> Any:
        return self._process.consumer(config)

    def producer(self, config: Mapping[str, Any], /) -> Any:
        return self._process.producer(config)


class World:
    """Kafka, two consumers of a group, and what their listeners have done."""

    def __init__(self, seed: int, *, orderly: bool) -> None:
        self.chance = random.Random(seed)
        self.orderly = orderly
        self.is_gapless = seed % 2 == 1
        """What is refused costs the producer of send-backs its life."""
        self.kafka = InMemoryKafka()
        self.kafka.create_topic(TOPIC, PARTITIONS)
        self.kafka.create_topic(RETRY)
        self.kafka.create_topic(SEND_BACK)
        self.handled: set[bytes] = set()
        self.firsts: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        """By partition, ids in the order in which they were handled first."""
        self.ids: dict[tuple[int, int], bytes] = {}
        """By partition and offset, what has been produced."""
        self._producer = self.kafka.producer({})
        self.kafka.faults.seed(self.chance, 0.02, KINDS, away_ms=8_000, processes=["p"])
        self.consumers = [self.consumer(), self.consumer()]

    def log(self, topic: str, partition: int = 0) -> list[Any]:
        log = self.kafka.log(topic, partition)
        assert log is not None
        return log.entries

    def produce(self) -> None:
        """A few more records."""
        for _ in range(self.chance.randrange(6)):
            partition, value = self.chance.randrange(PARTITIONS), b"%d" % len(self.ids)
            self.ids[partition, len(self.log(TOPIC, partition))] = value
            self._producer.produce(TOPIC, value, partition=partition)
            self._producer.flush()

    def refuse_or_allow(self) -> None:
        """Now and then nothing can be sent back for a while."""
        faults = self.kafka.faults
        if faults.refusals:
            if self.chance.random() < 0.2:
                faults.allow(faults.refusals[0])
        elif self.chance.random() < 0.05:
            faults.refuse(SEND_BACK)

    def consumer(self) -> RetryingConsumer:
        consumer = RetryingConsumer(
            {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 6_000},
            [TOPIC],
            orderly=self.orderly,
            max_reconsume_times=2 if self.orderly else None,
            producer_config={"enable.gapless.guarantee": self.is_gapless},
            clients=ProcessClients(self.kafka, self.kafka.process("p")),
        )

        @consumer.batch_listener(self.chance.choice([1, 3]))
        def listen(messages: list[ConsumedMessage], context: Any) -> ConsumeResult:
            done, fate = messages, self.chance.random()
            if fate < 0.2:
                raise RuntimeError("no luck")
            if fate < 0.3:
                return ConsumeResult.RECONSUME_LATER
            if fate < 0.5:
                context.ack_index = self.chance.randrange(-1, len(messages))
                done = messages[: context.ack_index + 1]
            for message in done:
                self._handle(message)
            return ConsumeResult.CONSUME_SUCCESS

        return consumer

    def _handle(self, message: ConsumedMessage) -> None:
        value = message.value or b""
        if value not in self.handled:
            self.handled.add(value)
            self.firsts[message.partition].append(value)

    def step(self) -> None:
        index = self.chance.randrange(len(self.consumers))
        try:
            if self.chance.random() < 0.03:
                self.consumers[index].close()
                self.consumers[index] = self.consumer()
            else:
                self.consumers[index].poll(self.chance.choice([0, 0.05, 1, 6]))
        except (SimulatedCrash, KafkaException):
            self.consumers[index] = self.consumer()
        self.check()

    def check(self) -> None:
        accounted = self.accounted()
        for (_, partition), (committed, _) in self.kafka.committed("g").items():
            for offset in range(committed):
                value = self.ids[partition, offset]
                assert value in accounted, f"{value!r} at {offset} of {partition} is lost: committed is {committed}"

    def accounted(self) -> set[bytes]:
        return self.handled | {entry[2] for entry in self.log(SEND_BACK)}

    @property
    def is_done(self) -> bool:
        committed = self.kafka.committed("g")
        return all(
            committed.get((TOPIC, partition), (0, None))[0] == len(self.log(TOPIC, partition))
            for partition in range(PARTITIONS)
        )


@contextmanager
def told(seed: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(f"seed {seed}")
        raise


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
@pytest.mark.parametrize("block", range(4))
def test_nothing_is_lost(block: int, orderly: bool) -> None:
    logging.disable(logging.CRITICAL)
    met: Counter[Kind] = Counter()
    try:
        for seed in range(block * 50, (block + 1) * 50):
            with told(seed):
                world = World(seed, orderly=orderly)
                for _ in range(STEPS):
                    world.produce()
                    world.refuse_or_allow()
                    world.step()
                world.kafka.faults.stop()
                for _ in range(2_000):
                    if world.is_done:
                        break
                    world.step()
                assert world.is_done, "the consumers do not come to the end"
                assert world.accounted() == set(world.ids.values())
                met.update(fault.kind for _, _, fault in world.kafka.faults.injected)
                if orderly:
                    assert_in_order(world)
    finally:
        logging.disable(logging.NOTSET)
    assert set(met) >= set(KINDS), f"never met: {set(KINDS) - set(met)}"


def assert_in_order(world: World) -> None:
    """In each partition records were handled in their order; those that are dead letters have made way."""
    dead = {entry[2] for entry in world.log(SEND_BACK)}
    for partition, firsts in world.firsts.items():
        order = [value for (place, _), value in sorted(world.ids.items()) if place == partition and value not in dead]
        assert [value for value in firsts if value not in dead] == order
