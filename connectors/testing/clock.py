"""The clock that a test moves by hand: wall and monotonic time, which may be moved apart."""


class ManualClock:
    """Time stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms: float = now_ms
        self._monotonic_ms: float = 0.0

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, ms: float) -> None:
        """Time passes, on both clocks."""
        if ms < 0:
            raise ValueError(f"time does not pass backwards ({ms} ms); step_wall() sets the wall clock back")
        self._wall_ms += ms
        self._monotonic_ms += ms

    def step_wall(self, ms: float) -> None:
        """Somebody sets the host's clock: wall time jumps, either way, and monotonic time does not."""
        self._wall_ms += ms
