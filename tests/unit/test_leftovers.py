"""What partitions leave behind when they go to another sidecar."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from connectors.testing import ManualClock
from sidecar.leftovers import LOOK_EVERY_MS, Leftovers
from sidecar.store.files import RealFileSystem
from tests.support.logged import logged

KEEP_MS = 1_000_000
FILES = ("checkpoint", "checkpoint.old", "payload/0", "payload/1", "timerlog/0", "timerwheel")


class Watched(RealFileSystem):
    """Tells what is removed, and refuses it below one directory."""

    def __init__(self, refused: Path | None = None) -> None:
        self.removed: list[Path] = []
        self._refused = refused

    def unlink(self, path: Path) -> None:
        if self._refused in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if path.exists():
            self.removed.append(path)
        super().unlink(path)


def made(path: Path, clock: ManualClock, age_ms: int) -> Path:
    """A store whose last checkpoint is so old."""
    for name in FILES:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"x")
        os.utime(path / name, ((clock.now_ms() - age_ms) / 1000,) * 2)
    return path


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def look_on(leftovers: Leftovers, assigned: Sequence[int] = ()) -> None:
    """As often as it takes for a store."""
    for _ in range(len(FILES) + 3):
        leftovers.look(assigned)


def test_what_cannot_be_of_use_is_removed_when_the_group_has_come_to_rest(tmp_path: Path) -> None:
    clock = ManualClock()
    leftovers = Leftovers(tmp_path, KEEP_MS, clock, RealFileSystem())
    old = made(tmp_path / "wheel-0", clock, KEEP_MS + 1)
    ours = made(tmp_path / "wheel-1", clock, KEEP_MS)
    young = made(tmp_path / "wheel-10", clock, -LOOK_EVERY_MS)
    others = [made(tmp_path / name, clock, KEEP_MS) for name in ("worker-1", "lost+found", "wheel-0.bak")]
    clock.advance(LOOK_EVERY_MS - 1)
    look_on(leftovers, [1])
    assert old.exists(), "it is too soon"
    clock.advance(1)
    look_on(leftovers, [1])
    assert not old.exists()
    assert all((path / "payload" / "0").exists() for path in (ours, young, *others))
    clock.advance(KEEP_MS)
    look_on(leftovers, [1])
    assert young.exists(), "it is too soon for the next look"
    clock.advance(LOOK_EVERY_MS)
    look_on(leftovers, [1])
    assert not young.exists()
    assert ours.exists()


def test_a_look_removes_one_file_and_first_the_checkpoint(tmp_path: Path) -> None:
    """What is due does not wait for tens of gigabytes."""
    clock, fs = ManualClock(), Watched()
    old = made(tmp_path / "wheel-0", clock, KEEP_MS)
    leftovers = Leftovers(tmp_path, KEEP_MS, clock, fs)
    clock.advance(LOOK_EVERY_MS)
    leftovers.look([])
    assert fs.removed == [old / "checkpoint.old", old / "checkpoint"], (
        "the older first: it would count without the other"
    )
    while old.exists():
        before = len(fs.removed)
        leftovers.look([])
        assert len(fs.removed) - before <= 1
    assert len(fs.removed) == len(FILES)


def test_a_partition_that_comes_back_meanwhile_keeps_what_it_makes(tmp_path: Path) -> None:
    clock = ManualClock()
    directory = made(tmp_path / "wheel-0", clock, KEEP_MS)
    leftovers = Leftovers(tmp_path, KEEP_MS, clock, RealFileSystem())
    clock.advance(LOOK_EVERY_MS)
    leftovers.look([])
    leftovers.look([])
    assert len(files_in(directory)) == len(FILES) - 3, "it is half removed"
    made(directory, clock, 0)  # between two looks it has come, and gone again
    look_on(leftovers)
    assert files_in(directory) == sorted(FILES)


def test_what_a_process_was_killed_over_is_removed_by_the_next_one(tmp_path: Path) -> None:
    clock = ManualClock()
    directory = made(tmp_path / "wheel-0", clock, KEEP_MS)
    for kept in range(len(FILES)):
        killed = Leftovers(tmp_path, KEEP_MS, clock, RealFileSystem())
        clock.advance(LOOK_EVERY_MS)
        killed.look([0])
        assert directory.exists(), kept
        killed = Leftovers(tmp_path, KEEP_MS, clock, RealFileSystem())
        clock.advance(LOOK_EVERY_MS)
        killed.look([])
    look_on(killed)
    assert not directory.exists()


def test_what_cannot_be_removed_is_told_and_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    stuck, other = (made(tmp_path / name, clock, KEEP_MS) for name in ("wheel-0", "wheel-1"))
    leftovers = Leftovers(tmp_path, KEEP_MS, clock, Watched(refused=stuck))
    clock.advance(LOOK_EVERY_MS)
    with logged() as lines:
        look_on(leftovers)
    assert [line["event"] for line in lines] == ["directory not removed", "directory removed"]
    assert files_in(stuck) == sorted(FILES)
    assert not other.exists()
