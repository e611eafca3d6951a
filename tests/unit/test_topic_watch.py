"""How the schedule topics are looked after, beside the loop."""

import threading
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from connectors.testing import InMemoryKafka, ManualClock
from sidecar.errors import UsageError
from sidecar.kafka.topic_plan import plan_topics
from sidecar.kafka.topic_watch import AGAIN_AFTER_S, CHECK_EVERY_S, TopicWatch
from sidecar.kafka.topics import check_topics
from sidecar.observability.metrics import TopicMetrics
from sidecar.settings import Settings, load_settings
from tests.support.logged import logged

SETTINGS = load_settings({"levels": "1s 2h"})
DAY_S = 86_400


class Watched:
    """A cluster with the schedule topics, and somebody who looks after it."""

    def __init__(self, **wheel_configs: str) -> None:
        self.clock = ManualClock()
        self.kafka = InMemoryKafka(self.clock)
        for plan in plan_topics(SETTINGS):
            is_wheel = plan.name == SETTINGS.topic_names.wheel
            self.kafka.create_topic(plan.name, 1, {**plan.configs, **(wheel_configs if is_wheel else {})})
        self.registry = CollectorRegistry()
        self.watch = TopicWatch(SETTINGS, TopicMetrics(self.registry), lambda _: cast(AdminClient, self.kafka.admin()))
        self.again_after_s = 0.0

    def look(self) -> list[dict[str, object]]:
        with logged() as lines:
            self.again_after_s = self.watch.look()
        return [dict(line) for line in lines]

    def told(self, name: str, queue: str) -> float | None:
        return self.registry.get_sample_value(name, {"queue": queue})


def test_retention_is_told_beside_what_is_needed() -> None:
    watched = Watched(**{"retention.ms": str(3 * DAY_S * 1_000)})
    assert watched.look() == [], "what was wrong at the start has been told there"
    told = {
        queue: (
            watched.told("timewheel_topic_retention_seconds", queue),
            watched.told("timewheel_topic_retention_needed_seconds", queue),
        )
        for queue in ("1", "2", "wheel", "sendback")
    }
    assert told == {
        "1": (7 * DAY_S + 1, 7 * DAY_S + 1),
        "2": (7 * DAY_S + 7_200, 7 * DAY_S + 7_200),
        "wheel": (3 * DAY_S, 9 * DAY_S),
        "sendback": (7 * DAY_S, 7 * DAY_S),
    }


def test_what_is_kept_for_ever_is_kept_long_enough() -> None:
    watched = Watched(**{"retention.ms": "-1"})
    watched.look()
    assert watched.told("timewheel_topic_retention_seconds", "wheel") == float("inf")


def test_a_configuration_that_somebody_changes_is_noticed_once() -> None:
    watched = Watched()
    watched.look()
    wheel = SETTINGS.topic_names.wheel
    watched.kafka.topics[wheel].overrides["retention.ms"] = str(8 * DAY_S * 1_000)
    assert watched.again_after_s == CHECK_EVERY_S
    (line,) = watched.look()
    assert (line["event"], line["topic"]) == ("topic is not fit", wheel)
    assert "retention.ms" in str(line["problem"])
    assert "retention.ms" in str(line["operator_action"])
    assert watched.told("timewheel_topic_retention_seconds", "wheel") == 8 * DAY_S
    assert watched.look() == []


@pytest.mark.parametrize(
    ("changed", "not_fatal", "fatal"),
    [
        ({}, 0, 0),
        ({"retention.ms": str(8 * DAY_S * 1_000)}, 0, 0),  # its own metric tells that
        ({"retention.ms": "1000"}, 0, 1),
        ({"retention.bytes": "1000000", "message.timestamp.type": "CreateTime"}, 1, 0),
        ({"cleanup.policy": "compact", "max.message.bytes": "1000"}, 1, 1),
    ],
)
def test_topics_that_are_not_fit_are_counted(changed: dict[str, str], not_fatal: int, fatal: int) -> None:
    watched = Watched(**changed)
    watched.look()
    counted = [
        watched.registry.get_sample_value("timewheel_unfit_topics", {"fatal": told}) for told in ("false", "true")
    ]
    assert counted == [not_fatal, fatal]


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({"retention.ms": str(DAY_S * 1_000)}, []),  # letters wait for nothing: how long they are kept is a choice
        ({"retention.bytes": "1000000"}, []),
        ({"message.timestamp.type": "CreateTime"}, []),
        ({"cleanup.policy": "compact"}, ["cleanup.policy is compact: a dead letter without a key is refused"]),
    ],
)
def test_a_topic_of_dead_letters_that_somebody_has_configured_stops_no_sidecar(
    changed: dict[str, str], problems: list[str]
) -> None:
    watched = Watched()
    letters = SETTINGS.topic_names.dead_letter(SETTINGS.group_id)
    watched.kafka.topics[letters].overrides.update(changed)
    findings = check_topics(cast(AdminClient, watched.kafka.admin()), SETTINGS)
    assert [(each.topic, each.problem.split(", ")[0], each.fatal) for each in findings] == [
        (letters, problem, False) for problem in problems
    ]


def test_elections_that_may_cost_records_are_told_of_schedule_topics() -> None:
    watched = Watched()
    for topic in (SETTINGS.topic_names.wheel, SETTINGS.topic_names.dead_letter(SETTINGS.group_id)):
        watched.kafka.topics[topic].overrides["unclean.leader.election.enable"] = "true"
    (finding,) = check_topics(cast(AdminClient, watched.kafka.admin()), SETTINGS)
    assert (finding.topic, finding.fatal) == (SETTINGS.topic_names.wheel, False)
    assert finding.problem.startswith("unclean.leader.election.enable is true")


def test_topics_that_cannot_be_looked_at_are_looked_at_again_soon() -> None:
    watched = Watched()
    watched.kafka.make_unavailable(20_000)
    assert [line["event"] for line in watched.look()] == ["topics not checked"]
    assert watched.again_after_s == AGAIN_AFTER_S
    assert watched.told("timewheel_topic_retention_seconds", "wheel") is None
    watched.clock.advance(20_000)
    assert watched.look() == []
    assert watched.told("timewheel_topic_retention_seconds", "wheel") == 9 * DAY_S


def test_it_ends_when_it_is_told_to() -> None:
    watch = Watched().watch
    with watch:
        pass
    assert not watch._thread.is_alive()


def test_it_goes_on_where_its_client_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = threading.Semaphore(0)

    def make(_: Settings) -> AdminClient:
        made.release()
        raise UsageError("kafka: Failed to create thread: Resource temporarily unavailable (11)")

    monkeypatch.setattr("sidecar.kafka.topic_watch.AGAIN_AFTER_S", 0.01)
    with logged(), TopicWatch(SETTINGS, TopicMetrics(CollectorRegistry()), make):
        for _ in range(3):
            assert made.acquire(timeout=10), "it has ended"
