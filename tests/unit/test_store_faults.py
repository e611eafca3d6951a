"""A disk that fills up, writes short, or fails: the store says so, keeps its end, and goes on when there is room."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sidecar.store import checkpoint as checkpoints
from sidecar.store.errors import SlotConflict, StoreError
from sidecar.store.files import File, MappedFile, ReadOnlyFileSystem, RealFileSystem, read_full, write_all
from sidecar.store.layout import EMPTY_SLOT, RecordArray
from sidecar.store.opening import Opened, check_store, open_store
from sidecar.store.payload_log import PayloadLog
from sidecar.store.recovery import Case, Owner
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_store import TimerStore
from sidecar.store.timer_wheel import TimerWheel
from tests.support.bad_sector import BadSectors
from tests.support.checkpoints import a_checkpoint
from tests.support.slots import new_records
from tests.support.steps import result_of


class FaultyFile:
    """A file on a disk with `FaultyFileSystem.room` bytes of room and a longest write and read."""

    def __init__(self, file: File, disk: "FaultyFileSystem") -> None:
        self._file = file
        self._disk = disk

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(min(length, self._disk.read_bytes_max), position)

    def will_need(self, length: int, position: int) -> None:
        self._file.will_need(length, position)

    def pwrite(self, data: bytes | memoryview, position: int) -> int:
        self._disk.writes += 1
        length = min(len(data), self._disk.write_bytes_max)
        if length > self._disk.room:
            torn, self._disk.room = self._disk.room, 0
            self._file.pwrite(data[:torn], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        self._disk.room -= length
        return self._file.pwrite(data[:length], position)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        if self._disk.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class FaultyFileSystem(RealFileSystem):
    def __init__(self) -> None:
        self.room = 1 << 60
        self.write_bytes_max = 1 << 60
        self.read_bytes_max = 1 << 60
        self.sync_fails = False
        self.open_fails = False
        self.rename_fails = False
        self.writes = 0

    def open(self, path: Path, *, create: bool = False) -> File:
        if create and self.open_fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        return FaultyFile(super().open(path, create=create), self)

    def rename(self, source: Path, target: Path) -> None:
        if self.rename_fails:
            raise OSError(errno.EIO, "Input/output error")
        super().rename(source, target)


def numbered(first: int, count: int) -> RecordArray:
    records = new_records(count)
    records["offset_py"] = np.arange(first, first + count)
    return records


def tree(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("room", [0, 1, 51, 52, 53, 300, 468, 500, 503, 504, 505, 1000, 1527, 1528, 1529, 1580])
def test_a_timer_log_append_that_meets_a_full_disk_leaves_no_trace(tmp_path: Path, room: int) -> None:
    disk = FaultyFileSystem()
    log = TimerLog(tmp_path / "faulty", 1024, disk)
    log.append(numbered(0, 10))
    before = log.end_position
    disk.room = room
    with pytest.raises(OSError, match="No space left") as caught:
        log.append(numbered(1000, 40))
    assert caught.value.errno == errno.ENOSPC
    assert log.end_position == before
    assert sum(len(records) for _, records in log.scan()) == 10
    with pytest.raises(OSError, match="No space left"):
        log.append(numbered(2000, 40))
    disk.room = 1 << 60
    assert log.append(numbered(10, 12))[0] == before
    assert log.check(1000) == []
    plain = TimerLog(tmp_path / "plain", 1024, RealFileSystem())
    plain.append(numbered(0, 22))
    assert tree(tmp_path / "faulty") == tree(tmp_path / "plain")


@pytest.mark.parametrize("room", [0, 1, 7, 8, 9, 17, 18, 19, 36, 37, 53, 54, 55, 100])
def test_a_payload_append_that_meets_a_full_disk_leaves_no_trace(tmp_path: Path, room: int) -> None:
    disk = FaultyFileSystem()
    log = PayloadLog(tmp_path / "faulty", 60, disk)
    log.append_batch([b"a" * 10])
    disk.room = room
    with pytest.raises(OSError, match="No space left"):
        log.append_batch([b"b" * 10] * 10)
    assert log.end_position == 18
    disk.room = 1 << 60
    # These payloads divide into segments otherwise than those that failed.
    assert log.append_batch([b"c" * 50, b"d"])[0].tolist() == [18, 76]
    assert log.read(18, 50) == b"c" * 50
    assert log.check() == []
    plain = PayloadLog(tmp_path / "plain", 60, RealFileSystem())
    plain.append_batch([b"a" * 10, b"c" * 50, b"d"])
    assert tree(tmp_path / "faulty") == tree(tmp_path / "plain")


def test_a_new_segment_that_cannot_be_made_leaves_no_trace(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    log, payloads = TimerLog(tmp_path / "log", 1024, disk), PayloadLog(tmp_path / "payload", 40, disk)
    log.append(numbered(0, 10))
    payloads.append_batch([b"a" * 10])
    disk.open_fails = True
    with pytest.raises(OSError, match="No space left"):
        log.append(numbered(10, 40))
    with pytest.raises(OSError, match="No space left"):
        payloads.append_batch([b"b" * 10, b"c" * 10])
    disk.open_fails = False
    assert (log.end_position, payloads.end_position) == (520, 18)
    log.append(numbered(10, 40))
    payloads.append_batch([b"b" * 10, b"c" * 10])
    assert log.check(1000) == []
    assert payloads.check() == []


def test_torn_bytes_that_a_checkpoint_does_not_know_are_cut_off_at_the_next_opening(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    log, payloads = TimerLog(tmp_path / "log", 1024, disk), PayloadLog(tmp_path / "payload", 40, disk)
    log.append(numbered(0, 10))
    payloads.append_batch([b"a" * 10])
    disk.room = 530
    with pytest.raises(OSError, match="No space left"):
        log.append(numbered(10, 40))
    disk.room = 50
    with pytest.raises(OSError, match="No space left"):
        payloads.append_batch([b"b" * 10] * 5)
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) == 520 + 530
    assert sum(path.stat().st_size for path in (tmp_path / "payload").iterdir()) == 18 + 50
    mark, payload_end = log.mark(), payloads.end_position
    log.close()
    payloads.close()
    log = TimerLog(tmp_path / "log", 1024, RealFileSystem(), end_position=mark.position, crcs=log.crcs(0, mark))
    payloads = PayloadLog(tmp_path / "payload", 40, RealFileSystem(), end_position=payload_end)
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) == 520
    assert sum(path.stat().st_size for path in (tmp_path / "payload").iterdir()) == 18
    assert log.check(1000) == []
    assert payloads.check() == []


@pytest.mark.parametrize("longest", [1, 7, 52, 100])
def test_short_writes_and_reads_are_gone_on_with(tmp_path: Path, longest: int) -> None:
    disk = FaultyFileSystem()
    disk.write_bytes_max = disk.read_bytes_max = longest
    log, payloads = TimerLog(tmp_path / "log", 1024, disk), PayloadLog(tmp_path / "payload", 100, disk)
    positions = log.append(numbered(0, 40))
    assert log.gather(positions)["offset_py"].tolist() == list(range(40))
    assert log.check(1000) == []
    some = [bytes([n + 1]) * (n + 1) for n in range(50)]
    assert payloads.read_many(*payloads.append_batch(some)) == some


def test_a_write_that_makes_no_progress_is_an_error(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    disk.write_bytes_max = 0
    file = disk.open(tmp_path / "file", create=True)
    with pytest.raises(OSError, match="made no progress"):
        write_all(file, b"abc", 0)
    assert read_full(file, 3, 0) == b""
    file.close()


def test_one_write_per_touched_segment_and_batch(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    log, payloads = TimerLog(tmp_path / "log", 1024, disk), PayloadLog(tmp_path / "payload", 1024, disk)
    log.append(numbered(0, 40))
    assert disk.writes == 3
    disk.writes = 0
    payloads.append_batch([b"a" * 248] * 9)
    assert disk.writes == 3


def test_a_failed_sync_is_raised_and_tried_again(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    log = TimerLog(tmp_path, 1024, disk)
    log.append(numbered(0, 40))
    disk.sync_fails = True
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            log.flush()
    disk.sync_fails = False
    log.flush()
    disk.sync_fails = True
    log.flush()


def test_a_wheel_is_not_changed_by_a_batch_whose_append_failed(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    log = TimerLog(tmp_path / "log", 1024, disk)
    wheel = TimerWheel(tmp_path / "timerwheel", 30, 500, disk)
    records = new_records(5)
    records["delayed_time"] = 5_000
    batch = wheel.prepare_batch(records["delayed_time"].astype(np.int64), log.positions_for(5), np.ones(5, np.int32))
    records["prev_pos"] = batch.prev_positions
    disk.room = 100
    with pytest.raises(OSError, match="No space left"):
        log.append(records)
    assert wheel.slot(5_000) == EMPTY_SLOT
    wheel.close()


def test_a_wheel_for_which_there_is_no_room_is_not_made(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    disk.room = 10
    with pytest.raises(OSError, match="No space left"):
        TimerWheel(tmp_path / "timerwheel", 30, 500, disk)
    assert not (tmp_path / "timerwheel").exists()
    disk.room = 1 << 60
    TimerWheel(tmp_path / "timerwheel", 30, 500, disk).close()
    assert [path.name for path in tmp_path.iterdir()] == ["timerwheel"]


def full(disk: FaultyFileSystem) -> None:
    disk.room = 100


def unsynced(disk: FaultyFileSystem) -> None:
    disk.sync_fails = True


def unnamed(disk: FaultyFileSystem) -> None:
    disk.rename_fails = True


@pytest.mark.parametrize("break_disk", [full, unsynced, unnamed])
def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, break_disk: Callable[[FaultyFileSystem], None]
) -> None:
    disk = FaultyFileSystem()
    path = tmp_path / "checkpoint"
    checkpoints.save(path, a_checkpoint(1), disk)
    break_disk(disk)
    with pytest.raises(OSError, match=r"error|space"):
        checkpoints.save(path, a_checkpoint(2), disk)
    assert checkpoints.load(path, disk) == a_checkpoint(1)
    mended = FaultyFileSystem()
    checkpoints.save(path, a_checkpoint(3), mended)
    assert checkpoints.load(path, mended) == a_checkpoint(3)


@pytest.mark.parametrize("durable", [False, True])
def test_wherever_a_checkpoint_breaks_off_one_is_there_and_the_next_is_the_only_one(
    tmp_path: Path, *, durable: bool
) -> None:
    rehearsal = FailingFileSystem(None)
    (tmp_path / "rehearsal").mkdir()
    checkpoints.save(tmp_path / "rehearsal" / "checkpoint", a_checkpoint(1), RealFileSystem())
    checkpoints.save(tmp_path / "rehearsal" / "checkpoint", a_checkpoint(2), rehearsal, durable=durable)
    assert rehearsal.calls > 5
    for fails_at in range(rehearsal.calls):
        path = tmp_path / str(fails_at) / "checkpoint"
        path.parent.mkdir()
        checkpoints.save(path, a_checkpoint(1), RealFileSystem())
        with pytest.raises(OSError, match="it failed"):  # as if killed: nothing is done after it
            checkpoints.save(path, a_checkpoint(2), FailingFileSystem(fails_at), durable=durable)
        assert checkpoints.load(path, RealFileSystem()) in (a_checkpoint(1), a_checkpoint(2))
        checkpoints.save(path, a_checkpoint(3), RealFileSystem(), durable=durable)
        assert checkpoints.load(path, RealFileSystem()) == a_checkpoint(3)
        assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


def test_a_checkpoint_that_is_removed_does_not_come_back(tmp_path: Path) -> None:
    """Of one that stands aside, the logs may have deleted what it needs."""
    path = tmp_path / "checkpoint"
    for name in ("checkpoint", "checkpoint.old"):
        (tmp_path / name).write_bytes(checkpoints.encode(a_checkpoint(1)))
    for fails_at in (0, 1):
        with pytest.raises(OSError, match="it failed"):
            checkpoints.remove(path, FailingFileSystem(fails_at))
        assert path.exists()
    checkpoints.remove(path, RealFileSystem())
    assert checkpoints.load(path, RealFileSystem()) is None


def test_while_running_no_checkpoint_waits_for_the_disk(tmp_path: Path) -> None:
    """A rename over another file does, on ext4, and so does a sync."""

    class Waits(RealFileSystem):
        def rename(self, source: Path, target: Path) -> None:
            assert not target.exists()
            super().rename(source, target)

        def sync_directory(self, path: Path) -> None:
            raise AssertionError(path)

    for offset in (1, 2, 3):
        checkpoints.save(tmp_path / "checkpoint", a_checkpoint(offset), Waits(), durable=False)
        assert checkpoints.load(tmp_path / "checkpoint", RealFileSystem()) == a_checkpoint(offset)
        assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_a_store_error_without_a_message_says_what_its_docstring_says() -> None:
    assert str(StoreError()) == "The timer store failed."
    assert str(StoreError("so it is")) == "so it is"


# --- the store as a whole ---------------------------------------------------------------------------------------------


class FailingFileSystem(RealFileSystem):
    """Every call counts, those of files too, and one of them fails: the one with the number `fails_at`, if any."""

    def __init__(self, fails_at: int | None, number: int = errno.EIO) -> None:
        self.calls = 0
        self._fails_at = fails_at
        self._errno = number

    def call(self) -> None:
        self.calls += 1
        if self.calls - 1 == self._fails_at:
            raise OSError(self._errno, "it failed")

    def open(self, path: Path, *, create: bool = False) -> File:
        self.call()
        return FailingFile(super().open(path, create=create), self)

    def map(self, path: Path) -> MappedFile:
        self.call()
        return super().map(path)

    def allocate(self, path: Path, size: int) -> None:
        self.call()
        super().allocate(path, size)

    def rename(self, source: Path, target: Path) -> None:
        self.call()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.call()
        super().unlink(path)

    def listdir(self, path: Path) -> list[str]:
        self.call()
        return super().listdir(path)

    def makedirs(self, path: Path) -> None:
        self.call()
        super().makedirs(path)

    def sync_directory(self, path: Path) -> None:
        self.call()
        super().sync_directory(path)


class FailingFile:
    def __init__(self, file: File, disk: FailingFileSystem) -> None:
        self._file = file
        self._disk = disk

    def pread(self, length: int, position: int) -> bytes:
        self._disk.call()
        return self._file.pread(length, position)

    def will_need(self, length: int, position: int) -> None:
        self._file.will_need(length, position)

    def pwrite(self, data: bytes | memoryview, position: int) -> int:
        self._disk.call()
        return self._file.pwrite(data, position)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._disk.call()
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.call()
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def open_it(directory: Path, fs: RealFileSystem) -> Opened:
    return open_store(
        directory,
        fs,
        Owner("cluster", "topic", "group", 3, "layout"),
        slots_total=8,
        precision_ms=1_000,
        committed_offset=100,
        lowest_needed_offset=10,
        live_from_ms=0,
    )


def put_some(store: TimerStore, count: int, at_ms: int = 5_000) -> None:
    numbers = np.arange(count, dtype=np.int64)
    payloads = [b"payload %d" % number for number in range(count)]
    store.put(payloads, numbers + at_ms, numbers, numbers, numbers.astype(np.int32), numbers < 0)


def make(directory: Path, found: str) -> None:
    """A directory that is found so, with three messages in it if it is of use."""
    if found == "nothing":
        return
    store = open_it(directory, RealFileSystem()).store
    put_some(store, 3)
    store.checkpoint(50, store.marks(), {})
    if found == "unclean":
        put_some(store, 2)
    store.close(50 if found != "unclean" else None, {})
    if found == "damaged wheel":
        (directory / "timerwheel").write_bytes(bytes(512))
    elif found == "damaged log":
        (directory / "timerlog" / f"{0:020d}").write_bytes(bytes(156))


def open_files(directory: Path) -> list[str]:
    """This process's descriptors of files in there."""
    inside = f"{directory.resolve()}{os.sep}"
    return [name for link in Path("/proc/self/fd").iterdir() if (name := _target(link)).startswith(inside)]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # the descriptor with which these are listed
        return ""


EXPECTED = {
    "nothing": (Case.EMPTY, 0),
    "unclean": (Case.UNCLEAN, 3),
    "clean": (Case.CLEAN, 3),
    "damaged wheel": (Case.UNCLEAN, 3),
    "damaged log": (Case.CORRUPT, 0),
}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("found", EXPECTED)
def test_wherever_an_opening_fails_it_is_an_os_error_and_the_next_one_succeeds(
    tmp_path: Path, found: str, number: int
) -> None:
    make(tmp_path / "rehearsal", found)
    rehearsal = FailingFileSystem(None)
    opened = open_it(tmp_path / "rehearsal", rehearsal)
    assert (opened.case, opened.store.pending_count) == EXPECTED[found]
    opened.store.close(None, {})
    calls = rehearsal.calls
    assert calls > 5
    for fails_at in range(calls):
        directory = tmp_path / str(fails_at)
        make(directory, found)
        try:
            open_it(directory, FailingFileSystem(fails_at, number)).store.close(None, {})
        except OSError as error:
            failed = error.errno == number
        else:
            # Only that the directory is in use now could not be written down: the wheel's CRC will tell. Or the wheel
            # could not be read, and was made anew.
            failed = False
        assert failed or found in ("clean", "damaged wheel") or (found, number) == ("damaged log", errno.EIO)
        assert open_files(directory) == []
        again = open_it(directory, RealFileSystem())
        count = EXPECTED[found][1]
        assert again.store.pending_count == count
        # The failed attempt may have begun to remove what is of no use, or have made a damaged wheel anew.
        assert again.case in ((Case.CLEAN, Case.UNCLEAN) if count else (Case.EMPTY, Case.CORRUPT))
        again.store.close(None, {})


def test_a_wheel_that_cannot_be_read_is_made_anew_of_the_timer_log(tmp_path: Path) -> None:
    """At once, and before it is mapped: a mapping of it would end the process."""
    make(tmp_path, "clean")
    opened = open_it(tmp_path, BadSectors([tmp_path / "timerwheel"]))
    assert (opened.case, opened.store.pending_count) == (Case.UNCLEAN, 3)
    opened.store.close(50, {})
    assert open_it(tmp_path, RealFileSystem()).case is Case.CLEAN


def test_a_put_for_which_there_is_no_room_leaves_no_trace(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    store = open_it(tmp_path, disk).store
    put_some(store, 3)
    before = store.marks(), store.disk_bytes
    for room in range(0, 3 * (9 + 8 + 52), 7):
        disk.room = room
        with pytest.raises(OSError, match="No space left"):
            put_some(store, 3)
        assert (store.marks(), store.disk_bytes, store.pending_count) == (*before, 3)
    disk.room = 1 << 60
    put_some(store, 3)
    loaded = result_of(store.load(5_000))
    assert store.read(loaded.payload_pos, loaded.payload_size) == [b"payload %d" % (n // 2) for n in range(6)]
    store.close(50, {})
    assert check_store(tmp_path, ReadOnlyFileSystem()) == []


def test_cancels_and_deliveries_go_on_where_a_message_spans_too_much_time(tmp_path: Path) -> None:
    store = open_it(tmp_path, RealFileSystem()).store
    put_some(store, 3)
    before = store.marks(), store.disk_bytes
    with pytest.raises(SlotConflict):
        put_some(store, 3, at_ms=5_000 + store.lap_ms)
    assert (store.marks(), store.disk_bytes) == before
    store.delete(store.find(np.arange(3), 0))
    put_some(store, 3, at_ms=5_000 + store.lap_ms)
    assert store.pending_count == 3
    store.close(None, {})
