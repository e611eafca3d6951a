"""The wheel partition through 1,000 random histories: exactly once, never early, a cancel that counted is final."""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import pytest

from connectors.testing import LABELS as KAFKA_LABELS
from tests.simulation.disk import DAMAGES
from tests.simulation.disk import LABELS as DISK_LABELS
from tests.simulation.histories import SEEDS, go_through, trace_of

NOT_CALLED = frozenset(
    f"{call}:{side}"
    for call in ("create_topics", "delete_topics", "delete_records", "commit", "watermarks", "close")
    for side in ("before", "after")
) | {"poll:before"}
"""Calls that the loop does not make: its progress goes with its transactions, its queues do not fill."""


class Histories(NamedTuple):
    """What has come of them."""

    failures: dict[int, str]
    """By seed."""
    hits: Counter[str]
    """How often each label was passed, and each damage done."""


@pytest.fixture(scope="module")
def histories(pool: ProcessPoolExecutor) -> Histories:
    failures: dict[int, str] = {}
    hits: Counter[str] = Counter()
    for seed, found, hit in pool.map(go_through, range(SEEDS), chunksize=20):
        if found is not None:
            failures[seed] = found
        hits.update(hit)
    return Histories(failures, hits)


def test_whatever_happens_every_message_is_delivered_once_or_cancelled(histories: Histories) -> None:
    told = "\n".join(f"python -m tests.simulation.world {seed}  # {told}" for seed, told in histories.failures.items())
    assert not histories.failures, f"seeds that fail:\n{told}"


def test_every_point_at_which_something_may_go_wrong_was_passed(histories: Histories) -> None:
    missing = {*KAFKA_LABELS, *DISK_LABELS, *DAMAGES} - NOT_CALLED - set(histories.hits)
    assert not missing


@pytest.mark.parametrize("seed", range(6))
def test_a_seed_is_one_history(pool: ProcessPoolExecutor, seed: int) -> None:
    """In this process and in another, line by line: what a soak has found can be looked at."""
    traces = [trace_of(seed), pool.submit(trace_of, seed).result(), trace_of(seed)]
    assert len(traces[0]) > 20
    assert traces[0] == traces[1] == traces[2]
