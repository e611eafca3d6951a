"""The clock of a machine, beside that of the brokers."""

from sidecar.clock import Clock


class ClockAhead:
    """A machine's own, some time ahead of the brokers', or behind."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms()
