"""What of a data directory is used at a start: a test per case of the table, one over all combinations."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.files import RealFileSystem
from sidecar.store.recovery import Case, Owner, judge
from sidecar.store.timer_store import Opened, open_store

OWNER = Owner("cluster", "topic", "group", 3, "64x1000ms,parser1")
BOOT = "this boot"
I, L = 100, 40  # noqa: E741 - as in the table
CHECKPOINT = Checkpoint(
    complete_to_offset=70,
    timer_log_end=0,
    timer_log_start=0,
    payload_log_end=0,
    payload_log_start=0,
    cluster_id="cluster",
    topic_id="topic",
    group_id="group",
    partition=3,
    plan="64x1000ms,parser1",
    slots_total=64,
    precision_ms=1_000,
    wheel_clean=False,
    extra={"boot_id": BOOT},
)


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


def test_beyond_the_committed_offset_it_is_ahead() -> None:
    assert judged(complete_to_offset=I + 1) is Case.AHEAD
    assert judged(complete_to_offset=I) is Case.UNCLEAN


def test_unclean_of_another_boot_it_is_rebooted() -> None:
    assert judged(extra={"boot_id": "another"}) is Case.REBOOTED
    assert judged(extra={}) is Case.REBOOTED


def test_unclean_of_this_boot_it_is_cut_back() -> None:
    assert judged() is Case.UNCLEAN


def test_clean_it_is_used_whatever_the_boot() -> None:
    assert judged(wheel_clean=True) is Case.CLEAN
    assert judged(wheel_clean=True, extra={"boot_id": "another"}) is Case.CLEAN


def test_every_combination_is_the_first_row_that_applies() -> None:
    for owner, complete_to, clean, boot in itertools.product(
        ("cluster", "another"), (L - 1, L, 70, I, I + 1), (True, False), (BOOT, "another")
    ):
        if owner != "cluster":
            expected = Case.FOREIGN
        elif complete_to < L:
            expected = Case.STALE
        elif complete_to > I:
            expected = Case.AHEAD
        elif clean:
            expected = Case.CLEAN
        elif boot != BOOT:
            expected = Case.REBOOTED
        else:
            expected = Case.UNCLEAN
        found = judged(cluster_id=owner, complete_to_offset=complete_to, wheel_clean=clean, extra={"boot_id": boot})
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
    """A directory with three pending messages, complete up to offset 70."""
    store = opened(directory).store
    act_ms = np.array([5_000, 5_001, 9_000], np.int64)
    hashes = np.arange(3, dtype=np.int64)
    store.put([b"one", b"two", b"three"], act_ms, act_ms - 1_000, hashes, hashes.astype(np.int32), hashes < 0)
    store.checkpoint(70, store.marks(), {})
    store.close(70 if clean else None, {})


def rewrite(directory: Path, **changes: object) -> None:
    path, fs = directory / "checkpoint", RealFileSystem()
    found = checkpoints.load(path, fs)
    assert found is not None
    checkpoints.save(path, msgspec.structs.replace(found, **changes), fs)


def pending(store_opened: Opened) -> int:
    return store_opened.store.query(0, 2**62, 10)[0]


@pytest.mark.parametrize("clean", [True, False])
def test_a_whole_directory_is_used(tmp_path: Path, clean: bool) -> None:
    fill(tmp_path, clean=clean)
    found = opened(tmp_path)
    assert (found.case, found.complete_to_offset) == (Case.CLEAN if clean else Case.UNCLEAN, 70)
    assert pending(found) == 3
    found.store.close(None, {})


def cut(path: str, size: int) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        with (directory / path).open("r+b") as file:
            file.truncate(size)

    return damage


def overwrite(path: str, data: bytes) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        (directory / path).write_bytes(data)

    return damage


FIRST = "00000000000000000000"
DAMAGED: dict[str, tuple[Case, Callable[[Path], object]]] = {
    "no checkpoint": (Case.EMPTY, lambda directory: (directory / "checkpoint").unlink()),
    "empty checkpoint": (Case.CORRUPT, cut("checkpoint", 0)),
    "torn checkpoint": (Case.CORRUPT, cut("checkpoint", 50)),
    "garbage checkpoint": (Case.CORRUPT, overwrite("checkpoint", b"\xff" * 300)),
    "another format version": (Case.UNKNOWN, overwrite("checkpoint", b"timewheel-checkpoint 0099 00000000\n{}\n")),
    "another owner": (Case.FOREIGN, lambda directory: rewrite(directory, topic_id="another")),
    "stale": (Case.STALE, lambda directory: rewrite(directory, complete_to_offset=L - 1)),
    "ahead": (Case.AHEAD, lambda directory: rewrite(directory, complete_to_offset=I + 1)),
    "another boot": (Case.REBOOTED, lambda directory: rewrite(directory, extra={"boot_id": "x"}, wheel_clean=False)),
    "timer log cut": (Case.CORRUPT, cut(f"timerlog/{FIRST}", 60)),
    "timer log gone": (Case.CORRUPT, lambda directory: (directory / "timerlog" / FIRST).unlink()),
    "timer log directory gone": (Case.CORRUPT, lambda directory: shutil.rmtree(directory / "timerlog")),
    "payload log cut": (Case.CORRUPT, cut(f"payload/{FIRST}", 9)),
    "payload log gone": (Case.CORRUPT, lambda directory: (directory / "payload" / FIRST).unlink()),
    "wheel of another size": (Case.CORRUPT, cut("timerwheel", 32)),
    "timer log end beyond the file": (Case.CORRUPT, lambda directory: rewrite(directory, timer_log_end=52 * 99)),
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_directory_of_no_use_is_rebuilt_from_kafka(tmp_path: Path, name: str, clean: bool) -> None:
    case, damage = DAMAGED[name]
    fill(tmp_path, clean=clean)
    damage(tmp_path)
    found = opened(tmp_path)
    assert (found.case, found.complete_to_offset) == (case, L)
    assert pending(found) == 0
    # What is left is whole: the next start finds nothing to complain of.
    found.store.close(L, {})
    assert opened(tmp_path).case is Case.CLEAN
