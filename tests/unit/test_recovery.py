"""What of a data directory is used at a start: a test per case of the table, one over all combinations."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sidecar.store import checkpoint as checkpoints
from sidecar.store.errors import CorruptFile
from sidecar.store.files import ReadOnlyFileSystem, RealFileSystem
from sidecar.store.opening import Opened, check_store, open_store
from sidecar.store.recovery import Case, judge
from tests.support.checkpoints import OWNER, a_checkpoint
from tests.support.steps import result_of

BOOT = "this boot"
I, L = 100, 40  # noqa: E741 - as in the table
CHECKPOINT = msgspec.structs.replace(a_checkpoint(70), extra={"boot_id": BOOT})


def judged(**changes: object) -> Case:
    return judge(msgspec.structs.replace(CHECKPOINT, **changes), OWNER, BOOT, I, L)


def test_without_a_checkpoint_it_is_empty() -> None:
    assert judge(None, OWNER, BOOT, I, L) is Case.EMPTY


@pytest.mark.parametrize(
    "change",
    [{"cluster_id": "x"}, {"topic_id": "x"}, {"group_id": "x"}, {"partition": 4}, {"plan": "32x1000ms,parser1"}],
    ids=lambda change: next(iter(change)),
)
def test_of_another_owner_it_is_foreign(change: dict[str, object]) -> None:
    assert judged(**change) is Case.FOREIGN


def test_below_what_a_rebuild_needs_it_is_stale() -> None:
    assert judged(complete_to_offset=L - 1) is Case.STALE
    assert judged(complete_to_offset=L) is Case.UNCLEAN


def test_of_progress_that_began_at_another_time_it_is_of_no_use_however_it_lies() -> None:
    begun_anew = OWNER._replace(begun_ms=1_700_000_000_000)
    for committed, lowest_needed in ((70, 70), (I, I), (I, L)):
        assert judge(CHECKPOINT, begun_anew, BOOT, committed, lowest_needed) is Case.ANEW
    assert judge(None, begun_anew, BOOT, I, I) is Case.EMPTY
    of_that_time = {**CHECKPOINT.extra, "begun_ms": begun_anew.begun_ms}
    assert judge(msgspec.structs.replace(CHECKPOINT, extra=of_that_time), begun_anew, BOOT, I, L) is Case.UNCLEAN
    assert judged(extra=of_that_time) is Case.ANEW
    assert judged(extra=of_that_time, group_id="x") is Case.FOREIGN


def test_beyond_the_committed_offset_it_is_ahead() -> None:
    assert judged(complete_to_offset=I + 1) is Case.AHEAD
    assert judged(complete_to_offset=I) is Case.UNCLEAN


def test_unclean_of_another_boot_it_is_rebooted() -> None:
    assert judged(extra={"boot_id": "another"}) is Case.REBOOTED
    assert judged(extra={}) is Case.REBOOTED


def test_unclean_of_this_boot_it_is_cut_back() -> None:
    assert judged() is Case.UNCLEAN


def test_clean_it_is_used_whatever_the_boot() -> None:
    assert judged(wheel_crc=7) is Case.CLEAN
    assert judged(wheel_crc=0, extra={"boot_id": "another"}) is Case.CLEAN


def test_every_combination_is_the_first_row_that_applies() -> None:
    for owner, complete_to, wheel_crc, boot in itertools.product(
        ("cluster", "another"), (L - 1, L, 70, I, I + 1), (7, 0, None), (BOOT, "another")
    ):
        if owner != "cluster":
            expected = Case.FOREIGN
        elif complete_to < L:
            expected = Case.STALE
        elif complete_to > I:
            expected = Case.AHEAD
        elif wheel_crc is not None:
            expected = Case.CLEAN
        elif boot != BOOT:
            expected = Case.REBOOTED
        else:
            expected = Case.UNCLEAN
        found = judged(cluster_id=owner, complete_to_offset=complete_to, wheel_crc=wheel_crc, extra={"boot_id": boot})
        assert found is expected
        assert found.is_usable == (expected in (Case.CLEAN, Case.UNCLEAN))


# --- the directory ----------------------------------------------------------------------------------------------------


def opened(directory: Path) -> Opened:
    return open_store(
        directory,
        RealFileSystem(),
        OWNER,
        slots_total=64,
        precision_ms=1_000,
        committed_offset=I,
        lowest_needed_offset=L,
        live_from_ms=0,
    )


def fill(directory: Path, *, clean: bool) -> None:
    """A directory with three pending messages, complete up to offset 70; unclean, it has more behind that."""
    store = opened(directory).store
    act_ms = np.array([5_000, 5_001, 9_000], np.int64)
    hashes = np.arange(3, dtype=np.int64)
    store.put([b"one", b"two", b"three"], act_ms, act_ms - 1_000, hashes, hashes.astype(np.int32), hashes < 0)
    store.checkpoint(70, store.marks(), {})
    if not clean:
        store.put([b"four"], act_ms[:1], act_ms[:1], hashes[:1], hashes[:1].astype(np.int32), hashes[:1] < 0)
    store.close(70 if clean else None, {})


def rewrite(directory: Path, **changes: object) -> None:
    path, fs = directory / "checkpoint", RealFileSystem()
    found = checkpoints.load(path, fs)
    assert found is not None
    checkpoints.save(path, msgspec.structs.replace(found, **changes), fs)


def payloads(found: Opened) -> list[bytes]:
    """What is pending, read by slots and by a query."""
    total, first = result_of(found.store.query(0, 2**62, 10))
    by_query = found.store.read(first.payload_pos, first.payload_size)
    by_slots, slot_ms = [], found.store.first_slot_ms(0)
    while slot_ms is not None:
        loaded = result_of(found.store.load(slot_ms))
        by_slots += found.store.read(loaded.payload_pos, loaded.payload_size)
        slot_ms = found.store.first_slot_ms(slot_ms + 1_000)
    assert (total, by_query) == (len(by_slots), by_slots)
    return by_slots


@pytest.mark.parametrize("clean", [True, False])
def test_a_whole_directory_is_used(tmp_path: Path, clean: bool) -> None:
    fill(tmp_path, clean=clean)
    before = files(tmp_path)
    assert check_store(tmp_path, ReadOnlyFileSystem()) == []
    assert files(tmp_path) == before
    found = opened(tmp_path)
    assert (found.case, found.complete_to_offset) == (Case.CLEAN if clean else Case.UNCLEAN, 70)
    assert payloads(found) == [b"one", b"two", b"three"]
    found.store.close(None, {})


def test_opened_and_not_touched_it_is_not_clean_any_more(tmp_path: Path) -> None:
    fill(tmp_path, clean=True)
    opened(tmp_path).store.close(None, {})
    found = opened(tmp_path)
    assert (found.case, payloads(found)) == (Case.UNCLEAN, [b"one", b"two", b"three"])
    found.store.close(None, {})


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def gone(path: str) -> Callable[[Path], object]:
    return lambda directory: (directory / path).unlink()


def cut(path: str, size: int) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        with (directory / path).open("r+b") as file:
            file.truncate(size)

    return damage


def overwrite(path: str, data: bytes) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        (directory / path).write_bytes(data)

    return damage


def flip(path: str, at: int) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        data = bytearray((directory / path).read_bytes())
        data[at] ^= 0x10
        (directory / path).write_bytes(data)

    return damage


FIRST = "00000000000000000000"
WHEEL_BYTES = 64 * 2 * 32
DAMAGED_WHEEL: dict[str, Callable[[Path], object]] = {
    "wheel gone": gone("timerwheel"),
    "wheel of another size": cut("timerwheel", 32),
    "wheel empty": cut("timerwheel", 0),
    "wheel longer": overwrite("timerwheel", bytes(2 * WHEEL_BYTES)),
    "wheel of zeros": overwrite("timerwheel", bytes(WHEEL_BYTES)),
    "wheel of garbage": overwrite("timerwheel", b"\xa5" * WHEEL_BYTES),
    "wheel's positions flipped": flip("timerwheel", 5 * 32 + 16),
    "wheel's num flipped": flip("timerwheel", 9 * 32 + 24),
    "wheel's empty slot flipped": flip("timerwheel", 100 * 32),
}
DAMAGED: dict[str, tuple[Case, Callable[[Path], object]]] = {
    "no checkpoint": (Case.EMPTY, gone("checkpoint")),
    "empty checkpoint": (Case.CORRUPT, cut("checkpoint", 0)),
    "torn checkpoint": (Case.CORRUPT, cut("checkpoint", 50)),
    "checkpoint flipped": (Case.CORRUPT, flip("checkpoint", 90)),
    "garbage checkpoint": (Case.CORRUPT, overwrite("checkpoint", b"\xff" * 300)),
    "another format version": (Case.UNKNOWN, overwrite("checkpoint", b"timewheel-checkpoint 0099 00000000\n{}\n")),
    "another owner": (Case.FOREIGN, lambda directory: rewrite(directory, topic_id="another")),
    "stale": (Case.STALE, lambda directory: rewrite(directory, complete_to_offset=L - 1)),
    "ahead": (Case.AHEAD, lambda directory: rewrite(directory, complete_to_offset=I + 1)),
    "another boot": (Case.REBOOTED, lambda directory: rewrite(directory, extra={"boot_id": "x"}, wheel_crc=None)),
    "timer log empty": (Case.CORRUPT, cut(f"timerlog/{FIRST}", 0)),
    "timer log cut": (Case.CORRUPT, cut(f"timerlog/{FIRST}", 60)),
    "timer log gone": (Case.CORRUPT, gone(f"timerlog/{FIRST}")),
    "timer log directory gone": (Case.CORRUPT, lambda directory: shutil.rmtree(directory / "timerlog")),
    "timer log of zeros": (Case.CORRUPT, overwrite(f"timerlog/{FIRST}", bytes(52 * 4))),
    "a record's prev_pos flipped": (Case.CORRUPT, flip(f"timerlog/{FIRST}", 52 + 4)),
    "a record's delayed_time flipped": (Case.CORRUPT, flip(f"timerlog/{FIRST}", 52 + 25)),
    "a record's offset_py flipped": (Case.CORRUPT, flip(f"timerlog/{FIRST}", 52 + 28)),
    "a record's id flipped": (Case.CORRUPT, flip(f"timerlog/{FIRST}", 52 + 51)),
    "payload log empty": (Case.CORRUPT, cut(f"payload/{FIRST}", 0)),
    "payload log cut": (Case.CORRUPT, cut(f"payload/{FIRST}", 9)),
    "payload log gone": (Case.CORRUPT, gone(f"payload/{FIRST}")),
    "timer log end beyond the file": (Case.CORRUPT, lambda directory: rewrite(directory, timer_log_end=52 * 99)),
    "timer log end between records": (Case.CORRUPT, lambda directory: rewrite(directory, timer_log_end=53)),
    "a CRC too few": (Case.CORRUPT, lambda directory: rewrite(directory, timer_log_crcs=[])),
    "another CRC": (Case.CORRUPT, lambda directory: rewrite(directory, timer_log_crcs=[7])),
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("name", DAMAGED_WHEEL)
def test_a_damaged_wheel_is_made_anew_from_the_timer_log(tmp_path: Path, name: str, clean: bool) -> None:
    fill(tmp_path, clean=clean)
    DAMAGED_WHEEL[name](tmp_path)
    found = opened(tmp_path)
    assert (found.case, found.complete_to_offset) == (Case.UNCLEAN, 70)
    assert payloads(found) == [b"one", b"two", b"three"]
    found.store.close(70, {})
    assert opened(tmp_path).case is Case.CLEAN


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("wheel", [None, "wheel gone", "wheel of garbage"], ids=str)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_directory_of_no_use_is_rebuilt_from_kafka(tmp_path: Path, name: str, wheel: str | None, clean: bool) -> None:
    case, damage = DAMAGED[name]
    fill(tmp_path, clean=clean)
    damage(tmp_path)
    if wheel is not None:
        DAMAGED_WHEEL[wheel](tmp_path)
    found = opened(tmp_path)
    assert (found.case, found.complete_to_offset) == (case, L)
    assert found.was_of == (OWNER._replace(topic_id="another") if case is Case.FOREIGN else None)
    assert payloads(found) == []
    # What is left is whole: the next start finds nothing to complain of.
    found.store.close(L, {})
    assert opened(tmp_path).case is Case.CLEAN


NOTICED = DAMAGED_WHEEL | {
    name: damage for name, (case, damage) in DAMAGED.items() if case in (Case.CORRUPT, Case.UNKNOWN, Case.EMPTY)
}


@pytest.mark.parametrize("name", NOTICED)
def test_verify_tells_of_it_and_leaves_it(tmp_path: Path, name: str) -> None:
    fill(tmp_path, clean=True)
    NOTICED[name](tmp_path)
    before = files(tmp_path)
    assert check_store(tmp_path, ReadOnlyFileSystem()) != []
    assert files(tmp_path) == before


def test_verify_reads_what_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, clean=True)
    open_file = os.open

    def as_of_a_snapshot(path: Path, flags: int, *mode: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return open_file(path, flags, *mode)

    monkeypatch.setattr(os, "open", as_of_a_snapshot)
    assert check_store(tmp_path, ReadOnlyFileSystem()) == []


@pytest.mark.parametrize("name", ["timerlog", "payload"])
def test_verify_makes_no_log_where_it_is_gone(tmp_path: Path, name: str) -> None:
    fill(tmp_path, clean=True)
    shutil.rmtree(tmp_path / name)
    assert name in check_store(tmp_path, ReadOnlyFileSystem())[0]
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["checkpoint", "timerwheel", f"timerlog/{FIRST}", f"payload/{FIRST}"])
def test_verify_names_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fill(tmp_path, clean=True)
    open_file = os.open

    def as_of_another_user(path: Path, *how: int) -> int:
        if path == tmp_path / name:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_file(path, *how)

    monkeypatch.setattr(os, "open", as_of_another_user)
    problems = check_store(tmp_path, ReadOnlyFileSystem())
    assert str(tmp_path / name) in problems[0]
    assert "Permission denied" in problems[0]


def test_a_log_that_was_written_with_less_on_the_wheel_counts_as_damage(tmp_path: Path) -> None:
    """Its watermark is one that an operator has set."""
    found = opened(tmp_path)
    act_ms, one = np.array([1_000, 129_000], np.int64), np.zeros(1, np.int64)
    for at in range(2):  # a lap apart
        found.store.advance(int(act_ms[at]))
        found.store.put([b"x"], act_ms[at : at + 1], act_ms[at : at + 1], one, one.astype(np.int32), one > 0)
    found.store.checkpoint(70, found.store.marks(), {})
    found.store.close(None, {})
    again = opened(tmp_path)
    assert (again.case, payloads(again)) == (Case.CORRUPT, [])


def test_a_damaged_payload_is_noticed_when_it_is_read_and_the_next_start_rebuilds(tmp_path: Path) -> None:
    fill(tmp_path, clean=True)
    flip(f"payload/{FIRST}", 8)(tmp_path)
    assert check_store(tmp_path, ReadOnlyFileSystem()) != []
    found = opened(tmp_path)
    assert found.case is Case.CLEAN
    loaded = result_of(found.store.load(5_000))
    with pytest.raises(CorruptFile):
        found.store.read(loaded.payload_pos, loaded.payload_size)
    # What is in memory is not believed any more either: no checkpoint says that all is well.
    found.store.checkpoint(70, found.store.marks(), {})
    found.store.close(70, {})
    assert opened(tmp_path).case is Case.EMPTY
