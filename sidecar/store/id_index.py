"""Where in the timer log an id may stand: 6 bytes a record in memory, so that a cancel does not read the whole log.

Each full block of the log (`TimerLog.blocks`) has the upper halves of its records' id hashes, sorted, and beside each
the place of its record. Looking an id up is a binary search a block, and a read of the records found, one of which is
another's once in 65,536 blocks.

    10 million records: 60 MB, 153 blocks; 4 ms for one id, 34 ms for 200 of a batch, instead of 600 for either

The end of the log has no index yet; it is kept as it was read, for the next cancels. The index is made from the log,
block by block: at an opening by the pass that verifies it, later by `warm`. It is never written to disk.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sidecar.store.layout import TIMER_LOG_RECORD, Int64Array, RecordArray
from sidecar.store.timer_log import CHUNK_RECORDS, Block, TimerLog

Fingerprints = np.ndarray[tuple[int], np.dtype[np.uint32]]
Places = np.ndarray[tuple[int], np.dtype[np.uint16]]

_PLACE_BITS = np.uint64(16)
_PLACE_MASK = np.uint64(0xFFFF)
assert CHUNK_RECORDS <= 2**16, "a place in a block has 16 bits"


class IndexedBlock(NamedTuple):
    """The index of a full block: arrays of shape (n,), sorted by fingerprint."""

    fingerprints: Fingerprints
    places: Places
    """Counted back from the block's last record, which is kept as long as any."""

    def with_ids(self, wanted: Fingerprints, block: Block) -> Int64Array:
        """Numbers of the records that have one of these fingerprints and are kept, ascending."""
        begins = np.searchsorted(self.fingerprints, wanted, side="left")
        ends = np.searchsorted(self.fingerprints, wanted, side="right")
        found = [self.places[begins[at] : ends[at]] for at in np.flatnonzero(begins < ends).tolist()]
        if not found:
            return np.empty(0, np.int64)
        numbers = np.sort(block.last - 1 - np.concatenate(found).astype(np.int64))
        kept: Int64Array = numbers[numbers >= block.first]
        return kept


class KeptBlock:
    """A block's records, as far as the log had them when it was last asked for."""

    def __init__(self, block: Block) -> None:
        self.first = block.first
        self._records: RecordArray = np.empty(CHUNK_RECORDS, TIMER_LOG_RECORD)
        self._id_hashes: Int64Array = np.empty(CHUNK_RECORDS, np.int64)
        self._count = 0

    def extend(self, timer_log: TimerLog, block: Block) -> None:
        """Read what has come since. Raises CorruptRecord, OSError."""
        begin, end = self._count, block.last - block.first
        if begin < end:
            self._records[begin:end] = timer_log.read_block(block._replace(first=block.first + begin))
            self._id_hashes[begin:end] = self._records["reserved"][begin:end]
            self._count = end

    @property
    def records(self) -> RecordArray:
        return self._records[: self._count]

    def with_ids(self, wanted: Int64Array) -> RecordArray:
        """The records that have one of these hashes."""
        # "sort" compares one after the other where few are wanted: a fifth of the time that NumPy's own choice takes.
        return self.records[np.isin(self._id_hashes[: self._count], wanted, kind="sort")]


class IdIndex:
    """An index of the ids in `timer_log`."""

    def __init__(self, timer_log: TimerLog) -> None:
        self._timer_log = timer_log
        self._blocks: dict[int, IndexedBlock] = {}
        """By position; of full blocks only. One that has been deleted may have an entry until `forget`."""
        self._warm_from: int | None = None
        self._kept: KeptBlock | None = None
        """The block that was last read whole: the end of the log, but for a moment."""

    def find(self, id_hashes: Int64Array, start: int) -> Iterator[RecordArray]:
        """The records from position `start` on that have one of these hashes. Raises CorruptRecord, OSError."""
        wanted = np.unique(id_hashes)
        fingerprints = np.unique(_fingerprints(wanted))
        for block in self._timer_log.blocks(start):
            indexed = self._blocks.get(block.position)
            if indexed is None:
                kept = self._read(block)
                self.add(block, kept.records)
                found = kept.with_ids(wanted)
            else:
                found = self._timer_log.gather_numbers(indexed.with_ids(fingerprints, block))
                found = found[np.isin(found["reserved"], wanted)]
            if len(found):
                yield found

    def warm(self) -> None:
        """Index one more block, the oldest first, where there is one. Raises CorruptRecord, OSError."""
        start = self._timer_log.start_position
        for block in self._timer_log.blocks(start if self._warm_from is None else max(start, self._warm_from)):
            if not block.is_full:
                return
            self._warm_from = block.position
            if block.position not in self._blocks:
                self.add(block, self._timer_log.read_block(block))
                return

    def add(self, block: Block, records: RecordArray) -> None:
        """Index a block, whose records these are; one that is not full, or deleted by now, is left out."""
        if block.is_full and len(records):
            back = np.arange(len(records) - 1, -1, -1, dtype=np.uint64)
            # One sort of both takes less time than argsort.
            both = np.sort(_fingerprints(records["reserved"]).astype(np.uint64) << _PLACE_BITS | back)
            fingerprints = (both >> _PLACE_BITS).astype(np.uint32)
            self._blocks[block.position] = IndexedBlock(fingerprints, (both & _PLACE_MASK).astype(np.uint16))

    def forget(self) -> None:
        """The log has deleted what lies before its start."""
        oldest = next(self._timer_log.blocks(self._timer_log.start_position), None)
        kept_from = self._timer_log.end_position if oldest is None else oldest.position
        for gone in [position for position in self._blocks if position < kept_from]:
            del self._blocks[gone]

    def _read(self, block: Block) -> KeptBlock:
        kept = self._kept
        if kept is None or kept.first != block.first:
            kept = KeptBlock(block)
        kept.extend(self._timer_log, block)
        self._kept = kept
        return kept


def _fingerprints(id_hashes: Int64Array) -> Fingerprints:
    halves: Fingerprints = (np.ascontiguousarray(id_hashes).view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    return halves
