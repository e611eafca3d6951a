"""Python's collector of reference cycles, run when there is time for it.

Waiting records are many objects without any cycle, and the collector looks at all of them, in the middle of whatever
goes on: 0.4 µs a record, or a pause of 20 ms. Cycles come from web requests and from exceptions, so seldom that the
loop can see to them while nothing is due.
"""

import gc

from sidecar.clock import Clock

ENOUGH = 100_000
"""Objects made since the last collection, about, that make one worth its time."""
TOO_MANY = 5_000_000
"""When to collect whatever is going on."""
USUALLY_MS = 50
"""How long a collection takes, as long as none has been timed."""
AT_MOST = 0.05
"""Share of the time that is spent on it: there may be a backlog to be read, all of whose objects it looks at."""


def tame_collector() -> None:
    """From now on nothing is collected but by an `IdleCollector`."""
    gc.collect()
    gc.freeze()
    gc.disable()


class IdleCollector:
    """Collects now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took_ms: float = USUALLY_MS
        self._not_before_ms = 0.0

    def collect_when_idle(self, idle_ms: float) -> None:
        """Collect if there is enough to look at, and time: nothing is due for ``idle_ms``."""
        young = gc.get_count()[0]
        if young <= ENOUGH:
            return
        began_ms = self._clock.monotonic_ms()
        if (idle_ms >= self._took_ms and began_ms >= self._not_before_ms) or young > TOO_MANY:
            gc.collect()
            ended_ms = self._clock.monotonic_ms()
            took_ms = ended_ms - began_ms
            self._took_ms = max(USUALLY_MS, took_ms)
            self._not_before_ms = ended_ms + took_ms / AT_MOST
