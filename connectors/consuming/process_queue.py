"""What has been read of one partition and is not done yet (RocketMQ's ``ProcessQueue``).

Records may be done in any order; committed is the lowest offset that is not done, so that whatever dies, nothing below
the committed offset was left undone:

    read           4 5 6 7 9        (8 is a transaction's marker: no record has it)
    done             5 6   9
    committable    4
    4 is done      7
    7 is done     10
"""

from collections import deque
from collections.abc import Iterable

from connectors.consuming.message import ConsumedMessage
from connectors.contract import Place


class ProcessQueue:
    """One assignment of one partition. Assigned again, the partition gets a new one, and what belongs to this one does
    not count any more. But for `backlog`, only the loop's thread touches it."""

    def __init__(self, place: Place, begins_at: int | None = None) -> None:
        """``begins_at``: to be committed before anything has been read."""
        self.place = place
        self.is_dropped = False
        """The partition is somebody else's, or about to be: nothing new is handed to the listener."""
        self.is_paused = False
        self.full_since_ms: float | None = None
        """Since when it has had as much in flight as it may; monotonic."""
        self.backlog: deque[ConsumedMessage] = deque()
        """Orderly mode: what the listener has not seen yet."""
        self.in_flight_bytes = 0
        """The size of keys and values that have been read and are not done."""
        self._sizes: dict[int, int] = {}
        """The size of each record that is not done, by offset."""
        self.refused: set[int] = set()
        """Offsets of what Kafka does not take as a send-back, which has been told."""
        self._undone: deque[int] = deque()
        """Offsets in order, from the lowest that is not done."""
        self._done: set[int] = set()
        """The offsets in `_undone` that are done, ahead of the first that is not."""
        self._end = begins_at
        self._requested: int | None = None

    @property
    def in_flight(self) -> int:
        """How many offsets stand between what may be committed and what has been read."""
        return len(self._undone)

    @property
    def committable(self) -> int | None:
        """The offset to continue at; None while nothing has been read, unless it is known all the same."""
        return self._undone[0] if self._undone else self._end

    def is_behind(self, offset: int) -> bool:
        """Whether the offset cannot follow what has been read: the log was cut back, or is another one."""
        return self._end is not None and offset < self._end

    def read(self, offset: int, size_bytes: int = 0) -> None:
        self._undone.append(offset)
        self._sizes[offset] = size_bytes
        self.in_flight_bytes += size_bytes
        self._end = offset + 1

    def done(self, offsets: Iterable[int]) -> None:
        """Records at these offsets have been handled, or sent back and acknowledged."""
        for offset in offsets:
            self._done.add(offset)
            self.refused.discard(offset)
            self.in_flight_bytes -= self._sizes.pop(offset, 0)
        undone, done = self._undone, self._done
        while undone and undone[0] in done:
            done.remove(undone.popleft())

    def take_uncommitted(self) -> int | None:
        """The offset to commit, if it is another than the one that was taken last."""
        offset = self.committable
        if offset == self._requested:
            return None
        self._requested = offset
        return offset

    def commit_failed(self) -> None:
        """What was taken has to be taken again."""
        self._requested = None
