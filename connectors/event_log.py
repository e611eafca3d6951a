"""Log lines of the library: sentences for people, with fields beside them for machines.

Each record of the standard library's ``logging`` carries ``event`` (a stable name; docs/logs.md lists them) and, where
somebody has to do something, ``operator_action``. What repeats is bounded: ten lines an event and minute, and the next
one says how many there were between. No payload and no key is ever logged.
"""

import logging
import threading
from collections.abc import Sequence

from connectors.clock import Clock, SystemClock

WINDOW_MS = 60_000
LINES_PER_WINDOW = 10
NAMED_MAX = 5

_windows: dict[tuple[str, str], tuple[float, int, int]] = {}
"""By logger and event: when its window began, lines in it, and lines left out before it."""
_lock = threading.Lock()


class EventLog:
    """Logs to a logger, a bounded number of lines per event."""

    def __init__(self, logger: logging.Logger, clock: Clock | None = None) -> None:
        self._logger = logger
        self._clock = clock or SystemClock()

    def debug(self, event: str, message: str, *args: object) -> None:
        self._tell(logging.DEBUG, event, message, args)

    def warning(self, event: str, message: str, *args: object, operator_action: str) -> None:
        self._tell(logging.WARNING, event, message, args, operator_action)

    def error(
        self, event: str, message: str, *args: object, operator_action: str, exc_info: BaseException | None = None
    ) -> None:
        self._tell(logging.ERROR, event, message, args, operator_action, exc_info)

    def _tell(
        self,
        level: int,
        event: str,
        message: str,
        args: tuple[object, ...],
        operator_action: str = "",
        exc_info: BaseException | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        left_out = self._left_out(event)
        if left_out is None:
            return
        if left_out:
            message += " (%d more of these since the last)"
            args = (*args, left_out)
        if operator_action:
            message += "; " + operator_action.replace("%", "%%")
        fields = {"event": event, "operator_action": operator_action, "left_out": left_out}
        self._logger.log(level, message, *args, exc_info=exc_info, extra=fields, stacklevel=3)

    def _left_out(self, event: str) -> int | None:
        """How many lines were left out before this one; None: it is one of them."""
        now_ms, fact = self._clock.monotonic_ms(), (self._logger.name, event)
        with _lock:
            began_ms, lines, left_out = _windows.get(fact, (now_ms, 0, 0))
            if now_ms - began_ms >= WINDOW_MS:
                began_ms, lines, left_out = now_ms, 0, max(0, lines - LINES_PER_WINDOW)
            _windows[fact] = began_ms, lines + 1, 0 if lines < LINES_PER_WINDOW else left_out
        return left_out if lines < LINES_PER_WINDOW else None


def begin_anew() -> None:
    """Forget what has been logged; for tests that look for a line."""
    with _lock:
        _windows.clear()


def named(messages: Sequence[object]) -> str:
    """Messages as a line can hold them."""
    shown = ", ".join(map(str, messages[:NAMED_MAX]))
    return shown if len(messages) <= NAMED_MAX else f"{shown} and {len(messages) - NAMED_MAX} more"
