"""Histories by their seeds, as the processes of a pool go through them."""

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType

import pytest
import structlog

from tests.simulation.ledger import Violation
from tests.simulation.mutations import Mutation
from tests.simulation.world import World

SEEDS = 1_000
"""How many histories every run of the tests goes through; a soak goes on from there."""

HISTORY_S = 60.0
"""Most take a fifth of a second. What goes round in a circle is a fault as well, and the others have their turn."""

Went = tuple[int, str | None, dict[str, int]]
"""Seed; what was found, None where nothing was; how often each label was passed, and each damage done."""


def be_quiet() -> None:
    """A simulation logs thousands of lines of no interest."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))


def go_through(seed: int) -> Went:
    """One history."""
    world = World(seed)
    found = what_is_found(world.run, HISTORY_S)
    hits = world.kafka.faults.hits.copy()
    for replica in world.replicas:
        hits.update(replica.disk.hits)
    return seed, found, dict(hits)


def what_is_found(run: Callable[[], None], limit_s: float) -> str | None:
    """What goes wrong in a history or a story, or that it does not end in time; None: nothing."""
    try:
        with no_longer_than(limit_s):
            run()
    except Violation as violation:
        return str(violation)
    return None


@contextmanager
def no_longer_than(limit_s: float) -> Iterator[None]:
    """Raises Violation, in the midst of whatever goes on; in the main thread only."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise Violation(f"does not end within {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)  # again, where something takes it for an error of its own
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def trace_of(seed: int) -> list[str]:
    """All that a history tells of itself."""
    trace: list[str] = []
    World(seed, trace.append).run()
    return trace


Go = Callable[[int], tuple[int, str | None, object]]
"""Goes through one by its seed, and tells that, what was found, and what was met."""


def look_for(
    pool: ProcessPoolExecutor, faults: Mapping[Mutation, int], count: int, go: Go = go_through
) -> dict[Mutation, Future[int | None]]:
    """By fault, the first of so many that goes wrong with it; all are looked for at once.

    Args:
        faults: with the seed from which to look for each.
    """
    return {mutation: pool.submit(first_to_tell, mutation, first, count, go) for mutation, first in faults.items()}


def first_to_tell(mutation: Mutation, first: int, count: int, go: Go = go_through) -> int | None:
    """The first seed of so many whose history, or story, goes wrong with the fault, and does not without it."""
    for seed in range(first, first + count):
        with pytest.MonkeyPatch.context() as patch:
            mutation(patch)
            found = go(seed)[1]
        assert not (found and _is_misfit(mutation, found)), f"it does not fit what it replaces: {found}"
        if found is not None and go(seed)[1] is None:
            return seed
    return None


def _is_misfit(mutation: Mutation, found: str) -> bool:
    """Whether it is the fault's own code that has failed: what it replaces takes other arguments by now, or is gone."""
    return f"{mutation.__name__}.<locals>" in found or f" at {mutation.__code__.co_filename}:" in found
