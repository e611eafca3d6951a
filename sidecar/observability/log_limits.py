"""What repeats is bounded: ten lines of one fact in a minute, then how many more there were."""

import logging
import re
import threading
from typing import NamedTuple

import structlog

from sidecar.clock import Clock

WINDOW_MS = 60_000
LINES_PER_WINDOW = 10
FACTS_MAX = 100
"""Facts told apart; beyond so many, lines are counted by their event alone."""

ABOUT = ("partition", "topic", "code", "call", "worker")
"""Fields that make two facts of two lines of one event."""

BOUNDED_ELSEWHERE = frozenset({"record rejected", "more records rejected", "lines left out"})

FOREIGN = ("librdkafka", "opentelemetry", "asyncio", "urllib3", "requests")
"""Loggers of libraries."""

Fact = tuple[str, ...]

log = structlog.get_logger("timewheel.logs")


class _Window(NamedTuple):
    began_ms: float
    lines: int


class Limiter:
    """A processor that drops lines too many. A timer says how many, once their window is over."""

    def __init__(self, clock: Clock, *, window_ms: int = WINDOW_MS) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._lock = threading.Lock()
        self._windows: dict[Fact, _Window] = {}

    def __call__(self, logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Raises DropEvent for a line too many."""
        name = str(event["event"])
        if name in BOUNDED_ELSEWHERE:
            return event
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            fact = self._fact(name, event, now_ms)
            began_ms, lines = self._windows.get(fact, (now_ms, 0))
            if now_ms - began_ms >= self._window_ms and lines <= LINES_PER_WINDOW:
                began_ms, lines = now_ms, 0
            self._windows[fact] = _Window(began_ms, lines + 1)
        if lines < LINES_PER_WINDOW:
            return event
        if lines == LINES_PER_WINDOW:
            timer = threading.Timer((began_ms + self._window_ms - now_ms) / 1000, self.sum_up, [fact])
            timer.daemon = True
            timer.start()
        raise structlog.DropEvent

    def close(self) -> None:
        """Say of everything that was left out how much it was: the process ends."""
        for fact in [fact for fact, window in self._windows.items() if window.lines > LINES_PER_WINDOW]:
            self.sum_up(fact)

    def sum_up(self, fact: Fact) -> None:
        """Say how many lines of a fact were left out; its next line begins a window."""
        with self._lock:
            window = self._windows.get(fact)
            if window is None or window.lines <= LINES_PER_WINDOW:  # it has been said already
                return
            del self._windows[fact]
        log.warning(
            "lines left out",
            of=fact[0],
            about=[value for value in fact[1:] if value],
            count=window.lines - LINES_PER_WINDOW,
            operator_action="see the lines of that event before this one",
        )

    def _fact(self, name: str, event: structlog.typing.EventDict, now_ms: float) -> Fact:
        fact = (name, *(str(event.get(field, "")) for field in ABOUT))
        if fact in self._windows or len(self._windows) < FACTS_MAX:
            return fact
        for old, window in list(self._windows.items()):
            if now_ms - window.began_ms >= self._window_ms and window.lines <= LINES_PER_WINDOW:
                del self._windows[old]
        return fact if len(self._windows) < FACTS_MAX else (name,)


class OncePerMinute(logging.Filter):
    """Lets libraries say a thing once a minute: a client that cannot connect says so many times a second.

    Two messages that differ in numbers only are the same thing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told_s: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(FOREIGN):
            return True
        kind = record.name, re.sub(r"[0-9]+(ms|s)?", "#", record.getMessage())
        told_s = self._told_s.get(kind)
        if told_s is not None and 0 <= record.created - told_s < 60:  # below 0 the clock was set back
            return False
        if len(self._told_s) > 1_000:
            self._told_s.clear()
        self._told_s[kind] = record.created
        return True
