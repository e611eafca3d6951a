"""Partitions that are read to where a producer's open transaction begins, while the log goes on behind that.

Kafka hands out nothing behind an open transaction to who reads committed records only, whoever has written it and
however long it takes: by default a producer's transaction ends after a minute, at most after the brokers'
``transaction.max.timeout.ms``. The consumer is told of the end of the partition there.
"""

HELD_BACK_AFTER_MS = 10_000
"""Ordinary transactions take milliseconds, and our own end after so long by default."""


class HeldBack:
    """Whether a partition is one of them."""

    def __init__(self) -> None:
        self._read_until: int | None = None
        """Where the consumer has met the end of what it may read; None: it has read on since."""
        self._since_ms: float | None = None

    def reached_end(self, offset: int) -> None:
        """The consumer may read no further just now."""
        if self._read_until != offset:
            self._read_until, self._since_ms = offset, None

    def reads_on(self) -> None:
        """There was something to read."""
        self._read_until = self._since_ms = None

    def look(self, end_offset: int | None, now_ms: float) -> bool:
        """Whether it has been held back for a while, as far as one who asks now and then can tell.

        Args:
            end_offset: the end of the log as of the last fetch; None where it is not known, or nothing is fetched.
            now_ms: of a clock that never steps.
        """
        if self._read_until is None or end_offset is None or end_offset <= self._read_until:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = now_ms
        return self._since_ms is not None and now_ms - self._since_ms >= HELD_BACK_AFTER_MS
