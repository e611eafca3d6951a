"""One deadline, shared by all the blocking calls of one operation."""

import time
from typing import Self


class Deadline:
    """A moment on the monotonic clock."""

    def __init__(self, at_monotonic_s: float) -> None:
        self._at_s = at_monotonic_s

    @classmethod
    def after(cls, seconds: float) -> Self:
        return cls(time.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at_s - time.monotonic())

    @property
    def expired(self) -> bool:
        return self.remaining_s == 0.0
