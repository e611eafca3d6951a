"""A disk of which some files cannot be read: they can still be removed, and made anew elsewhere on it."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sidecar.store.files import File, RealFileSystem


class BadSectors(RealFileSystem):
    """Reading one of the ``files`` raises OSError (EIO) until it is removed."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.bad = set(files)

    def open(self, path: Path, *, create: bool = False) -> File:
        opened = super().open(path, create=create)
        return _Unreadable(opened) if path in self.bad else opened  # type: ignore[return-value]

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.bad.discard(path)


class _Unreadable:
    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, _length: int, _position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
