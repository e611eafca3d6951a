"""The pending messages of one wheel partition on local disk: TimerLog, TimerWheel and payload log behind one door.

    put      payloads ──► payload log ──► timer log (prev_pos) ──► wheel          a batch at a time
    load     wheel slot ──► timer log records ──► arrays sorted by time           a slot at a time
    read     payload log                                                          what goes out next
    delete   a MAGIC_DELETE record that names its target's payload, in the target's slot

Nothing is indexed in memory; what is pending beyond the loaded slots costs disk only. A message that is cancelled or
sent stays in the logs until all in its segment is behind the watermark.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.errors import CorruptFile, StoreError, UnknownFormatVersion
from sidecar.store.files import FileSystem
from sidecar.store.layout import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    RECORD_BYTES,
    TIMER_LOG_RECORD,
    Int64Array,
    RecordArray,
    due_ms,
)
from sidecar.store.payload_log import PayloadLog
from sidecar.store.recovery import Case, Owner, judge
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_wheel import TimerWheel

TIMER_LOG_SEGMENT_BYTES = 16 * 2**20
PAYLOAD_LOG_SEGMENT_BYTES = 64 * 2**20

CHECKPOINT = "checkpoint"

_INT32 = np.iinfo(np.int32)


class Marks(NamedTuple):
    """A position in either log, such as their ends at some moment."""

    timer_log: int
    payload_log: int


class Loaded(NamedTuple):
    """Pending records of one slot, sorted by time and, within a millisecond, by arrival; arrays of shape (n,)."""

    act_ms: Int64Array
    payload_pos: Int64Array
    payload_size: np.ndarray[tuple[int], np.dtype[np.int32]]
    id_hash: Int64Array
    topic_hash: np.ndarray[tuple[int], np.dtype[np.int32]]

    def where(self, kept: np.ndarray[tuple[int], np.dtype[Any]]) -> "Loaded":
        """Those that a boolean or an index array picks."""
        return Loaded(*(column[kept] for column in self))

    @classmethod
    def joined(cls, parts: "Sequence[Loaded]") -> "Loaded":
        """All of these, one after the other; at least one."""
        return cls(*(np.concatenate([part[column] for part in parts]) for column in range(len(cls._fields))))

    @classmethod
    def of(cls, records: RecordArray) -> "Loaded":
        """In the order of the records."""
        columns = (records["offset_py"], records["size_py"], records["reserved"], records["topic_hash"])
        return cls(due_ms(records), *(np.ascontiguousarray(column) for column in columns))


class TimerStore:
    """See `open_store`."""

    def __init__(
        self,
        directory: Path,
        fs: FileSystem,
        timer_log: TimerLog,
        wheel: TimerWheel,
        payload_log: PayloadLog,
        owner: Owner,
    ) -> None:
        self._directory = directory
        self._fs = fs
        self._timer_log = timer_log
        self._wheel = wheel
        self._payload_log = payload_log
        self._owner = owner
        self._is_broken = False
        self._needed = Marks(timer_log.start_position, payload_log.start_position)
        """What lies before is behind the watermark, as far as `oldest` has found."""

    # --- intake -------------------------------------------------------------------------------------------------------

    def put(
        self,
        payloads: Sequence[bytes],
        act_ms: Int64Array,
        timestamp_ms: Int64Array,
        id_hash: Int64Array,
        topic_hash: np.ndarray[tuple[int], np.dtype[np.int32]],
        rolls: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> Loaded:
        """Store a batch, in arrival order; what was stored, as `load` would give it but in arrival order.

        Raises:
            SlotConflict: the batch spans more time than the wheel; nothing is stored.
            OSError: the disk is full, or worse; nothing is stored.
        """
        payload_pos, payload_size = self._payload_log.append_batch(payloads)
        records = np.zeros(len(payloads), TIMER_LOG_RECORD)
        delayed_ms = np.clip(act_ms - timestamp_ms, _INT32.min, _INT32.max)
        records["size"] = RECORD_BYTES
        records["magic"] = np.where(rolls, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT)
        records["curr_write_time"] = act_ms - delayed_ms
        records["delayed_time"] = delayed_ms
        records["offset_py"] = payload_pos
        records["size_py"] = payload_size
        records["topic_hash"] = topic_hash
        records["reserved"] = id_hash
        self._append(records, act_ms, None)
        return Loaded(act_ms, payload_pos, payload_size, id_hash, topic_hash)

    def delete(self, targets: Loaded) -> None:
        """Take records back. Raises OSError: none is taken back then."""
        count = len(targets.act_ms)
        if count == 0:
            return
        records = np.zeros(count, TIMER_LOG_RECORD)
        records["size"] = RECORD_BYTES
        records["magic"] = MAGIC_DELETE
        records["curr_write_time"] = targets.act_ms
        records["offset_py"] = targets.payload_pos
        records["size_py"] = targets.payload_size
        records["topic_hash"] = targets.topic_hash
        records["reserved"] = targets.id_hash
        self._append(records, targets.act_ms, np.full(count, -1, np.int32))

    def _append(
        self, records: RecordArray, act_ms: Int64Array, deltas: np.ndarray[tuple[int], np.dtype[np.int32]] | None
    ) -> None:
        # The wheel is changed last, so that a failed append leaves no trace on it.
        batch = self._wheel.prepare_batch(act_ms, self._timer_log.positions_for(len(records)), deltas)
        records["prev_pos"] = batch.prev_positions
        self._timer_log.append(records)
        self._wheel.apply(batch)

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

    def next_slot_ms(self, from_ms: int) -> int | None:
        """When the first occupied slot from that of ``from_ms`` on begins."""
        return self._wheel.next_occupied(max(0, from_ms))

    def first_slot_ms(self, from_ms: int) -> int | None:
        """When the first occupied slot of all from that of ``from_ms`` on begins, however far ahead."""
        return self._wheel.first_occupied(max(0, from_ms))

    def load(self, slot_ms: int) -> Loaded:
        """What is pending in a slot, sorted. Raises CorruptFile, OSError."""
        try:
            _, records = self._timer_log.slot_records(self._wheel.slot(slot_ms), self._wheel.precision_ms)
        except StoreError:
            self._distrust()
            raise
        loaded = Loaded.of(_pending(records))
        return loaded.where(np.argsort(loaded.act_ms, kind="stable"))

    def read(self, payload_pos: Int64Array, payload_size: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[bytes]:
        """Payloads. Raises CorruptFile, OSError."""
        try:
            return self._payload_log.read_many(payload_pos, payload_size)
        except StoreError:
            self._distrust()
            raise

    def advance(self, live_from_ms: int) -> None:
        """Slots before this time are empty or sent; their places may be used again."""
        self._wheel.advance(max(0, live_from_ms))

    def find(self, id_hashes: Int64Array, from_ms: int) -> Loaded:
        """What is pending from the slot of ``from_ms`` on with one of these hashes; the payload confirms a match.

        One pass over the live part of the timer log.
        """
        candidates: list[RecordArray] = [np.empty(0, TIMER_LOG_RECORD)]
        lowest = self._wheel.lowest_position(max(0, from_ms))
        if lowest is not None:
            wanted = np.unique(id_hashes)
            first_ms = self.slot_time_ms(max(0, from_ms))
            for _, records in self._timer_log.scan(max(lowest, self._timer_log.start_position)):
                mine = np.isin(records["reserved"], wanted)
                mine &= due_ms(records) >= first_ms
                if mine.any():
                    candidates.append(records[mine])
        return Loaded.of(_pending(np.concatenate(candidates)))

    def find_in_slot(self, id_hashes: Int64Array, time_ms: int) -> Loaded:
        """The same in one slot only."""
        loaded = self.load(self.slot_time_ms(max(0, time_ms)))
        return loaded.where(np.isin(loaded.id_hash, id_hashes))

    def query(
        self, from_ms: int, until_ms: int, limit: int, *, id_hash: int | None = None, topic_hash: int | None = None
    ) -> tuple[int, Loaded]:
        """How many are pending from the slot of ``from_ms`` on and before ``until_ms``, and the first ``limit``.

        Two passes over the live part of the timer log in bounded chunks: the deletes, then what is left. Rolled
        messages count at the time of their roll.
        """
        lowest = self._wheel.lowest_position(max(0, from_ms))
        if lowest is None:
            return 0, Loaded.of(np.empty(0, TIMER_LOG_RECORD))
        begin, first_ms = max(lowest, self._timer_log.start_position), self.slot_time_ms(max(0, from_ms))
        deleted = [np.empty(0, np.int64)]
        for _, records in self._timer_log.scan(begin):
            deleted.append(records["offset_py"][(records["magic"] & MAGIC_DELETE) != 0])
        gone = np.concatenate(deleted)
        total = 0
        first = Loaded.of(np.empty(0, TIMER_LOG_RECORD))
        for _, records in self._timer_log.scan(begin):
            due = due_ms(records)
            mine = (due >= first_ms) & (due < until_ms) & ((records["magic"] & MAGIC_DELETE) == 0)
            if id_hash is not None:
                mine &= records["reserved"] == id_hash
            if topic_hash is not None:
                mine &= records["topic_hash"] == topic_hash
            if len(gone):
                mine &= ~np.isin(records["offset_py"], gone)
            total += int(mine.sum())
            found = Loaded.of(records[mine])
            merged = Loaded.joined([first, found])
            first = merged.where(np.argsort(merged.act_ms, kind="stable")[:limit])
        return total, first

    def counts(self, from_ms: int, to_ms: int, bucket_ms: int) -> Int64Array:
        """Pending records per stretch of time, by slots; shape (buckets,)."""
        return self._wheel.counts(from_ms, to_ms, bucket_ms)

    def oldest(self, from_ms: int) -> tuple[int, int] | None:
        """Payload position and size of the first record that the slots from ``from_ms`` on need; None: none.

        Looks at the whole wheel, some 10 ms; from then on checkpoints count what lies before as not needed.
        """
        lowest = self._wheel.lowest_position(max(0, from_ms))
        if lowest is None:
            self._needed = self.marks()
            return None
        record = self._timer_log.read(max(lowest, self._timer_log.start_position))
        self._needed = Marks(max(lowest, self._timer_log.start_position), int(record["offset_py"][0]))
        return int(record["offset_py"][0]), int(record["size_py"][0])

    @property
    def disk_bytes(self) -> int:
        """What the logs and the wheel take."""
        timer_log = self._timer_log.end_position - self._timer_log.start_position
        payload_log = self._payload_log.end_position - self._payload_log.start_position
        return timer_log + payload_log + self._wheel.file_bytes

    def rebuild_wheel(self) -> None:
        """Make the wheel anew from the timer log. Raises CorruptFile, OSError."""
        self._wheel.rebuild(self._timer_log.scan())

    def check(self, is_wheel_clean: bool) -> list[str]:
        """Problems of the logs, and of the wheel where it should be right; closes the files."""
        try:
            problems = self._timer_log.check(self._wheel.precision_ms) + self._payload_log.check()
            if is_wheel_clean:
                problems += self._wheel.check(self._timer_log.end_position)
            return problems
        finally:
            self._wheel.close()
            self._timer_log.close()
            self._payload_log.close()

    # --- checkpoint ---------------------------------------------------------------------------------------------------

    def marks(self) -> Marks:
        """Where the logs end now."""
        return Marks(self._timer_log.end_position, self._payload_log.end_position)

    def checkpoint(self, complete_to_offset: int, marks: Marks, extra: dict[str, Any]) -> None:
        """Say that the logs up to ``marks`` hold all below an offset that Kafka has committed. Raises OSError.

        What is no longer needed is deleted afterwards: the other order would leave a checkpoint that names bytes that
        are gone.
        """
        needed = Marks(*map(min, self._needed, marks))
        self._save(complete_to_offset, marks, needed, extra, clean=False)
        self._timer_log.delete_before(needed.timer_log)
        self._payload_log.delete_before(needed.payload_log)

    def mark_dirty(self, checkpoint: Checkpoint) -> None:
        """Say that the wheel changes in place from now on: until a clean stop it is rebuilt from the timer log."""
        dirty = msgspec.structs.replace(checkpoint, wheel_clean=False, extra={**checkpoint.extra, "boot_id": boot_id()})
        checkpoints.save(self._directory / CHECKPOINT, dirty, self._fs, durable=True)

    def close(self, complete_to_offset: int | None, extra: dict[str, Any]) -> None:
        """Flush, and mark the directory clean where ``complete_to_offset`` (all of it is stored) is known."""
        try:
            if complete_to_offset is not None:
                self._payload_log.flush()
                self._timer_log.flush()
                self._wheel.flush()
                marks = self.marks()
                needed = Marks(*map(min, self._needed, marks))
                self._save(complete_to_offset, marks, needed, extra, clean=True)
        finally:
            self._wheel.close()
            self._timer_log.close()
            self._payload_log.close()

    def _distrust(self) -> None:
        """A file does not hold what was written to it: without a checkpoint, the next start rebuilds from Kafka."""
        self._is_broken = True
        self._fs.unlink(self._directory / CHECKPOINT)

    def _save(
        self,
        complete_to_offset: int,
        marks: Marks,
        needed: Marks,
        extra: dict[str, Any],
        *,
        clean: bool,
    ) -> None:
        if self._is_broken:
            return
        owner = self._owner
        checkpoints.save(
            self._directory / CHECKPOINT,
            Checkpoint(
                complete_to_offset=complete_to_offset,
                timer_log_end=marks.timer_log,
                timer_log_start=needed.timer_log,
                payload_log_end=marks.payload_log,
                payload_log_start=needed.payload_log,
                cluster_id=owner.cluster_id,
                topic_id=owner.topic_id,
                group_id=owner.group_id,
                partition=owner.partition,
                plan=owner.layout,
                slots_total=self._wheel.slots_total,
                precision_ms=self._wheel.precision_ms,
                wheel_clean=clean,
                extra={**extra, "boot_id": boot_id()},
            ),
            self._fs,
            durable=clean,
        )


class Opened(NamedTuple):
    """A store, how its directory was found, and from where Kafka has to be read."""

    store: TimerStore
    case: Case
    complete_to_offset: int
    extra: dict[str, Any]


def open_store(
    directory: Path,
    fs: FileSystem,
    owner: Owner,
    *,
    slots_total: int,
    precision_ms: int,
    committed_offset: int,
    lowest_needed_offset: int,
    live_from_ms: int,
) -> Opened:
    """Open a directory as `recovery` says; what is of no use is removed.

    Args:
        committed_offset, lowest_needed_offset: I and L.
        live_from_ms: the watermark's time; slots before it are done.
    """
    fs.makedirs(directory)
    case, checkpoint = _examine(directory, fs, owner, committed_offset, lowest_needed_offset)
    if checkpoint is not None and case.is_usable:
        try:
            store = _open(directory, fs, owner, slots_total, precision_ms, checkpoint)
            store.advance(live_from_ms)
            if case is Case.UNCLEAN:
                store.rebuild_wheel()
            store.mark_dirty(checkpoint)
        except StoreError:
            case = Case.CORRUPT
        else:
            return Opened(store, case, checkpoint.complete_to_offset, checkpoint.extra)
    _remove(directory, fs)
    store = _open(directory, fs, owner, slots_total, precision_ms, None)
    store.advance(live_from_ms)
    return Opened(store, case, lowest_needed_offset, {})


def check_store(directory: Path, fs: FileSystem) -> list[str]:
    """What is wrong with a directory at rest; nothing is changed in it."""
    try:
        checkpoint = checkpoints.load(directory / CHECKPOINT, fs)
        if checkpoint is None:
            return ["there is no checkpoint: the sidecar would rebuild from Kafka"]
        owner = Owner("", "", "", checkpoint.partition, "")
        store = _open(directory, fs, owner, checkpoint.slots_total, checkpoint.precision_ms, checkpoint)
    except StoreError as error:
        return [str(error)]
    return store.check(checkpoint.wheel_clean)


def _examine(
    directory: Path, fs: FileSystem, owner: Owner, committed_offset: int, lowest_needed_offset: int
) -> tuple[Case, Checkpoint | None]:
    try:
        checkpoint = checkpoints.load(directory / CHECKPOINT, fs)
    except UnknownFormatVersion:
        return Case.UNKNOWN, None
    except CorruptFile:
        return Case.CORRUPT, None
    return judge(checkpoint, owner, boot_id(), committed_offset, lowest_needed_offset), checkpoint


def _open(
    directory: Path, fs: FileSystem, owner: Owner, slots_total: int, precision_ms: int, checkpoint: Checkpoint | None
) -> TimerStore:
    timer_log = TimerLog(
        directory / "timerlog",
        TIMER_LOG_SEGMENT_BYTES,
        fs,
        end_position=checkpoint.timer_log_end if checkpoint else None,
        start_position=checkpoint.timer_log_start if checkpoint else 0,
    )
    payload_log = PayloadLog(
        directory / "payload",
        PAYLOAD_LOG_SEGMENT_BYTES,
        fs,
        end_position=checkpoint.payload_log_end if checkpoint else None,
        start_position=checkpoint.payload_log_start if checkpoint else 0,
    )
    wheel = TimerWheel(directory / "timerwheel", slots_total, precision_ms, fs)
    return TimerStore(directory, fs, timer_log, wheel, payload_log, owner)


def _remove(directory: Path, fs: FileSystem) -> None:
    """The checkpoint first: files without one are never taken for whole."""
    fs.unlink(directory / CHECKPOINT)
    for name in ("timerlog", "payload"):
        fs.makedirs(directory / name)
        for entry in fs.listdir(directory / name):
            fs.unlink(directory / name / entry)
    fs.unlink(directory / "timerwheel")


def _pending(records: RecordArray) -> RecordArray:
    """Records less the deletes among them, and less what those name."""
    deletes = (records["magic"] & MAGIC_DELETE) != 0
    if not deletes.any():
        return records
    kept: RecordArray = records[~deletes & ~np.isin(records["offset_py"], records["offset_py"][deletes])]
    return kept


def boot_id() -> str:
    """Tells one run of the operating system from the next; pages that were not flushed are lost between them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
