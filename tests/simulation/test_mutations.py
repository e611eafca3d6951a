"""The simulation bites: each of the faults in `mutations`, put into the sidecar by hand, is found."""

from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from sidecar.dispatch.wheel.partition import WheelPartition
from tests.simulation.histories import first_to_tell, look_for
from tests.simulation.mutations import MUTATIONS, Mutation, Patch

HISTORIES = 300
RARE = {
    "a_plan_holds_for_what_was_read_before_it": 25,
    "what_arrives_due_overtakes_what_is_stored_and_due": 90,
    "the_watermark_is_a_time_without_an_offset": 140,
    "tombstones_are_not_kept": 760,
    "a_checkpoint_lies_between_a_cancel_and_its_copy": 4_700,
    "reading_and_sending_wait_for_each_other": 1_000,
    "a_checkpoint_lets_go_of_slots_that_are_on_the_wheel": 780,
    "the_timer_log_is_not_checked": 1_050,
    "payloads_are_not_checked": 40,
    "what_is_postponed_is_not_known_to_be_on_its_way": 240,
    "what_a_cancel_had_taken_out_is_sent_by_a_rebuild": 1_100,
    "what_is_buried_in_place_of_a_copy_is_not_remembered": 2_650,
    "a_copy_of_an_earlier_process_counts_as_ones_own": 7_500,
    "a_cancel_that_could_not_be_written_down_leaves_a_gap": 4_250,
}
"""Where to begin to look for what few histories meet."""


@pytest.fixture(scope="module")
def found(pool: ProcessPoolExecutor) -> dict[Mutation, Future[int | None]]:
    return look_for(pool, {mutation: RARE.get(mutation.__name__, 0) for mutation in MUTATIONS}, HISTORIES)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.__name__ for mutation in MUTATIONS])
def test_the_fault_is_found(found: dict[Mutation, Future[int | None]], mutation: Mutation) -> None:
    assert found[mutation].result() is not None, f"not in {HISTORIES} histories"


def takes_other_arguments(patch: Patch) -> None:
    patch.setattr(WheelPartition, "has_progress", property(lambda _self, _another: True))


def reads_what_is_gone(patch: Patch) -> None:
    patch.setattr(WheelPartition, "has_progress", property(lambda self: self._gone))


@pytest.mark.parametrize("mutation", [takes_other_arguments, reads_what_is_gone])
def test_a_fault_that_does_not_fit_what_it_replaces_counts_as_no_finding(mutation: Mutation) -> None:
    with pytest.raises(AssertionError, match="does not fit"):
        first_to_tell(mutation, 0, 1)
