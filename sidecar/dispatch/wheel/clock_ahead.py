"""Whether the sidecar's clock is far ahead of the one that stamps records: copies that come back old tell."""

import structlog

from connectors.durations import format_duration

TOLD_FROM_MS = 60_000
"""With a short roll window, a copy may be old because reading is behind."""

EARLY_TOLD_FROM_MS = 60_000
"""Clocks that differ by less are no news."""

log = structlog.get_logger("timewheel.wheel")


def told_early(ahead_ms: int) -> str:
    """That messages go out before their time: what is done by a clock that was ahead is not undone when it is set.

    Empty where the clock is not ahead by enough to tell.
    """
    if ahead_ms < EARLY_TOLD_FROM_MS:
        return ""
    ahead = format_duration(ahead_ms // 1_000 * 1_000)
    return f"messages were delivered by a clock that was {ahead} ahead: what is due within that time goes out at once"


class ClockAhead:
    """As seen by one wheel partition."""

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._ahead_ms = 0

    @property
    def in_words(self) -> str:
        """Empty while it is not known to be."""
        if not self._ahead_ms:
            return ""
        ahead = format_duration(self._ahead_ms // 1_000 * 1_000)
        return f"this host's clock, by which messages are delivered, is ahead of Kafka's by {ahead}"

    def copy_was_old(self, ahead_ms: int) -> None:
        """A copy that this process has written a moment ago bears a timestamp so far behind the clock."""
        if ahead_ms < TOLD_FROM_MS:
            return
        if not self._ahead_ms:
            log.warning(
                "clock ahead of kafka",
                partition=self._partition,
                ahead_ms=ahead_ms,
                operator_action="set the clocks of this host and of the brokers; messages are delivered by this "
                "host's, and those rolled meanwhile need a retention of the wheel topic that is longer by as much",
            )
        self._ahead_ms = ahead_ms

    def record_read(self, age_ms: int) -> None:
        """A record that is young when it is read says that the clocks agree."""
        if age_ms < TOLD_FROM_MS:
            self._ahead_ms = 0
