"""Requests in transactions, on the in-memory Kafka: all of one or nothing, each key once, whatever happens."""

import gc
import weakref
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from connectors.contract import DelayLevels, TopicNames
from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.errors import RefusedError
from connectors.testing import CRASH, TIME_OUT, Fault, InMemoryKafka, Kind, SimulatedCrash
from sidecar.front.at_once import (
    ANSWER_WITHIN_S,
    SUSPECT_ANSWERS_WITHIN_S,
    AtOnce,
    Begin,
    Key,
    KeyReusedError,
    NothingDoneError,
    NotKnownError,
    RefusedRecordError,
    TransactionalScheduler,
    Work,
)
from sidecar.front.key_ledger import KEPT_MS, Entry, KeyLedger

NAMES = TopicNames()


def message(value: str, level: int | None = None) -> Begin:
    delay_ms = 1_000 if level is None else None
    return lambda scheduler: scheduler.begin_send("orders", value, delay_ms=delay_ms, level=level)


def work(*values: str, key: str | None = None, body: str = "b") -> Work:
    return Work([message(value) for value in values], Key(key, body) if key else None)


class Bench:
    """A cluster, and processes that come and go."""

    def __init__(self) -> None:
        self.kafka = InMemoryKafka()
        self.kafka.create_topic(NAMES.wheel, 2)
        self.kafka.create_topic(NAMES.level(1), 1)
        self._numbers = count()
        self.now_ms = 0
        self.cache_max_bytes = 2**20

    def start(self, identity: str = "a") -> AtOnce:
        """A process with nothing in memory."""
        clients = self.kafka.process(f"p{next(self._numbers)}")
        return AtOnce(
            lambda: TransactionalScheduler({}, f"t-{identity}", NAMES, DelayLevels((1_000,)), clients),
            lambda: KeyLedger(Cluster({"bootstrap.servers": "b"}, clients), NAMES.idempotency, self.cache_max_bytes),
            self.kafka.clock,
            lambda: self.now_ms,
        )

    def scheduled(self) -> Counter[bytes]:
        """The values that a sidecar would see, and how often."""
        consumer = self.kafka.consumer({"group.id": "r", "auto.offset.reset": "earliest"})
        places = [(NAMES.wheel, 0), (NAMES.wheel, 1), (NAMES.level(1), 0)]
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        seen = Counter([one.value() for one in consumer.consume(10_000, 1.0) if one.error() is None])
        consumer.close()
        return seen


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_all_of_a_request_is_there_with_its_places(bench: Bench) -> None:
    one = Work([message("a"), message("b", level=1)])
    bench.start().settle([one])
    done = one.done.result(0)
    assert [one.topic for one in done.written] == [NAMES.wheel, NAMES.level(1)]
    assert not done.is_replay
    assert bench.scheduled() == {b"a": 1, b"b": 1}


def test_a_key_that_comes_again_is_answered_as_it_was(bench: Bench) -> None:
    at_once = bench.start()
    first, again = work("a", "b", key="k"), work("a", "b", key="k")
    at_once.settle([first])
    at_once.settle([again])
    assert again.done.result(0).written == first.done.result(0).written
    assert (first.done.result(0).is_replay, again.done.result(0).is_replay) == (False, True)
    assert bench.scheduled() == {b"a": 1, b"b": 1}


def test_a_key_is_known_after_a_restart_and_to_other_replicas(bench: Bench) -> None:
    first = work("a", key="k")
    other = bench.start("other")
    other.settle([work("z", key="zz")])
    bench.start().settle([first])
    for process in (bench.start(), other):
        again = work("a", key="k")
        process.settle([again])
        assert again.done.result(0).is_replay
        assert again.done.result(0).written == first.done.result(0).written
    assert bench.scheduled() == {b"a": 1, b"z": 1}


def test_a_key_between_an_entry_of_ones_own_and_its_commit_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica carries out another request at the same moment."""
    at_once, commit = bench.start(), AtOnce._commit
    at_once.settle([work("a", key="k")])
    other = bench.kafka.producer({"transactional.id": "t-other"})
    other.init_transactions(1)

    def commit_between(self: AtOnce, scheduler: TransactionalScheduler) -> None:
        other.begin_transaction()
        other.produce(NAMES.idempotency, msgspec.json.encode(Entry("theirs", "b", [], 0)), partition=0)
        other.flush(1)
        commit(self, scheduler)
        other.commit_transaction(1)

    monkeypatch.setattr(AtOnce, "_commit", commit_between)
    at_once.settle([work("b", key="ours")])
    again = work("c", key="theirs")
    at_once.settle([again])
    assert again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 1, b"b": 1}


def test_a_key_that_another_replica_has_noted_before_ones_own_entry_is_known(bench: Bench) -> None:
    at_once, other = bench.start(), bench.start("other")
    at_once.settle([work("a", key="k")])

    def begin(scheduler: TransactionalScheduler) -> Any:
        other.settle([work("b", key="theirs")])
        return message("c")(scheduler)

    at_once.settle([Work([begin], Key("ours", "b"))])
    again = work("b", key="theirs")
    at_once.settle([again])
    assert again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 1, b"b": 1, b"c": 1}


def test_where_the_ledger_cannot_be_made_requests_without_a_key_are_carried_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("no right to create it")

    monkeypatch.setattr(Cluster, "create", refuse)
    with_key, without = work("a", key="k"), work("b")
    bench.start().settle([with_key, without])
    assert len(without.done.result(0).written) == 1
    with pytest.raises(RefusedError):
        with_key.done.result(0)
    assert bench.scheduled() == {b"b": 1}


def test_a_key_behind_another_replicas_open_transaction_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is every replica's, and nobody reads past a transaction that one of them has left open."""
    other = bench.kafka.producer({"transactional.id": "t-other"})
    other.init_transactions(1)

    def begin(scheduler: TransactionalScheduler) -> Any:
        other.begin_transaction()
        other.produce(NAMES.idempotency, b"{}", partition=0)
        other.flush(1)
        return message("a")(scheduler)

    answered: list[str] = []
    first = Work([begin], Key("k", "b"))
    bench.start().settle([first])
    assert not first.done.result(0).is_replay
    monkeypatch.setattr("sidecar.front.key_ledger._SETTLED_WITHIN_S", 0.1)
    monkeypatch.setattr("sidecar.front.key_ledger._MADE_WITHIN_S", 0.1)
    too_early, again, third = work("a", key="k"), work("a", key="k"), bench.start("third")
    without = work("b")
    without.done.add_done_callback(lambda _: answered.append("without"))
    too_early.done.add_done_callback(lambda _: answered.append("too early"))
    third.settle([too_early, without])
    assert answered == ["without", "too early"], "what has no key does not wait"
    assert len(without.done.result(0).written) == 1
    with pytest.raises(NotKnownError, match="stays open"):
        too_early.done.result(0)
    other.abort_transaction(1)
    third.settle([again])
    assert again.done.result(0) == (first.done.result(0).written, True)
    assert bench.scheduled() == {b"a": 1, b"b": 1}


def test_a_key_that_comes_twice_at_once_is_carried_out_once(bench: Bench) -> None:
    """Who sent the first has hung up before its answer, and repeats it."""
    first, again, other = work("a", key="k"), work("a", key="k"), work("b", key="k", body="other")
    bench.start().settle([first, again, work("c"), other])
    assert again.done.result(0) == (first.done.result(0).written, True)
    with pytest.raises(KeyReusedError):
        other.done.result(0)
    assert bench.scheduled() == {b"a": 1, b"c": 1}


def test_a_key_that_comes_twice_at_once_waits_once_for_a_kafka_that_is_away(bench: Bench) -> None:
    began_ms = bench.kafka.clock.monotonic_ms()
    bench.kafka.make_unavailable(60_000)
    works = [work("a", key="k") for _ in range(4)]
    bench.start().settle(works)
    assert all(isinstance(one.done.exception(0), NotKnownError) for one in works)
    assert bench.kafka.clock.monotonic_ms() - began_ms < 10_000


def test_a_key_with_another_body_is_refused_and_does_nothing(bench: Bench) -> None:
    at_once = bench.start()
    at_once.settle([work("a", key="k")])
    other = work("other", key="k", body="other")
    at_once.settle([other])
    with pytest.raises(KeyReusedError):
        other.done.result(0)
    assert bench.scheduled() == {b"a": 1}


def test_a_key_is_forgotten_after_a_day(bench: Bench) -> None:
    at_once = bench.start()
    at_once.settle([work("a", key="k")])
    bench.now_ms = KEPT_MS + 1
    again = work("a", key="k")
    at_once.settle([again])
    assert not again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 2}


def test_a_key_is_known_for_a_day_after_a_restart_though_the_brokers_clock_is_behind(bench: Bench) -> None:
    bench.now_ms = bench.kafka.clock.now_ms() + 3_600_000
    bench.start().settle([work("a", key="k")])
    bench.now_ms += KEPT_MS
    again = work("a", key="k")
    bench.start().settle([again])
    assert again.done.result(0).is_replay


def test_the_memory_of_keys_is_bounded_and_keeps_the_newest(bench: Bench) -> None:
    bench.cache_max_bytes = 10 * Entry("k", "b", [], 0).size_bytes
    at_once = bench.start()
    for number in range(30):
        at_once.settle([work("a", key=f"k{number}")])
    newest, recent, oldest = work("a", key="k29"), work("a", key="k25"), work("a", key="k0")
    at_once.settle([newest, recent, oldest])
    assert newest.done.result(0).is_replay
    assert recent.done.result(0).is_replay
    assert not oldest.done.result(0).is_replay


def test_a_key_that_comes_every_other_day_takes_the_memory_of_one(bench: Bench) -> None:
    bench.cache_max_bytes = 10 * Entry("k", "b", [], 0).size_bytes
    at_once = bench.start()
    for _ in range(30):
        bench.now_ms += 2 * KEPT_MS
        at_once.settle([work("a", key="k")])
    other, again = work("a", key="other"), work("a", key="k")
    at_once.settle([other])
    at_once.settle([again])
    assert again.done.result(0).is_replay


def test_what_is_no_entry_in_the_ledger_is_passed_over(bench: Bench) -> None:
    bench.start().settle([work("a", key="k")])
    stranger = bench.kafka.producer({})
    stranger.produce(NAMES.idempotency, b"{not ours")
    stranger.flush()
    again = work("a", key="k")
    bench.start().settle([again])
    assert again.done.result(0).is_replay


def test_a_refused_record_fails_its_request_alone_and_whole(bench: Bench) -> None:
    bench.kafka.faults.refuse(NAMES.wheel, larger_than_bytes=1_000)
    good, bad, keyed = work("a"), work("b", "x" * 5_000), work("c", key="k")
    bench.start().settle([good, bad, keyed])
    assert len(good.done.result(0).written) == 1
    with pytest.raises(RefusedRecordError) as refused:
        bad.done.result(0)
    assert refused.value.number == 1
    assert not keyed.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 1, b"c": 1}


class NeverBegun:
    """The real client, whose transactions nobody has made ready: it refuses to begin one, and to abort it."""

    def __init__(self) -> None:
        self._client = Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t", "log_level": 0})

    def init_transactions(self, timeout_s: float) -> None:
        """Nothing is made ready."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_request_that_the_client_refuses_is_not_kept_in_memory(bench: Bench) -> None:
    class Clients:
        def producer(self, options: Any) -> Any:
            return NeverBegun()

    clients: Any = Clients()
    at_once = AtOnce(
        lambda: TransactionalScheduler({}, "t", NAMES, DelayLevels((1_000,)), clients), _no_ledger, bench.kafka.clock
    )
    one = work("a")
    is_there = weakref.ref(one)
    at_once.settle([one])
    with suppress(NothingDoneError):
        one.done.result(0)
        pytest.fail("it was not refused")
    del one
    gc.collect()
    assert is_there() is None


def test_clients_that_never_got_ready_are_let_go_at_once(bench: Bench) -> None:
    """They have threads and connections: no collection is to be waited for."""
    made: list[weakref.ref[NeverBegun]] = []

    class NeverReady(NeverBegun):
        def init_transactions(self, timeout_s: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=False))

    class Clients:
        def producer(self, options: Any) -> Any:
            client = NeverReady()
            made.append(weakref.ref(client))
            return client

    clients: Any = Clients()
    at_once = AtOnce(
        lambda: TransactionalScheduler({}, "t", NAMES, DelayLevels((1_000,)), clients), _no_ledger, bench.kafka.clock
    )
    one = work("a")
    gc.disable()
    try:
        at_once.settle([one])
        assert made
        assert [client() for client in made] == [None] * len(made)
        assert isinstance(one.done.exception(0), NothingDoneError)
    finally:
        gc.enable()


def _no_ledger() -> KeyLedger:
    raise AssertionError("no request has a key")


def test_of_records_that_are_refused_together_the_largest_is_named(bench: Bench) -> None:
    bench.kafka.faults.refuse(NAMES.level(1), larger_than_bytes=1_000)
    bench.kafka.take_leader(NAMES.level(1), 0, 500)  # one batch, refused whole
    bad = Work([message("x" * length, level=1) for length in (500, 2_000, 5_000, 3_000)])
    bench.start().settle([bad])
    with pytest.raises(RefusedRecordError) as refused:
        bad.done.result(0)
    assert refused.value.number == 2


def test_a_record_that_is_too_large_for_the_client_fails_its_request_alone(bench: Bench) -> None:
    good, bad = work("a"), work("b", "x" * 2_000_000)
    bench.start().settle([good, bad])
    with pytest.raises(RefusedRecordError) as refused:
        bad.done.result(0)
    assert refused.value.number == 1
    assert good.done.result(0).written
    assert bench.scheduled() == {b"a": 1}


def test_what_cannot_be_written_fails_its_request_alone(bench: Bench) -> None:
    def begin(scheduler: TransactionalScheduler) -> Any:
        return scheduler.begin_send("orders", "x", headers={"REAL_TOPIC": "other"}, delay_ms=1)

    bad, good = Work([message("b"), begin]), work("a")
    bench.start().settle([bad, good])
    with pytest.raises(RefusedRecordError, match="REAL_TOPIC is an instruction"):
        bad.done.result(0)
    assert good.done.result(0).written
    assert bench.scheduled() == {b"a": 1}


def test_while_kafka_is_away_nothing_is_done_and_that_is_certain(bench: Bench) -> None:
    at_once = bench.start()
    at_once.settle([work("before", key="k0")])
    bench.kafka.make_unavailable(60_000)
    lost, lost_key = work("a"), work("b", key="k")
    at_once.settle([lost, lost_key])
    with pytest.raises(NothingDoneError):
        lost.done.result(0)
    with pytest.raises(NotKnownError):  # not what an earlier one with this key has done
        lost_key.done.result(0)
    bench.kafka.clock.advance(60_000)
    again = work("b", key="k")
    at_once.settle([again])
    assert not again.done.result(0).is_replay
    assert bench.scheduled() == {b"before": 1, b"b": 1}


def test_a_partition_that_takes_nothing_fails_its_own_requests_and_soon_delays_no_others(bench: Bench) -> None:
    at_once, waited_s = bench.start(), []
    at_once.settle([work("before", key="k0")])
    bench.kafka.take_leader(NAMES.level(1), 0, 600_000)
    for number in range(3):
        began_ms = bench.kafka.clock.monotonic_ms()
        good, bad = work(f"a{number}", key=f"a{number}"), Work([message("b"), message("x", level=1)], Key("b", "b"))
        without_key = work(f"c{number}")
        at_once.settle([good, bad, without_key])
        waited_s.append((bench.kafka.clock.monotonic_ms() - began_ms) / 1_000)
        assert good.done.result(0).written
        assert without_key.done.result(0).written
        with pytest.raises(NothingDoneError, match=f"'{NAMES.level(1)}' does not take the record"):
            bad.done.result(0)
    assert waited_s[0] >= ANSWER_WITHIN_S
    assert max(waited_s[1:]) < 2 * SUSPECT_ANSWERS_WITHIN_S
    bench.kafka.clock.advance(600_000)
    bench.kafka.take_leader(NAMES.level(1), 0, 2_000 * SUSPECT_ANSWERS_WITHIN_S)  # it has all the time again
    last = Work([message("b"), message("x", level=1)], Key("b", "b"))
    at_once.settle([last])
    assert not last.done.result(0).is_replay
    assert bench.scheduled() == Counter([b"before", b"b", b"x", *(f"{a}{n}".encode() for a in "ac" for n in range(3))])


def test_a_ledger_that_takes_nothing_fails_what_has_a_key_alone(bench: Bench) -> None:
    at_once = bench.start()
    at_once.settle([work("a", key="k0")])
    bench.kafka.take_leader(NAMES.idempotency, 0, 600_000)
    keyed, without_key = work("b", key="k"), work("c")
    at_once.settle([keyed, without_key])
    with pytest.raises(NotKnownError):
        keyed.done.result(0)
    assert without_key.done.result(0).written
    bench.kafka.clock.advance(600_000)
    again = work("b", key="k")
    at_once.settle([again])
    assert not again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 1, b"b": 1, b"c": 1}


class Scanned:
    """How many entries are read from the ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        add = KeyLedger._add

        def counted(ledger: KeyLedger, raw: bytes) -> None:
            self.entries += 1
            add(ledger, raw)

        monkeypatch.setattr(KeyLedger, "_add", counted)


def test_while_kafka_is_silent_nobody_says_that_nothing_was_done_under_a_key(bench: Bench) -> None:
    at_once = bench.start()
    at_once.settle([work("first", key="k0")])
    bench.kafka.faults.policy = lambda at, _process: TIME_OUT if at == "commit_transaction:after" else None
    at_once.settle([work("a", key="k")])  # it is there, and nobody knows
    bench.kafka.faults.stop()
    bench.kafka.make_unavailable(60_000)
    again, without_key = work("a", key="k"), work("b")
    at_once.settle([again, without_key])
    with pytest.raises(NotKnownError, match="whether a request with this key"):
        again.done.result(0)
    with pytest.raises(NothingDoneError):
        without_key.done.result(0)
    bench.kafka.clock.advance(60_000)
    assert bench.scheduled() == {b"first": 1, b"a": 1}


def test_of_the_ledger_no_more_is_read_than_memory_keeps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = bench.start()
    for number in range(20):
        at_once.settle([work("a", key=f"k{number}")])
    scanned, again = Scanned(monkeypatch), work("a", key="k17")
    bench.cache_max_bytes = 3 * 650
    bench.start().settle([again])
    assert again.done.result(0).is_replay
    assert scanned.entries == 4


def test_the_ledger_is_not_read_again_after_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = Scanned(monkeypatch)
    for number in range(20):
        bench.start().settle([work("a", key=f"k{number}")])
    at_once = bench.start()
    scanned.entries = 0
    at_once.settle([work("a", key="k0")])
    assert scanned.entries == 20
    bench.kafka.make_unavailable(60_000)
    at_once.settle([work("b", key="k")])
    bench.kafka.clock.advance(60_000)
    bench.kafka.faults.at("commit_transaction:after", TIME_OUT)
    at_once.settle([work("b", key="k")])
    bench.kafka.faults.stop()
    again = work("b", key="k")
    at_once.settle([again])
    assert again.done.result(0).is_replay
    assert scanned.entries <= 22


def test_of_the_ledger_the_last_day_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.now_ms = bench.kafka.clock.now_ms()
    at_once = bench.start()
    for number in range(20):
        at_once.settle([work("a", key=f"k{number}")])
    bench.kafka.clock.advance(2 * KEPT_MS)
    bench.now_ms = bench.kafka.clock.now_ms()
    at_once.settle([work("a", key="new")])
    scanned, again = Scanned(monkeypatch), work("a", key="new")
    bench.start().settle([again])
    assert again.done.result(0).is_replay
    assert scanned.entries == 1


def test_a_ledger_that_has_been_deleted_is_made_anew(bench: Bench) -> None:
    at_once = bench.start()
    for number in range(3):
        at_once.settle([work("a", key=f"k{number}")])
    bench.kafka.admin({}).delete_topics([NAMES.idempotency])[NAMES.idempotency].result()
    lost, again = work("b", key="k"), work("b", key="k")
    at_once.settle([lost])
    assert isinstance(lost.done.exception(0), NothingDoneError)
    at_once.settle([again])
    assert not again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 3, b"b": 1}


def test_a_key_in_a_ledger_that_another_replica_has_made_anew_is_known(bench: Bench) -> None:
    at_once = bench.start()
    for number in range(3):
        at_once.settle([work("a", key=f"k{number}")])
    bench.kafka.admin({}).delete_topics([NAMES.idempotency])[NAMES.idempotency].result()
    bench.start("other").settle([work("b", key="k")])
    again = work("b", key="k")
    at_once.settle([again])
    assert again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 3, b"b": 1}


def test_a_ledger_of_which_retention_has_taken_what_was_not_read_yet_is_read_on(bench: Bench) -> None:
    at_once, other = bench.start(), bench.start("other")
    at_once.settle([work("a", key="k0")])
    for number in range(1, 4):
        other.settle([work("a", key=f"k{number}")])
    ledger = bench.kafka.log(NAMES.idempotency, 0)
    assert ledger is not None
    bench.kafka.delete_records(NAMES.idempotency, 0, ledger.end - 2)
    again, new = work("a", key="k3"), work("b", key="new")
    at_once.settle([again, new])
    assert (again.done.result(0).is_replay, new.done.result(0).is_replay) == (True, False)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_became_of_a_commit_without_an_answer_is_settled_by_the_next_request(bench: Bench, when: str) -> None:
    at_once = bench.start()
    at_once.settle([work("first", key="k0")])
    label = f"commit_transaction:{when}"
    bench.kafka.faults.policy = lambda at, _process: TIME_OUT if at == label else None
    unknown = work("a", "b", key="k")
    at_once.settle([unknown])
    with pytest.raises(NotKnownError):
        unknown.done.result(0)
    bench.kafka.faults.stop()
    for _ in range(2):
        again = work("a", "b", key="k")
        at_once.settle([again])
        assert len(again.done.result(0).written) == 2
    assert bench.scheduled() == {b"first": 1, b"a": 1, b"b": 1}


def test_a_commit_that_kafka_refuses_has_done_nothing_for_certain(bench: Bench) -> None:
    at_once, refused, again = bench.start(), work("a", key="k"), work("a", key="k")
    bench.kafka.faults.at("commit_transaction:before", Fault(Kind.ABORT))
    at_once.settle([refused])
    with pytest.raises(NothingDoneError):
        refused.done.result(0)
    at_once.settle([again])
    assert not again.done.result(0).is_replay
    assert bench.scheduled() == {b"a": 1}


@pytest.mark.parametrize(
    "label",
    [
        "begin_transaction:after",
        "produce:before",
        "produce:after",
        "flush:after",
        "commit_transaction:before",
        "commit_transaction:sent",
        "commit_transaction:after",
    ],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_repeated_request_is_harmless_wherever_the_process_dies(bench: Bench, label: str, nth: int) -> None:
    """The client hears nothing, and repeats itself until it does."""
    at_once = bench.start()
    bench.kafka.faults.at(label, CRASH, nth=nth)
    answers = []
    for round_ in range(4):
        one = work("a", "b", key=f"k{round_ // 2}")
        try:
            at_once.settle([one])
            answers.append(one.done.result(0).written)
        except SimulatedCrash:
            at_once = bench.start()
            again = work("a", "b", key=f"k{round_ // 2}")
            at_once.settle([again])
            answers.append(again.done.result(0).written)
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
    assert bench.scheduled() == {b"a": 2, b"b": 2}
