"""What time it is: wall time decides what is due, monotonic time measures how long something took."""

from connectors.clock import Clock, SystemClock

__all__ = ["Clock", "HighWaterClock", "SystemClock"]


class HighWaterClock:
    """A wall clock that does not go back: what it has shown once stays reached.

    A step back of the host's clock must not hold up what was already due by the highest time shown, nor make anything
    that this time decided look early. Steps are counted for metrics and the log.
    """

    def __init__(self, clock: Clock, step_tolerance_ms: int = 1_000) -> None:
        self._clock = clock
        self._tolerance_ms = step_tolerance_ms
        self._highest_ms = clock.now_ms()
        self._last_wall_ms = self._highest_ms
        self._last_monotonic_ms = clock.monotonic_ms()
        self.steps_back = 0
        self.steps_forward = 0
        self.last_step_ms = 0

    def now_ms(self) -> int:
        wall_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        step_ms = (wall_ms - self._last_wall_ms) - (monotonic_ms - self._last_monotonic_ms)
        if abs(step_ms) > self._tolerance_ms:
            self.last_step_ms = round(step_ms)
            if step_ms < 0:
                self.steps_back += 1
            else:
                self.steps_forward += 1
        self._last_wall_ms, self._last_monotonic_ms = wall_ms, monotonic_ms
        self._highest_ms = max(self._highest_ms, wall_ms)
        return self._highest_ms

    @property
    def ahead_ms(self) -> int:
        """How far what was last shown is ahead of the host's clock, which was set back."""
        return self._highest_ms - self._last_wall_ms

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms()
