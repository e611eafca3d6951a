"""How far this host's clock is from that of the brokers, as the records that are read tell.

A record is read after its broker has stamped it. So the youngest of those that are read within a minute tells by how
much this host's clock is ahead, at most: only where it was the last of its partition then, for what stands in the
middle is as old as the backlog. One that seems to be from the future tells by how much the clock is behind, at least.
"""

import structlog
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from connectors.durations import format_duration
from sidecar.clock import Clock

WINDOW_MS = 60_000

MARKERS = 1
"""Of a transaction, behind its last record."""

BEHIND_TOLD_FROM_MS = 1_000
"""Clocks that are kept by NTP differ by less."""

log = structlog.get_logger("timewheel.intake")


class ClocksApart:
    """As seen by one consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = 0.0
        """The window's beginning, by the monotonic clock."""
        self._youngest_ms: int | None = None
        """The age of the youngest record in the window."""
        self._before_ms: int | None = None
        """The same of the window before."""
        self._is_told = False

    def read(self, last: Message, now_ms: int, end_offset: int | None) -> None:
        """The last record of some that have been read of a partition.

        Args:
            end_offset: the partition's, as of that read; None: not known.
        """
        kind, stamped_ms = last.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:  # a producer's clock
            return
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms - self._began_ms >= WINDOW_MS:
            self._began_ms, self._before_ms, self._youngest_ms = monotonic_ms, self._youngest_ms, None
        age_ms = now_ms - stamped_ms
        if age_ms > 0 and (end_offset is None or end_offset > (last.offset() or 0) + 1 + MARKERS):
            return
        self._youngest_ms = age_ms if self._youngest_ms is None else min(self._youngest_ms, age_ms)

    def forget(self) -> None:
        """This host's clock was set."""
        self._youngest_ms = self._before_ms = None

    @property
    def ahead_ms(self) -> int | None:
        """By how much this host's clock seems ahead; negative: it is behind. None: it is not known.

        That it is behind counts until records tell otherwise. That it seems ahead may come of old records, so it counts
        only as long as others follow.
        """
        known = [age_ms for age_ms in (self._youngest_ms, self._before_ms) if age_ms is not None]
        if not known:
            return None
        is_old = self._clock.monotonic_ms() - self._began_ms >= 2 * WINDOW_MS
        return None if is_old and min(known) > 0 else min(known)

    @property
    def in_words(self) -> str:
        """Empty where this host's clock is not known to be behind by enough to tell."""
        ahead_ms = self.ahead_ms
        if ahead_ms is None or -ahead_ms < BEHIND_TOLD_FROM_MS:
            return ""
        behind = format_duration(round(-ahead_ms / 1_000) * 1_000)
        return f"this host's clock is {behind} behind Kafka's: by Kafka's, messages are delivered late by as much"

    def tell(self) -> None:
        """Log when it begins to be behind, and when it no longer is."""
        is_behind = bool(self.in_words)
        if is_behind and not self._is_told:
            log.warning(
                "clock behind kafka",
                behind_ms=-(self.ahead_ms or 0),
                operator_action="set the clocks of this host and of the brokers; messages are delivered by this host's",
            )
        elif self._is_told and not is_behind:
            log.info("clock no longer behind kafka")
        self._is_told = is_behind
