"""TimerLog (RIP-43, RocketMQ's `TimerLog`): the append-only log of what is on the wheel, one 52-byte record a message.

A log is fixed-size segments; a position is global. A segment takes a record while 52 + 16 bytes are free in it and is
closed by a blank record as soon as it takes no more. The record's bytes stand in `layout`.

    Offset in a segment  Size                Field
    0                    52 * R              R records
    52 * R               segment - 52 * R    blank record: size = these bytes, prev_pos 0, magic -1, zeros

Worked example, segments of 1,024 bytes: R = 19, since the record at 936 still finds 88 bytes free (52 + 16 fit) and the
next, at 988, would find 36. The blank record is the 36 bytes from 988; record number 19 lands at position 1,024.
Record number n therefore lands at `n // 19 * 1024 + n % 19 * 52`, so positions are computed, never searched.

The log does not know its own end: files may be longer than what counts after a crash or a full disk. The end comes from
the checkpoint, and whatever lies behind it is cut off.

RIP-43's record has no checksum. Here each segment has one, zlib.crc32 of what was appended to it, with its blank
record: kept up in memory, written to the checkpoint for all segments up to the end told there, compared by `verified`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from sidecar.store.errors import (
    CorruptFile,
    CorruptRecord,
    EndPositionRequired,
    IncompleteLog,
    PositionOutOfRange,
    StoreError,
)
from sidecar.store.files import FileSystem
from sidecar.store.layout import (
    BLANK,
    MAGIC_ALL,
    MAGIC_BLANK,
    MIN_BLANK_BYTES,
    RECORD_BYTES,
    TIMER_LOG_BLANK,
    TIMER_LOG_RECORD,
    BoolArray,
    Int64Array,
    RecordArray,
    Slot,
    due_ms,
)
from sidecar.store.segments import Segments

CHUNK_RECORDS = 65_536
"""Records read at a time, 3.4 MB: the most a scan holds."""
GATHER_GAP_BYTES = 4_096
"""Two records nearer than this are read together: a page is read anyway."""
FILTER_RECORDS_PER_CHAIN_STEP = 100
"""Records that a scan filters in the time of one step along prev_pos (measured: 15 ns against 2 µs)."""
CHAIN_STEPS_MAX = 100
"""Steps along prev_pos at a time: some 0.2 ms, or 6 ms where an SSD has to be asked for each."""
CHECK_PROBLEMS_MAX = 100
"""Problems that `check` lists before it stops looking."""

Piece = tuple[Int64Array, RecordArray]
"""Positions and records of a stretch of the log, or of some in it, oldest first."""

_HEAD = struct.Struct("<iqi")


class Block(NamedTuple):
    """A stretch of the log that is looked at as a whole."""

    position: int
    """Where it begins: its name."""
    first: int
    """Number of its first record that is kept, over all of the log."""
    last: int
    """Number behind its last record."""
    is_full: bool
    """Whether no record will be added to it."""


class Mark(NamedTuple):
    """The log's end at some moment."""

    position: int
    crc: int
    """CRC-32 of the segment that `position` is in, up to there."""


class TimerLog:
    """The timer log in `directory`, made where it is absent.

    `end_position`, `start_position` and `crcs` (as `crcs` gave them for these two) come from the checkpoint; an empty
    directory needs none. What lies at or above `end_position` is removed, and whole segments below `start_position`;
    with `only_look` nothing is. What the segments hold is compared with `crcs` by `verified`.

    Raises EndPositionRequired for a directory that holds a log when no end is given, IncompleteLog when the files or
    `crcs` hold less than that (nothing is touched then), OSError.
    """

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        fs: FileSystem,
        *,
        end_position: int | None = None,
        start_position: int = 0,
        crcs: Sequence[int] = (),
        only_look: bool = False,
    ) -> None:
        if segment_bytes < RECORD_BYTES + MIN_BLANK_BYTES:
            raise ValueError(f"a segment of {segment_bytes} bytes takes no record")
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.records_per_segment = (segment_bytes - RECORD_BYTES - MIN_BLANK_BYTES) // RECORD_BYTES + 1
        blank = np.zeros(1, TIMER_LOG_BLANK)
        blank["size"] = segment_bytes - self.records_per_segment * RECORD_BYTES
        blank["magic"] = MAGIC_BLANK
        self._closer = blank.tobytes().ljust(int(blank["size"][0]), b"\0")
        self._segments = Segments(directory, fs)
        self._torn = False
        if end_position is None:
            if self._segments.bases:
                raise EndPositionRequired(f"{directory} holds a log, and only its checkpoint knows where that ends")
            end_position = start_position
        self._end = self._index(end_position)
        self._start = self._index(start_position)
        if self._start > self._end:
            raise PositionOutOfRange(f"{directory}: start {start_position} lies behind end {end_position}")
        try:
            self._crcs = self._adopt(crcs, only_look=only_look)
            """By the base of each segment."""
        except (StoreError, OSError):
            self.close()
            raise

    @property
    def start_position(self) -> int:
        """Position of the oldest record kept; `end_position` where there is none."""
        return self._position(self._start)

    @property
    def end_position(self) -> int:
        """Where the next record lands."""
        return self._position(self._end)

    @property
    def disk_bytes(self) -> int:
        """What the segments take."""
        return self._segments.disk_bytes(self.end_position)

    def mark(self) -> Mark:
        """The end now."""
        end = self.end_position
        return Mark(end, self._crcs.get(self._base(end), 0))

    def crcs(self, start_position: int, mark: Mark) -> list[int]:
        """CRC-32 of each segment from that of `start_position` on, of the last one up to `mark`."""
        bases = self._bases(start_position, mark.position)
        return [self._crcs[base] if base + self.segment_bytes <= mark.position else mark.crc for base in bases]

    def positions_for(self, count: int) -> Int64Array:
        """Where the next `count` records will land, shape (count,). Writes nothing."""
        return self._positions(self._end, self._end + count)

    def append(self, records: RecordArray) -> Int64Array:
        """Append records, shape (n,) of TIMER_LOG_RECORD; returns their positions, shape (n,).

        One write per touched segment (`TimerLog.append`). Raises OSError: the end has then not moved, and the next
        append writes over what may be there.
        """
        if records.dtype != TIMER_LOG_RECORD:
            raise TypeError(f"records of dtype {records.dtype}")
        self._repair()
        first, last = self._end, self._end + len(records)
        positions = self._positions(first, last)
        payload = np.ascontiguousarray(records).view(np.uint8).data
        crcs: dict[int, int] = {}
        self._torn = True
        index = first
        while index < last:
            segment, place = divmod(index, self.records_per_segment)
            stop = min(last, index + self.records_per_segment - place)
            data: bytes | memoryview = payload[(index - first) * RECORD_BYTES : (stop - first) * RECORD_BYTES]
            if stop % self.records_per_segment == 0:
                data = bytes(data) + self._closer
            base = segment * self.segment_bytes
            self._segments.write(base, data, base + place * RECORD_BYTES)
            crcs[base] = crc32(data, self._crcs.get(base, 0))
            index = stop
        self._torn = False
        self._end = last
        self._crcs.update(crcs)
        return positions

    def read(self, position: int) -> RecordArray:
        """The record at `position`, shape (1,). Raises PositionOutOfRange, CorruptRecord, OSError."""
        index = self._kept(position)
        return self._read_run(index, index + 1)

    def gather(self, positions: Int64Array) -> RecordArray:
        """The records at `positions` (any order, repeats allowed), shape (n,).

        Neighbours are read together. Raises PositionOutOfRange, CorruptRecord, OSError.
        """
        if len(positions) == 0:
            return np.empty(0, TIMER_LOG_RECORD)
        order = np.argsort(positions, kind="stable")
        ordered = self.gather_numbers(self._kept_many(positions[order]))
        records = np.empty(len(positions), TIMER_LOG_RECORD)
        records[order] = ordered
        return records

    def gather_numbers(self, indexes: Int64Array) -> RecordArray:
        """The records with these numbers (ascending, repeats allowed), which are kept, shape (n,).

        Neighbours are read together. Raises CorruptRecord, OSError.
        """
        if len(indexes) == 0:
            return np.empty(0, TIMER_LOG_RECORD)
        # A run ends where the gap to the next is wide, or at the end of a segment, or when it holds a chunk.
        segment, positions = self._placed(indexes)
        run = (indexes - indexes[0]) // CHUNK_RECORDS
        apart = (np.diff(positions) > GATHER_GAP_BYTES) | (np.diff(segment) != 0) | (np.diff(run) != 0)
        begins = np.append(0, np.flatnonzero(apart) + 1)
        stops = np.append(begins[1:], len(indexes))
        bases, firsts, behind = segment[begins] * self.segment_bytes, positions[begins], positions[stops - 1]
        columns = begins, stops, bases, firsts, behind + RECORD_BYTES - firsts
        runs = list(zip(*(column.tolist() for column in columns), strict=True))
        self._segments.will_need([(base, length, first) for _, _, base, first, length in runs])
        pieces: list[bytes] = []
        for begin, stop, base, first, length in runs:
            piece = self._read_bytes(base, length, first)
            if stop > begin + 1:
                wanted = (positions[begin:stop] - first) // RECORD_BYTES
                piece = np.frombuffer(piece, TIMER_LOG_RECORD)[wanted].tobytes()
            pieces.append(piece)
        records = np.frombuffer(b"".join(pieces), TIMER_LOG_RECORD)
        self._verify(records, positions)
        return records

    def scan(
        self, start: int | None = None, stop: int | None = None, chunk_records: int = CHUNK_RECORDS
    ) -> Iterator[tuple[Int64Array, RecordArray]]:
        """(positions, records) of the records from position `start` up to and without `stop`, oldest first.

        At most `chunk_records` at a time, never across a segment; blanks are skipped. Without bounds: all of the log.
        What is deleted meanwhile is passed over. The record arrays are read-only. Raises PositionOutOfRange,
        CorruptRecord, OSError.
        """
        index = self._start if start is None else self._kept(start, end_too=True)
        last = self._end if stop is None else self._kept(stop, end_too=True)
        while (index := max(index, self._start)) < last:
            segment_end = (index // self.records_per_segment + 1) * self.records_per_segment
            until = min(last, segment_end, index + chunk_records)
            yield self._positions(index, until), self._read_run(index, until)
            index = until

    def blocks(self, start: int, stop: int | None = None) -> Iterator[Block]:
        """The blocks that hold the records from position `start` to `stop`, oldest first.

        Where they begin never changes.

        A block is CHUNK_RECORDS records or the rest of a segment. What is deleted meanwhile is passed over. Raises
        PositionOutOfRange.
        """
        index = self._kept(start, end_too=True)
        last = self._end if stop is None else self._kept(stop, end_too=True)
        while (index := max(index, self._start)) < last:
            segment, place = divmod(index, self.records_per_segment)
            first = segment * self.records_per_segment + place // CHUNK_RECORDS * CHUNK_RECORDS
            index = min(first + CHUNK_RECORDS, (segment + 1) * self.records_per_segment)
            yield Block(self._position(first), max(first, self._start), min(index, self._end), index <= self._end)

    def read_block(self, block: Block) -> RecordArray:
        """The records of a block that are kept, read-only. Raises CorruptRecord, OSError."""
        first = max(block.first, self._start)
        return self._read_run(first, block.last) if first < block.last else np.empty(0, TIMER_LOG_RECORD)

    def verified(self) -> Iterator[tuple[Block, Int64Array, RecordArray]]:
        """All records kept, with their positions, a block at a time; a segment's CRC is compared before its first.

        One pass over all bytes, a segment in memory at a time. Raises CorruptFile, OSError.
        """
        for base in self._bases(self.start_position, self.end_position):
            records = self._verified_segment(base)
            first = base // self.segment_bytes * self.records_per_segment
            start = self._position(max(first, self._start))
            for block in self.blocks(start, min(base + self.segment_bytes, self.end_position)):
                yield block, self._positions(block.first, block.last), records[block.first - first : block.last - first]

    def chain(self, last_pos: int, *, first_pos: int = BLANK, num: int | None = None) -> tuple[Int64Array, RecordArray]:
        """(positions, records) along prev_pos from `last_pos`, newest first (`TimerMessageStore.dequeue`'s walk).

        Ends at `first_pos`, at the chain's first record, after `num` records, or where the log has been deleted.
        Raises PositionOutOfRange, CorruptRecord, OSError.
        """
        positions: list[int] = []
        pieces: list[bytes] = []
        position = last_pos
        start = self.start_position
        if position >= start:
            self._kept(position)
        while position >= start and (num is None or len(positions) < num):
            positions.append(position)
            piece, prev_pos = self._link(position)
            pieces.append(piece)
            if position == first_pos:
                break
            position = prev_pos
        return np.array(positions, np.int64), np.frombuffer(b"".join(pieces), TIMER_LOG_RECORD)

    def links(self, positions: Sequence[int]) -> list[tuple[bytes, int]]:
        """The bytes of each record at `positions`, all kept, and its prev_pos; the disk is asked for all at once.

        Raises CorruptRecord, OSError.
        """
        self._segments.will_need([(self._base(position), RECORD_BYTES, position) for position in positions])
        return list(map(self._link, positions))

    def slot_pieces(self, slot: Slot, precision_ms: int) -> Iterator[Piece]:
        """A slot's records, a few ms of work at a time: the pieces in any order.

        Along prev_pos while the slot is strewn over the log, else filtered. What is deleted meanwhile is passed over.
        Raises PositionOutOfRange, CorruptRecord, OSError.
        """
        span, steps, position = self.span(slot), 0, slot.last_pos
        while position >= max(slot.first_pos, self.start_position) and is_strewn(max(slot.num, steps), span):
            positions, records = self.chain(position, first_pos=slot.first_pos, num=CHAIN_STEPS_MAX)
            position = int(records["prev_pos"][-1])
            steps += len(positions)
            yield positions[::-1], records[::-1]
        yield from self._filtered_pieces(slot._replace(last_pos=position), precision_ms)

    def span(self, slot: Slot) -> int:
        """Records of the log from a slot's first to its last. Raises PositionOutOfRange."""
        first_pos = max(slot.first_pos, self.start_position)
        return self._kept(slot.last_pos) + 1 - self._kept(first_pos) if slot.last_pos >= first_pos else 0

    def _filtered_pieces(self, slot: Slot, precision_ms: int) -> Iterator[Piece]:
        first_pos = max(slot.first_pos, self.start_position)
        if slot.last_pos < first_pos:
            return
        stop = self._position(self._kept(slot.last_pos) + 1)
        for positions, records in self.scan(first_pos, stop, CHUNK_RECORDS):
            due = due_ms(records)
            mine = (due >= slot.time_ms) & (due < slot.time_ms + precision_ms)
            yield positions[mine], records[mine]

    def is_any_before(self, position: int) -> bool:
        """Whether there is a segment for `delete_before` to delete."""
        segment = self._kept(position, end_too=True) // self.records_per_segment
        return bool(self._segments.bases) and self._segments.bases[0] < segment * self.segment_bytes

    def delete_before(self, position: int) -> int:
        """Delete the segments that lie wholly below `position`; returns how many.

        The caller first writes a checkpoint whose timer_log_start is `position`, then calls this: a crash in between
        leaves files that the next opening removes; the other order leaves a log that lacks what its checkpoint needs.
        Raises PositionOutOfRange, OSError.
        """
        segment = self._kept(position, end_too=True) // self.records_per_segment
        self._start = max(self._start, segment * self.records_per_segment)
        for base in [base for base in self._crcs if base < segment * self.segment_bytes]:
            del self._crcs[base]
        return self._segments.forget_before(segment * self.segment_bytes)

    def flush(self) -> None:
        """Make what was appended durable; for the caller's checkpoint. Raises OSError."""
        self._segments.flush()

    def check(self, precision_ms: int) -> list[str]:
        """What is wrong with the log, one sentence each, at most about CHECK_PROBLEMS_MAX; reads all of it."""
        problems: list[str] = []
        for base in self._bases(self.start_position, self.end_position):
            try:
                self._verified_segment(base)
            except (CorruptFile, OSError) as error:
                problems.append(str(error))
        index = self._start
        while index < self._end and len(problems) < CHECK_PROBLEMS_MAX:
            segment_end = (index // self.records_per_segment + 1) * self.records_per_segment
            until = min(self._end, segment_end, index + CHUNK_RECORDS)
            try:
                records = self._read_run(index, until, checked=False)
                problems += self._problems(self._positions(index, until), records, precision_ms)
                if until == segment_end:
                    problems += self._closer_problems(until)
            except (CorruptRecord, OSError) as error:
                problems.append(str(error))
            index = until
        return problems[:CHECK_PROBLEMS_MAX]

    def close(self) -> None:
        """Close the files, without a flush."""
        self._segments.close()

    def _adopt(self, crcs: Sequence[int], *, only_look: bool) -> dict[int, int]:
        """Check that the files hold start to end, remove the rest; the segments' CRCs by their bases."""
        end, expected = self.end_position, self._bases(self.start_position, self.end_position)
        if len(crcs) != len(expected):
            raise IncompleteLog(self.directory, f"its checkpoint has {len(crcs)} CRCs for {len(expected)} segments")
        held = set(self._segments.bases)
        for base in expected:
            if base not in held:
                raise IncompleteLog(self._segments.path(base), "no such segment, its checkpoint needs it")
            size, needed = self._segments.size(base), min(self.segment_bytes, end - base)
            if size < needed:
                raise IncompleteLog(self._segments.path(base), f"{size} bytes, its checkpoint needs {needed}")
        if not only_look:
            self._segments.cut(end)
            self._segments.forget_before(expected.start)
        return dict(zip(expected, crcs, strict=True))

    def _bases(self, start: int, end: int) -> range:
        """Where the segments begin that hold positions `start` to `end`."""
        return range(self._base(start), end, self.segment_bytes)

    def _verified_segment(self, base: int) -> RecordArray:
        """All records of a segment up to the end, those below the start too. Raises CorruptFile, OSError."""
        length = min(self.segment_bytes, self.end_position - base)
        data = self._segments.read(base, length, base)
        if len(data) < length or crc32(data) != self._crcs[base]:
            raise CorruptFile(self._segments.path(base), f"the CRC of its first {length} bytes does not match")
        return np.frombuffer(data, TIMER_LOG_RECORD, min(length // RECORD_BYTES, self.records_per_segment))

    def _repair(self) -> None:
        """Cut off what an append that failed has left behind the end."""
        if self._torn:
            self._segments.cut(self.end_position)
            self._torn = False

    def _position(self, index: int) -> int:
        segment, place = divmod(index, self.records_per_segment)
        return segment * self.segment_bytes + place * RECORD_BYTES

    def _positions(self, first: int, last: int) -> Int64Array:
        indexes = np.arange(first, last, dtype=np.int64)
        if first // self.records_per_segment == max(first, last - 1) // self.records_per_segment:
            return self._position(first) + (indexes - first) * RECORD_BYTES
        return self._placed(indexes)[1]

    def _placed(self, indexes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Segment numbers and positions of records."""
        segment, place = np.divmod(indexes, self.records_per_segment)
        return segment, segment * self.segment_bytes + place * RECORD_BYTES

    def _index(self, position: int) -> int:
        segment, local = divmod(position, self.segment_bytes)
        place, rest = divmod(local, RECORD_BYTES)
        if position < 0 or rest or place >= self.records_per_segment:
            raise PositionOutOfRange(f"{self.directory}: no record can lie at position {position}")
        return segment * self.records_per_segment + place

    def _kept(self, position: int, *, end_too: bool = False) -> int:
        index = self._index(position)
        if not self._start <= index < self._end + end_too:
            raise PositionOutOfRange(
                f"{self.directory}: position {position} is not in {self.start_position} to {self.end_position}"
            )
        return index

    def _kept_many(self, positions: Int64Array) -> Int64Array:
        """Record numbers of ascending positions."""
        segment, local = np.divmod(positions, self.segment_bytes)
        place, rest = np.divmod(local, RECORD_BYTES)
        indexes: Int64Array = segment * self.records_per_segment + place
        wrong = (rest != 0) | (place >= self.records_per_segment) | (indexes < self._start) | (indexes >= self._end)
        if wrong.any():
            raise PositionOutOfRange(
                f"{self.directory}: no record at position {int(positions[wrong][0])}, "
                f"the log has {self.start_position} to {self.end_position}"
            )
        return indexes

    def _base(self, position: int) -> int:
        """Of the segment that a position is in."""
        return position - position % self.segment_bytes

    def _link(self, position: int) -> tuple[bytes, int]:
        """The bytes of a record that is kept, and its prev_pos."""
        base = self._base(position)
        piece = self._read_bytes(base, RECORD_BYTES, position)
        size, prev_pos, magic = _HEAD.unpack_from(piece)
        if size != RECORD_BYTES or not 0 < magic <= MAGIC_ALL:
            raise self._corrupt(position, f"size {size}, magic {magic}")
        if not BLANK <= prev_pos < position:
            raise self._corrupt(position, f"prev_pos {prev_pos} does not lie before it")
        return piece, prev_pos

    def _read_run(self, first: int, last: int, *, checked: bool = True) -> RecordArray:
        """Records number `first` up to and without `last`, which lie in one segment."""
        position = self._position(first)
        data = self._read_bytes(self._base(position), (last - first) * RECORD_BYTES, position)
        records = np.frombuffer(data, TIMER_LOG_RECORD)
        if checked:
            self._verify(records, position + np.arange(last - first, dtype=np.int64) * RECORD_BYTES)
        return records

    def _read_bytes(self, base: int, length: int, position: int) -> bytes:
        data = self._segments.read(base, length, position)
        if len(data) < length:
            raise self._corrupt(position + len(data) // RECORD_BYTES * RECORD_BYTES, "the file ends inside it")
        return data

    def _verify(self, records: RecordArray, positions: Int64Array) -> None:
        wrong = _malformed(records)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            size, magic = int(records["size"][at]), int(records["magic"][at])
            raise self._corrupt(int(positions[at]), f"size {size}, magic {magic}")

    def _problems(self, positions: Int64Array, records: RecordArray, precision_ms: int) -> list[str]:
        wrong = _malformed(records)
        problems = [
            f"position {position}: size {record['size']}, magic {record['magic']}"
            for position, record in zip(positions[wrong].tolist(), records[wrong], strict=True)
        ]
        prev = records["prev_pos"]
        late = (prev >= positions) | (prev < BLANK)
        problems += [
            f"position {position}: prev_pos {before} does not lie before it"
            for position, before in zip(positions[late].tolist(), prev[late].tolist(), strict=True)
        ]
        linked = ~late & (prev >= self.start_position) & ~wrong
        try:
            before_due = due_ms(self.gather(prev[linked]))
        except (PositionOutOfRange, CorruptRecord) as error:
            return [*problems, f"prev_pos leads to no record: {error}"]
        other = before_due // precision_ms != due_ms(records[linked]) // precision_ms
        problems += [
            f"position {position}: prev_pos {before} belongs to another slot"
            for position, before in zip(positions[linked][other].tolist(), prev[linked][other].tolist(), strict=True)
        ]
        return problems

    def _closer_problems(self, segment_end: int) -> list[str]:
        base = (segment_end // self.records_per_segment - 1) * self.segment_bytes
        position = base + self.records_per_segment * RECORD_BYTES
        if self._segments.read(base, self.segment_bytes - (position - base) + 1, position) == self._closer:
            return []
        return [f"position {position}: the segment is not closed by a blank record"]

    def _corrupt(self, position: int, detail: str) -> CorruptRecord:
        return CorruptRecord(self._segments.path(self._segments.base_of(position)), position, detail)


def is_strewn(num: int, span: int) -> bool:
    """Whether so many records of a slot are so far apart that to follow them is less than to filter them out.

    How many there are only a walk tells: a slot counts neither its deletes nor what they have taken back.
    """
    return span > max(num, 1) * FILTER_RECORDS_PER_CHAIN_STEP


def in_log_order(pieces: Iterable[Piece]) -> Piece:
    """Pieces of the log as one."""
    ordered = sorted((piece for piece in pieces if len(piece[0])), key=lambda piece: int(piece[0][0]))
    return (
        np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in ordered)]),
        np.concatenate([np.empty(0, TIMER_LOG_RECORD), *(records for _, records in ordered)]),
    )


def _malformed(records: RecordArray) -> BoolArray:
    magic = records["magic"]
    wrong: BoolArray
    wrong = (records["size"] != RECORD_BYTES) | (magic <= 0) | (magic > MAGIC_ALL)
    return wrong
