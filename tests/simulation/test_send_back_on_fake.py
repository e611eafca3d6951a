"""Messages that fail, on the in-memory Kafka: retried until they succeed or are dead, each attempt once, none early."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import structlog
from confluent_kafka import Message, TopicPartition

from connectors.contract import retry_level
from connectors.testing import InMemoryKafka, Kind, ManualClock
from sidecar.clock import HighWaterClock
from sidecar.dispatch.call_thread import Caller
from sidecar.loop import Loop
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.settings import Settings
from tests.simulation.test_loop_on_fake import begin, make_clients, run
from tests.support.callers import InlineCaller, LateCaller

GROUPS = ("billing", "audit/eu")
MOST = 4
"""How often a message is retried."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
    structlog.configure(**before)


class Attempt(NamedTuple):
    """One delivery of a message to one group."""

    id: str
    group: str
    reconsume_times: int


class World:
    """A cluster, a sidecar that may die, and consumers that fail."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.kafka = InMemoryKafka(self.clock)
        self.settings = Settings(levels="1s 2s 3s 10s 20s", group_id="g", instance_id="one", batch_records=20)  # type: ignore[arg-type]
        self.names = self.settings.topic_names
        self.metrics = Metrics("test")
        self.dead: set[Attempt] = set()
        """Those that have to be among the dead letters."""
        self.retried: dict[Attempt, int] = {}
        """Those that have to be delivered, and the earliest time."""
        self.rejected = 0
        self._read: Counter[str] = Counter()
        self._producer = self.kafka.producer({"partitioner": "murmur2_random"})
        configs = {"message.timestamp.type": "LogAppendTime"}
        for topic in self.names.schedule_topics(self.settings.levels):
            if topic != self.names.wheel:
                self.kafka.create_topic(topic, 2, configs)
        self.kafka.create_topic(self.names.dead_letter("g"))

    def sidecar(self, name: str = "sidecar", health: Health | None = None) -> Loop:
        clock = HighWaterClock(self.clock)
        caller: Caller = InlineCaller() if self.chance.random() < 0.5 else LateCaller()
        clients = make_clients(self.kafka.process(name), self.settings, clock, caller)
        return Loop(self.settings, clients, clock, health or Health(clock), self.metrics)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def fail(self, count: int) -> None:
        """Consumers fail messages of ``orders``, and now and then send back what nobody can read."""
        for _ in range(count):
            if self.chance.random() < 0.1:
                self._producer.produce(self.names.send_back, b"bad", headers=[("RETRY_TOPIC", b"orders")])
                self.rejected += 1
            else:
                name = f"{len(self.retried)}-{len(self.dead)}"
                self._send_back(Attempt(name, self.chance.choice(GROUPS), 0), [("UNIQ_KEY", name.encode())])
        self._flush()

    def consume(self) -> None:
        """Consumers take what has come to their retry topics, and fail some of it again."""
        for group in GROUPS:
            topic = self.names.retry(group)
            new = self._records(topic)[self._read[topic] :]
            self._read[topic] += len(new)
            for message in new:
                if self.chance.random() < 0.7:
                    self._send_back(attempt_of(message), message.headers() or [])
        self._flush()

    def _send_back(self, failed: Attempt, headers: list[tuple[str, bytes | None]]) -> None:
        delay = self.chance.choice([0, 0, 0, 2, 99, -1])
        told = {"CONSUMER_GROUP": failed.group, "RETRY_TOPIC": "orders", "MAX_RECONSUME_TIMES": MOST, "DELAY": delay}
        added = [(name, str(value).encode()) for name, value in told.items()]
        self._producer.produce(self.names.send_back, b"v", failed.id.encode(), headers=[*headers, *added])
        again = failed._replace(reconsume_times=failed.reconsume_times + 1)
        level = retry_level(failed.reconsume_times, MOST, delay, self.settings.levels)
        if level is None:
            self.dead.add(again)
        else:
            self.retried[again] = self.clock.now_ms() + self.settings.levels.delay_ms(level)

    def _flush(self) -> None:
        while self._producer.flush(1):
            pass

    # --- the judge ----------------------------------------------------------------------------------------------------

    @property
    def is_all_dealt_with(self) -> bool:
        """Whether the sidecar has sent on everything that there is."""
        committed = self.kafka.committed("g")
        for topic in self.names.schedule_topics(self.settings.levels):
            for number in (0, 1):
                log = self.kafka.log(topic, number)
                if log is not None and log.end and committed.get((topic, number), (0, ""))[0] < log.end:
                    return False
        return True

    def judge(self) -> None:
        retried = [message for group in GROUPS for message in self._records(self.names.retry(group), wait_s=20)]
        dead = [message for group in GROUPS for message in self._records(self.names.dead_letter(group))]
        rejected = self._records(self.names.dead_letter("g"))
        bad = [message for message in rejected if message.value() == b"bad"]
        refused = [attempt_refused(message, self.names.send_back) for message in rejected if message not in bad]
        assert len(bad) == self.rejected
        assert len(refused) <= sum(fault.kind is Kind.REFUSE for _, _, fault in self.kafka.faults.injected)
        went = Counter(map(attempt_of, retried + dead)) + Counter(refused)
        assert went == Counter([*self.retried, *self.dead])
        early = [
            attempt_of(message) for message in retried if message.timestamp()[1] < self.retried[attempt_of(message)]
        ]
        assert not early
        assert {len(message.headers() or []) for message in retried + dead} == {7}
        assert {dict(message.headers() or [])["RETRY_TOPIC"] for message in retried + dead} == {b"orders"}

    def _records(self, topic: str, wait_s: float = 0.0) -> list[Message]:
        if topic not in self.kafka.topics:
            return []
        reader = self.kafka.consumer(
            {"group.id": "judge", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        reader.assign([TopicPartition(topic, 0, 0)])
        return reader.consume(100_000, wait_s)


def attempt_of(message: Message) -> Attempt:
    headers = dict(message.headers() or [])  # of one that comes twice the last
    return Attempt(
        headers["UNIQ_KEY"].decode(), headers["CONSUMER_GROUP"].decode(), int(headers.get("RECONSUME_TIME", b"0"))
    )


def attempt_refused(message: Message, send_back: str) -> Attempt:
    """The attempt that came to nothing because Kafka refused the record on its way there."""
    attempt = attempt_of(message)
    is_first_step = dict(message.headers() or [])["ERROR_TOPIC"] == send_back.encode()
    return attempt._replace(reconsume_times=attempt.reconsume_times + is_first_step)


def until_all_is_done(world: World) -> Callable[[], bool]:
    """Consumers go on until there is nothing left to fail."""

    def condition() -> bool:
        if not world.is_all_dealt_with:
            return False
        before = len(world.retried) + len(world.dead)
        world.consume()
        return world.is_all_dealt_with and len(world.retried) + len(world.dead) == before

    return condition


def test_messages_that_fail_are_retried_until_they_are_dead() -> None:
    world = World(0)
    loop = world.sidecar()
    world.fail(40)
    run(world, loop, until_all_is_done(world))
    assert max(attempt.reconsume_times for attempt in world.dead) == MOST + 1
    world.judge()


@pytest.mark.parametrize("seed", range(20))
def test_crashes_and_faults_lose_no_attempt_and_repeat_none(seed: int) -> None:
    world = World(seed)
    world.kafka.faults.seed(random.Random(seed), 0.01, processes=("sidecar",))
    loop = begin(world)
    for _ in range(6):
        world.fail(10)
        loop = run(world, loop, lambda: world.chance.random() < 0.1)
        world.consume()
    world.kafka.faults.stop()
    run(world, loop, until_all_is_done(world))
    world.judge()
