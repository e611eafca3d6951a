"""How many messages of a wheel partition are acted on when: what the heat map shows.

What is on disk only is counted by the nums of its slots, and so by when its slot begins; what is at hand, by the
millisecond. A message that rolls counts at its roll. What should have gone out by now is counted apart (``overdue``).
"""

from collections.abc import Generator, Iterable
from typing import NamedTuple

import numpy as np

from sidecar.dispatch.late import Late
from sidecar.dispatch.wheel.ready import Ready
from sidecar.store.layout import Int64Array
from sidecar.store.timer_store import TimerStore

BUCKETS_MAX = 1_000

STEP_SLOTS = 8_192
"""Slots that are counted in one step, in about half a millisecond."""


class Window(NamedTuple):
    """A stretch of time in buckets of ``bucket_ms``, the last of which may be cut short by ``until_ms``."""

    from_ms: int
    until_ms: int
    bucket_ms: int

    @property
    def buckets(self) -> int:
        return -((self.from_ms - self.until_ms) // self.bucket_ms)


class TimeCounts(NamedTuple):
    """What waits, by when it is acted on."""

    total: int
    """All that waits, in the window or not."""
    overdue: int
    """Should have gone out by now; in no bucket."""
    counts: list[int]
    """A number a bucket."""

    @classmethod
    def added(cls, parts: "Iterable[TimeCounts]", buckets: int) -> "TimeCounts":
        """The sum over all partitions."""
        counts, total, overdue = np.zeros(buckets, np.int64), 0, 0
        for part in parts:
            total, overdue, counts = total + part.total, overdue + part.overdue, counts + part.counts
        return cls(total, overdue, counts.tolist())


def count_by_time(
    store: TimerStore, ready: Ready, late: Late, window: Window, now_ms: int
) -> Generator[None, None, TimeCounts]:
    """Count in steps of half a millisecond, between which all else may go on; told as of the first step.

    A slot keeps its num when it is loaded and when it is sent, so that what is at hand now and what lies in slots that
    are not loaded now are together all there is, however long the steps take.
    """
    at_hand_ms = ready.times_ms()
    loaded_until_ms = ready.loaded_until_ms
    total = store.pending_count + ready.waiting + late.count
    overdue = late.count + int(np.count_nonzero(at_hand_ms < now_ms))
    first_ms = max(window.from_ms, now_ms)
    places = at_hand_ms[(at_hand_ms >= first_ms) & (at_hand_ms < window.until_ms)] - window.from_ms
    counts = np.bincount(places // window.bucket_ms, minlength=window.buckets).astype(np.int64)
    yield
    if loaded_until_ms:
        for _, found in _of_slots(store, loaded_until_ms, now_ms, max(1, now_ms - loaded_until_ms)):
            overdue += int(found.sum())
            yield
    for begin_ms, found in _of_slots(store, max(loaded_until_ms, first_ms), window.until_ms, window.bucket_ms, window):
        first = (begin_ms - window.from_ms) // window.bucket_ms
        counts[first : first + len(found)] += found
        yield
    return TimeCounts(total, overdue, counts.tolist())


def _of_slots(
    store: TimerStore, from_ms: int, until_ms: int, bucket_ms: int, window: Window | None = None
) -> Generator[tuple[int, Int64Array], None, None]:
    """(time, counts of the buckets from there on), a step after the other.

    Each begins where a bucket of the window does, but for the first, whose bucket is cut short.
    """
    origin_ms = window.from_ms if window is not None else from_ms
    whole = max(1, STEP_SLOTS * store.precision_ms // bucket_ms) * bucket_ms
    while from_ms < until_ms:
        next_ms = from_ms + bucket_ms - (from_ms - origin_ms) % bucket_ms
        if next_ms - from_ms == bucket_ms:
            next_ms = from_ms + whole
        next_ms = min(next_ms, until_ms)
        yield from_ms, store.counts(from_ms, next_ms, bucket_ms)
        from_ms = next_ms
