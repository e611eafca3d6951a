"""One partition's log: dense offsets, markers that take an offset, and the last stable offset.

A log of two transactions, the first committed and the second aborted, and one record on its own:

    offset   0  1  2       3  4       5
    entry    a  b  commit  x  abort   c
    read_committed sees 0, 1 and 5; its end while the first transaction is open is 0.
"""

from bisect import bisect_right
from enum import Enum
from typing import NamedTuple

from connectors.contract import Headers, Place


class SpanState(Enum):
    """How a transaction stands."""

    OPEN = "open"  # -> COMMITTED or ABORTED
    COMMITTED = "committed"
    ABORTED = "aborted"


class Span:
    """One transaction as the logs see it."""

    __slots__ = ("logs", "offsets", "state")

    def __init__(self) -> None:
        self.state = SpanState.OPEN
        self.logs: list[PartitionLog] = []
        self.offsets: list[PendingOffset] = []


class PendingOffset(NamedTuple):
    """A group's offset inside a transaction."""

    group_id: str
    place: Place
    offset: int
    metadata: str | None
    sequence: int
    """Its place in the order in which the coordinator wrote offsets; the later one stays."""


Entry = tuple[int, bytes | None, bytes | None, Headers | None, Span | None]
"""Timestamp in ms, key, value, headers, transaction."""

MARKER = Span()
"""Stands for the transaction of a control record."""


class PartitionLog:
    """Offsets count from 0; `begin` is the first that retention has left."""

    __slots__ = ("_open", "begin", "entries", "epochs", "number", "topic")

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.begin = 0
        self.entries: list[Entry] = []
        self.epochs = [0]
        """Where each leader epoch begins, by its number."""
        self._open: dict[Span, int] = {}

    @property
    def end(self) -> int:
        """The high watermark: the offset of the next record."""
        return self.begin + len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where ``read_committed`` ends."""
        return max(self.begin, min(self._open.values())) if self._open else self.begin + len(self.entries)

    def append(self, entries: list[Entry], span: Span | None) -> int:
        """Returns the first offset."""
        first = self.end
        if span is not None and span not in self._open:
            self._open[span] = first
            span.logs.append(self)
        self.entries += entries
        return first

    def mark(self, span: Span, now_ms: int) -> None:
        """Write the transaction's control record."""
        self._open.pop(span, None)
        self.entries.append((now_ms, None, None, None, MARKER))

    def delete_before(self, offset: int) -> None:
        """Retention: what is below `offset` is gone."""
        count = min(max(0, offset - self.begin), len(self.entries))
        del self.entries[:count]
        self.begin += count

    def elect(self, lost: int) -> list[Entry]:
        """Another leader, which knows nothing of the last entries: they are gone, and their offsets given anew."""
        cut = self.end - min(lost, len(self.entries))
        gone = self.entries[cut - self.begin :]
        del self.entries[cut - self.begin :]
        self.epochs = [*(min(first, cut) for first in self.epochs), cut]
        self._open = {span: first for span, first in self._open.items() if first < cut}
        return gone

    def epoch_of(self, offset: int) -> int:
        """Of the entry at this offset."""
        return bisect_right(self.epochs, offset) - 1

    def end_of_epoch(self, epoch: int) -> int:
        """Where a later one begins, or the log ends."""
        return self.epochs[epoch + 1] if epoch + 1 < len(self.epochs) else self.end

    def first_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first entry not older than that; None where there is none."""
        for index, entry in enumerate(self.entries):
            if entry[0] >= timestamp_ms and entry[4] is not MARKER:
                return self.begin + index, entry[0]
        return None

    def latest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the entry with the greatest timestamp, the first of several."""
        if not self.entries:
            return None
        index = max(range(len(self.entries)), key=lambda at: (self.entries[at][0], -at))
        return self.begin + index, self.entries[index][0]
