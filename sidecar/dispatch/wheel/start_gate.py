"""What a wheel partition waits for after a start before it sends anything.

What fell due while nobody delivered may have been cancelled in good time, by what nobody has read yet. So nothing goes
out before the log's end of the start is read; but not for long, and not beyond what memory and disk hold.
"""

from collections.abc import Callable
from enum import Enum

from sidecar.dispatch.wheel.cancels import Cancels
from sidecar.dispatch.wheel.intake import WheelIntake

BACKLOG_MS = 5_000
"""How long what is due waits at most for what was written before the start."""


class Stage(Enum):
    """In their order; but where memory is full, or another's transaction open, a doubt does not keep from sending. Then
    the commits tell of it (`WheelProgress.in_doubt`), as far as they have room."""

    REPLAY = "replay"
    """Records below the committed offset, or what they need, are read again."""
    DOUBTS = "doubts"
    """It is read which replacements from before the start have been carried out (see `WheelIntake._bring`)."""
    BACKLOG = "backlog"
    """What was written before the start is read."""
    OPEN = "open"
    """What is due is sent."""


class StartGate:
    """The gate of one partition.

    Args:
        log_end: the log's end when the partition was assigned.
        monotonic_ms: a clock that never steps.
    """

    def __init__(self, intake: WheelIntake, cancels: Cancels, log_end: int, monotonic_ms: Callable[[], float]) -> None:
        self._intake = intake
        self._cancels = cancels
        self._monotonic_ms = monotonic_ms
        self._backlog_until = log_end
        """0: it is read, or is not waited for any more."""
        self._backlog_from_ms: float | None = None
        """Since when it is waited for; None: not yet."""
        self._has_reached_end = False

    def stage(self, *, has_room: bool) -> Stage:
        """Where it stands.

        Args:
            has_room: whether reading goes on. Where it does not, nothing may wait for what it would find: only sending
                makes the room.
        """
        if self._intake.is_recovering:
            return Stage.REPLAY
        if has_room and self._cancels.in_doubt and not self._has_reached_end:
            return Stage.DOUBTS
        return Stage.BACKLOG if self._intake.position < self._backlog_until else Stage.OPEN

    def reached_end(self, offset: int) -> None:
        """There is nothing more to read below ``offset``; another's open transaction may hold the rest back for
        minutes."""
        if self._intake.position >= offset:
            self._has_reached_end = True
            self._backlog_until = 0

    def tick(self, *, is_needed: bool) -> None:
        """Past what has to be read again: for how long the rest is waited for.

        Args:
            is_needed: whether there is room to read it, and anything that it could cancel.
        """
        if not self._backlog_until:
            return
        monotonic_ms = self._monotonic_ms()
        if self._backlog_from_ms is None:
            self._backlog_from_ms = monotonic_ms
        if not is_needed or monotonic_ms - self._backlog_from_ms >= BACKLOG_MS:
            self._backlog_until = 0
