"""Records that were due when they arrived, on the wheel or the send-back topic: they go out without touching the disk.

They wait batch by batch, in the order of their offsets, and go out in that order, so that the committed offset can
stand at the first that is left.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sidecar.records import OFFSET, Outgoing
from sidecar.sizes import bytes_of, size_of


class Batch(NamedTuple):
    """Records that arrived together."""

    arrived_ms: int
    records: list[Outgoing]
    size_bytes: int


class Late:
    """What arrived already due, not yet confirmed as sent."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._taken: list[Batch] = []
        self.count = 0
        self.size_bytes = 0
        """See `sidecar.sizes`."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def is_unconfirmed(self) -> bool:
        """Whether there is any, be it taken: a transaction may come to nothing."""
        return bool(self._batches or self._taken)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset of all."""
        return self._batches[0].records[0][OFFSET] if self._batches else None

    @property
    def first_arrived_ms(self) -> int | None:
        """When the first of them arrived."""
        return self._batches[0].arrived_ms if self._batches else None

    @property
    def waiting(self) -> list[tuple[int, Outgoing]]:
        """All that is not taken, each with the time when it arrived, in the order of the offsets."""
        return [(batch.arrived_ms, record) for batch in self._batches for record in batch.records]

    def add(self, arrived_ms: int, records: list[Outgoing]) -> None:
        """Records in offset order, none below any that is here."""
        if records:
            # Records with one offset stay in one batch: the committed offset cannot stand between them.
            if self._batches and self._batches[-1].records[-1][OFFSET] == records[0][OFFSET]:
                before = self._batches.pop()
                self._count(before, -1)
                records = before.records + records
            batch = Batch(arrived_ms, records, bytes_of(records))
            self._batches.append(batch)
            self._count(batch, 1)

    def add_first(self, arrived_ms: int, records: list[Outgoing]) -> None:
        """Records of one offset, no higher than any that is here."""
        if self._batches and self._batches[0].records[0][OFFSET] == records[0][OFFSET]:
            before = self._batches.popleft()
            self._count(before, -1)
            records = before.records + records
        self._batches.appendleft(Batch(arrived_ms, records, bytes_of(records)))
        self._count(self._batches[0], 1)

    def take(self, max_records: int, max_bytes: int) -> Batch:
        """The first, of one batch, at least one; `confirm` or `put_back` must follow."""
        batch = self._batches.popleft()
        self._count(batch, -1)
        if len(batch.records) > max_records or batch.size_bytes > max_bytes:
            count = _fitting(batch.records, max_records, max_bytes)
            rest = batch.records[count:]
            if rest:
                self._batches.appendleft(Batch(batch.arrived_ms, rest, bytes_of(rest)))
                self._count(self._batches[0], 1)
            batch = Batch(batch.arrived_ms, batch.records[:count], bytes_of(batch.records[:count]))
        self._taken.append(batch)
        return batch

    def confirm(self) -> None:
        """What was taken is sent."""
        self._taken.clear()

    def put_back(self) -> None:
        """What was taken waits again, in its place."""
        for batch in self._taken:
            self._count(batch, 1)
        self._batches = deque(sorted([*self._taken, *self._batches], key=lambda batch: batch.records[0][OFFSET]))
        self._taken.clear()

    def drop(self, matches: Callable[[Outgoing], bool]) -> None:
        """Remove those that match; what is taken is left alone."""
        batches = []
        for batch in self._batches:
            kept = [record for record in batch.records if not matches(record)]
            if len(kept) < len(batch.records):
                batch = Batch(batch.arrived_ms, kept, bytes_of(kept))
            batches.append(batch)
        self.restore(batches)

    def snapshot(self) -> list[Batch]:
        """What `restore` undoes a `drop` with."""
        return list(self._batches)

    def restore(self, snapshot: list[Batch]) -> None:
        """As it was at the `snapshot`."""
        self._batches = deque(batch for batch in snapshot if batch.records)
        self.count = sum(len(batch.records) for batch in self._batches)
        self.size_bytes = sum(batch.size_bytes for batch in self._batches)

    def _count(self, batch: Batch, sign: int) -> None:
        self.count += sign * len(batch.records)
        self.size_bytes += sign * batch.size_bytes


def _fitting(records: list[Outgoing], max_records: int, max_bytes: int) -> int:
    """How many of the first fit, at least one; those with one offset stay together."""
    count = size_bytes = 0
    for record in records:
        is_new = count == 0 or record[OFFSET] != records[count - 1][OFFSET]
        if is_new and count and (count >= max_records or size_bytes >= max_bytes):
            break
        size_bytes += size_of(record)
        count += 1
    return count
