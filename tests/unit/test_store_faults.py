"""A disk that fills up, writes short, or fails: the store says so, keeps its end, and goes on when there is room."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.errors import StoreError
from sidecar.store.files import File, RealFileSystem, read_full, write_all
from sidecar.store.layout import EMPTY_SLOT, RecordArray, new_records
from sidecar.store.payload_log import PayloadLog
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_wheel import TimerWheel


class FaultyFile:
    """A file on a disk with `FaultyFileSystem.room` bytes of room and a longest write and read."""

    def __init__(self, file: File, disk: "FaultyFileSystem") -> None:
        self._file = file
        self._disk = disk

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(min(length, self._disk.read_bytes_max), position)

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
    log_end, payload_end = log.end_position, payloads.end_position
    log.close()
    payloads.close()
    log = TimerLog(tmp_path / "log", 1024, RealFileSystem(), end_position=log_end)
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
    batch = wheel.prepare_batch(records["delayed_time"].astype(np.int64), log.positions_for(5))
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

    def a_checkpoint(offset: int) -> Checkpoint:
        return Checkpoint(
            complete_to_offset=offset,
            timer_log_end=0,
            timer_log_start=0,
            payload_log_end=0,
            payload_log_start=0,
            cluster_id="c",
            topic_id="t",
            group_id="g",
            partition=0,
            plan="p",
            slots_total=30,
            precision_ms=500,
            wheel_clean=False,
        )

    checkpoints.save(path, a_checkpoint(1), disk)
    break_disk(disk)
    with pytest.raises(OSError, match=r"error|space"):
        checkpoints.save(path, a_checkpoint(2), disk)
    assert checkpoints.load(path, disk) == a_checkpoint(1)
    mended = FaultyFileSystem()
    checkpoints.save(path, a_checkpoint(3), mended)
    assert checkpoints.load(path, mended) == a_checkpoint(3)


def test_a_store_error_without_a_message_says_what_its_docstring_says() -> None:
    assert str(StoreError()) == "The timer store failed."
    assert str(StoreError("so it is")) == "so it is"
