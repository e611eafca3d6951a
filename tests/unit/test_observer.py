"""Who looks whether Kafka answers: when it asks, and what it tells."""

from typing import cast

import pytest

from sidecar.clock import SystemClock
from sidecar.kafka.probe import Probe
from sidecar.observability.health import CLOSED, FORGIVEN_AFTER_MS, GONE, Cause, State
from sidecar.observability.history import History
from sidecar.observability.metrics import Metrics
from sidecar.observer import PING_EVERY_MS, Observer
from tests.support.logged import logged
from tests.support.waiting import wait_until
from tests.unit.test_health import a_health

LOGIN = Cause("a:9092: login refused", "check sasl.password")
REFUSED = Cause("a:9092: connection refused", "check the port")


class Brokers:
    """A probe of brokers that answer, or do not."""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self.asked: list[str] = []
        self.leaderless = frozenset[tuple[str, int]]()
        self.topic_ids: dict[str, str] = {}
        self.missing = frozenset[str]()
        self.closed = frozenset[str]()

    def ask(self, timeout_s: float) -> Cause | None:
        self.asked.append("ask")
        return self.cause

    def ping(self, timeout_s: float) -> Cause | None:
        self.asked.append("ping")
        return self.cause


class Observed:
    """An idle sidecar, looked at each second."""

    def __init__(self) -> None:
        self.health, self.clock = a_health()
        self.brokers = Brokers()
        history = History(Metrics("0"), SystemClock())
        self.observer = Observer(self.clock, self.health, history, lambda: cast(Probe, self.brokers))

    def seconds(self, count: int) -> list[str]:
        """What it asks meanwhile."""
        self.brokers.asked.clear()
        for _ in range(count):
            self.observer.look()
            self.clock.advance(1_000)
        return self.brokers.asked


def test_brokers_of_an_idle_sidecar_are_asked_now_and_then() -> None:
    observed = Observed()
    period_s = PING_EVERY_MS // 1_000
    assert observed.seconds(2 * period_s) == ["ping", "ping"]


def test_brokers_in_doubt_are_asked_each_second_until_they_answer() -> None:
    observed = Observed()
    observed.health.broker_is_silent("timed out")
    observed.brokers.cause = REFUSED
    assert observed.seconds(3) == ["ask", "ask", "ask"]
    assert observed.health.verdict().state is State.BROKER_AWAY
    observed.brokers.cause = None
    observed.seconds(FORGIVEN_AFTER_MS // 1_000)
    assert observed.health.verdict().state is State.HEALTHY
    assert not observed.health.is_broker_in_doubt


def test_an_idle_sidecar_notices_that_no_broker_answers() -> None:
    observed = Observed()
    observed.brokers.cause = LOGIN
    observed.seconds(2)
    assert observed.health.verdict().state is State.BROKER_AWAY
    assert observed.health.verdict().action.startswith("check sasl.password")


def test_the_log_has_a_line_where_it_begins_where_the_cause_changes_and_where_it_is_over() -> None:
    observed = Observed()
    with logged() as lines:
        for cause in (REFUSED, LOGIN, None):
            observed.health.broker_is_silent("timed out")
            observed.brokers.cause = cause
            observed.seconds(3)
    assert [(line["event"], line.get("reason"), line.get("operator_action")) for line in lines] == [
        ("no broker answers", REFUSED.words, REFUSED.remedy),
        ("no broker answers", LOGIN.words, LOGIN.remedy),
        ("a broker answers again", None, None),
    ]


def test_what_it_meets_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed()
    monkeypatch.setattr("sidecar.observer.EVERY_S", 0.001)
    monkeypatch.setattr(observed.health, "observe", lambda: 1 / 0)
    with logged() as lines, observed.observer:
        wait_until(lambda: len(lines) >= 2, "it has gone on", 10)
    assert {line["event"] for line in lines} == {"observer failed"}


def test_a_partition_without_a_leader_is_told_while_it_is_read_here() -> None:
    observed = Observed()
    observed.health.places = frozenset([("a", 0), ("a", 1)])
    observed.brokers.leaderless = frozenset([("a", 1), ("b", 0)])
    with logged() as lines:
        observed.seconds(3 * PING_EVERY_MS // 1_000)
    assert [(line["event"], line["partition"]) for line in lines] == [("partition without a leader", "a-1")]
    observed.health.turned()
    (warning,) = observed.health.warnings()
    assert warning.startswith("a-1: no broker leads it")
    assert observed.health.verdict() == (State.HEALTHY, warning, "", None)
    observed.brokers.leaderless = frozenset()
    observed.seconds(PING_EVERY_MS // 1_000)
    assert observed.health.warnings() == []


def test_a_topic_that_is_gone_or_closed_is_told_once_and_makes_it_stuck_until_it_is_back() -> None:
    observed, period_s = Observed(), PING_EVERY_MS // 1_000
    observed.brokers.missing = frozenset(["c"])  # never seen: the next look finds it, or the start has said so
    observed.brokers.topic_ids = {"a": "1", "b": "1"}
    with logged() as lines:
        observed.seconds(period_s)
        assert observed.health.verdict().state is State.HEALTHY
        observed.brokers.missing, observed.brokers.closed = frozenset(["a"]), frozenset(["b"])
        observed.brokers.topic_ids = {"b": "1"}
        observed.seconds(2 * period_s)
    assert [(line["event"], line["topic"], line["reason"], line["operator_action"]) for line in lines] == [
        ("topic not readable", "a", *GONE),
        ("topic not readable", "b", *CLOSED),
    ]
    observed.health.turned()
    assert observed.health.verdict() == (State.STUCK, f"a {GONE.words}, and 1 more", GONE.remedy, None)
    assert observed.health.unready_reasons() == [f"a {GONE.words}", f"b {CLOSED.words}"]
    observed.health.session_ended()  # without the topic the group has nothing to assign
    assert observed.health.verdict().state is State.STUCK
    observed.health.partitions_assigned()
    observed.brokers.missing = observed.brokers.closed = frozenset()
    observed.seconds(period_s)
    assert observed.health.verdict().state is State.HEALTHY


def test_a_topic_that_is_made_anew_is_told_and_begins_another_session() -> None:
    observed = Observed()
    told = []
    for ids in ({"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "1"}, {"a": "1", "b": "2"}, {"a": "1", "b": "2"}):
        observed.brokers.topic_ids = ids
        with logged() as lines:
            observed.seconds(PING_EVERY_MS // 1_000)
        told.append([line["topic"] for line in lines])
    assert told == [[], [], [], ["b"], []]
    assert observed.health.topics_made_anew == 1


def test_a_topic_that_is_made_anew_before_it_is_looked_at_is_told_once() -> None:
    observed = Observed()
    observed.health.topic_ids = {"a": "1"}
    observed.brokers.topic_ids = {"a": "2"}
    with logged() as lines:
        observed.seconds(3 * PING_EVERY_MS // 1_000)
    assert [(line["event"], line["topic"]) for line in lines] == [("topic made anew", "a")]
    assert observed.health.topics_made_anew == 1
