"""Redriving on the in-memory Kafka: each dead letter once, whatever happens to the one who does it."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from connectors.dead_letters import (
    DeadLetters,
    DeadLettersError,
    Filter,
    NoSuchGroupError,
    NotAnsweredError,
    Redriven,
    RefusedError,
    TakenOverError,
)
from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.redrive import Redrive
from connectors.kafka import NO_TOPIC_IDS
from connectors.testing import CRASH, TIME_OUT, InMemoryKafka, ManualClock, SimulatedCrash
from connectors.testing.admin import InMemoryAdmin
from connectors.testing.producer import InMemoryProducer
from sidecar.front.dead_letters import problem_of
from sidecar.web.problems import Kind

Headers = list[tuple[str, bytes | None]]


class AtOnce(Executor):
    """Runs a call when it is submitted."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except KafkaException as error:
            future.set_exception(error)
        return future


class WhenAsked(Executor):
    """Runs a call when its result is asked for: as late as a thread may; one that nobody asks for, at the end."""

    def __init__(self) -> None:
        self._left: list[LateFuture] = []

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        self._left.append(LateFuture(partial(call, *arguments)))
        return self._left[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for future in self._left:
            with suppress(KafkaException):
                future.result()


class LateFuture(Future[Any]):
    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self._call: Callable[[], Any] | None = call

    def result(self, timeout: float | None = None) -> Any:
        call, self._call = self._call, None
        return call() if call is not None else None


class Bench:
    """A cluster with dead letters of the group ``billing``."""

    def __init__(self, partitions: int = 2, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.kafka = InMemoryKafka(self.clock)
        self.kafka.create_topic("DLQ-billing", partitions)
        self.kafka.create_topic("orders", 3)

    def die(
        self,
        count: int,
        *more: tuple[str, bytes | None],
        first: int = 0,
        value: bytes = b"v",
        topic: str = "DLQ-billing",
    ) -> None:
        producer = self.kafka.producer({"partitioner": "murmur2_random"})
        for number in range(first, first + count):
            headers: Headers = [
                ("CONSUMER_GROUP", b"billing"),
                ("RETRY_TOPIC", b"orders"),
                ("RECONSUME_TIME", b"17"),
                ("UNIQ_KEY", b"%d" % number),
                *more,
            ]
            producer.produce(topic, value, b"k%d" % number, headers=headers)
        assert producer.flush() == 0

    def letters(self, name: str = "operator", **options: object) -> DeadLetters:
        config = {"bootstrap.servers": "in-memory", **options}
        executor = self.chance.choice([AtOnce, WhenAsked])
        return DeadLetters(config, clients=self.kafka.process(name), executor=executor)

    def ids(self, topic: str = "orders", wait_s: float = 0.0) -> list[str]:
        reader = self.kafka.consumer({"group.id": "r", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        reader.assign([TopicPartition(topic, log.number, 0) for log in self.kafka.topics[topic].logs])
        return sorted(dict(message.headers())["UNIQ_KEY"].decode() for message in reader.consume(100_000, wait_s))


def numbers(*ranges: range) -> list[str]:
    return sorted(str(number) for numbers in ranges for number in numbers)


def test_a_redrive_moves_everything_and_the_next_one_nothing() -> None:
    bench = Bench()
    bench.die(30)
    assert bench.letters().redrive("billing") == Redriven(moved=Counter(orders=30))
    assert bench.letters().redrive("%DLQ%billing") == Redriven(done_before=30)
    assert bench.ids() == numbers(range(30))
    bench.die(5, first=30)
    assert bench.letters().redrive("DLQ-billing") == Redriven(moved=Counter(orders=5), done_before=30)
    assert bench.ids() == numbers(range(35))


def test_what_a_filter_leaves_out_is_there_for_the_next() -> None:
    bench = Bench()
    bench.die(10, ("TAGS", b"a"))
    bench.die(10, ("TAGS", b"b"), first=10)
    bench.die(10, ("TAGS", b"a"), first=20)
    chosen = Filter.parse(["header.TAGS=b"])
    assert bench.letters().redrive("billing", chosen) == Redriven(moved=Counter(orders=10), filtered_out=20)
    assert bench.letters().redrive("billing", chosen) == Redriven(done_before=10, filtered_out=20)
    assert bench.letters().redrive("billing") == Redriven(moved=Counter(orders=20), done_before=10)
    assert bench.ids() == numbers(range(30))


def test_groups_are_told_apart_where_brokers_know_no_topic_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ran with ZooKeeper tell the same of every topic."""
    monkeypatch.setattr(Cluster, "topic_ids", lambda _, topics: dict.fromkeys(topics, NO_TOPIC_IDS))
    bench = Bench()
    bench.kafka.create_topic("DLQ-mails", 2)
    bench.die(10)
    assert bench.letters().redrive("billing") == Redriven(moved=Counter(orders=10))
    bench.die(10, first=10, topic="DLQ-mails")
    assert bench.letters().redrive("mails") == Redriven(moved=Counter(orders=10))
    assert bench.letters().redrive("billing") == Redriven(done_before=10)
    assert {summary.group: summary.redriven for summary in bench.letters().summaries()} == {"billing": 10, "mails": 10}


def test_what_is_no_entry_in_the_ledger_is_passed_over() -> None:
    bench = Bench()
    bench.die(3)
    assert bench.letters().redrive("billing").moved == {"orders": 3}
    stranger = bench.kafka.producer({})
    stranger.produce("SCHEDULE_TOPIC_XXXX-redriven", b"{not ours")
    stranger.flush()
    assert bench.letters().redrive("billing").done_before == 3


def test_again_moves_them_again() -> None:
    bench = Bench()
    bench.die(3)
    bench.kafka.create_topic("wrong")
    bench.letters().redrive("billing", to="wrong")
    assert bench.letters().redrive("billing", again=True) == Redriven(moved=Counter(orders=3))
    assert bench.ids() == bench.ids("wrong") == numbers(range(3))


def test_a_dry_run_tells_what_would_be_done_and_leaves_no_trace() -> None:
    bench = Bench()
    bench.die(4)
    bench.die(2, ("RETRY_TOPIC", b"missing"), first=4)
    topics = set(bench.kafka.topics)
    for _ in range(2):
        told = bench.letters().redrive("billing", dry_run=True)
        assert told == Redriven(
            moved=Counter(orders=4), stayed=Counter({"there is no topic 'missing'; create it first": 2})
        )
    assert set(bench.kafka.topics) == topics
    assert bench.ids() == []


def test_what_cannot_go_stays_until_it_can() -> None:
    bench = Bench()
    bench.die(2, ("RETRY_TOPIC", b"later"))
    assert bench.letters().redrive("billing").stayed.total() == 2
    bench.kafka.create_topic("later")
    assert bench.letters().redrive("billing").moved == {"later": 2}


def test_a_message_that_comes_back_too_often_is_parked() -> None:
    bench = Bench()
    bench.die(2, ("REDRIVE_COUNT", b"3"))
    bench.die(1, ("REDRIVE_COUNT", b"2"), first=2)
    assert bench.letters().redrive("billing") == Redriven(moved=Counter(orders=1), parked=2)
    assert bench.ids("DLQ-billing.parked") == ["0", "1"]
    letters = bench.letters()
    assert [(summary.group, summary.total, summary.redriven) for summary in letters.summaries()] == [
        ("billing", 3, 3),
        ("billing.parked", 2, 0),
    ]
    assert letters.redrive("billing.parked").stayed.total() == 2
    assert letters.redrive("billing.parked", max_redrives=9).moved == {"orders": 2}


def test_letters_that_come_meanwhile_are_left_for_the_next() -> None:
    bench = Bench(partitions=1)
    bench.die(5)
    told: list[tuple[int, int]] = []

    def on_progress(done: int, total: int) -> None:
        if not told:
            bench.die(5, first=5)
        told.append((done, total))

    assert bench.letters().redrive("billing", on_progress=on_progress).seen == 5
    assert told[0] == (0, 5)
    assert told[-1] == (5, 5)


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    bench = Bench()
    bench.die(3)
    bench.letters().redrive("billing")
    bench.kafka.delete_topic("DLQ-billing")
    bench.kafka.create_topic("DLQ-billing", 2)
    bench.die(3, first=10)
    assert bench.letters().redrive("billing").moved == {"orders": 3}


def test_the_rate_is_kept() -> None:
    bench = Bench()
    bench.die(30)
    waited: list[float] = []
    bench.letters().redrive("billing", rate=10, wait=waited.append)
    assert max(waited) == pytest.approx(3.0, abs=0.5)
    assert len(waited) == 30, "one at a time, not a second's share at once"


def test_a_message_that_kafka_refuses_stays_and_holds_up_none() -> None:
    bench = Bench()
    bench.die(9)
    bench.die(1, first=9, value=bytes(2_000))
    bench.die(10, first=10)
    bench.kafka.faults.refuse("orders", larger_than_bytes=1_000)
    told = bench.letters().redrive("billing")
    assert (told.moved, told.stayed.total()) == ({"orders": 19}, 1)
    assert bench.ids() == numbers(range(9), range(10, 20))
    bench.kafka.faults.stop()
    assert bench.letters().redrive("billing") == Redriven(moved=Counter(orders=1), done_before=19)


def test_a_letter_for_a_topic_that_may_not_be_written_to_stays_and_holds_up_none() -> None:
    bench = Bench()
    bench.kafka.create_topic("secret")
    bench.die(9)
    bench.die(1, ("RETRY_TOPIC", b"secret"), first=9)
    bench.die(10, first=10)
    bench.kafka.faults.refuse("secret", code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    why = "'secret' may not be written to: allow this client to (ACL Write)"
    expected = Redriven(moved=Counter(orders=19), stayed=Counter({why: 1}))
    assert bench.letters().redrive("billing", dry_run=True) == expected
    assert bench.letters().redrive("billing") == expected
    with pytest.raises(DeadLettersError, match="may not be written to"):
        bench.letters().redrive("billing", to="secret")


@pytest.mark.parametrize(
    "topic",
    ["__consumer_offsets", "__transaction_state", "SCHEDULE_TOPIC_XXXX-redriven", "SCHEDULE_TOPIC_XXXX-idempotency"],
)
def test_a_letter_for_what_is_no_topic_for_messages_stays_and_holds_up_none(topic: str) -> None:
    bench = Bench()
    bench.kafka.create_topic(topic)
    bench.die(2)
    bench.die(1, ("RETRY_TOPIC", topic.encode()), first=2)
    bench.die(2, first=3)
    told = bench.letters().redrive("billing")
    assert (told.moved, told.stayed.total()) == ({"orders": 4}, 1)
    assert f"'{topic}' is not a topic for messages" in next(iter(told.stayed))
    with pytest.raises(DeadLettersError, match="is not a topic for messages"):
        bench.letters().redrive("billing", to=topic)


def test_a_redrive_keeps_to_the_rules_of_whoever_asks_for_it() -> None:
    bench = Bench()
    bench.kafka.create_topic("secret")
    bench.die(2)
    bench.die(1, ("RETRY_TOPIC", b"secret"), first=2)
    rules = {"secret": "'secret' is denied"}
    letters = DeadLetters({}, clients=bench.kafka, why_not=rules.get)
    assert letters.redrive("billing") == Redriven(moved=Counter(orders=2), stayed=Counter({"'secret' is denied": 1}))
    with pytest.raises(DeadLettersError, match="is denied"):
        letters.check("billing", "secret")


def test_what_cannot_be_parked_stays_and_holds_up_none() -> None:
    bench = Bench()
    bench.die(2)
    bench.die(1, ("REDRIVE_COUNT", b"3"), first=2)
    bench.kafka.create_topic("DLQ-billing.parked")
    bench.kafka.faults.refuse("DLQ-billing.parked", code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    told = bench.letters().redrive("billing")
    assert (told.moved, told.parked, told.stayed.total()) == ({"orders": 2}, 0, 1)
    assert "it is to be parked, and 'DLQ-billing.parked' may not be written to" in next(iter(told.stayed))
    bench.kafka.faults.stop()
    assert bench.letters().redrive("billing") == Redriven(parked=1, done_before=2)


def test_a_group_whose_parked_letters_have_no_legal_topic_keeps_them() -> None:
    bench = Bench()
    group = "L" * 243
    bench.kafka.create_topic(f"DLQ-{group}")
    producer = bench.kafka.producer({})
    for count in (b"0", b"3", b"1"):
        headers: Headers = [("RETRY_TOPIC", b"orders"), ("RECONSUME_TIME", b"17"), ("REDRIVE_COUNT", count)]
        producer.produce(f"DLQ-{group}", b"v", headers=headers)
    producer.flush()
    told = bench.letters().redrive(group)
    assert (told.moved, told.parked, told.stayed.total()) == ({"orders": 2}, 0, 1)
    assert "redriven 3 times" in next(iter(told.stayed))


@pytest.mark.parametrize("rate", [0, -5])
def test_a_rate_that_is_none_is_refused_before_anything_moves(rate: int) -> None:
    bench = Bench()
    bench.die(2)
    with pytest.raises(ValueError, match=f"rate is {rate}; give"):
        bench.letters().redrive("billing", rate=rate)
    assert bench.ids() == []


def test_an_empty_destination_is_refused() -> None:
    bench = Bench()
    with pytest.raises(DeadLettersError, match="'' is not a valid topic name"):
        bench.letters().redrive("billing", to="")


def test_a_later_redrive_takes_over_from_an_earlier_one() -> None:
    bench = Bench()
    bench.die(30)
    first, second = bench.letters("first"), bench.letters("second")
    told: list[Redriven] = []

    def take_over(_seconds: float) -> None:
        if not told:
            told.append(second.redrive("billing"))

    with pytest.raises(TakenOverError, match="another of the same group") as raised:
        first.redrive("billing", rate=100, wait=take_over)
    assert problem_of(raised.value).kind is Kind.IN_PROGRESS
    assert told[0].moved.total() + told[0].done_before == 30
    assert bench.ids() == numbers(range(30))


@pytest.mark.parametrize("seed", range(30))
def test_a_redrive_that_dies_and_is_run_again_moves_each_letter_once(seed: int) -> None:
    bench = Bench(seed=seed)
    chance = bench.chance
    bench.die(60)
    bench.kafka.faults.seed(chance, 0.02, processes=("operator",))
    ends = Counter[str]()
    for _ in range(20):
        try:
            bench.letters().redrive("billing", rate=chance.choice([50, 200, 1_000]), wait=lambda _: None)
        except (SimulatedCrash, DeadLettersError) as error:
            ends[type(error).__name__] += 1
    bench.kafka.faults.stop()
    bench.letters().redrive("billing")
    assert bench.letters().redrive("billing") == Redriven(done_before=60)
    assert bench.ids(wait_s=60) == numbers(range(60))
    assert ends["SimulatedCrash"], "nothing has happened to it"


@pytest.mark.parametrize("label", ["commit_transaction:before", "commit_transaction:after", "produce:before"])
def test_killed_in_the_middle_it_goes_on_where_it_stopped(label: str) -> None:
    bench = Bench()
    bench.die(40)
    bench.kafka.faults.at(label, CRASH, nth=3)
    with pytest.raises(SimulatedCrash):
        bench.letters().redrive("billing", rate=100, wait=lambda _: None)
    told = bench.letters().redrive("billing")
    assert told.moved.total() + told.done_before == 40
    assert bench.ids() == numbers(range(40))


def test_a_queue_that_is_full_is_waited_for() -> None:
    bench = Bench()
    bench.die(30)
    assert bench.letters(**{"queue.buffering.max.messages": 4}).redrive("billing").moved == {"orders": 30}
    assert bench.letters().redrive("billing") == Redriven(done_before=30)
    assert bench.ids() == numbers(range(30))


def test_whoever_interrupts_it_leaves_no_transaction_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of the destinations would wait behind it for its time-out."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    bench = Bench()
    bench.die(30)
    monkeypatch.setattr(Redrive, "_notes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.letters(**{"queue.buffering.max.messages": 4}).redrive("billing")
    logs = bench.kafka.topics["orders"].logs
    assert any(log.end for log in logs), "none of it had been sent"
    assert all(log.stable_end == log.end for log in logs)
    assert bench.ids() == []
    monkeypatch.undo()
    assert bench.letters().redrive("billing").moved == {"orders": 30}


DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied", False, False, True)
UNKNOWN = KafkaError(KafkaError.INVALID_TXN_STATE, "no such transaction")


@pytest.mark.parametrize(
    ("on_commit", "on_abort", "error", "told"),
    [
        (DENIED, UNKNOWN, RefusedError, r"Kafka refuses what is written \(denied\)"),
        (KafkaError(KafkaError._STATE, "odd"), UNKNOWN, NotAnsweredError, "no such transaction; run it again"),
        (KafkaError(KafkaError._FENCED, "fenced", True), None, TakenOverError, "another of the same group"),
        (DENIED, KafkaError(KafkaError._FENCED, "fenced", True), TakenOverError, r"cannot go on \(fenced\)"),
        (KafkaError(KafkaError._TRANSPORT, "away"), None, NotAnsweredError, "away; run it again"),
    ],
    ids=["none of its topics", "never begun", "taken over", "taken over meanwhile", "again and again"],
)
def test_why_a_redrive_cannot_go_on(
    monkeypatch: pytest.MonkeyPatch,
    on_commit: KafkaError,
    on_abort: KafkaError | None,
    error: type[Exception],
    told: str,
) -> None:
    """And its letters are there for the next."""

    def commit(*_: object) -> None:
        raise KafkaException(on_commit)

    def abort(producer: InMemoryProducer, timeout_s: float) -> None:
        if on_abort is not None:
            raise KafkaException(on_abort)
        aborted(producer, timeout_s)

    bench = Bench()
    bench.die(3)
    aborted = InMemoryProducer.abort_transaction
    monkeypatch.setattr(InMemoryProducer, "commit_transaction", commit)
    monkeypatch.setattr(InMemoryProducer, "abort_transaction", abort)
    with pytest.raises(error, match=told):
        bench.letters().redrive("billing")
    monkeypatch.undo()
    assert bench.letters().redrive("billing").moved == {"orders": 3}
    assert bench.ids() == numbers(range(3))


def test_a_commit_that_refuses_without_a_report_is_a_refusal_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(*_: object) -> None:
        raise KafkaException(DENIED)

    bench = Bench()
    bench.die(3)
    monkeypatch.setattr(InMemoryProducer, "commit_transaction", commit)
    assert bench.letters().redrive("billing") == Redriven(stayed=Counter({"Kafka refuses it: denied": 3}))


def test_a_commit_that_is_not_answered_is_repeated() -> None:
    bench = Bench()
    bench.die(10)
    bench.kafka.faults.at("commit_transaction:after", TIME_OUT)
    assert bench.letters().redrive("billing").moved == {"orders": 10}
    assert bench.ids() == numbers(range(10))


def test_what_a_slow_link_does_not_take_at_once_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt would time out as the one before."""

    def commit(producer: InMemoryProducer, timeout_s: float) -> None:
        if len(sent[producer]) > 4:
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "too much", False, False, True))
        committed(producer, timeout_s)

    def begin(producer: InMemoryProducer) -> None:
        sent[producer] = []
        begun(producer)

    def produce(producer: InMemoryProducer, topic: str, *arguments: Any, **options: Any) -> None:
        sent[producer].append(topic)
        produced(producer, topic, *arguments, **options)

    bench = Bench()
    bench.die(30)
    sent: dict[InMemoryProducer, list[str]] = {}
    committed, begun, produced = (
        InMemoryProducer.commit_transaction,
        InMemoryProducer.begin_transaction,
        InMemoryProducer.produce,
    )
    monkeypatch.setattr(InMemoryProducer, "commit_transaction", commit)
    monkeypatch.setattr(InMemoryProducer, "begin_transaction", begin)
    monkeypatch.setattr(InMemoryProducer, "produce", produce)
    assert bench.letters().redrive("billing").moved == {"orders": 30}
    assert bench.ids() == numbers(range(30))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_groups_are_counted_by_reason() -> None:
    bench = Bench()
    bench.kafka.create_topic("DLQ-enc--a.2Fb")
    bench.die(3)
    bench.die(2, ("RECONSUME_TIME", b"1"), first=3)
    letters = bench.letters()
    billing, other = sorted(letters.summaries(), key=lambda summary: -summary.total)
    assert (billing.group, billing.topic, billing.total, billing.redriven) == ("billing", "DLQ-billing", 5, 0)
    assert billing.reasons == {"RETRIES_EXHAUSTED": 3, "GIVEN_UP": 2}
    assert (other.group, other.total) == ("a/b", 0)
    letters.redrive("billing", Filter.parse(["reason=GIVEN_UP"]))
    assert letters.summary("billing").redriven == 2
    assert letters.summary("billing").reasons == {"RETRIES_EXHAUSTED": 3}


def test_pages_follow_each_other_and_hold_every_letter_once() -> None:
    bench = Bench()
    bench.die(25)
    letters, seen, after = bench.letters(), [], None
    for _ in range(4):
        page = letters.browse("billing", limit=7, after=after)
        seen += [letter.id for letter in page.letters]
        after = page.next
    assert after is None
    assert sorted(seen) == numbers(range(25))


@pytest.mark.parametrize(("letters_of_bytes", "pages"), [(1, 9), (3, 3), (100, 1)])
def test_a_page_holds_so_many_bytes_and_one_letter_at_least(letters_of_bytes: int, pages: int) -> None:
    bench = Bench()
    bench.die(9)
    letters, sizes, seen, after = bench.letters(), [], [], None
    most = letters_of_bytes * max(letter.size_bytes for letter in letters.browse("billing").letters) - 1
    while not sizes or after is not None:
        page = letters.browse("billing", after=after, max_bytes=most)
        sizes.append(sum(letter.size_bytes for letter in page.letters))
        seen += [letter.id for letter in page.letters]
        after = page.next
    assert sorted(seen) == numbers(range(9))
    assert len(sizes) >= pages
    assert all(size <= most for size in sizes) or letters_of_bytes == 1


def test_what_has_been_redriven_is_shown_on_request() -> None:
    bench = Bench()
    bench.die(4)
    bench.die(1, ("TAGS", b"a"), first=4)
    letters = bench.letters()
    letters.redrive("billing", Filter.parse(["header.TAGS=a"]))
    assert sorted(letter.id for letter in letters.browse("billing").letters) == numbers(range(4))
    every = letters.browse("billing", with_redriven=True).letters
    assert {letter.id: letter.is_redriven for letter in every} == {str(n): n == 4 for n in range(5)}
    assert [letter.id for letter in letters.browse("billing", Filter.parse(["key=k2"])).letters] == ["2"]


def test_a_group_without_dead_letters_and_a_destination_that_is_missing_are_named() -> None:
    bench = Bench()
    with pytest.raises(NoSuchGroupError, match="'audit'"):
        bench.letters().redrive("audit")
    with pytest.raises(DeadLettersError, match="no topic 'missing'"):
        bench.letters().redrive("billing", to="missing")
    with pytest.raises(DeadLettersError, match="already"):
        bench.letters().redrive("billing", to="%DLQ%billing")


def test_a_kafka_that_is_away_is_no_empty_answer() -> None:
    bench = Bench()
    letters = bench.letters()
    bench.kafka.make_unavailable(100_000)
    with pytest.raises(NotAnsweredError):
        letters.summaries()


def test_what_was_noted_behind_an_open_transaction_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is everybody's, and nobody reads past the transaction of another group's redrive."""
    kafka = InMemoryKafka()
    for topic in ("orders", "DLQ-b"):
        kafka.create_topic(topic)
    producer = kafka.producer({})
    for number in range(3):
        headers: Headers = [("RETRY_TOPIC", b"orders"), ("UNIQ_KEY", b"%d" % number), ("RECONSUME_TIME", b"17")]
        producer.produce("DLQ-b", b"v", headers=headers)
    producer.flush(1)
    letters = DeadLetters({"bootstrap.servers": "fake"}, clients=kafka)
    assert letters.redrive("b").moved.total() == 3
    other = kafka.producer({"transactional.id": "timewheel-redrive-DLQ-a-0"})
    other.init_transactions(1)
    other.begin_transaction()
    other.produce("SCHEDULE_TOPIC_XXXX-redriven", b"{}")
    other.flush(1)
    monkeypatch.setattr("connectors.dead_letters.ledger._SETTLED_WITHIN_S", 0.1)
    with pytest.raises(NotAnsweredError, match="stays open"):
        letters.redrive("b")
    other.abort_transaction(1)
    assert letters.redrive("b").moved.total() == 0
    assert kafka.log("orders", 0).end == 4  # and a marker


def test_a_scan_ends_when_kafka_goes_away_and_only_then() -> None:
    bench = Bench(partitions=1)
    bench.die(3)
    cluster, clock = Cluster({"bootstrap.servers": "in-memory"}, bench.kafka), bench.clock
    with cluster.scan(cluster.ends(["DLQ-billing"]), lambda: 1) as batches:
        next(batches)
        clock.advance(3_600_000)  # whoever looks at the letters takes his time
        next(batches)
        bench.kafka.make_unavailable(3_600_000)
        began_ms = clock.monotonic_ms()
        with pytest.raises(NotAnsweredError, match="nothing of DLQ-billing-0 has come for 30 s"):
            next(batches)
        assert clock.monotonic_ms() - began_ms == 30_000


def test_topics_that_a_redrive_makes_are_as_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, NewTopic] = {}
    create = InMemoryAdmin.create_topics

    def create_topics(self: InMemoryAdmin, topics: list[NewTopic], **options: Any) -> Any:
        made.update({topic.topic: topic for topic in topics})
        return create(self, topics, **options)

    monkeypatch.setattr(InMemoryAdmin, "create_topics", create_topics)
    kafka = InMemoryKafka()
    kafka.create_topic("DLQ-g")
    headers = [("RETRY_TOPIC", b"pay"), ("REDRIVE_COUNT", b"9")]
    kafka.producer({}).produce("DLQ-g", b"v", headers=headers)
    letters = DeadLetters({"bootstrap.servers": "b"}, clients=kafka, replication_factor=3, retention_ms=5_000)
    assert letters.redrive("g", max_redrives=1).parked == 1
    assert {name: topic.replication_factor for name, topic in made.items()} == {
        "DLQ-g.parked": 3,
        "SCHEDULE_TOPIC_XXXX-redriven": 3,
    }
    assert made["DLQ-g.parked"].config["retention.ms"] == "5000"
    assert made["DLQ-g.parked"].config["max.message.bytes"] == "2097176"


def test_what_cannot_be_parked_under_a_legal_name_stays() -> None:
    kafka, group = InMemoryKafka(), "g" * 243
    kafka.create_topic(f"DLQ-{group}")
    headers = [("RETRY_TOPIC", b"pay"), ("REDRIVE_COUNT", b"9"), ("CONSUMER_GROUP", group.encode())]
    kafka.producer({}).produce(f"DLQ-{group}", b"v", headers=headers)
    report = DeadLetters({"bootstrap.servers": "in-memory"}, clients=kafka).redrive(group, max_redrives=1)
    assert (report.parked, report.stayed.total()) == (0, 1)
