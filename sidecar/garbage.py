"""Python's collector of reference cycles, run when there is time for it.

Waiting records are many objects without any cycle, and the collector looks at all of them, in the middle of whatever
goes on: 0.4 µs a record, or a pause of 20 ms. Cycles come from web requests and from exceptions, so seldom that the
loop can see to them while nothing is due.
"""

import gc

ENOUGH = 100_000
"""Objects made since the last collection, about, that make one worth its time."""
TOO_MANY = 5_000_000
"""When to collect whatever is going on."""
IDLE_MS = 50
"""A collection takes about as long."""


def tame_collector() -> None:
    """From now on nothing is collected but by `collect_when_idle`."""
    gc.collect()
    gc.freeze()
    gc.disable()


def collect_when_idle(idle_ms: float) -> None:
    """Collect if there is enough to look at, and time: nothing is due for ``idle_ms``."""
    young = gc.get_count()[0]
    if (young > ENOUGH and idle_ms >= IDLE_MS) or young > TOO_MANY:
        gc.collect()
