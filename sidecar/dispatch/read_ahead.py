"""What the two kinds of partitions have in common whose records wait in memory, in the order of their offsets."""

from collections.abc import Sequence

from sidecar.records import Outgoing


class ReadAhead:
    """Bounds for what waits, and the answers of a source that has no store: see `sidecar.source.Source`.

    Args:
        max_records, max_bytes: a partition beyond either asks to be paused, until half of it is free.
    """

    is_best_read_whole = False
    """Records have nothing to do with each other."""
    is_recovering = False
    """Nothing before the committed offset is needed."""
    is_disk_full = waits_for_delivery = False
    replayed = 0, 0
    trouble = remedy = note = ""

    def __init__(self, topic: str, partition: int, start_offset: int, max_records: int, max_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = start_offset
        """The next offset to be read."""
        self._max_records = max_records
        self._max_bytes = max_bytes

    @property
    def waiting(self) -> int:
        """Records in the read-ahead."""
        raise NotImplementedError

    @property
    def waiting_bytes(self) -> int:
        """Their size, see `sidecar.sizes`."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        return self.waiting >= self._max_records or self.waiting_bytes >= self._max_bytes

    @property
    def has_room(self) -> bool:
        return 2 * self.waiting <= self._max_records and 2 * self.waiting_bytes <= self._max_bytes

    def reached_end(self, offset: int) -> None:
        """There is nothing to read below ``offset``: markers and aborted records leave offsets that hold no record."""
        self.position = max(self.position, offset)

    def lost_end(self, offset: int) -> None:
        """Nothing: of what lies behind the committed offset nothing is known."""

    def prepare(self, until_ms: int, max_records: int, max_bytes: int) -> None:
        """Nothing: what waits has been parsed when it was read."""

    def bury(self, records: Sequence[Outgoing]) -> None:
        """Nothing: no copy is on its way."""

    def unsee(self) -> bool:
        """Nothing, where the clock has no part in it."""
        return False

    def tick(self, now_ms: int) -> None:
        """Nothing to do between transactions."""

    def close(self) -> None:
        """Nothing is held but memory."""
