"""The last hour in points of five seconds, and the last minute by queue: rates, and how late deliveries were.

Nothing is counted here: once a second the counters are read that the loop counts anyway. Percentiles come of the
lateness histogram's buckets, which add up over time and over workers, as percentiles would not.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from prometheus_client import Counter, Gauge

from sidecar.clock import Clock
from sidecar.observability.metrics import LATENESS_BUCKETS_S, LATENESS_FINER_S, Metrics

POINT_MS = 5_000
POINTS_MAX = 720
MINUTE_POINTS = 12
RATE_OVER = 5
"""Seconds that rates are taken over."""

Buckets = list[tuple[int, int]]
"""(bucket of the lateness histogram, count), those that are empty left out."""
Counts = np.ndarray[tuple[int], np.dtype[np.int64]]

BOUNDS_MS = np.unique([*LATENESS_BUCKETS_S, *LATENESS_FINER_S]) * 1000


class Point(NamedTuple):
    """Five seconds."""

    at_ms: int
    """When they ended, epoch ms; a multiple of `POINT_MS`, so that the points of several workers add up."""
    ingested: int
    delivered: int
    rejected: int
    behind_ms: int
    lateness: Buckets


class Lateness(NamedTuple):
    """How late deliveries were, in ms; None where there was none."""

    deliveries: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None

    @classmethod
    def of(cls, buckets: Iterable[tuple[int, int]]) -> "Lateness":
        """Percentiles of what has been counted, true to a tenth."""
        counts = dense(buckets)
        total = int(counts.sum())
        if total == 0:
            return cls(0, None, None, None)
        return cls(total, _percentile(counts, 0.5), _percentile(counts, 0.99), _percentile(counts, 1.0))


class _Seen(NamedTuple):
    """Counters at some moment."""

    monotonic_ms: float
    ingested: dict[str, float]
    delivered: dict[str, float]
    rejected: float


class History:
    """The last hour of one process. `tick` is called by one thread; the rest may be asked by any."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._seen: deque[_Seen] = deque([self._look()], maxlen=RATE_OVER + 1)
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._minute: deque[dict[str, Counts]] = deque([metrics.lateness.counts()], maxlen=MINUTE_POINTS + 1)
        self._point_begins = self._seen[0]
        self._point_ends_ms = self._end_of_point()

    def tick(self, behind_ms: float) -> None:
        """About once a second."""
        seen = self._look()
        self._seen.append(seen)
        if self._point_ends_ms - POINT_MS <= self._clock.now_ms() < self._point_ends_ms:
            return  # a clock that has stepped, either way, begins a new one
        before, counts = self._minute[-1], self._metrics.lateness.counts()
        begins, self._point_begins = self._point_begins, seen
        late = np.zeros(len(BOUNDS_MS) + 1, np.int64)
        for queue, now in counts.items():
            late += now - before[queue] if queue in before else now
        self._minute.append(counts)
        while self._points and self._points[-1].at_ms >= self._point_ends_ms:
            self._points.pop()  # told before the clock was set back: each moment is told once
        self._points.append(
            Point(
                self._point_ends_ms,
                round(sum(seen.ingested.values()) - sum(begins.ingested.values())),
                round(sum(seen.delivered.values()) - sum(begins.delivered.values())),
                round(seen.rejected - begins.rejected),
                round(behind_ms),
                sparse(late),
            )
        )
        self._point_ends_ms = self._end_of_point()

    @property
    def points(self) -> list[Point]:
        """The oldest first."""
        return list(self._points)

    def minute(self) -> dict[str, Buckets]:
        """Lateness by queue over the last minute."""
        first, now = self._minute[0], self._metrics.lateness.counts()
        told = {queue: sparse(counts - first[queue] if queue in first else counts) for queue, counts in now.items()}
        return {queue: buckets for queue, buckets in told.items() if buckets}

    def rates(self) -> dict[str, dict[str, float]]:
        """Records a second: ``ingested`` and ``delivered`` by queue, ``rejected`` in all, as ``""``."""
        first, last = self._seen[0], self._seen[-1]
        elapsed_s = (last.monotonic_ms - first.monotonic_ms) / 1000 or 1.0

        def rate(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
            return {queue: (count - before.get(queue, 0)) / elapsed_s for queue, count in now.items()}

        return {
            "ingested": rate(first.ingested, last.ingested),
            "delivered": rate(first.delivered, last.delivered),
            "rejected": {"": (last.rejected - first.rejected) / elapsed_s},
        }

    def _look(self) -> _Seen:
        metrics = self._metrics
        return _Seen(
            self._clock.monotonic_ms(),
            totals(metrics.ingested),
            totals(metrics.delivered),
            sum(totals(metrics.rejected).values()),
        )

    def _end_of_point(self) -> int:
        return (self._clock.now_ms() // POINT_MS + 1) * POINT_MS


def totals(metric: Counter | Gauge) -> dict[str, float]:
    """A metric's values by that of its only label, or of none."""
    return {
        next(iter(sample.labels.values()), ""): sample.value
        for family in metric.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def sparse(counts: Counts) -> Buckets:
    """The buckets that are not empty."""
    return [(place, int(counts[place])) for place in np.flatnonzero(counts).tolist()]


def dense(buckets: Iterable[tuple[int, int]]) -> Counts:
    """Buckets added up; those of no histogram of ours are left out."""
    counts = np.zeros(len(BOUNDS_MS) + 1, np.int64)
    for place, count in buckets:
        if 0 <= place < len(counts):
            counts[place] += count
    return counts


def _percentile(counts: Counts, share: float) -> float:
    """The time that ``share`` of the deliveries stay within, between its bucket's bounds by their number."""
    cumulated = np.cumsum(counts)
    wanted = share * int(cumulated[-1])
    place = int(np.searchsorted(cumulated, wanted, side="left"))
    if place >= len(BOUNDS_MS):
        return float(BOUNDS_MS[-1])
    low = float(BOUNDS_MS[place - 1]) if place else 0.0
    inside = (wanted - int(cumulated[place] - counts[place])) / int(counts[place])
    return round(low + (float(BOUNDS_MS[place]) - low) * inside, 1)
