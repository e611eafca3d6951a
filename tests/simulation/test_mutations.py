"""The simulation bites: each of the faults in `mutations`, put into the sidecar by hand, is found."""

from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from tests.simulation.histories import first_to_tell
from tests.simulation.mutations import MUTATIONS

HISTORIES = 300
RARE = {
    "tombstones_are_not_kept": 140,
    "a_checkpoint_lies_between_a_cancel_and_its_copy": 870,
    "a_checkpoint_lets_go_of_slots_that_are_on_the_wheel": 110,
    "an_old_disk_is_trusted": 220,
    "the_timer_log_is_not_checked": 1_060,
}
"""Where to begin to look for what few histories meet."""


@pytest.fixture(scope="module")
def found(pool: ProcessPoolExecutor) -> dict[str, Future[int | None]]:
    """By fault, the first history that goes wrong with it; all are looked for at once."""
    return {
        mutation.__name__: pool.submit(first_to_tell, mutation, RARE.get(mutation.__name__, 0), HISTORIES)
        for mutation in MUTATIONS
    }


@pytest.mark.parametrize("name", [mutation.__name__ for mutation in MUTATIONS])
def test_the_fault_is_found(found: dict[str, Future[int | None]], name: str) -> None:
    assert found[name].result() is not None, f"not in {HISTORIES} histories"
