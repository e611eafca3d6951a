"""The states of health: each from what causes it, and which of several is told."""

from collections.abc import Callable

import pytest

from connectors.testing import ManualClock
from sidecar.observability.health import (
    BEHIND_AFTER_MS,
    DOUBT_AFTER_MS,
    FENCED_TWICE_WITHIN_MS,
    FORGIVEN_AFTER_MS,
    FORGIVEN_AT_LAST_MS,
    LOOP_STUCK_AFTER_MS,
    Cause,
    Health,
    State,
)
from sidecar.switches import Switches
from tests.unit.test_health import a_health

REFUSED = Cause("a:9092: connection refused", "check the port")


def stuck_loop(health: Health) -> None:
    health.turned_ms -= LOOP_STUCK_AFTER_MS


def stopping(health: Health) -> None:
    health.stopping = True


def broker_away(health: Health) -> None:
    health.broker_is_silent("connection refused")
    health.probed(REFUSED)


def starting(health: Health) -> None:
    health.assigned = False


def stopped_partition(health: Health) -> None:
    health.stopped = {"a-0": Cause("retention", "choose")}


def disk_full(health: Health) -> None:
    health.troubled |= {"wheel-0": "intake is paused: No space left on device"}
    health.disk_full = frozenset(["wheel-0"])


def takes_nothing_in(health: Health) -> None:
    health.troubled |= {"wheel-1": "intake is paused: Read-only file system"}
    health.remedies = {"wheel-1": "check the disk"}


def recovering(health: Health) -> None:
    health.recovering, health.recovered = {"wheel-0": "at offset 42 of 100"}, 0.42


def held(health: Health) -> None:
    health.switches.stop_dequeue = True


def behind(health: Health) -> None:
    health.knows_due(-BEHIND_AFTER_MS - 3_000)


ORDER: list[tuple[Callable[[Health], None], State]] = [
    (stuck_loop, State.STUCK),
    (stopping, State.STOPPING),
    (broker_away, State.BROKER_AWAY),
    (starting, State.STARTING),
    (stopped_partition, State.STUCK),
    (takes_nothing_in, State.STUCK),
    (disk_full, State.DISK_FULL),
    (recovering, State.RECOVERING),
    (held, State.HELD),
    (behind, State.BEHIND),
]
"""The worst first."""


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_of_all_that_holds_the_worst_is_told(place: int) -> None:
    health, _ = a_health()
    for cause, _state in ORDER[place:]:
        cause(health)
    assert health.verdict().state is ORDER[place][1]


def test_none_of_them_is_healthy_and_every_state_can_be_reached() -> None:
    health, _ = a_health()
    health.places = frozenset([("a", 0)])
    assert health.verdict() == (State.HEALTHY, "what is due goes out on time", "", None)
    assert {state for _, state in ORDER} | {State.HEALTHY} == set(State)


def test_recovery_is_told_with_its_progress() -> None:
    health, _ = a_health()
    recovering(health)
    verdict = health.verdict()
    assert verdict.progress == 0.42
    assert verdict.words == "42% of what is committed is read again (wheel-0 at offset 42 of 100)"


def test_a_second_behind_is_not_behind_yet() -> None:
    health, clock = a_health()
    health.knows_due(-BEHIND_AFTER_MS)
    assert health.verdict().state is State.HEALTHY
    clock.advance(1)
    assert health.verdict().state is State.BEHIND


def test_what_is_due_grows_older_while_the_loop_waits() -> None:
    health, clock = a_health()
    health.knows_due(-500)
    health.turned()
    health.waits()
    clock.advance(3_500)
    health.waits()
    assert health.behind_ms == 4_000
    assert health.verdict().words == "behind by 4.0 s because Kafka has not acknowledged what was sent 3.5 s ago"
    health.turned()
    health.knows_due(None)
    assert health.behind_ms == 0


def test_what_falls_due_while_the_loop_waits_is_told() -> None:
    health, clock = a_health()
    health.knows_due(1_000)
    health.waits()
    clock.advance(1_000)
    assert health.behind_ms == 0, "not yet"
    clock.advance(4_000)
    health.waits()
    assert health.behind_ms == 4_000
    assert health.verdict().words == "behind by 4.0 s because Kafka has not acknowledged what was sent 5.0 s ago"


def test_a_refusal_is_told_as_the_cause() -> None:
    health, _ = a_health()
    health.knows_due(-4_000)
    health.broker_is_silent("'orders-0': Broker: Not enough in-sync replicas")
    health.probed(None)
    verdict = health.verdict()
    assert verdict.state is State.BEHIND
    assert (
        verdict.words
        == "behind by 4.0 s because Kafka refuses what is sent: 'orders-0': Broker: Not enough in-sync replicas"
    )
    assert "destinations" in verdict.action


@pytest.mark.parametrize(
    ("before_ms", "words"),
    [
        (8_000, "; catching up, about 10 s to go"),
        (1_500, "; falling further behind"),
        (4_000, "; neither catching up nor falling back"),
    ],
)
def test_it_tells_where_a_backlog_goes(before_ms: int, words: str) -> None:
    health, clock = a_health()
    health.knows_due(-before_ms)
    health.observe()
    clock.advance(10_000)
    health.turned()
    health.knows_due(-4_000)
    assert health.verdict().words == f"behind by 4.0 s because more has fallen due than has gone out yet{words}"


def test_a_broker_comes_into_doubt_by_an_error_or_by_waiting_for_it() -> None:
    health, clock = a_health()
    assert not health.is_broker_in_doubt
    health.waits()
    assert not health.is_broker_in_doubt
    clock.advance(DOUBT_AFTER_MS)
    assert health.is_broker_in_doubt
    health.turned()
    assert not health.is_broker_in_doubt
    health.broker_is_silent("connection refused")
    assert health.is_broker_in_doubt


def test_away_is_a_broker_that_the_probe_does_not_reach_and_back_one_that_it_does() -> None:
    health, clock = a_health()
    health.broker_is_silent("transport failure")
    assert health.verdict().state is State.HEALTHY  # until it is known
    health.probed(REFUSED)
    clock.advance(12_000)
    verdict = health.verdict()
    assert verdict.state is State.BROKER_AWAY
    assert verdict.words == "no broker has answered for 12 s (a:9092: connection refused)"
    assert verdict.action == "check the port; delivery goes on by itself, nothing is lost"
    health.probed(None)
    assert health.verdict().state is State.HEALTHY


def test_an_idle_sidecar_forgives_a_broker_that_answers_again() -> None:
    health, clock = a_health()
    health.broker_is_silent("connection refused")
    health.probed(REFUSED)
    clock.advance(70_000)
    health.turned()
    assert health.unready_reasons() == ["kafka has not answered for 70 s: a:9092: connection refused; check the port"]
    health.probed(None)
    assert health.unready_reasons() == []
    assert not health.is_broker_in_doubt


def test_an_error_of_just_now_is_not_forgiven() -> None:
    health, clock = a_health()
    health.broker_is_silent("not authorised")
    clock.advance(FORGIVEN_AFTER_MS - 1)
    health.probed(None)
    assert health.broker_error == "not authorised"
    clock.advance(1)
    health.probed(None)
    assert health.broker_error == ""


def test_an_error_is_forgiven_later_while_something_is_due() -> None:
    health, clock = a_health()
    behind(health)
    health.broker_is_silent("no answer")
    clock.advance(FORGIVEN_AT_LAST_MS - 1)
    health.probed(None)
    assert health.is_broker_in_doubt
    clock.advance(1)
    health.probed(None)
    assert not health.is_broker_in_doubt


def test_a_start_that_reaches_no_broker_says_why_and_what_to_check() -> None:
    health = Health(ManualClock(), Switches())
    health.broker_is_silent("timed out")
    health.probed(REFUSED)
    assert health.verdict().state is State.BROKER_AWAY
    assert health.unready_reasons() == ["a:9092: connection refused; check the port"]
    health.probed(None)
    health.broker_answers()
    assert health.unready_reasons() == ["starting: no partitions assigned yet"]


def test_it_knows_since_when_it_is_as_it_is() -> None:
    clock = ManualClock()
    health = Health(clock, Switches())
    health.assigned = True
    health.observe()
    clock.advance(5_000)
    assert health.state_for_ms(State.HEALTHY) == 5_000
    behind(health)
    assert health.state_for_ms(State.BEHIND) == 0  # nobody has seen it yet
    health.turned()
    health.observe()
    clock.advance(2_000)
    assert health.state_for_ms(State.BEHIND) == 2_000


def test_a_failed_partition_needs_an_operator_unless_it_is_room_that_it_lacks() -> None:
    health, _ = a_health()
    health.failing = {"wheel-0": Cause("No space left on device", "check the disk under data_dir")}
    health.disk_full = frozenset(["wheel-0"])
    assert health.verdict().state is State.DISK_FULL
    health.disk_full = frozenset()
    assert health.verdict().state is State.STUCK


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("troubled", "wheel-0: no room; what is stored is delivered all the same"),
        ("recovering", "wheel-0: no room; it delivers nothing until there is room"),
        ("failing", "wheel-0: no room; it delivers nothing until there is room"),
    ],
)
def test_a_full_disk_is_told_with_what_it_stops(how: str, told: str) -> None:
    health, _ = a_health()
    setattr(health, how, {"wheel-0": Cause("no room", "make some") if how == "failing" else "no room"})
    health.disk_full = frozenset(["wheel-0"])
    assert health.verdict().words == told


def test_what_a_partition_that_takes_nothing_in_waits_for_is_told_with_what_goes_on() -> None:
    health, _ = a_health()
    takes_nothing_in(health)
    assert health.verdict() == (
        State.STUCK,
        "wheel-1: intake is paused: Read-only file system; what is stored is delivered all the same",
        "check the disk",
        None,
    )
    assert health.unready_reasons() == []
    health.disk_full = frozenset(["wheel-1"])
    assert health.verdict().state is State.DISK_FULL


def test_of_a_partition_that_cannot_be_opened_it_is_told_what_to_check() -> None:
    health, _ = a_health()
    health.failing = {
        "a-0": Cause("no broker leads the partition", "bring the broker back"),
        "wheel-0": Cause("Input/output error", "check the disk"),
    }
    verdict = health.verdict()
    assert verdict.words == "a-0 failed: no broker leads the partition, and 1 more"
    assert verdict.action == "bring the broker back; the partition is tried again, nothing is lost"
    assert health.unready_reasons()[1] == "wheel-0 failed and is tried again: Input/output error; check the disk"


def test_ids_that_kafka_takes_away_twice_in_a_short_time_point_to_another_process() -> None:
    health, clock = a_health()
    health.identity = "twin"
    health.was_fenced()
    clock.advance(FENCED_TWICE_WITHIN_MS + 1)
    health.turned()
    health.was_fenced()
    assert health.rival is None
    assert health.verdict().state is State.HEALTHY
    clock.advance(1_000)
    health.was_fenced()
    assert health.rival is not None
    assert "'twin'" in health.verdict().words
    for cause, state in ((behind, State.BEHIND), (starting, State.STARTING)):
        cause(health)
        verdict = health.verdict()
        assert (verdict.state, verdict.action) == (state, health.rival.remedy)
    assert health.warnings() == [f"instance_id: {health.rival}"]
    clock.advance(FENCED_TWICE_WITHIN_MS)
    assert health.rival is None
    assert health.warnings() == []
