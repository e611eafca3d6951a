"""The sidecar's own loop on the in-memory Kafka: scheduled, waited for, delivered once and never early."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.contract import DelayLevels
from connectors.kafka import consumer_config, transactional_config
from connectors.testing import TIME_OUT, InMemoryKafka, Kind, ManualClock, Process, SimulatedCrash
from sidecar.clock import Clock, HighWaterClock
from sidecar.dispatch.call_thread import Caller
from sidecar.dispatch.transactions import ExactlyOnce, collect_failures
from sidecar.errors import ClientsLostError, KafkaUnreachableError
from sidecar.intake.start_finder import KafkaStartFinder
from sidecar.kafka.clients import Clients
from sidecar.kafka.throttling import Throttling
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.loop import Loop
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.settings import Settings
from tests.support.callers import InlineCaller, LateCaller
from tests.support.host_clock import ClockAhead

LEVELS = "1s 5s 10s"
DELAYS_MS = (1_000, 5_000, 10_000)
DAY_MS = 86_400_000


class World:
    """A cluster, a sidecar that may die, and what was scheduled on it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.kafka = InMemoryKafka(self.clock)
        self.settings = Settings(levels=LEVELS, group_id="g", instance_id="one", batch_records=20)  # type: ignore[arg-type]
        self.names = self.settings.topic_names
        self.metrics = Metrics("test")
        self.due_ms: dict[bytes, int] = {}
        self.hopeless = 0
        """Records for topics that take none."""
        self.processes: dict[str, Process] = {}
        self._producer = self.kafka.producer({"partitioner": "murmur2_random", "on_delivery": self._accepted})
        for level in (1, 2, 3):
            configs = {"message.timestamp.type": "LogAppendTime"}
            self.kafka.create_topic(self.names.level(level), 2, configs)
        self.kafka.create_topic("orders", 3)
        self.kafka.create_topic(self.names.dead_letter("g"))

    def schedule(self, count: int) -> None:
        for _ in range(count):
            self.schedule_for_level(self.chance.randrange(1, 4))
        while self._producer.flush(1):
            pass

    def schedule_for_level(self, level: int, destination: bytes = b"orders") -> None:
        """One record, which is sent with the next flush, or by itself."""
        name = b"%d" % len(self.due_ms)
        self.due_ms[name] = DELAYS_MS[level - 1]
        self.hopeless += destination != b"orders"
        self._producer.produce(self.names.level(level), name, name, headers=[("REAL_TOPIC", destination)])

    def refuse(self, topic: str) -> None:
        """There is a topic that takes no record."""
        self.kafka.create_topic(topic)
        self.kafka.faults.refuse(topic)

    def _accepted(self, error: KafkaError | None, message: Message) -> None:
        """A delay counts from the time that the broker puts on the record."""
        assert error is None
        self.due_ms[message.value() or b""] += message.timestamp()[1]

    def sidecar(self, name: str = "sidecar") -> Loop:
        """A process with clients of its own, put together as `sidecar.kafka.clients.connect` does."""
        process = self.processes[name] = self.kafka.process(name)
        settings = self.settings.model_copy(update={"instance_id": name})
        clock = HighWaterClock(self.clock)
        health = Health(clock)
        caller: Caller = InlineCaller() if self.chance.random() < 0.5 else LateCaller()
        return Loop(settings, make_clients(process, settings, clock, caller), clock, health, self.metrics)

    def dead(self) -> list[tuple[bytes, int]]:
        """The same of the sidecar's dead letters."""
        return self._read(self.names.dead_letter("g"))

    def retried(self, group: str) -> list[tuple[bytes, int]]:
        """The same of a group's retry topic."""
        return self._read(self.names.retry(group))

    def delivered(self) -> list[tuple[bytes, int]]:
        """Value and time of everything that a reader of what is committed sees at the destination."""
        return self._read("orders")

    def _read(self, topic: str, wait_s: float = 0.0) -> list[tuple[bytes, int]]:
        reader = self.kafka.consumer(
            {"group.id": "judge", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        reader.assign([TopicPartition(topic, log.number, 0) for log in self.kafka.topics[topic].logs])
        return [(message.value() or b"", message.timestamp()[1]) for message in reader.consume(100_000, wait_s)]

    def judge(self) -> None:
        """Every record went out once, to its destination or, where Kafka refused it, to the dead letters."""
        delivered = self._read("orders", wait_s=20)  # long enough for what was left open to time out
        dead = self.dead()
        assert sorted(value for value, _ in delivered + dead) == sorted(self.due_ms)
        refusals = sum(fault.kind is Kind.REFUSE for _, _, fault in self.kafka.faults.injected)
        assert self.hopeless <= len(dead) <= self.hopeless + refusals
        early = [value for value, at_ms in delivered if at_ms < self.due_ms[value]]
        assert not early


def watched(world: World, host: Clock | None = None) -> tuple[Loop, Health]:
    """A sidecar and its health.

    Args:
        host: its machine's clock, where it is not that of the brokers.
    """
    clock = HighWaterClock(host or world.clock)
    health = Health(clock)
    process = world.processes["sidecar"] = world.kafka.process("sidecar")
    clients = make_clients(process, world.settings, clock, InlineCaller())
    return Loop(world.settings, clients, clock, health, world.metrics), health


def make_clients(process: Process, settings: Settings, clock: HighWaterClock, caller: Caller) -> Clients:
    consumer = cast(
        Consumer,
        process.consumer(
            consumer_config(
                "in-memory",
                {},
                group_id=settings.group_id,
                instance_id=settings.identity,
                session_timeout_ms=settings.session_timeout,
            )
        ),
    )
    admin = cast(AdminClient, process.admin({}))
    topics = TopicAdmin(admin, settings)
    failures: list[tuple[str, int, KafkaError]] = []
    producers = [
        cast(
            Producer,
            process.producer(
                {
                    **transactional_config(
                        "in-memory",
                        {},
                        transactional_id=f"{settings.identity}-{turn}",
                        transaction_timeout_ms=settings.transaction_timeout,
                    ),
                    "on_delivery": collect_failures(failures),
                }
            ),
        )
        for turn in (0, 1)
    ]

    publishing = ExactlyOnce(
        producers, consumer.consumer_group_metadata, failures, lambda: False, lambda _progress: caller
    )
    return Clients(
        consumer=consumer,
        publishing=publishing,
        starts=KafkaStartFinder(consumer, admin, topics.look, clock),
        topics=topics,
        throttling=Throttling(clock),
    )


def run(world: World, loop: Loop, until: Callable[[], bool], name: str = "sidecar", turns: int = 5_000) -> Loop:
    """Turn until the condition holds; a crash or lost clients begin another life."""
    for _ in range(turns):
        if until():
            return loop
        try:
            loop.turn()
        except (SimulatedCrash, ClientsLostError, KafkaUnreachableError):
            loop = begin(world, name)
    raise AssertionError(f"not within {turns} turns")


def begin(world: World, name: str = "sidecar") -> Loop:
    for _ in range(100):
        try:
            return world.sidecar(name)
        except (SimulatedCrash, ClientsLostError, KafkaUnreachableError):
            continue
    raise AssertionError("no sidecar lives long enough to begin")


def all_committed(world: World) -> Callable[[], bool]:
    """Whether the group's progress has reached the last record of every level partition."""

    def condition() -> bool:
        committed: dict[Any, Any] = world.kafka.committed("g")
        for level in (1, 2, 3):
            topic = world.names.level(level)
            for partition in (0, 1):
                log = world.kafka.log(topic, partition)
                assert log is not None
                if log.end and committed.get((topic, partition), (0, ""))[0] < log.end:
                    return False
        return True

    return condition


def test_records_are_delivered_once_and_not_early() -> None:
    world = World(0)
    loop = world.sidecar()
    world.schedule(30)
    loop.turn()
    world.schedule(30)
    run(world, loop, all_committed(world))
    world.judge()


def test_nothing_is_delivered_before_its_time() -> None:
    world = World(0)
    loop = world.sidecar()
    world.schedule(20)
    while world.clock.now_ms() < min(world.due_ms.values()) - 1:
        loop.turn()
        if world.clock.now_ms() < min(world.due_ms.values()):
            assert world.delivered() == []
    run(world, loop, all_committed(world))
    world.judge()


def test_nothing_is_early_that_was_read_by_a_clock_which_was_behind_and_is_set() -> None:
    """Timestamps looked as if they were from the future."""
    world = World(0)
    world.settings = world.settings.model_copy(update={"read_ahead_records": 10})
    host = ClockAhead(world.clock, -600_000)
    clock = HighWaterClock(host)
    process = world.kafka.process("sidecar")
    clients = make_clients(process, world.settings, clock, InlineCaller())
    loop = Loop(world.settings, clients, clock, Health(clock), world.metrics)
    world.schedule(200)
    for level in (1, 2, 3):
        world.schedule_for_level(level, b"")  # a dead letter, ahead of its time
    run(world, loop, lambda: sum(source.waiting for source in loop.sources) >= 50)
    host.ahead_ms = 0
    run(world, loop, all_committed(world))
    world.judge()


def test_a_backlog_behind_a_replacement_in_doubt_is_read_and_sent(tmp_path: Path) -> None:
    """Sending waits until it is known whether the replacement was carried out, reading until there is room."""
    world = World(0)
    wheel, hour = world.names.wheel, b"%d" % (world.clock.now_ms() + 3_600_000)
    world.kafka.create_topic(wheel, 1, {"message.timestamp.type": "LogAppendTime"})
    world.settings = world.settings.model_copy(
        update={"data_dir": tmp_path / "one", "batch_records": 5, "read_ahead_records": 4}
    )
    producer = world.kafka.producer({})

    def put(value: bytes, **headers: bytes) -> None:
        producer.produce(wheel, value, b"k", headers=[("REAL_TOPIC", b"orders"), *headers.items()])
        assert producer.flush(1) == 0

    def committed() -> int:
        return world.kafka.committed("g").get((wheel, 0), (0, None))[0]

    loop = world.sidecar()
    for value, uniq_key in ((b"keeps its place", b"z"), (b"first", b"a")):
        put(value, TIMER_DELIVER_MS=hour, UNIQ_KEY=uniq_key)
    run(world, loop, lambda: committed() == 2)
    put(b"in its place", TIMER_DELIVER_MS=hour, UNIQ_KEY=b"b", TIMER_REPLACE_UNIQKEY=b"a")
    for number in range(200):
        put(b"due %d" % number, TIMER_DELIVER_MS=b"1")
    run(world, loop, lambda: committed() >= 3)
    world.processes["sidecar"].kill()
    world.settings = world.settings.model_copy(update={"data_dir": tmp_path / "two"})
    run(world, world.sidecar(), lambda: len(world.delivered()) == 200)


@pytest.mark.parametrize("batch_records", [1, 2])
def test_fewer_records_in_a_transaction_than_partitions_with_a_backlog_are_taken_in_turn(batch_records: int) -> None:
    world = World(0)
    world.settings = world.settings.model_copy(update={"batch_records": batch_records})
    world.schedule_for_level(3)
    lone = list(world.due_ms)[-1]
    for _ in range(100):
        world.schedule_for_level(1)
    world._producer.flush()
    world.clock.advance(600_000)
    loop, _ = watched(world)
    loop._switches.stop_dequeue = True
    run(world, loop, lambda: sum(source.waiting for source in loop.sources) == 101)
    loop._switches.stop_dequeue = False
    run(world, loop, lambda: lone in dict(world.delivered()), turns=20)
    assert len(world.delivered()) < 12


def test_a_refused_record_is_found_beside_partitions_that_are_always_due() -> None:
    world = World(0)
    world.refuse("closed")
    world.schedule_for_level(2, b"closed")
    world.schedule(0)
    world.clock.advance(5_000)
    for _ in range(2_000):
        world.schedule_for_level(1)
    world.schedule(0)
    world.clock.advance(1_000)
    loop = run(world, world.sidecar(), lambda: bool(world.dead()), turns=60)
    assert len(world.delivered()) < 1_000
    run(world, loop, all_committed(world))
    world.judge()


@pytest.mark.parametrize(
    ("code", "letter"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, b"0"),
        (KafkaError.INVALID_RECORD, b"0"),  # a compacted topic, and a record without a key
        (KafkaError.POLICY_VIOLATION, b""),  # which may be one of sizes
    ],
)
def test_where_no_dead_letter_may_be_written_that_is_told_and_it_is_as_whole_as_it_may_be(
    code: int, letter: bytes
) -> None:
    world = World(0)
    loop, health = watched(world)
    world.refuse("closed")
    topic = world.names.dead_letter("g")
    refusal = world.kafka.faults.refuse(topic, code=code)
    world.schedule_for_level(1, b"closed")
    world.schedule(20)
    told: list[str] = []

    def is_told_often() -> bool:
        told.append(health.broker_error)
        return sum(topic in reason for reason in told) > 10

    run(world, loop, is_told_often)
    assert f"'{topic}': {KafkaError(code).str()}" in told
    assert world.dead() == []
    world.kafka.faults.allow(refusal)
    run(world, loop, all_committed(world))
    assert [value for value, _ in world.dead()] == [letter]
    assert len(world.delivered()) == 20


def test_many_refused_records_hold_up_their_own_partitions_alone() -> None:
    world = World(0)
    world.refuse("closed")
    for _ in range(100):
        world.schedule_for_level(1, b"closed")
    for _ in range(200):
        world.schedule_for_level(2)
    world.schedule(0)
    world.clock.advance(10_000)
    loop = run(world, world.sidecar(), lambda: len(world.delivered()) == 200, turns=60)
    assert len(world.dead()) < 50
    run(world, loop, all_committed(world))
    assert len(world.dead()) == 100
    world.judge()


def test_a_level_longer_than_brokers_remember_progress_goes_on_after_a_restart() -> None:
    world = World(0)
    world.settings = world.settings.model_copy(update={"levels": DelayLevels.parse("1s 5s 20d")})
    loop = world.sidecar()
    world.schedule_for_level(3)
    world.schedule(0)
    for _ in range(20):
        loop.turn()
    world.clock.advance(10 * DAY_MS)
    loop.run(lambda: True)
    loop = world.sidecar()
    for _ in range(20):
        loop.turn()
    assert world.delivered() == []
    world.clock.advance(10 * DAY_MS)
    run(world, loop, all_committed(world), turns=100)
    assert len(world.delivered()) == 1


@pytest.mark.parametrize("seed", range(20))
def test_crashes_and_faults_lose_nothing_and_repeat_nothing(seed: int) -> None:
    world = World(seed)
    world.kafka.faults.seed(random.Random(seed), 0.01, processes=("sidecar",))
    loop = begin(world)
    for _ in range(8):
        world.schedule(10)
        loop = run(world, loop, lambda: world.chance.random() < 0.1)
    world.kafka.faults.stop()
    run(world, loop, all_committed(world))
    world.judge()


@pytest.mark.parametrize("seed", range(20))
def test_two_replicas_share_the_work_whatever_happens_to_one(seed: int) -> None:
    world = World(seed)
    world.kafka.faults.seed(random.Random(seed), 0.01, processes=("one", "two"))
    loops = {name: begin(world, name) for name in ("one", "two")}
    for _ in range(8):
        world.schedule(10)
        for _ in range(world.chance.randrange(1, 30)):
            name = world.chance.choice(list(loops))
            if world.chance.random() < 0.02:  # it sleeps, may be until its session is over, and does not know
                world.processes[name].suspend()
                other = "two" if name == "one" else "one"
                end_ms = world.clock.monotonic_ms() + world.chance.choice([1_000, 20_000])
                loops[other] = run(world, loops[other], lambda: world.clock.monotonic_ms() >= end_ms, other)  # noqa: B023
            loops[name] = run(world, loops[name], once(), name)
    world.kafka.faults.stop()
    # A static member that dies between giving partitions up and joining again comes back without a rebalance, and what
    # it gave up belongs to nobody until there is one.
    for turn in range(5_000):
        if all_committed(world)():
            break
        if turn % 500 == 0:
            world.kafka.rebalance("g")
        for name in loops:
            loops[name] = run(world, loops[name], once(), name)
    world.judge()


def once() -> Callable[[], bool]:
    """A condition that holds from the second time on: one turn."""
    asked = iter([False])
    return lambda: next(asked, True)


def _others_go_on(world: World, bad: bytes, within_ms: int) -> Health:
    """A record that never goes out, on one level, holds up its own partition: those on another level do go out."""
    loop, health = watched(world)
    run(world, loop, lambda: loop.sources != [])
    world.schedule_for_level(1, bad)
    world.schedule(0)
    for _ in range(60):
        world.schedule_for_level(2)
    world.schedule(0)
    until_ms = world.clock.monotonic_ms() + within_ms
    while len(world.delivered()) < 60 and world.clock.monotonic_ms() < until_ms:
        loop.turn()
        world.clock.advance(20)
    assert len(world.delivered()) == 60
    return health


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN, KafkaError._MSG_TIMED_OUT, KafkaError.KAFKA_STORAGE_ERROR])
def test_what_kafka_refuses_for_now_holds_up_its_own_partition_alone(code: int) -> None:
    """Of a leader that this sidecar does not reach, for one, Kafka knows nothing."""
    world = World(2)
    world.kafka.create_topic("odd")
    world.kafka.faults.refuse("odd", code=code)
    _others_go_on(world, b"odd", within_ms=30_000)
    aborted = world.metrics.transactions.labels("aborted")._value.get()
    assert 0 < aborted < 600, "it is tried again without a pause"


def test_dead_letters_without_a_leader_hold_up_the_partition_of_a_rejected_record_alone() -> None:
    world = World(2)
    world.kafka.take_leader(world.names.dead_letter("g"), 0, 3_600_000)
    _others_go_on(world, b"no such topic", within_ms=60_000)


def test_dead_letters_that_are_refused_are_told_with_what_ends_it() -> None:
    world = World(1)
    letters = world.names.dead_letter("g")
    world.kafka.faults.refuse(letters, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    loop, health = watched(world)
    producer = world.kafka.producer({})
    producer.produce(world.names.level(1), b"v", headers=[("REAL_TOPIC", b"no such topic")])
    producer.flush(10)
    run(world, loop, lambda: f"write to {letters}" in health.broker_remedy)


def test_a_retry_topic_that_is_not_created_in_time_holds_up_its_own_partition_alone() -> None:
    world = World(2)
    world.kafka.faults.policy = lambda label, _: TIME_OUT if label == "create_topics:before" else None
    health = _others_go_on(world, b"RETRY-some-group", within_ms=40_000)
    assert health.is_alive()
    assert world.kafka.faults.hits["create_topics:before"] <= 2


@pytest.mark.parametrize(
    ("code", "key"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, b"key"), (KafkaError.INVALID_RECORD, None)]
)
def test_a_topic_that_refuses_all_that_is_sent_costs_a_few_transactions(code: int, key: bytes | None) -> None:
    """No right to write, or a compacted topic and no keys."""
    world = World(2)
    world.kafka.create_topic("odd")
    world.kafka.faults.refuse("odd", code=code)
    loop, _ = watched(world)
    producer = world.kafka.producer({})
    for _ in range(300):
        producer.produce(world.names.level(1), b"v", key, headers=[("REAL_TOPIC", b"odd")])
    producer.flush(10)
    run(world, loop, lambda: len(world.dead()) == 300)
    aborted = world.metrics.transactions.labels("aborted")._value.get()
    assert aborted < 30


def test_a_partition_that_was_stopped_is_not_told_as_such_by_the_next_session() -> None:
    world = World(1)
    clock = HighWaterClock(world.clock)
    health = Health(clock)
    topic = world.names.level(1)
    beyond = world.kafka.consumer({"group.id": "g", "enable.auto.commit": False})
    beyond.commit(offsets=[TopicPartition(topic, 0, 3, "{}")], asynchronous=False)

    def session() -> tuple[Loop, Process]:
        process = world.kafka.process("sidecar")
        clients = make_clients(process, world.settings, clock, InlineCaller())
        return Loop(world.settings, clients, clock, health, world.metrics), process

    def lost() -> bool:
        raise ClientsLostError("fenced")

    loop, process = session()
    read_meanwhile = [health.stopped]  # as a web thread does
    run(world, loop, lambda: bool(health.stopped))
    read_meanwhile.append(health.stopped)
    world.schedule(120)
    with pytest.raises(ClientsLostError):
        loop.run(lost)
    health.session_ended()
    process.kill()
    loop, _ = session()
    run(world, loop, lambda: len(world.delivered()) >= 100)
    assert not health.stopped
    assert [list(stopped) for stopped in read_meanwhile] == [[], [f"{topic}-0"]], "a reader's never changes"
    assert world.metrics.stopped_partitions._value.get() == 0


def test_a_topic_that_is_made_anew_is_read_from_its_beginning() -> None:
    world = World(2)
    clock = HighWaterClock(world.clock)
    health = Health(clock)
    for life in range(2):
        process = world.kafka.process("sidecar")
        clients = make_clients(process, world.settings, clock, InlineCaller())
        loop = Loop(world.settings, clients, clock, health, world.metrics)
        world.schedule_for_level(1)
        world.schedule(0)
        run(world, loop, lambda life=life: len(world.delivered()) > life)  # type: ignore[misc]
        if life == 0:
            topic = world.names.level(1)
            world.kafka.admin({}).delete_topics([topic])[topic].result()
            world.kafka.create_topic(topic, 2, {"message.timestamp.type": "LogAppendTime"})
            health.topics_made_anew += 1
            world.clock.advance(1_000)
            with pytest.raises(ClientsLostError, match="created again"):
                loop.run(lambda: False)
            process.kill()
    assert len(world.delivered()) == 2


def test_progress_that_is_committed_once_more_in_a_topic_made_anew_stops_the_partition() -> None:
    """Its sidecar has not noticed, and dies: whoever comes next would pass over what the new topic begins with."""
    world = World(2)
    topic = world.names.level(1)
    loop, _ = watched(world)
    for _ in range(6):
        world.schedule_for_level(1)
    world.schedule(0)
    run(world, loop, lambda: len(world.delivered()) == 6)
    progress = {place: committed for place, committed in world.kafka.committed("g").items() if place[0] == topic}
    world.processes["sidecar"].kill()
    world.clock.advance(2 * world.settings.session_timeout)
    world.kafka.admin({}).delete_topics([topic])[topic].result()
    world.kafka.create_topic(topic, 2, {"message.timestamp.type": "LogAppendTime"})
    late = cast(Consumer, world.kafka.process("late").consumer({"group.id": "g"}))
    late.commit(
        offsets=[TopicPartition(*place, offset, metadata or "") for place, (offset, metadata) in progress.items()],
        asynchronous=False,
    )
    for _ in range(40):
        world.schedule_for_level(1)
    world.schedule(0)
    loop, health = watched(world)
    run(world, loop, lambda: bool(health.stopped))
    assert set(health.stopped) == {f"{topic}-{partition}" for (_, partition), (offset, _) in progress.items() if offset}
    assert all("of another topic of this name" in cause.words for cause in health.stopped.values())


@pytest.mark.parametrize("metadata", ["", '{"set":true}'])
def test_an_offset_that_another_consumer_of_the_group_has_committed_stops_a_level(metadata: str) -> None:
    """It has read the topic, and delivered nothing. What `timewheel progress set` commits is meant."""
    world = World(3)
    topic = world.names.level(1)
    for _ in range(20):
        world.schedule_for_level(1)
    world.schedule(0)
    ends = [(TopicPartition(topic, log.number, log.end, metadata)) for log in world.kafka.topics[topic].logs]
    stranger = cast(Consumer, world.kafka.process("stranger").consumer({"group.id": "g"}))
    stranger.commit(offsets=ends, asynchronous=False)
    loop, health = watched(world)
    for _ in range(50):
        loop.turn()
    assert set(health.stopped) == (set() if metadata else {f"{topic}-0", f"{topic}-1"})
    assert all("stands alone" in cause.words for cause in health.stopped.values())
    assert world.delivered() == []
