"""What became of recent cancels."""

from sidecar.cancel_outcomes import CancelOutcomes, NoOutcome


def test_an_outcome_is_told_by_partition_and_offset() -> None:
    outcomes = CancelOutcomes("wheel")
    outcomes.opened(0, 10)
    outcomes.opened(1, 0)
    outcomes.told(0, {11: "cancelled", 12: "too_late"}, 13)
    assert (outcomes.find(0, 11), outcomes.find(0, 12)) == ("cancelled", "too_late")
    assert outcomes.find(1, 11) is NoOutcome.UNDECIDED


def test_what_is_not_committed_is_undecided_and_what_is_no_cancel_is_unknown() -> None:
    outcomes = CancelOutcomes("wheel")
    outcomes.opened(0, 10)
    assert outcomes.find(0, 10) is NoOutcome.UNDECIDED
    assert outcomes.find(0, 9) is NoOutcome.UNKNOWN_OFFSET
    outcomes.told(0, {}, 11)
    assert outcomes.find(0, 10) is NoOutcome.UNKNOWN_OFFSET
    assert outcomes.find(7, 0) is NoOutcome.NOT_ASSIGNED


def test_a_cancel_that_is_decided_long_after_it_was_committed_is_told() -> None:
    outcomes = CancelOutcomes("wheel")
    outcomes.opened(0, 0)
    outcomes.told(0, {}, 100)
    outcomes.told(0, {5: "unknown"}, 200)
    assert outcomes.find(0, 5) == "unknown"


def test_the_oldest_outcomes_are_forgotten() -> None:
    outcomes = CancelOutcomes("wheel", most=2)
    outcomes.opened(0, 0)
    outcomes.told(0, {1: "cancelled", 2: "cancelled"}, 3)
    outcomes.told(0, {4: "unknown"}, 5)
    assert [outcomes.find(0, offset) for offset in (1, 2, 4)] == [NoOutcome.UNKNOWN_OFFSET, "cancelled", "unknown"]


def test_what_another_sidecar_has_decided_meanwhile_is_not_waited_for() -> None:
    outcomes = CancelOutcomes("wheel")
    outcomes.opened(0, 0)
    outcomes.told(0, {1: "cancelled"}, 2)
    outcomes.opened(0, 100)
    assert outcomes.find(0, 50) is NoOutcome.UNKNOWN_OFFSET
    assert outcomes.find(0, 1) == "cancelled"
    assert outcomes.find(0, 100) is NoOutcome.UNDECIDED


def test_outcomes_outlive_a_session_but_not_the_topic() -> None:
    outcomes = CancelOutcomes("wheel")
    outcomes.opened(0, 0)
    outcomes.told(0, {1: "cancelled"}, 2)
    outcomes.opened(0, 2)
    assert outcomes.find(0, 1) == "cancelled"
    outcomes.opened(0, 0)
    assert outcomes.find(0, 1) is NoOutcome.UNDECIDED
