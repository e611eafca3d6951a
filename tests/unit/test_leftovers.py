"""What partitions leave behind when they go to another sidecar."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from connectors.testing import ManualClock
from sidecar.leftovers import LOOK_EVERY_MS, Leftovers
from tests.support.logged import logged

KEEP_MS = 1_000_000


def made(path: Path, clock: ManualClock, age_ms: int) -> Path:
    """A store whose last checkpoint is so old."""
    (path / "payload").mkdir(parents=True)
    (path / "payload" / "0").write_bytes(b"x")
    (path / "checkpoint").write_bytes(b"x")
    os.utime(path, ((clock.now_ms() - age_ms) / 1000,) * 2)
    return path


def test_what_cannot_be_of_use_is_removed_when_the_group_has_come_to_rest(tmp_path: Path) -> None:
    clock = ManualClock()
    leftovers = Leftovers(tmp_path, KEEP_MS, clock)
    old = made(tmp_path / "wheel-0", clock, KEEP_MS)
    ours = made(tmp_path / "wheel-1", clock, KEEP_MS)
    young = made(tmp_path / "wheel-10", clock, -LOOK_EVERY_MS)
    others = [made(tmp_path / name, clock, KEEP_MS) for name in ("worker-1", "lost+found", "wheel-0.bak")]
    clock.advance(LOOK_EVERY_MS - 1)
    leftovers.look([1])
    assert old.exists(), "it is too soon"
    clock.advance(1)
    leftovers.look([1])
    assert not old.exists()
    assert all((path / "payload" / "0").exists() for path in (ours, young, *others))
    clock.advance(KEEP_MS)
    leftovers.look([1])
    assert young.exists(), "it is too soon for the next look"
    clock.advance(LOOK_EVERY_MS)
    leftovers.look([1])
    assert not young.exists()
    assert ours.exists()


def test_what_cannot_be_removed_is_told_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    leftovers = Leftovers(tmp_path, KEEP_MS, clock)
    stuck, other = (made(tmp_path / name, clock, KEEP_MS) for name in ("wheel-0", "wheel-1"))
    remove = shutil.rmtree

    def refuse(path: Path) -> None:
        if path == stuck:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    clock.advance(LOOK_EVERY_MS)
    with logged() as lines:
        leftovers.look([])
    assert [line["event"] for line in lines] == ["directory not removed", "directory removed"]
    assert stuck.exists()
    assert not other.exists()
