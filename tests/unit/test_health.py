"""What the sidecar tells of its own state."""

from connectors.testing import ManualClock
from sidecar.observability.health import BROKER_AWAY_GRACE_MS, LOOP_STUCK_AFTER_MS, Cause, Health, State


def a_health(*, assigned: bool = True) -> tuple[Health, ManualClock]:
    clock = ManualClock()
    health = Health(clock)
    health.assigned = assigned
    return health, clock


def test_a_loop_that_turns_is_alive() -> None:
    health, clock = a_health()
    assert health.is_alive()
    clock.advance(LOOP_STUCK_AFTER_MS - 1)
    assert health.is_alive()
    clock.advance(1)
    assert not health.is_alive()
    health.turned()
    assert health.is_alive()


def test_a_loop_that_does_not_turn_is_neither_alive_nor_ready() -> None:
    health, clock = a_health()
    clock.advance(120_000)
    assert not health.is_alive()
    assert health.unready_reasons() == ["stuck: the loop has not turned for 2 min"]
    health.turned()
    assert health.unready_reasons() == []


def test_a_sidecar_without_an_assignment_is_starting() -> None:
    health, _ = a_health(assigned=False)
    assert health.unready_reasons() == ["starting: no partitions assigned yet"]


def test_an_assignment_makes_it_ready_even_an_empty_one() -> None:
    health, _ = a_health()
    assert health.unready_reasons() == []


def test_a_start_without_a_broker_tells_what_the_broker_said_until_it_answers() -> None:
    health, _ = a_health(assigned=False)
    health.broker_is_silent("connection refused")
    assert health.unready_reasons() == ["connection refused"]
    health.broker_answers()
    assert health.unready_reasons() == ["starting: no partitions assigned yet"]


def test_a_short_outage_of_the_brokers_leaves_it_ready() -> None:
    health, clock = a_health()
    health.broker_is_silent("connection refused")
    clock.advance(BROKER_AWAY_GRACE_MS)
    health.turned()
    assert health.unready_reasons() == []
    clock.advance(1_000)
    assert health.unready_reasons() == ["kafka has not answered for 61 s: connection refused"]


def test_a_session_that_has_lost_its_partitions_says_so_and_is_ready_for_a_while() -> None:
    health, clock = a_health()
    health.phase = "waits for the group to assign its partitions"
    health.knows_due(0)
    health.session_ended()
    assert health.verdict() == (State.STARTING, health.phase, "", None)
    clock.advance(BROKER_AWAY_GRACE_MS)
    health.turned()
    health.session_ended()  # another try that has come to nothing
    assert health.unready_reasons() == []
    clock.advance(1_000)
    health.turned()
    assert health.unready_reasons() == [f"no partitions have been assigned again for 61 s: {health.phase}"]
    assert health.verdict().words == f"{health.phase}; what is due has waited for 61 s"
    health.partitions_assigned()
    assert health.unready_reasons() == []
    assert health.verdict().state is State.BEHIND


def test_a_first_session_that_ends_without_an_assignment_is_not_ready() -> None:
    health, _ = a_health(assigned=False)
    health.session_ended()
    assert health.unready_reasons() == ["starting: no partitions assigned yet"]


def test_an_outage_counts_from_its_first_sign_to_the_next_answer() -> None:
    health, clock = a_health()
    health.broker_is_silent("first")
    clock.advance(BROKER_AWAY_GRACE_MS)
    health.turned()
    health.broker_is_silent("last")
    clock.advance(1_000)
    assert health.unready_reasons() == ["kafka has not answered for 61 s: last"]
    health.broker_answers()
    assert health.unready_reasons() == []
    health.broker_is_silent("again")
    clock.advance(BROKER_AWAY_GRACE_MS)
    health.turned()
    assert health.unready_reasons() == []


def test_a_broker_that_answers_and_refuses_is_not_silent() -> None:
    health, clock = a_health()
    health.broker_is_silent("'DLQ-g': Broker: Broker failed to validate record")
    health.probed(None)
    clock.advance(BROKER_AWAY_GRACE_MS + 1_000)
    health.turned()
    assert (health.unready_reasons(), health.broker_silent_ms) == ([], 0.0)
    assert health.warnings() == ["kafka refuses what is sent: 'DLQ-g': Broker: Broker failed to validate record"]
    health.probed(Cause("no broker answers", "look for one"))
    assert len(health.unready_reasons()) == 1
    assert health.warnings() == []


def test_what_ends_a_refusal_is_told_where_it_is_known() -> None:
    health, clock = a_health()
    health.knows_due(0)
    clock.advance(2_000)
    health.turned()
    health.broker_is_silent("'DLQ-g': Unknown topic", "make it")
    assert health.verdict().action == "make it; nothing is lost"
    health.broker_is_silent("JoinGroup failed: Broker: Group authorization failed")
    assert "docs/security.md" in health.verdict().action
    health.session_ended()
    assert "docs/security.md" in health.verdict().action
    health.broker_is_silent("'orders-0': Broker: Not enough in-sync replicas")
    assert "docs/security.md" not in health.verdict().action
    health.broker_answers()
    assert health.verdict().action == ""


def test_every_stopped_partition_is_told_with_its_reason() -> None:
    health, _ = a_health()
    health.stopped = {"b-1": Cause("the topic was created anew", "look"), "a-0": Cause("retention", "look")}
    assert health.unready_reasons() == ["a-0 is stopped: retention", "b-1 is stopped: the topic was created anew"]


def test_what_to_do_about_a_stopped_partition_depends_on_why_it_is() -> None:
    health, _ = a_health()
    health.stopped = {"b-1": Cause("retention", "choose"), "a-0": Cause("newer", "start the newer version")}
    assert health.verdict().action == "start the newer version"


def test_a_sidecar_that_stops_is_not_ready_but_alive() -> None:
    health, _ = a_health()
    health.stopping = True
    assert health.unready_reasons() == ["stopping"]
    assert health.is_alive()
