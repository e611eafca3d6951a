"""Partitions that are read to where a producer's open transaction begins, while the log goes on behind that.

Kafka hands out nothing behind an open transaction to who reads committed records only, whoever has written it and
however long it takes: by default a producer's transaction ends after a minute, at most after the brokers'
``transaction.max.timeout.ms``. The consumer is told of the end of the partition there.
"""

from collections.abc import Callable, Collection

from connectors.contract import Place
from sidecar.clock import Clock

HELD_BACK_AFTER_MS = 10_000
"""Ordinary transactions take milliseconds, and our own end after so long by default."""


class HeldBack:
    """Which they are.

    Args:
        known_end: the end of a partition's log as of the last fetch; None where it is not known.
    """

    def __init__(self, clock: Clock, known_end: Callable[[Place], int | None]) -> None:
        self._clock = clock
        self._known_end = known_end
        self._ends: dict[Place, int] = {}
        """Where the consumer has met the end of what it may read."""
        self._since_ms: dict[Place, float] = {}

    def reached_end(self, place: Place, offset: int) -> None:
        """The consumer may read no further just now."""
        if self._ends.get(place) != offset:
            self._ends[place] = offset
            self._since_ms.pop(place, None)

    def forget(self, place: Place) -> None:
        """There was something to read, or the partition is no longer ours."""
        self._ends.pop(place, None)
        self._since_ms.pop(place, None)

    def look(self, not_read: Collection[Place]) -> frozenset[Place]:
        """Those that have been held back for a while, as far as one who asks now and then can tell.

        Args:
            not_read: partitions that are paused: what is known of them is old.
        """
        now_ms = self._clock.monotonic_ms()
        for place, offset in self._ends.items():
            end = None if place in not_read else self._known_end(place)
            if end is None or end <= offset:
                self._since_ms.pop(place, None)
            else:
                self._since_ms.setdefault(place, now_ms)
        return frozenset(place for place, since_ms in self._since_ms.items() if now_ms - since_ms >= HELD_BACK_AFTER_MS)
