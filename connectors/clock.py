"""The only place of the library that reads time."""

import time
from typing import Protocol


class Clock(Protocol):
    """What `connectors.testing.ManualClock` offers too."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may step when the host's clock is set."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment; never goes back."""


class SystemClock:
    """The host's."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000


class Deadline:
    """One timeout for several calls in a row."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + timeout_s * 1000

    @property
    def left_s(self) -> float:
        """What is left; 0 when it is over."""
        return max(0.0, (self._end_ms - self._clock.monotonic_ms()) / 1000)

    @property
    def is_over(self) -> bool:
        return not self.left_s
