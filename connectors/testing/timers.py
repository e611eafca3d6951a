"""What happens by itself when time has passed: time-outs of transactions and sessions, late markers."""

import heapq
from collections.abc import Callable
from math import inf

from connectors.clock import Clock


class Timers:
    """Alarms on monotonic time, rung by `ring`, in order of time and then of setting."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def next_ms(self) -> float:
        """Monotonic time of the next alarm; infinite where there is none."""
        return self._heap[0][0] if self._heap else inf

    def after(self, ms: float, action: Callable[[], None]) -> None:
        """Call `action` once, when `ms` have passed."""
        self._count += 1
        heapq.heappush(self._heap, (self._clock.monotonic_ms() + ms, self._count, action))

    def ring(self) -> None:
        """Everything that is due."""
        heap = self._heap
        while heap and heap[0][0] <= self._clock.monotonic_ms():
            heapq.heappop(heap)[2]()
