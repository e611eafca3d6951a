"""Files of a log that a process before this one has written to."""

from pathlib import Path

import pytest

from sidecar.store.files import RealFileSystem
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
