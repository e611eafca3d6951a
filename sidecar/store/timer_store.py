"""The pending messages of one wheel partition on local disk: TimerLog, TimerWheel and payload log behind one door.

    put      payloads ──► payload log ──► timer log (prev_pos) ──► wheel          a batch at a time
    load     wheel slot ──► timer log records ──► arrays sorted by time           a slot at a time
    read     payload log                                                          what goes out next
    delete   a MAGIC_DELETE record that names its target's payload, in the target's slot

What is pending beyond the loaded slots costs disk, and 6 bytes of memory a record (`id_index`). A message that is
cancelled or sent stays in the logs until all in its segment is behind the watermark.
"""

import errno
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.errors import CorruptFile, StoreError, is_unreadable
from sidecar.store.files import FileSystem
from sidecar.store.id_index import IdIndex
from sidecar.store.layout import (
    BLANK,
    EMPTY_SLOT,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    RECORD_BYTES,
    SLOT_BYTES,
    TIMER_LOG_RECORD,
    BoolArray,
    Int32Array,
    Int64Array,
    RecordArray,
    Slot,
    due_ms,
)
from sidecar.store.payload_log import HEADER_BYTES, PayloadLog
from sidecar.store.query import Query, Rolls, pending_of
from sidecar.store.recovery import Owner
from sidecar.store.slot_walks import SlotWalks
from sidecar.store.timer_log import Mark, Piece, TimerLog, in_log_order
from sidecar.store.timer_wheel import SlotBatch, TimerWheel
from sidecar.store.topic_counts import TopicCounts

TIMER_LOG_SEGMENT_BYTES = 16 * 2**20
PAYLOAD_LOG_SEGMENT_BYTES = 64 * 2**20

CHECKPOINT = "checkpoint"
TIMER_LOG = "timerlog"
PAYLOAD_LOG = "payload"
WHEEL = "timerwheel"

_INT32 = np.iinfo(np.int32)


class Marks(NamedTuple):
    """Where the logs ended at some moment."""

    timer_log: Mark
    payload_log: int


class Positions(NamedTuple):
    """A position in either log."""

    timer_log: int
    payload_log: int


class Surveyed(NamedTuple):
    """What a look at the whole wheel has found."""

    oldest: tuple[int, int] | None
    """Payload position and size of the first record that was pending when it began; None: none was."""
    counts: list[int]
    """Records in stretches of time, by slots."""
    last_ms: int | None
    """When the last occupied slot of those counted begins."""


class Loaded(NamedTuple):
    """Pending records of one slot, sorted by time and, within a millisecond, by arrival; arrays of shape (n,)."""

    act_ms: Int64Array
    payload_pos: Int64Array
    payload_size: np.ndarray[tuple[int], np.dtype[np.int32]]
    id_hash: Int64Array
    topic_hash: np.ndarray[tuple[int], np.dtype[np.int32]]
    rolls: BoolArray
    """Which of them roll: they are not delivered at that time."""

    def where(self, kept: np.ndarray[tuple[int], np.dtype[Any]]) -> "Loaded":
        """The records that a boolean or an index array picks."""
        return Loaded(*(column[kept] for column in self))

    @classmethod
    def joined(cls, parts: "Sequence[Loaded]") -> "Loaded":
        """All parts, of which there is at least one, one after the other."""
        return cls(*(np.concatenate([part[column] for part in parts]) for column in range(len(cls._fields))))

    @classmethod
    def of(cls, records: RecordArray) -> "Loaded":
        """In the order of the records."""
        rolls = (records["magic"] & MAGIC_ROLL) != 0
        columns = (records["offset_py"], records["size_py"], records["reserved"], records["topic_hash"], rolls)
        return cls(due_ms(records), *(np.ascontiguousarray(column) for column in columns))


class TimerStore:
    """See `opening.open_store`."""

    def __init__(
        self,
        directory: Path,
        fs: FileSystem,
        timer_log: TimerLog,
        wheel: TimerWheel,
        payload_log: PayloadLog,
        owner: Owner,
        quota_bytes: int | None,
    ) -> None:
        self.loaded_until_ms = 0
        """Slots before this time are loaded or were found empty: what is put into them counts as pending no more."""
        self._directory = directory
        self._fs = fs
        self._timer_log = timer_log
        self._wheel = wheel
        self._payload_log = payload_log
        self._owner = owner
        self.quota_bytes = quota_of(quota_bytes, wheel.slots_total)
        """The most that `put` lets the store grow to; None: no limit."""
        self._ids = IdIndex(timer_log)
        self._walks = SlotWalks(timer_log, wheel)
        self._topics = TopicCounts()
        """How many records wait for each topic, in slots from ``loaded_until_ms`` on."""
        self._is_broken = False
        self._needed = Positions(timer_log.start_position, payload_log.start_position)
        """What lies before is behind the watermark or cancelled, for all checkpoints from now on."""
        self._needed_next = self._needed
        """As `_needed`, for checkpoints that hold the log up to ``_needed_next_from``, and so all cancels that this
        counts on."""
        self._needed_next_from = timer_log.end_position
        self._checkpoints_from = 0
        """No checkpoint may end the timer log before this: what that would need is deleted."""

    # --- intake -------------------------------------------------------------------------------------------------------

    def put(
        self,
        payloads: Sequence[bytes],
        act_ms: Int64Array,
        timestamp_ms: Int64Array,
        id_hash: Int64Array,
        topic_hash: np.ndarray[tuple[int], np.dtype[np.int32]],
        rolls: BoolArray,
        *,
        deleted: "Loaded | None" = None,
        within_quota: bool = True,
    ) -> Loaded:
        """Store a batch, in arrival order; what was stored, as `load` would give it but in arrival order.

        Args:
            deleted: stored before, and taken back in the same write, as `delete` does.
            within_quota: False for what had been accepted before, and is stored again to rebuild.

        Raises:
            SlotConflict: the batch spans more time than the wheel; nothing is stored, and nothing taken back.
            OSError: the disk is full (ENOSPC), the quota is used up (EDQUOT), or worse; the same.
        """
        if within_quota:
            self._check_quota(payloads)
        records = np.zeros(len(payloads), TIMER_LOG_RECORD)
        delayed_ms = np.clip(act_ms - timestamp_ms, _INT32.min, _INT32.max)
        records["size"] = RECORD_BYTES
        records["magic"] = np.where(rolls, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT)
        records["curr_write_time"] = act_ms - delayed_ms
        records["delayed_time"] = delayed_ms
        records["topic_hash"] = topic_hash
        records["reserved"] = id_hash
        num_deltas = np.ones(len(payloads), np.int32)
        if deleted is not None:
            deletes = _deletes(deleted)
            records = np.concatenate([records, deletes])
            num_deltas = np.concatenate([num_deltas, np.full(len(deletes), -1, np.int32)])
        batch = self._prepare(records, num_deltas)
        payload_end = self._payload_log.end_position
        payload_pos, payload_size = self._payload_log.append_batch(payloads)
        records["offset_py"][: len(payloads)] = payload_pos
        records["size_py"][: len(payloads)] = payload_size
        try:
            self._append(records, batch)
        except OSError:
            with suppress(OSError):
                self._payload_log.truncate(payload_end)
            raise
        self._topics.add(topic_hash[act_ms >= self.loaded_until_ms])
        if deleted is not None:
            self._forget_topics(deleted)
        return Loaded(act_ms, payload_pos, payload_size, id_hash, topic_hash, rolls)

    def delete(self, targets: Loaded) -> None:
        """Take back records that are pending, each of them once. Raises OSError: none is taken back then."""
        if len(targets.act_ms) == 0:
            return
        records = _deletes(targets)
        self._append(records, self._prepare(records, np.full(len(records), -1, np.int32)))
        self._forget_topics(targets)

    def _forget_topics(self, deleted: Loaded) -> None:
        self._topics.remove(deleted.topic_hash[deleted.act_ms >= self.loaded_until_ms])

    def _prepare(self, records: RecordArray, num_deltas: Int32Array) -> SlotBatch:
        return self._wheel.prepare_batch(due_ms(records), self._timer_log.positions_for(len(records)), num_deltas)

    def _append(self, records: RecordArray, batch: SlotBatch) -> None:
        # The wheel is changed last, so that a failed append leaves no trace on it.
        records["prev_pos"] = batch.prev_positions
        self._timer_log.append(records)
        self._wheel.apply(batch)

    def _check_quota(self, payloads: Sequence[bytes]) -> None:
        if self.quota_bytes is None:
            return
        more_bytes = sum(map(len, payloads)) + len(payloads) * (HEADER_BYTES + RECORD_BYTES)
        if self.disk_bytes + more_bytes > self.quota_bytes:
            raise OSError(
                errno.EDQUOT,
                f"disk quota exceeded: {self.disk_bytes} of {self.quota_bytes} bytes used",
                self._directory,
            )

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @property
    def precision_ms(self) -> int:
        return self._wheel.precision_ms

    @property
    def lap_ms(self) -> int:
        """Time that the wheel spans."""
        return self._wheel.lap_ms

    def slot_time_ms(self, time_ms: int) -> int:
        """When the slot of a time begins."""
        return self._wheel.slot_time_ms(time_ms)

    def num(self, time_ms: int) -> int:
        """How many records the slot of a time has held, less those that were taken back."""
        return self._wheel.num(max(0, time_ms))

    def next_slot_ms(self, from_ms: int) -> int | None:
        """When the first occupied slot from that of ``from_ms`` on begins."""
        return self._wheel.next_occupied(max(0, from_ms))

    def first_slot_ms(self, from_ms: int) -> int | None:
        """When the first occupied slot of all from that of ``from_ms`` on begins, however far ahead."""
        return self._wheel.first_occupied(max(0, from_ms))

    def load(self, slot_ms: int) -> Generator[None, None, Loaded]:
        """What is pending in a slot, sorted; slots are loaded in the order of time.

        A generator that yields after every few milliseconds of work. What is put and taken back meanwhile counts.
        Raises CorruptFile, OSError.
        """
        pieces: list[Piece] = []
        known = EMPTY_SLOT
        with self._distrusting():
            if (walk := self._walks.of(slot_ms)) is not None:
                while not self._walks.step(walk):
                    yield
                pieces, known = [walk.found()], walk.slot
                self._walks.forget(slot_ms)
                yield from self._read_on(pieces, walk.rest, BLANK)
            while (slot := self._wheel.slot(slot_ms)) != known:
                if slot.first_pos != known.first_pos:  # none is known; or all was taken back, and it has begun anew
                    pieces, known = [], slot._replace(last_pos=BLANK, num=0)
                rest = slot._replace(first_pos=max(slot.first_pos, known.last_pos), num=slot.num - known.num)
                yield from self._read_on(pieces, rest, known.last_pos)
                known = slot
            records = in_log_order(pieces)[1]
            pieces.clear()  # a slot may have millions: what is not needed any more makes room for what is
            records = pending_of(records)
            if len(records) != slot.num:
                raise CorruptFile(
                    self._wheel.path, f"slot {slot_ms} ms: num {slot.num}, {len(records)} in the timer log"
                )
            loaded = Loaded.of(records)
            if ((loaded.act_ms < slot_ms) | (loaded.act_ms >= slot_ms + self._wheel.precision_ms)).any():
                raise CorruptFile(self._wheel.path, f"slot {slot_ms} ms: the timer log has records of another time")
        del records
        if slot_ms >= self.loaded_until_ms:
            self._topics.remove(loaded.topic_hash)
            self.loaded_until_ms = slot_ms + self._wheel.precision_ms
        return loaded.where(np.argsort(loaded.act_ms, kind="stable"))

    def _read_on(self, pieces: list[Piece], slot: Slot, known_pos: int) -> Generator[None, None, None]:
        """Read what a slot has behind a position.

        Yields between two pieces, not behind the last: otherwise a slot that gets more in every turn would never be
        loaded.
        """
        for number, (positions, records) in enumerate(self._timer_log.slot_pieces(slot, self._wheel.precision_ms)):
            if number:
                yield
            is_new = positions > known_pos
            pieces.append((positions[is_new], records[is_new]))

    def look_ahead(self) -> None:
        """A few milliseconds' work for slots that will be loaded soon. Raises CorruptFile, OSError."""
        with self._distrusting():
            self._walks.look_ahead(self.loaded_until_ms)

    def read(self, payload_pos: Int64Array, payload_size: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[bytes]:
        """Payloads. Raises CorruptFile, OSError."""
        with self._distrusting():
            return self._payload_log.read_many(payload_pos, payload_size)

    def advance(self, live_from_ms: int) -> None:
        """Slots before this time are empty or sent; their places may be used again."""
        self._wheel.advance(max(0, live_from_ms))

    def find(self, id_hashes: Int64Array, from_ms: int) -> Loaded:
        """What is pending from the slot of ``from_ms`` on with one of these hashes; the payload confirms a match.

        Raises CorruptFile, OSError.
        """
        with self._distrusting():
            found = [np.empty(0, TIMER_LOG_RECORD), *self._ids.find(id_hashes, self._search_start)]
        records = np.concatenate(found)
        return Loaded.of(pending_of(records[due_ms(records) >= self.slot_time_ms(max(0, from_ms))]))

    def warm(self) -> None:
        """A little work ahead of the next `find`, for when there is time. Raises CorruptFile, OSError."""
        with self._distrusting():
            self._ids.warm()

    # --- questions ----------------------------------------------------------------------------------------------------

    def query(
        self,
        from_ms: int,
        until_ms: int,
        limit: int,
        *,
        id_hash: int | None = None,
        topic_hash: int | None = None,
        rolls_from_ms: int = 0,
        rolls_wanted: Callable[[bytes], bool] | None = None,
    ) -> Generator[None, None, tuple[int, Loaded]]:
        """How many are pending from ``from_ms`` on and before ``until_ms``, and the first ``limit``.

        A generator that yields after every few milliseconds of work. The store may be used between two steps; what was
        sent meanwhile is left out, and what was taken back where its place has been freed, so that what is returned can
        be read at once.

        Args:
            rolls_from_ms: with ``rolls_wanted``, records that roll are looked at from there on.
            rolls_wanted: which of them are meant, by their payload; None: those that roll within the bounds.

        Raises CorruptFile, OSError.
        """
        rolls = None
        if rolls_wanted is not None:
            rolls = Rolls(max(0, rolls_from_ms), partial(self._are_wanted, rolls_wanted))
        query = Query(
            self._timer_log,
            self._wheel,
            self._ids,
            start=self._search_start,
            from_ms=max(0, from_ms),
            until_ms=max(0, from_ms, until_ms),
            limit=limit,
            rolls=rolls,
        )
        with self._distrusting():
            if id_hash is not None:
                total, records = yield from query.by_id(id_hash, topic_hash)
            elif topic_hash is None and rolls is None:
                total, records = yield from query.by_time()
            elif topic_hash is not None and from_ms >= self.loaded_until_ms and self._topics.of(topic_hash) == 0:
                total, records = 0, np.empty(0, TIMER_LOG_RECORD)
            else:
                total, records = yield from query.by_topic(topic_hash)
        is_there = records["offset_py"] >= self._payload_log.start_position
        return total, Loaded.of(records[is_there & (due_ms(records) >= self._wheel.live_from_ms)])

    def _are_wanted(self, wanted: Callable[[bytes], bool], records: RecordArray) -> BoolArray:
        """Which are, as far as their payloads are still there."""
        found: BoolArray = records["offset_py"] >= self._payload_log.start_position
        payloads = self._payload_log.read_many(records["offset_py"][found], records["size_py"][found])
        found[found] = [wanted(payload) for payload in payloads]
        return found

    @property
    def pending_count(self) -> int:
        """Messages in the slots that are not loaded yet."""
        return self._topics.total

    def pending_by_topic_hash(self, most: int) -> list[tuple[int, int]]:
        """(hash, messages in the slots that are not loaded yet) of the topics with the most, descending."""
        return self._topics.highest(most)

    def pending_of_topic(self, topic_hash: int) -> int | None:
        """A topic's messages in the slots that are not loaded yet; None: with 10,000 topics it is not counted alone."""
        return self._topics.of(topic_hash)

    def counts(self, from_ms: int, to_ms: int, bucket_ms: int) -> Int64Array:
        """Pending records per stretch of time, by slots; shape (buckets,)."""
        return self._wheel.counts(from_ms, to_ms, bucket_ms)

    def survey(
        self, from_ms: int, pending_from_ms: int, counted_from_ms: int, ends_ms: Sequence[int]
    ) -> Generator[None, None, Surveyed]:
        """Look at the whole wheel, in steps of some tenths of a millisecond, between which the store may be used.

        Args:
            from_ms: from the next checkpoint on that holds the log up to here, what lies before the slots from there
                counts as not needed.
            pending_from_ms: what is pending lies in the slots from there on, as those from ``from_ms`` on do.
            counted_from_ms: what is counted lies in the slots from there on.
            ends_ms: ascending, of the stretches of time whose records are counted, the first from there on.

        Raises CorruptFile, OSError.
        """
        ends = Positions(self._timer_log.end_position, self._payload_log.end_position)
        times_ms = (max(0, from_ms), max(0, from_ms, pending_from_ms))
        survey = yield from self._wheel.survey(times_ms, counted_from_ms, ends_ms)
        # What has come meanwhile may lie in slots that had been looked at before, but nowhere before these ends. And a
        # slot may be empty by a cancel that has come meanwhile: that must not be missing where it is counted on.
        self._needed_next_from = self._timer_log.end_position
        needed, oldest = (self._first(lowest, ends.timer_log) for lowest in survey.first_pos)
        self._needed_next = ends if needed is None else needed[0]
        return Surveyed(None if oldest is None else (oldest[0].payload_log, oldest[1]), survey.counts, survey.last_ms)

    def _first(self, lowest: int | None, end: int) -> tuple[Positions, int] | None:
        """Where the record that is first in the timer log stands in either log, and its payload's size."""
        if lowest is None or lowest >= end:
            return None
        position = max(lowest, self._timer_log.start_position)
        with self._distrusting():
            record = self._timer_log.read(position)
        return Positions(position, int(record["offset_py"][0])), int(record["size_py"][0])

    @property
    def disk_bytes(self) -> int:
        """What the logs and the wheel take."""
        return self._timer_log.disk_bytes + self._payload_log.disk_bytes + self._wheel.file_bytes

    # --- opening ------------------------------------------------------------------------------------------------------

    def take_in(self, live_from_ms: int, *, is_wheel_whole: bool) -> None:
        """Read the timer log once: verify it, index it, count it, and fill the wheel where that is new and empty.

        Raises CorruptFile, SlotConflict (the log was written with less on the wheel), OSError.
        """
        self._wheel.advance(max(0, live_from_ms))
        live = self._live_records()
        if not is_wheel_whole:
            self._wheel.fill(live)
            return
        deque(live, maxlen=0)
        self._check_wheel(live_from_ms)

    def _check_wheel(self, live_from_ms: int) -> None:
        """Its CRC is of what a clean stop found: a page that changed on disk while it was in use is told by this.

        Raises CorruptFile.
        """
        on_wheel = self._wheel.num_from(live_from_ms)
        if on_wheel != self._topics.total:
            raise CorruptFile(self._wheel.path, f"num {on_wheel} in all, {self._topics.total} in the timer log")

    def _live_records(self) -> Iterator[tuple[Int64Array, RecordArray]]:
        """(positions, records) of what has not left the wheel.

        Less deletes of what the log has no more: that was emptied slots, which hold no log back.
        """
        payload_start = self._payload_log.start_position
        for block, positions, records in self._timer_log.verified():
            self._ids.add(block, records)
            deletes = (records["magic"] & MAGIC_DELETE) != 0
            live = (due_ms(records) >= self._wheel.live_from_ms) & ~(deletes & (records["offset_py"] < payload_start))
            self._topics.add(records["topic_hash"][live & ~deletes])
            self._topics.remove(records["topic_hash"][live & deletes])
            yield (positions, records) if live.all() else (positions[live], records[live])

    @property
    def _search_start(self) -> int:
        return max(self._needed.timer_log, self._timer_log.start_position)

    # --- checkpoint ---------------------------------------------------------------------------------------------------

    def marks(self) -> Marks:
        """Where the logs end now."""
        return Marks(self._timer_log.mark(), self._payload_log.end_position)

    def checkpoint(self, complete_to_offset: int, marks: Marks, extra: dict[str, Any]) -> None:
        """Say that the logs up to ``marks`` hold all below an offset that Kafka has committed. Raises OSError.

        What is no longer needed is deleted afterwards: the other order would leave a checkpoint that names bytes that
        are gone.
        """
        self._delete_before(self._save(complete_to_offset, marks, extra, wheel_crc=None))

    @property
    def is_any_room_to_make(self) -> bool:
        """Whether there are segments that nothing needs any more."""
        needed = self._needed_next
        return self._timer_log.is_any_before(needed.timer_log) or self._payload_log.is_any_before(needed.payload_log)

    def make_room(self) -> None:
        """Delete what is no longer needed though no checkpoint can say so: until the next, a start rebuilds from Kafka.

        Raises OSError.
        """
        checkpoints.remove(self._directory / CHECKPOINT, self._fs)
        self._needed, self._checkpoints_from = self._needed_next, self._needed_next_from
        self._delete_before(self._needed)

    def _delete_before(self, needed: Positions) -> None:
        self._timer_log.delete_before(needed.timer_log)
        self._payload_log.delete_before(needed.payload_log)
        self._ids.forget()

    def mark_dirty(self, checkpoint: Checkpoint) -> None:
        """Say that the wheel changes in place from now on: until a clean stop it is rebuilt from the timer log.

        Where the disk is full that stays unsaid: the wheel's CRC will tell.
        """
        if checkpoint.wheel_crc is None:
            return
        dirty = msgspec.structs.replace(checkpoint, wheel_crc=None, extra={**checkpoint.extra, "boot_id": boot_id()})
        with suppress(OSError):
            checkpoints.save(self._directory / CHECKPOINT, dirty, self._fs, durable=True)

    def close(self, complete_to_offset: int | None, extra: dict[str, Any]) -> None:
        """Flush, and mark the directory clean where ``complete_to_offset`` (all of it is stored) is known."""
        with ExitStack() as closing:
            for part in (self._wheel, self._timer_log, self._payload_log):
                closing.callback(part.close)
            if complete_to_offset is not None:
                self._payload_log.flush()
                self._timer_log.flush()
                self._wheel.flush()
                self._save(complete_to_offset, self.marks(), extra, wheel_crc=self._wheel.crc())

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        """Where a file does not hold what was written to it, the next start rebuilds from Kafka: no checkpoint is left.

        So it is where a sector cannot be read, which no waiting mends. That the checkpoint cannot be removed is the
        lesser news. Raises CorruptFile.
        """
        try:
            yield
        except StoreError:
            self._distrust()
            raise
        except OSError as error:
            if not is_unreadable(error):
                raise
            self._distrust()
            raise CorruptFile(self._directory, f"not to be read: {error}") from error

    def _distrust(self) -> None:
        self._is_broken = True
        with suppress(OSError):
            checkpoints.remove(self._directory / CHECKPOINT, self._fs)

    def _save(
        self, complete_to_offset: int, marks: Marks, extra: dict[str, Any], *, wheel_crc: int | None
    ) -> Positions:
        """Write a checkpoint; what lies before the positions returned is not needed by it."""
        if self._is_broken or marks.timer_log.position < self._checkpoints_from:
            return Positions(self._timer_log.start_position, self._payload_log.start_position)
        if marks.timer_log.position >= self._needed_next_from:
            self._needed = self._needed_next
        needed = self._needed
        checkpoint = Checkpoint(
            complete_to_offset=complete_to_offset,
            timer_log_end=marks.timer_log.position,
            timer_log_start=needed.timer_log,
            timer_log_crcs=self._timer_log.crcs(needed.timer_log, marks.timer_log),
            payload_log_end=marks.payload_log,
            payload_log_start=needed.payload_log,
            cluster_id=self._owner.cluster_id,
            topic_id=self._owner.topic_id,
            group_id=self._owner.group_id,
            partition=self._owner.partition,
            plan=self._owner.layout,
            slots_total=self._wheel.slots_total,
            precision_ms=self._wheel.precision_ms,
            wheel_crc=wheel_crc,
            extra={**extra, "boot_id": boot_id(), "begun_ms": self._owner.begun_ms},
        )
        checkpoints.save(self._directory / CHECKPOINT, checkpoint, self._fs, durable=wheel_crc is not None)
        return needed


def _deletes(targets: Loaded) -> RecordArray:
    """Timer log records that take these back."""
    records = np.zeros(len(targets.act_ms), TIMER_LOG_RECORD)
    records["size"] = RECORD_BYTES
    records["magic"] = MAGIC_DELETE
    records["curr_write_time"] = targets.act_ms
    records["offset_py"] = targets.payload_pos
    records["size_py"] = targets.payload_size
    records["topic_hash"] = targets.topic_hash
    records["reserved"] = targets.id_hash
    return records


def quota_bytes_min(slots_total: int) -> int:
    """The least quota: segments are deleted whole, so that with less what has been sent could stop intake for ever."""
    return 2 * (slots_total * SLOT_BYTES + TIMER_LOG_SEGMENT_BYTES + PAYLOAD_LOG_SEGMENT_BYTES)


def quota_of(asked_bytes: int | None, slots_total: int) -> int | None:
    """The quota that holds where this one was asked for: none, or no less than the least."""
    return None if asked_bytes is None else max(asked_bytes, quota_bytes_min(slots_total))


def boot_id() -> str:
    """Tells one run of the operating system from the next; pages that were not flushed are lost between them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
