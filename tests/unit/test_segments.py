"""Files of a log: those that a process before this one has written to, and those that take no advice."""

import errno
from pathlib import Path

import pytest

from sidecar.store.files import RealFile, RealFileSystem
from sidecar.store.segments import Segments


def test_what_a_killed_process_has_written_is_made_durable_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the kernel's hands alone: a clean end that left it there would trust what a power loss takes."""
    killed = Segments(tmp_path, RealFileSystem())
    for base in (0, 100):
        killed.write(base, b"x", base)
    killed.close()
    segments = Segments(tmp_path, RealFileSystem())
    synced: list[int] = []
    for base in segments.bases:
        monkeypatch.setattr(segments.file(base), "sync", lambda base=base: synced.append(base))
    segments.flush()
    segments.flush()
    assert synced == [0, 100]
    segments.close()


def test_a_file_system_that_takes_no_advice_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: RealFile, _length: int, _position: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(RealFile, "will_need", refuse)
    segments = Segments(tmp_path, RealFileSystem())
    segments.write(0, b"ab", 0)
    segments.will_need([(0, 1, 0), (0, 1, 1)])
    assert segments.read(0, 2, 0) == b"ab"
    segments.will_need([(0, 1, 0), (100, 1, 100)])
    with pytest.raises(FileNotFoundError):
        segments.read(100, 1, 100)
    segments.close()
