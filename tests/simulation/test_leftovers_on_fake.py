"""What a loop removes of its directory: never what belongs to a partition of its own."""

import errno
import os
from pathlib import Path

import pytest

from sidecar.leftovers import LOOK_EVERY_MS
from sidecar.loop import NOW_AND_THEN_MS
from sidecar.store.errors import CorruptFile
from sidecar.store.files import RealFileSystem
from tests.simulation.test_pending_on_fake import WheelWorld
from tests.support.logged import logged


def test_only_the_stores_of_other_sidecars_partitions_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WheelWorld(tmp_path)
    (tmp_path / "wheel-2" / "timerlog").mkdir(parents=True)
    loop = world.begun()
    # One of its own is closed when it looks.
    closed = world.wheels(loop)[0]

    def make_none(*_: object) -> None:
        raise CorruptFile(tmp_path, "not what was written")

    monkeypatch.setattr(loop._assignment, "_make_source", make_none)
    loop._assignment.fail(closed, CorruptFile(tmp_path, "not what was written"))
    for path in tmp_path.glob("wheel-*/checkpoint*"):
        os.utime(path, (0, 0))
    world.clock.advance(LOOK_EVERY_MS)
    while (tmp_path / "wheel-2").exists():
        loop.turn()
        world.clock.advance(NOW_AND_THEN_MS)
    assert [source.partition for source in world.wheels(loop)] == [1 - closed.partition]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wheel-0", "wheel-1"]


def test_a_directory_that_cannot_be_listed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = WheelWorld(tmp_path)
    loop = world.begun()

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(RealFileSystem, "listdir", broken)
    world.clock.advance(LOOK_EVERY_MS)
    with logged() as lines:
        loop.turn()
    assert [line["event"] for line in lines] == ["directory not read"]
