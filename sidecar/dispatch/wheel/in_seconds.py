"""Times that were written in seconds where milliseconds are meant: a day of 1970, and so delivered at once."""

import structlog

TEN_DIGITS = range(10**9, 10**10)
"""As seconds from 2001 to 2286, as milliseconds from January to April 1970. What is to go at once says 0, or now."""

log = structlog.get_logger("timewheel.wheel")


class InSeconds:
    """Those that come to one partition; told batch by batch."""

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._offsets: list[int] = []

    def look(self, due_ms: int, offset: int) -> None:
        """At a record that was due before it was written."""
        if due_ms in TEN_DIGITS:
            self._offsets.append(offset)

    def tell(self) -> None:
        """What was found since the call before."""
        if not self._offsets:
            return
        log.warning(
            "times in seconds",
            partition=self._partition,
            offset=self._offsets[0],
            count=len(self._offsets),
            operator_action="let the producer write TIMER_DELIVER_MS in milliseconds, thirteen digits; ten are a time "
            "of early 1970, so these messages go out at once",
        )
        self._offsets.clear()
