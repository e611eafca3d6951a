"""What is about to fall due in one wheel partition: loaded slots, and what has arrived for them since.

A slot is loaded whole (33 bytes a record, not the payloads) shortly before its time, and sent
millisecond by millisecond. Records that arrive for a loaded slot are stored like all others and join it here.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Generator

import numpy as np

from sidecar.records import OFFSET, Outgoing, decode_record
from sidecar.sizes import size_of
from sidecar.store.layout import Int64Array
from sidecar.store.timer_store import Loaded, TimerStore

Key = tuple[int, int]
"""(time acted on in ms, offset): the order of everything."""

STEPS_AT_A_TIME = 10
"""Of loading ahead where nothing is due here: what other partitions hold may be."""


class Joined:
    """A record that arrived for a loaded slot: on disk, and still at hand."""

    __slots__ = ("key", "record", "size_bytes", "stored")

    def __init__(self, key: Key, record: Outgoing, stored: Loaded) -> None:
        self.key = key
        self.record = record
        self.stored = stored
        self.size_bytes = size_of(record)

    def __lt__(self, other: "Joined") -> bool:
        return self.key < other.key


class Slot:
    """A loaded slot, sent up to ``cursor``."""

    __slots__ = ("_read", "_read_from", "cursor", "loaded")

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.cursor = 0
        self.forget()

    def __len__(self) -> int:
        """Records not yet sent."""
        return len(self.loaded.act_ms) - self.cursor

    def forget(self) -> None:
        """What has been read may no longer be what comes next."""
        self._read: list[Outgoing] = []
        self._read_from = 0

    def count_due(self, now_ms: int, max_records: int, max_bytes: int) -> int:
        """How many of the next ones are, as far as they fit; if any is, at least one."""
        begin = self.cursor
        due = int(np.searchsorted(self.loaded.act_ms[begin:], now_ms, side="right"))
        count = min(due, max_records)
        if count == 0:
            return 0
        sizes = np.cumsum(self.loaded.payload_size[begin : begin + count], dtype=np.int64)
        if sizes[-1] <= max_bytes:
            return count
        return max(1, int(np.searchsorted(sizes, max_bytes, side="right")))

    def is_read(self, count: int) -> bool:
        """Whether the next ``count`` records have been."""
        return self.cursor + count <= self._read_from + len(self._read)

    def read(self, store: TimerStore, count: int) -> None:
        """Have the next ``count`` records at hand."""
        del self._read[: self.cursor - self._read_from]
        self._read_from = self.cursor
        begin, end = self.cursor + len(self._read), self.cursor + count
        if begin < end:
            loaded = self.loaded
            payloads = store.read(loaded.payload_pos[begin:end], loaded.payload_size[begin:end])
            self._read += map(decode_record, payloads)

    def take(self, count: int) -> list[Outgoing]:
        """The next ``count`` records, which have been read."""
        begin = self.cursor - self._read_from
        self.cursor += count
        return self._read[begin : begin + count]


class Ready:
    """Due records in order, over any number of loaded slots.

    Args:
        watermark: everything up to this key is done; what a slot holds of that is passed over.
    """

    def __init__(self, store: TimerStore, watermark: Key) -> None:
        self._store = store
        self._watermark = watermark
        self._slots: list[Slot] = []
        self._in_slots = 0
        self._loading: tuple[int, Generator[None, None, Loaded]] | None = None
        """A slot that is being loaded: when it begins, and the rest of the way."""
        self._joined: list[Joined] = []
        self.joined_bytes = 0
        """See `sidecar.sizes`."""
        self._taken: list[tuple[Slot, int]] = []
        self._taken_joined: list[Joined] = []

    @property
    def loaded_until_ms(self) -> int:
        """Slots before this time are loaded, or empty; what arrives for them joins. 0: none is yet."""
        return self._store.loaded_until_ms

    @loaded_until_ms.setter
    def loaded_until_ms(self, time_ms: int) -> None:
        self._store.loaded_until_ms = time_ms

    def load(self, until_ms: int, enough: int, *, busy_by_ms: int | None = None) -> None:
        """Load slots in order until those up to ``until_ms`` are here, or ``enough`` records are.

        With ``busy_by_ms`` no more than some steps of a few milliseconds, and only one where something at hand is due
        by then: the rest is for the next call.
        """
        if not self.loaded_until_ms:
            # Where to begin: the wheel may hold what was due long ago, farther back than one lap is looked through.
            # Never ahead of what is asked for: all that came before the first slot would join, with its payload.
            first_ms = self._store.first_slot_ms(self._watermark[0])
            begin_ms = self._store.slot_time_ms(max(until_ms, self._watermark[0]))
            self.loaded_until_ms = begin_ms if first_ms is None else min(first_ms, begin_ms)
        steps = 0
        while self.waiting < enough:
            slot_ms = self._store.next_slot_ms(self.loaded_until_ms)
            if slot_ms is None and until_ms - self.loaded_until_ms >= self._store.lap_ms:
                slot_ms = self._store.first_slot_ms(self.loaded_until_ms)  # farther off than one lap is looked through
            if slot_ms is None or slot_ms > until_ms:
                # Up to here all slots are empty: what still comes for them joins.
                self.loaded_until_ms = max(self.loaded_until_ms, self._store.slot_time_ms(until_ms))
                return
            if self._load_on(slot_ms):
                continue
            steps += 1
            if busy_by_ms is not None and (steps == STEPS_AT_A_TIME or self._is_due(busy_by_ms)):
                return

    def _is_due(self, by_ms: int) -> bool:
        return (next_ms := self.next_ms) is not None and next_ms <= by_ms

    def join(self, joined: Joined) -> None:
        heapq.heappush(self._joined, joined)
        self.joined_bytes += joined.size_bytes

    @property
    def waiting(self) -> int:
        """Records at hand."""
        return self._in_slots + len(self._joined)

    @property
    def joined(self) -> int:
        """Records at hand that arrived for loaded slots: with their payloads, so they count in memory."""
        return len(self._joined)

    @property
    def next_ms(self) -> int | None:
        """When the first of them is acted on."""
        times = [self._joined[0].key[0]] if self._joined else []
        if self._slots:
            times.append(int(self._slots[0].loaded.act_ms[self._slots[0].cursor]))
        return min(times, default=None)

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """The records due by ``now_ms``, in order; `confirm` or `put_back` must follow."""
        records: list[Outgoing] = []
        while len(records) < max_records and max_bytes > 0:
            # 1. From the slot at hand, up to the next of those that joined: on a tie the slot's came first.
            until_ms = min(now_ms, self._joined[0].key[0]) if self._joined else now_ms
            if self._slots:
                taken, size_bytes = self._take_from_slot(until_ms, now_ms, max_records - len(records), max_bytes)
                if taken:
                    records += taken
                    max_bytes -= size_bytes
                    continue
            # 2. Then that one.
            if not self._joined or self._joined[0].key[0] > now_ms:
                break
            joined = heapq.heappop(self._joined)
            self.joined_bytes -= joined.size_bytes
            self._taken_joined.append(joined)
            records.append(joined.record)
            max_bytes -= joined.size_bytes
        return records

    def confirm(self) -> None:
        self._taken.clear()
        self._taken_joined.clear()

    def put_back(self) -> None:
        for slot, cursor in reversed(self._taken):
            if not any(other is slot for other in self._slots):
                self._slots.insert(0, slot)
            self._in_slots += slot.cursor - cursor
            slot.cursor = cursor
            slot.forget()
        for joined in self._taken_joined:
            self.join(joined)
        self.confirm()

    def drop(self, matches: Callable[[Outgoing], bool], id_hashes: Int64Array) -> Loaded:
        """Remove those whose id hash is among these and whose record ``matches``; what was removed.

        What has been taken and is not yet confirmed is left alone.
        """
        removed = []
        kept_joined = []
        wanted = set(id_hashes.tolist())
        for joined in self._joined:
            if int(joined.stored.id_hash[0]) in wanted and matches(joined.record):
                removed.append(joined.stored)
            else:
                kept_joined.append(joined)
        if len(kept_joined) < len(self._joined):
            self._joined = kept_joined
            heapq.heapify(self._joined)
            self._count_bytes()
        for slot in self._slots:
            loaded = slot.loaded
            candidates = np.flatnonzero(np.isin(loaded.id_hash[slot.cursor :], id_hashes)) + slot.cursor
            if not len(candidates):
                continue
            payloads = self._store.read(loaded.payload_pos[candidates], loaded.payload_size[candidates])
            gone = candidates[[matches(decode_record(payload)) for payload in payloads]]
            removed.append(loaded.where(gone))
            kept = np.ones(len(loaded.act_ms), bool)
            kept[gone] = False
            slot.loaded = loaded.where(kept)
            slot.forget()
            self._in_slots -= len(gone)
        self._slots = [slot for slot in self._slots if len(slot)]
        return Loaded.joined([_NONE, *removed])

    def snapshot(self) -> tuple[list[tuple[Slot, Loaded]], list[Joined]]:
        """What `restore` undoes a `drop` with."""
        return [(slot, slot.loaded) for slot in self._slots], self._joined[:]

    def restore(self, snapshot: tuple[list[tuple[Slot, Loaded]], list[Joined]]) -> None:
        """As it was at the `snapshot`."""
        slots, self._joined = snapshot
        self._count_bytes()
        for slot, loaded in slots:
            slot.loaded = loaded
            slot.forget()
        self._slots = [slot for slot, _ in slots]
        self._in_slots = sum(map(len, self._slots))

    def pending(self) -> Loaded:
        """What is at hand and not taken."""
        parts = [slot.loaded.where(np.arange(slot.cursor, len(slot.loaded.act_ms))) for slot in self._slots]
        parts += [joined.stored for joined in self._joined]
        return Loaded.joined([_NONE, *parts])

    def times_ms(self) -> Int64Array:
        """When each of what is at hand and not taken is acted on, in any order."""
        joined = np.fromiter((joined.key[0] for joined in self._joined), np.int64, len(self._joined))
        return np.concatenate([joined, *(slot.loaded.act_ms[slot.cursor :] for slot in self._slots)])

    def prepare(self, until_ms: int, max_records: int, max_bytes: int) -> None:
        """Read what is due by then, so that `take` need not, for when there is nothing better to do."""
        if self._slots:
            slot = self._slots[0]
            slot.read(self._store, slot.count_due(until_ms, max_records, max_bytes))

    def count_topics(self) -> list[tuple[int, int]]:
        """(topic hash, records) of what is at hand."""
        joined = np.fromiter((joined.stored.topic_hash[0] for joined in self._joined), np.int32, len(self._joined))
        in_slots = [slot.loaded.topic_hash[slot.cursor :] for slot in self._slots]
        hashes, counts = np.unique(np.concatenate([joined, *in_slots]), return_counts=True)
        return list(zip(hashes.tolist(), counts.tolist(), strict=True))

    def _count_bytes(self) -> None:
        self.joined_bytes = sum(joined.size_bytes for joined in self._joined)

    def _take_from_slot(
        self, until_ms: int, now_ms: int, max_records: int, max_bytes: int
    ) -> tuple[list[Outgoing], int]:
        """What is due by ``until_ms``, and its bytes."""
        slot = self._slots[0]
        begin = slot.cursor
        count = slot.count_due(until_ms, max_records, max_bytes)
        if count == 0:
            return [], 0
        if not slot.is_read(count):
            # At once what is due by now: between those that joined it may be asked for one by one.
            slot.read(self._store, slot.count_due(now_ms, max_records, max_bytes))
        records = slot.take(count)
        self._taken.append((slot, begin))
        self._in_slots -= count
        if not len(slot):
            self._slots.pop(0)
        return records, int(slot.loaded.payload_size[begin : begin + count].sum())

    def _load_on(self, slot_ms: int) -> bool:
        """Load a slot a step further; whether that was the last."""
        if self._loading is None or self._loading[0] != slot_ms:
            self._loading = slot_ms, self._store.load(slot_ms)
        try:
            next(self._loading[1])
        except StopIteration as end:
            self._loading = None
            slot = Slot(self._behind_watermark_removed(end.value))
        else:
            return False
        if len(slot):
            self._slots.append(slot)
            self._in_slots += len(slot)
        return True

    def _behind_watermark_removed(self, loaded: Loaded) -> Loaded:
        """Less what is done: a slot that was sent in part before a restart still holds all of it."""
        done_ms, done_offset = self._watermark
        if not len(loaded.act_ms) or loaded.act_ms[0] > done_ms:
            return loaded
        first, end = (int(np.searchsorted(loaded.act_ms, done_ms, side=side)) for side in ("left", "right"))
        # Millions may be due in one millisecond: few of them are looked at, as they lie in the order of their offsets.
        at_watermark = range(first, end)
        passed = bisect_right(at_watermark, done_offset, key=lambda number: offset_of(self._store, loaded, number))
        return loaded.where(np.arange(first + passed, len(loaded.act_ms)))


def offset_of(store: TimerStore, loaded: Loaded, number: int) -> int:
    """The offset of a record that is loaded, which its payload tells. Raises CorruptFile, OSError."""
    one = slice(number, number + 1)
    (payload,) = store.read(loaded.payload_pos[one], loaded.payload_size[one])
    return decode_record(payload)[OFFSET]


_NONE = Loaded(
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, bool),
)
