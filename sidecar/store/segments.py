"""The segment files of one log, named by the 20-digit position of their first byte as in RocketMQ's `MappedFileQueue`.

    00000000000000000000    positions 0 to 1023
    00000000000000001024    positions 1024 to 2047
    00000000000000002048    positions from 2048: the tail

Files are opened when touched and at most `_OPEN_FILES_MAX` stay open. Removal goes from the lowest up when a log
forgets its beginning and from the highest down when it is cut back, so that a crash between two of them leaves no gap.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sidecar.store.errors import PositionOutOfRange
from sidecar.store.files import File, FileSystem, read_full, write_all

_NAME = re.compile(r"\d{20}")
_OPEN_FILES_MAX = 64


class Segments:
    """The segments in `directory`, which is made where it is absent. Files with other names are left alone."""

    def __init__(self, directory: Path, fs: FileSystem) -> None:
        self.directory = directory
        self._fs = fs
        self._open: OrderedDict[int, File] = OrderedDict()
        fs.makedirs(directory)
        self._names_unsynced = True
        self.bases = sorted(int(name) for name in fs.listdir(directory) if _NAME.fullmatch(name))
        """Position of each segment's first byte, ascending."""
        self._unsynced = set(self.bases)
        """A process before this one, which was killed, may have written to any of them."""

    def path(self, base: int) -> Path:
        """The file of the segment that begins at `base`."""
        return self.directory / f"{base:020d}"

    def base_of(self, position: int) -> int:
        """The base of the segment that `position` is in. Raises PositionOutOfRange below the first one."""
        index = bisect_right(self.bases, position) - 1
        if index < 0:
            raise PositionOutOfRange(f"{self.directory}: no segment holds position {position}")
        return self.bases[index]

    def size(self, base: int) -> int:
        """Bytes in the file; 0 where there is none."""
        return self._fs.size(self.path(base)) or 0

    def disk_bytes(self, end: int) -> int:
        """Bytes of all segments, the log ending at `end`."""
        return end - self.bases[0] if self.bases else 0

    def file(self, base: int) -> File:
        """The open file of an existing segment. Raises OSError."""
        file = self._open.get(base)
        if file is None:
            file = self._fs.open(self.path(base))
            self._keep_open(base, file)
        else:
            self._open.move_to_end(base)
        return file

    def read(self, base: int, length: int, position: int) -> bytes:
        """`length` bytes from the global `position`; fewer where the file ends."""
        return read_full(self.file(base), length, position - base)

    def will_need(self, stretches: Sequence[tuple[int, int, int]]) -> None:
        """These are about to be read, each as `read` takes it; the disk may look for all at once.

        It is advice: what is wrong with it, the read will tell.
        """
        if len(stretches) > 1:
            with suppress(OSError):
                for base, length, position in stretches:
                    self.file(base).will_need(length, position - base)

    def write(self, base: int, data: bytes | memoryview, position: int) -> None:
        """Write at the global `position`, making the segment where it is absent (`base` is then above all others).

        Raises OSError, with part of the data perhaps written.
        """
        if self.bases and self.bases[-1] >= base:
            file = self.file(base)
        else:
            file = self._fs.open(self.path(base), create=True)
            self._keep_open(base, file)
            self.bases.append(base)
            self._names_unsynced = True
        self._unsynced.add(base)
        write_all(file, data, position - base)

    def cut(self, end: int) -> None:
        """Remove what is at or above position `end`. Raises OSError."""
        while self.bases and self.bases[-1] >= end:
            self._remove(len(self.bases) - 1)
        if self.bases and self.size(self.bases[-1]) > end - self.bases[-1]:
            tail = self.bases[-1]
            self.file(tail).truncate(end - tail)
            self._unsynced.add(tail)

    def forget_before(self, base: int) -> int:
        """Remove the segments that begin below `base`; returns how many."""
        removed = 0
        while self.bases and self.bases[0] < base:
            self._remove(0)
            removed += 1
        return removed

    def flush(self) -> None:
        """Make all written bytes and names durable. Raises OSError; what was not made durable stays to be done."""
        for base in sorted(self._unsynced):
            self.file(base).sync()
            self._unsynced.discard(base)
        if self._names_unsynced:
            self._fs.sync_directory(self.directory)
            self._names_unsynced = False

    def close(self) -> None:
        """Close the open files, without a flush."""
        while self._open:
            self._open.popitem()[1].close()

    def _keep_open(self, base: int, file: File) -> None:
        self._open[base] = file
        if len(self._open) > _OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].close()

    def _remove(self, index: int) -> None:
        base = self.bases[index]
        file = self._open.pop(base, None)
        if file is not None:
            file.close()
        self._fs.unlink(self.path(base))
        del self.bases[index]
        self._unsynced.discard(base)
        self._names_unsynced = True
