"""Why a wheel partition takes nothing in just now: its disk is full or fails, or its wheel has no place."""

from collections.abc import Callable

import structlog

from sidecar.intake.reopening import remedy
from sidecar.store.errors import MAKE_ROOM, SlotConflict, is_disk_full

TRY_AGAIN_MS = 1_000
"""How long intake pauses before it tries again."""

_BEYOND_A_LAP = (
    "a record is due farther ahead than the wheel spans, which a timestamp ahead of the clock can make it: intake goes "
    "on by itself once it is near enough, or after a start with more slots_total"
)

log = structlog.get_logger("timewheel.wheel")


class IntakePause:
    """The pause of one partition. True while nothing is taken in.

    Args:
        monotonic_ms: a clock that never steps: by one that stands still, room that there is again would not be seen.
    """

    def __init__(self, partition: str, monotonic_ms: Callable[[], float]) -> None:
        self._partition = partition
        self._monotonic_ms = monotonic_ms
        self._is_on = False
        self._began_ms = 0.0
        self.reason = ""
        """Until intake has gone on: what is tried again every second is told as one state."""
        self.remedy = ""
        """What an operator can do about the reason; empty where there is none."""
        self._is_disk_full = False

    def __bool__(self) -> bool:
        return self._is_on

    @property
    def is_disk_full(self) -> bool:
        """Whether there is a reason, and it is want of room on the disk."""
        return bool(self.reason) and self._is_disk_full

    def begin(self, error: OSError | SlotConflict) -> None:
        """Something could not be stored."""
        self._is_on, self._began_ms = True, self._monotonic_ms()
        self.reason = f"{error.strerror}" if isinstance(error, OSError) else str(error)
        self._is_disk_full = is_disk_full(error)
        self.remedy = MAKE_ROOM if self._is_disk_full else remedy(error)
        if isinstance(error, SlotConflict):
            self.remedy = _BEYOND_A_LAP
        log.error("wheel intake paused", partition=self._partition, reason=self.reason, operator_action=self.remedy)

    def tick(self) -> None:
        """End the pause after a while: the next batch will show whether there is room."""
        if self._is_on and self._monotonic_ms() - self._began_ms >= TRY_AGAIN_MS:
            self._is_on = False

    def is_over(self) -> None:
        """Intake has gone on."""
        self.reason = self.remedy = ""
