"""TimerWheel (RIP-43, RocketMQ's `TimerWheel`): which records of the timer log leave the wheel when.

A mapped file of 2 * slots_total slots of 32 bytes (see `layout`), without a header. A time belongs to slot number
`time_ms // precision_ms`, which stands at index `number % (2 * slots_total)`. A slot whose time_ms is another lap's
reads as empty, and so does one whose num is 0: all its messages were cancelled. Its place is free for another lap, and
a put begins it anew, without what was there. A new file is zeros, but for time_ms -1 at index 0.

    Offset                        Size  Field
    0                             32    slot at index 0
    32 * i                        32    slot at index i
    64 * slots_total              -     end of file

Worked example, slots_total 30 of 500 ms, so 60 slots, a lap of 30 s: 29,500 ms is slot number 59, index 59; 30,000 ms
is number 60, index 0. Three records at positions 0, 52 and 104 for 500, 700 and 29,500 ms give

    index 1     time_ms 500     first_pos 0    last_pos 52   num 2    prev_pos of the records: -1, 0
    index 59    time_ms 29500   first_pos 104  last_pos 104  num 1    -1

At 31,000 ms slot number 62 asks for index 2; and when slot number 61 (30,500 ms) is put at index 1, slot number 1 must
have left: `advance(30_500)` said so before, otherwise the put raises SlotConflict.

The wheel is an index of the timer log. After an unclean stop it is made anew from that (`fill`), not trusted; after a
clean one its CRC must be the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from sidecar.store.errors import SlotConflict, WrongFileSize
from sidecar.store.files import FileSystem, write_all
from sidecar.store.layout import (
    BLANK,
    EMPTY_SLOT,
    MAGIC_DELETE,
    SLOT_BYTES,
    TIMER_WHEEL_SLOT,
    BoolArray,
    Int32Array,
    Int64Array,
    RecordArray,
    Slot,
    due_ms,
)

_FIRST_CHUNK_SLOTS = 256
_LAST_CHUNK_SLOTS = 65_536
_STRETCHES_COUNTED = 4
"""In one step: while there is a question the loop does not wait for records, and turns for a few of them each."""
_RELEASE_SLOTS = 131_072
"""A scan over more slots than this (4 MB) gives the pages back, so that they do not count as ours."""
_CHECK_PROBLEMS_MAX = 100


@dataclass(frozen=True, slots=True)
class SlotBatch:
    """What a batch will change on the wheel: made by `prepare_batch`, carried out by `apply`."""

    prev_positions: Int64Array
    """For each record of the batch, in its order: the record before it in its slot, -1 for none."""
    numbers: Int64Array
    indexes: Int64Array
    slots: RecordArray
    generation: int


class Survey(NamedTuple):
    """What a look at every slot has found."""

    first_pos: tuple[int | None, ...]
    """The lowest of the slots from each of the times on that were asked for; None: all are empty."""
    counts: list[int]
    """Records between now and the first of the ends, between that and the second, and so on, by when slots begin."""
    last_ms: int | None
    """When the last occupied slot from now on begins."""


class TimerWheel:
    """The wheel in the file at `path`, made where it is absent.

    Raises WrongFileSize for a file of another size (nothing is touched then), OSError (a new file's blocks are
    reserved, so a full disk shows here and not later).
    """

    def __init__(self, path: Path, slots_total: int, precision_ms: int, fs: FileSystem) -> None:
        if slots_total <= 0 or precision_ms <= 0:
            raise ValueError(f"slots_total {slots_total}, precision_ms {precision_ms}: both must be positive")
        self.path = path
        self.slots_total = slots_total
        self.precision_ms = precision_ms
        self.live_from_ms = 0
        """Slots before this time have left the wheel and may be written over; see `advance`."""
        self._fs = fs
        self._length = 2 * slots_total
        self._generation = 0
        self._empty = range(0)
        """Slot numbers known to be empty: what `next_occupied` need not look at again."""
        self._ramp_ms = np.arange(min(self._length, _LAST_CHUNK_SLOTS), dtype=np.int64) * precision_ms
        self._name_unsynced = False
        found = fs.size(path)
        if found is None:
            self._create()
        elif found != self.file_bytes:
            raise WrongFileSize(path, found, self.file_bytes)
        self._map()

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self._length * SLOT_BYTES

    @property
    def lap_ms(self) -> int:
        """Time that the wheel spans."""
        return self._length * self.precision_ms

    def slot_index(self, time_ms: int) -> int:
        """Where in the file the slot of a time stands."""
        return self._number(time_ms) % self._length

    def slot_time_ms(self, time_ms: int) -> int:
        """When the slot of a time begins."""
        return self._number(time_ms) * self.precision_ms

    def slot(self, time_ms: int) -> Slot:
        """The slot of a time; EMPTY_SLOT where it holds nothing or is another lap's (`TimerWheel.getSlot`)."""
        held = Slot(*self._slots[self.slot_index(time_ms)].item())
        return held if held.time_ms == self.slot_time_ms(time_ms) and held.num > 0 else EMPTY_SLOT

    def advance(self, live_from_ms: int) -> None:
        """All slots before that of `live_from_ms` have left the wheel; their places may be written over. Never back."""
        self.live_from_ms = max(self.live_from_ms, self.slot_time_ms(live_from_ms))

    def prepare_batch(self, times_ms: Int64Array, positions: Int64Array, num_deltas: Int32Array) -> SlotBatch:
        """Put records on the wheel, without writing yet, so that a failed append to the log leaves no trace here.

        `times_ms` (n,): any time within each record's slot. `positions` (n,): ascending, behind all on the wheel.
        `num_deltas` (n,): what each adds to num: 1, or -1 for a delete.

        Raises SlotConflict where a slot's place is held by a live slot of another lap; ValueError for a negative time.
        """
        count = len(times_ms)
        if count == 0:
            none = np.empty(0, np.int64)
            return SlotBatch(none, none, none, np.empty(0, TIMER_WHEEL_SLOT), self._generation)
        numbers = times_ms // self.precision_ms
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < 0:
            raise ValueError("a slot time must not be negative")
        # One integer key of (slot, place in the batch): sorting values is several times faster than argsort.
        bits = count.bit_length()
        keys = ((numbers - lowest) << bits) | np.arange(count, dtype=np.int64)
        keys.sort()
        order = keys & ((1 << bits) - 1)
        slot_of = keys >> bits
        starts = np.flatnonzero(np.diff(slot_of, prepend=-1))
        ends = np.append(starts[1:], count)

        sorted_positions = positions[order]
        numbers = slot_of[starts] + lowest
        indexes = numbers % self._length
        if highest - lowest >= self._length:
            self._keep_apart(numbers, indexes)
        slots = self._words.take(indexes, axis=0).view(TIMER_WHEEL_SLOT).reshape(-1)
        held_ms, slot_ms = slots["time_ms"], numbers * self.precision_ms
        occupied = slots["num"] > 0
        mine = occupied & (held_ms == slot_ms)
        clash = occupied & ~mine & (held_ms >= self.live_from_ms)
        if clash.any():
            raise self._conflict(int(slot_ms[clash][0]), int(held_ms[clash][0]))

        prev_sorted = np.empty(count, np.int64)
        prev_sorted[1:] = sorted_positions[:-1]
        prev_sorted[starts] = np.where(mine, slots["last_pos"], BLANK)
        prev_positions = np.empty(count, np.int64)
        prev_positions[order] = prev_sorted

        slots["first_pos"] = np.where(mine, slots["first_pos"], sorted_positions[starts])
        slots["last_pos"] = sorted_positions[ends - 1]
        slots["num"] = np.where(mine, slots["num"], 0) + np.add.reduceat(num_deltas[order], starts)
        slots["magic"] = np.where(mine, slots["magic"], 0)
        slots["time_ms"] = slot_ms
        return SlotBatch(prev_positions, numbers, indexes, slots, self._generation)

    def apply(self, batch: SlotBatch) -> None:
        """Carry out what `prepare_batch` made, the wheel being unchanged since."""
        if batch.generation != self._generation:
            raise RuntimeError("the wheel has changed since the batch was prepared")
        self._raw[batch.indexes] = batch.slots.view(self._raw.dtype)
        self._touched(batch.numbers)

    def num(self, time_ms: int) -> int:
        """Records in the slot of a time (`TimerWheel.getNum`)."""
        return self.slot(time_ms).num

    def next_occupied(self, time_ms: int) -> int | None:
        """When the first occupied slot from that of `time_ms` on begins, epoch ms; None where there is none in a lap.

        What was found empty is remembered, so that asking again costs nothing until a put falls into it.
        """
        number = self._number(time_ms)
        begin = self._empty.stop if number in self._empty else number
        found = self._find(begin, number + self._length)
        until = number + self._length if found is None else found
        self._empty = range(self._empty.start if number in self._empty else number, until)
        return None if found is None else found * self.precision_ms

    def first_occupied(self, time_ms: int) -> int | None:
        """When the first occupied slot of the whole file from that of `time_ms` on begins, however far ahead; or None.

        Looks at every slot: for a start, not for a loop.
        """
        lowest = [int(slots["time_ms"].min()) for slots in self._occupied_between(time_ms) if len(slots)]
        return min(lowest, default=None)

    def occupied_from(self, time_ms: int) -> Iterator[int | None]:
        """When each occupied slot from that of `time_ms` on begins, ascending, however far ahead.

        None wherever the look has taken some tenths of a millisecond; the wheel may change between two of them.
        """
        number = self._number(time_ms)
        while True:
            found = None
            for begin, index, length in self._stretches(number, self._length):
                found = self._first_of(begin, index, length)
                if found is not None:
                    break
                yield None
            if found is None:
                farther_ms = []
                for slots in self._occupied_between(number * self.precision_ms):
                    if len(slots):
                        farther_ms.append(int(slots["time_ms"].min()))
                    yield None
                if not farther_ms:
                    return
                found = self._number(min(farther_ms))
            yield found * self.precision_ms
            number = found + 1

    def num_between(self, from_ms: int, until_ms: int) -> Generator[None, None, int]:
        """Records in the slots from that of `from_ms` on and before that of `until_ms`, however far ahead.

        Looks at every slot; yields after a millisecond or two, and the wheel may change meanwhile.
        """
        total = 0
        for number, slots in enumerate(self._occupied_between(from_ms, until_ms), 1):
            total += int(slots["num"].sum())
            if number % _STRETCHES_COUNTED == 0:
                yield
        return total

    def num_from(self, from_ms: int) -> int:
        """Records in the slots from that of `from_ms` on that stand in their places. Looks at every slot, at once."""
        first_ms, total = self.slot_time_ms(max(0, from_ms)), 0
        for begin in range(0, self._length, _LAST_CHUNK_SLOTS):
            slots = self._slots[begin : begin + _LAST_CHUNK_SLOTS]
            places = slots["time_ms"] // self.precision_ms % self._length
            is_own = places == np.arange(begin, begin + len(slots))
            total += int(slots["num"][(slots["num"] > 0) & (slots["time_ms"] >= first_ms) & is_own].sum())
        self._mapped.release()
        return total

    def survey(self, from_ms: Sequence[int], now_ms: int, ends_ms: Sequence[int]) -> Generator[None, None, Survey]:
        """Look at every slot.

        Yields after some tenths of a millisecond, and not where that is all; the wheel may change meanwhile: a slot is
        told as it was when it was looked at.

        Args:
            from_ms: from when on the lowest first_pos is asked for.
            ends_ms: ascending, of the stretches of time whose records are counted.
        """
        lowest: list[int | None] = [None] * len(from_ms)
        counts = np.zeros(len(ends_ms) + 1)
        last_ms: int | None = None
        for stretch, slots in enumerate(self._occupied_between(min(now_ms, *from_ms))):
            if stretch:
                yield
            times_ms = slots["time_ms"]
            for number, begin_ms in enumerate(from_ms):
                first_pos = slots["first_pos"][times_ms >= self.slot_time_ms(begin_ms)]
                if len(first_pos):
                    found, before = int(first_pos.min()), lowest[number]
                    lowest[number] = found if before is None else min(found, before)
            ahead = times_ms >= self.slot_time_ms(now_ms)
            if ahead.any():
                last_ms = max(last_ms or 0, int(times_ms.max()))
            counted = slots[times_ms >= now_ms]
            if len(counted):
                before_end = np.searchsorted(ends_ms, counted["time_ms"], side="right")
                counts += np.bincount(before_end, counted["num"], len(counts))
        return Survey(tuple(lowest), counts[:-1].astype(int).tolist(), last_ms)

    def counts(self, from_ms: int, to_ms: int, bucket_ms: int) -> Int64Array:
        """Records in each stretch of `bucket_ms` from `from_ms` on, by when their slot begins; shape (buckets,).

        The last bucket may be cut short by `to_ms`, which is left out; times beyond a lap count nothing.
        """
        if bucket_ms <= 0 or to_ms < from_ms:
            raise ValueError(f"from_ms {from_ms}, to_ms {to_ms}, bucket_ms {bucket_ms}")
        totals = np.zeros(-((from_ms - to_ms) // bucket_ms), np.int64)
        first = -(-from_ms // self.precision_ms)
        slot_count = min(-(-to_ms // self.precision_ms) - first, self._length)
        for _, slots in self._occupied(first, slot_count):
            buckets = (slots["time_ms"] - from_ms) // bucket_ms
            lowest = int(buckets[0])
            sums = np.bincount(buckets - lowest, weights=slots["num"])
            totals[lowest : lowest + len(sums)] += sums.astype(np.int64)
        return totals

    def fill(self, scan: Iterable[tuple[Int64Array, RecordArray]]) -> None:
        """Put on an empty wheel what a scan of the timer log yields, less what has left: (positions, records) in order.

        Records of MAGIC_DELETE take one off num. Raises SlotConflict, OSError, and what the scan raises.
        """
        for positions, records in scan:
            deletes = (records["magic"] & MAGIC_DELETE) != 0
            self._place(due_ms(records), positions, np.where(deletes, -1, 1).astype(np.int32))
        self._touched(np.empty(0, np.int64))
        self._empty = range(0)
        self._mapped.release()

    def _place(self, times_ms: Int64Array, positions: Int64Array, num_deltas: Int32Array) -> None:
        """Put records on the wheel without their prev_pos and so without sorting them."""
        numbers = times_ms // self.precision_ms
        indexes, slot_ms = numbers % self._length, numbers * self.precision_ms
        column, num = self._slots["time_ms"], self._slots["num"]
        held_ms = column[indexes]
        fresh = held_ms != slot_ms
        column[indexes] = slot_ms
        clash = (column[indexes] != slot_ms) | (fresh & (num[indexes] > 0))
        if clash.any():
            # Either a live slot is in the way, or one that was emptied: by half of these records, for the other half.
            column[indexes] = held_ms
            if len(positions) == 1:
                raise self._conflict(int(slot_ms[0]), int(held_ms[0]))
            for half in (slice(None, len(positions) // 2), slice(len(positions) // 2, None)):
                self._place(times_ms[half], positions[half], num_deltas[half])
            return
        # Of several values for one place NumPy leaves the last: backwards that is the slot's first record.
        self._slots["first_pos"][indexes[fresh][::-1]] = positions[fresh][::-1]
        self._slots["last_pos"][indexes] = positions
        np.add.at(num, indexes, num_deltas)

    def crc(self) -> int:
        """zlib.crc32 of the file; gives its touched pages back."""
        crc = crc32(self._mapped.view)
        self._mapped.release()
        return crc

    def check(self, timer_log_end: int | None = None) -> list[str]:
        """What is wrong with the wheel, one sentence each, at most 100.

        With `timer_log_end` that includes slots that point behind the log's end.
        """
        problems: list[str] = []
        for begin in range(0, self._length, _LAST_CHUNK_SLOTS):
            slots = self._slots[begin : begin + _LAST_CHUNK_SLOTS]
            indexes = np.arange(begin, begin + len(slots), dtype=np.int64)
            time_ms, first_pos, last_pos = slots["time_ms"], slots["first_pos"], slots["last_pos"]
            used = (time_ms != 0) | (first_pos != 0) | (last_pos != 0) | (slots["num"] != 0)
            used &= (time_ms != BLANK) | (indexes != 0)
            elsewhere = (time_ms % self.precision_ms != 0) | (time_ms // self.precision_ms % self._length != indexes)
            faults = {
                "does not belong here": elsewhere | (time_ms < 0),
                "first_pos lies behind last_pos or is none": (first_pos > last_pos) | (first_pos < 0),
            }
            if timer_log_end is not None:
                faults["last_pos lies behind the end of the timer log"] = last_pos >= timer_log_end
            for words, wrong in faults.items():
                problems += [
                    f"slot {index}: {words} ({self._slots[index].item()})"
                    for index in indexes[used & wrong][:_CHECK_PROBLEMS_MAX].tolist()
                ]
        self._mapped.release()
        return problems[:_CHECK_PROBLEMS_MAX]

    def flush(self) -> None:
        """Make the wheel durable and give its touched pages back; for the caller's checkpoint. Raises OSError."""
        self._mapped.flush()
        self._mapped.release()
        if self._name_unsynced:
            self._fs.sync_directory(self.path.parent)
            self._name_unsynced = False

    def close(self) -> None:
        """Unmap the file, without a flush. Idempotent."""
        if len(self._slots):
            self._view(np.empty(0, TIMER_WHEEL_SLOT))
            self._mapped.close()

    def _create(self) -> None:
        """A new file under a temporary name, so that a crash leaves none of a wrong size."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        self._fs.makedirs(self.path.parent)
        try:
            self._fs.allocate(temporary, self.file_bytes)
            file = self._fs.open(temporary)
            try:
                write_all(file, np.array([tuple(EMPTY_SLOT)], TIMER_WHEEL_SLOT).tobytes(), 0)
            finally:
                file.close()
            self._fs.rename(temporary, self.path)
        except OSError:
            with suppress(OSError):
                self._fs.unlink(temporary)
            raise
        self._name_unsynced = True

    def _map(self) -> None:
        self._mapped = self._fs.map(self.path)
        self._view(np.frombuffer(self._mapped.view, TIMER_WHEEL_SLOT))

    def _view(self, slots: RecordArray) -> None:
        """Keep three views: NumPy copies structured items field by field, words and raw bytes in one go."""
        self._slots = slots
        self._words = slots.view(np.int64).reshape(-1, SLOT_BYTES // 8)
        self._raw = slots.view(f"V{SLOT_BYTES}")

    def _number(self, time_ms: int) -> int:
        if time_ms < 0:
            raise ValueError(f"a slot time must not be negative: {time_ms}")
        return time_ms // self.precision_ms

    def _touched(self, numbers: Int64Array) -> None:
        """Slots have been written: `numbers`, ascending."""
        self._generation += 1
        after = int(np.searchsorted(numbers, self._empty.start))
        if after < len(numbers) and numbers[after] < self._empty.stop:
            self._empty = range(self._empty.start, int(numbers[after]))

    def _stretches(self, number: int, count: int) -> Iterator[tuple[int, int, int]]:
        """(number, index, length) of runs of neighbouring slots, growing, that cover `count` slots from `number`."""
        size = _FIRST_CHUNK_SLOTS
        end = number + count
        while number < end:
            index = number % self._length
            length = min(size, end - number, self._length - index)
            yield number, index, length
            number += length
            size = min(size * 4, _LAST_CHUNK_SLOTS)
        if count > _RELEASE_SLOTS:
            self._mapped.release()

    def _is_occupied(self, number: int, index: int, length: int) -> BoolArray:
        """Which of the slots at `index` are slots `number` and following, not another lap's, and hold something."""
        expected_ms = self._ramp_ms[:length] + number * self.precision_ms
        slots = self._slots[index : index + length]
        occupied: BoolArray
        occupied = (slots["time_ms"] == expected_ms) & (slots["num"] > 0)
        return occupied

    def _occupied(self, number: int, count: int) -> Iterator[tuple[int, RecordArray]]:
        """(number, slots) of the occupied slots among `count` from `number` on, a stretch at a time."""
        for begin, index, length in self._stretches(number, count):
            occupied = self._is_occupied(begin, index, length)
            if occupied.any():
                yield begin, self._slots[index : index + length][occupied]

    def _occupied_between(self, from_ms: int, until_ms: int | None = None) -> Iterator[RecordArray]:
        """The occupied slots of the whole file from that of `from_ms` on, before that of `until_ms`; in any order.

        Copies, a stretch at a time, also one without any: the wheel may change, and be closed, between two.
        """
        first_ms = self.slot_time_ms(from_ms)
        until_ms = None if until_ms is None else self.slot_time_ms(until_ms)
        for begin in range(0, self._length, _LAST_CHUNK_SLOTS):
            yield self._occupied_at(begin, first_ms, until_ms)
        if self._length > _RELEASE_SLOTS:
            self._mapped.release()

    def _occupied_at(self, index: int, first_ms: int, until_ms: int | None) -> RecordArray:
        slots = self._slots[index : index + _LAST_CHUNK_SLOTS]
        occupied = (slots["num"] > 0) & (slots["time_ms"] >= first_ms)
        if until_ms is not None:
            occupied &= slots["time_ms"] < until_ms
        found: RecordArray = slots[occupied]
        return found

    def _find(self, number: int, end: int) -> int | None:
        for begin, index, length in self._stretches(number, end - number):
            found = self._first_of(begin, index, length)
            if found is not None:
                return found
        return None

    def _first_of(self, number: int, index: int, length: int) -> int | None:
        """The first occupied of the slots at `index`, which are slots `number` and following."""
        occupied = self._is_occupied(number, index, length)
        at = int(occupied.argmax())
        return number + at if occupied[at] else None

    def _keep_apart(self, numbers: Int64Array, indexes: Int64Array) -> None:
        """Raise SlotConflict where two slots of a batch, more than a lap apart, fall on one place."""
        order = np.argsort(indexes, kind="stable")
        clash = np.flatnonzero(np.diff(indexes[order]) == 0)
        if len(clash):
            held, wanted = numbers[order[clash[0] : clash[0] + 2]].tolist()
            raise self._conflict(wanted * self.precision_ms, held * self.precision_ms)

    def _conflict(self, wanted_ms: int, held_ms: int) -> SlotConflict:
        return SlotConflict(
            f"{self.path}: slot {wanted_ms} ms falls on slot {held_ms} ms of another lap, which is live "
            f"(from {self.live_from_ms} ms, {self.lap_ms} ms a lap)"
        )
