"""One wheel partition by itself, through 300 random stories; and faults that these are quick to find."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial

import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.in_hand import InHand
from sidecar.dispatch.wheel.intake import WheelIntake
from sidecar.dispatch.wheel.staging import Staging
from tests.simulation.histories import look_for
from tests.simulation.mutations import (
    Mutation,
    Patch,
    a_copy_of_an_earlier_process_counts_as_ones_own,
    cancels_are_not_kept_for_roll_copies,
    what_arrived_due_is_forgotten_by_an_abort,
    what_is_buried_in_place_of_a_copy_is_not_remembered,
)
from tests.simulation.one_partition import MODES, SEEDS, Went, go_through, trace_of

HAPPENINGS = {
    *("written", "full", "closed", "dirty", "gone", "read", "waiting", "taken", "aborted", "committed"),
    *("delivered", "rolled", "brought", "buried", "cancelled", "too_late", "unknown"),
}
"""What a story tells of itself, less what is rare."""


def what_is_in_hand_is_decided_at_once(patch: Patch) -> None:
    patch.setattr(InHand, "holds_back", lambda _self, _request: False)


def what_one_replacement_brings_is_not_there_for_the_next(patch: Patch) -> None:
    """Where both are read at once."""
    patch.setattr(Staging, "brings", lambda _self, _uniq_key: False)


def what_is_read_is_told_this_hosts_time_though_another_was_ahead(patch: Patch) -> None:
    """What has fallen due by the other's clock, and is done by the watermark, is stored."""
    offer = WheelIntake.offer

    def offered(intake: WheelIntake, messages: Sequence[Message], _now_ms: int, clock_ms: int) -> None:
        offer(intake, messages, clock_ms, clock_ms)

    patch.setattr(WheelIntake, "offer", offered)


FAULTS: Mapping[Mutation, int] = {
    what_is_in_hand_is_decided_at_once: 0,
    what_one_replacement_brings_is_not_there_for_the_next: 0,
    a_copy_of_an_earlier_process_counts_as_ones_own: 370,
    cancels_are_not_kept_for_roll_copies: 0,
    what_arrived_due_is_forgotten_by_an_abort: 0,
    what_is_buried_in_place_of_a_copy_is_not_remembered: 50,
    what_is_read_is_told_this_hosts_time_though_another_was_ahead: 0,
}
"""With the seed from which to look for them."""
STORIES = 300
FORGETFUL = 500
"""Seeds of stories in which progress is lost."""


@pytest.fixture(scope="module")
def went(pool: ProcessPoolExecutor) -> list[Went]:
    """By seed, all that have been gone through."""
    return list(pool.map(go_through, range(SEEDS), chunksize=10))


@pytest.fixture(scope="module")
def found(pool: ProcessPoolExecutor) -> Mapping[Mutation, Future[int | None]]:
    return look_for(pool, FAULTS, STORIES, go_through)


@pytest.mark.parametrize("number", range(len(MODES)), ids=[mode.name for mode in MODES])
def test_whatever_comes_between_its_calls_a_partition_keeps_its_promise(went: list[Went], number: int) -> None:
    failed = [one for one in went[number :: len(MODES)] if one.found is not None]
    told = "\n".join(f"python -m tests.simulation.one_partition {one.seed}  # {one.found}" for one in failed)
    assert not failed, f"seeds that fail:\n{told}"


@pytest.mark.long
def test_progress_that_is_lost_goes_on_where_an_operator_says(pool: ProcessPoolExecutor) -> None:
    """Where ids are reused, an order that is read again may take out another message than it did."""
    seeds = [seed for seed in range(FORGETFUL) if not MODES[seed % len(MODES)].reuses_ids]
    forgetful = list(pool.map(partial(go_through, forgets=True), seeds, chunksize=10))
    failed = [one for one in forgetful if one.found is not None]
    told = "\n".join(f"python -m tests.simulation.one_partition {one.seed} --forgets  # {one.found}" for one in failed)
    assert not failed, f"seeds that fail:\n{told}"
    assert all(one.met["forgotten"] for one in forgetful)


def test_all_that_may_happen_has_happened(went: list[Went]) -> None:
    met: Counter[str] = Counter()
    for one in went:
        met.update(one.met)
    assert {what for what in HAPPENINGS if met[what] < 10} == set()


@pytest.mark.parametrize("seed", range(len(MODES)))
def test_a_seed_is_one_story(pool: ProcessPoolExecutor, seed: int) -> None:
    """In this process and in another, line by line: what was found can be looked at."""
    traces = [trace_of(seed), pool.submit(trace_of, seed).result(), trace_of(seed)]
    assert len(traces[0]) > 20
    assert traces[0] == traces[1] == traces[2]


@pytest.mark.parametrize("mutation", FAULTS, ids=[mutation.__name__ for mutation in FAULTS])
def test_the_fault_is_found(found: Mapping[Mutation, Future[int | None]], mutation: Mutation) -> None:
    assert found[mutation].result() is not None, f"not in {STORIES} stories"
