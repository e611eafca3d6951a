"""The file-system seam of the timer store: every byte to or from the disk goes through these few calls.

The logs and the wheel make one call per touched segment and batch, so the seam costs nothing measurable. A simulation
puts a fake disk in its place that crashes, fills up or writes short at any call.

    call            like               may do worse than it says
    pread, pwrite   pread(2)           return fewer bytes; raise OSError after some of them were written
    will_need       posix_fadvise(2)   do nothing; raise OSError
    sync            fsync(2)           raise OSError
    map             mmap(2)            -

Worked example: `write_all(file, b"abcd", 10)` on a disk with room for two bytes leaves `ab` at position 10 and raises
`OSError(ENOSPC)`. The log on top has not moved its end, so its next append starts at 10 again.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_ZEROS_CHUNK_BYTES = 1 << 20


class File(Protocol):
    """An open file, addressed by position; it has no cursor."""

    def pread(self, length: int, position: int) -> bytes:
        """At most `length` bytes from `position`; fewer at the end of the file."""

    def will_need(self, length: int, position: int) -> None:
        """These bytes are about to be read: have the disk begin, and do not wait for it. Raises OSError."""

    def pwrite(self, data: bytes | memoryview, position: int) -> int:
        """Write `data` at `position`; returns how many bytes were written, which may be fewer. Raises OSError."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Make the written bytes durable. Raises OSError."""

    def close(self) -> None:
        """Close the file."""


class MappedFile(Protocol):
    """A file mapped into memory for reading and writing, as a whole."""

    @property
    def view(self) -> memoryview:
        """The file's bytes, writable."""

    def flush(self) -> None:
        """Make the written bytes durable. Raises OSError."""

    def release(self) -> None:
        """Give the touched pages back to the system; the bytes stay."""

    def close(self) -> None:
        """Unmap the file; where somebody holds a buffer of it still, such as the frame of an error, once he lets go."""


class FileSystem(Protocol):
    """What the timer store asks of a disk."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; with `create`, make the file if it is absent. Raises OSError."""

    def map(self, path: Path) -> MappedFile:
        """Map an existing file. Raises OSError."""

    def allocate(self, path: Path, size: int) -> None:
        """Make a file of `size` zero bytes with its blocks reserved, so that a write to its mapping cannot meet a full
        disk (which would be a SIGBUS, not an error). Raises OSError."""

    def size(self, path: Path) -> int | None:
        """Bytes in the file, None where there is none."""

    def modified_ms(self, path: Path) -> int | None:
        """When the file was last written to, epoch ms by the host's clock; None where there is none."""

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target` in one step."""

    def unlink(self, path: Path) -> None:
        """Remove a file; no error where there is none."""

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory."""

    def rmdir(self, path: Path) -> None:
        """Remove a directory that is empty. Raises OSError."""

    def makedirs(self, path: Path) -> None:
        """Make a directory and its parents where they are absent."""

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""


class RealFile:
    """`File` over a descriptor of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def will_need(self, length: int, position: int) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, position, length, os.POSIX_FADV_WILLNEED)

    def pwrite(self, data: bytes | memoryview, position: int) -> int:
        return os.pwrite(self._descriptor, data, position)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class RealMappedFile:
    """`MappedFile` over mmap(2)."""

    def __init__(self, path: Path, *, only_look: bool = False) -> None:
        descriptor = os.open(path, (os.O_RDONLY if only_look else os.O_RDWR) | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY if only_look else mmap.ACCESS_WRITE)
        finally:
            os.close(descriptor)
        self._view = memoryview(self._map)

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self) -> None:
        self._map.flush()

    def release(self) -> None:
        if sys.platform == "linux":
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        with suppress(BufferError):
            self._view.release()
            self._map.close()


class RealFileSystem:
    """`FileSystem` over the operating system's."""

    def open(self, path: Path, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def map(self, path: Path) -> MappedFile:
        return RealMappedFile(path)

    def allocate(self, path: Path, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if sys.platform == "linux":
                os.posix_fallocate(descriptor, 0, size)
            else:
                file = RealFile(descriptor)
                for position in range(0, size, _ZEROS_CHUNK_BYTES):
                    write_all(file, bytes(min(_ZEROS_CHUNK_BYTES, size - position)), position)
        finally:
            os.close(descriptor)

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, path: Path) -> int | None:
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def listdir(self, path: Path) -> list[str]:
        return [entry.name for entry in path.iterdir()]

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def makedirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ReadOnlyFileSystem(RealFileSystem):
    """The same to look at: nothing is made or changed in it, so that it may be somebody else's, or a snapshot."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def map(self, path: Path) -> MappedFile:
        return RealMappedFile(path, only_look=True)

    def listdir(self, path: Path) -> list[str]:
        return super().listdir(path) if path.exists() else []

    def makedirs(self, path: Path) -> None:
        """Where it is absent, it holds nothing."""


def write_all(file: File, data: bytes | memoryview, position: int) -> None:
    """Write all of `data` at `position`, going on after short writes.

    Raises OSError: part of the data may then be in the file.
    """
    written = file.pwrite(data, position)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(rest):
        more = file.pwrite(rest[written:], position + written)
        if more <= 0:
            raise OSError(errno.EIO, f"write at {position + written} made no progress")
        written += more


def read_full(file: File, length: int, position: int) -> bytes:
    """`length` bytes from `position`, going on after short reads; fewer only where the file ends."""
    data = file.pread(length, position)
    while len(data) < length:
        more = file.pread(length - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def replace_file(fs: FileSystem, path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put `data` in the place of the file at `path`, so that a crash leaves the old file or the new one.

    Without `durable` that holds for a crash of this process only, and no disk is waited for: a crash may leave the old
    file `set_aside`.

    Raises OSError: the old file is then still in place, or set aside.
    """
    temporary = path.with_name(path.name + ".tmp")
    # 1. A temporary beside it, on the same file system, so that the rename is one step.
    fs.unlink(temporary)
    file = fs.open(temporary, create=True)
    try:
        write_all(file, data, 0)
        # 2. Its bytes, before its name: otherwise a power cut leaves the name over nothing.
        if durable:
            file.sync()
    finally:
        file.close()
    # 3. The name. A rename over another file waits for the disk, on ext4, to write what is renamed (auto_da_alloc).
    if not durable and fs.size(path) is not None:
        fs.rename(path, set_aside(path))
    fs.rename(temporary, path)
    fs.unlink(set_aside(path))
    # 4. The directory, so that the rename itself survives a power cut.
    if durable:
        fs.sync_directory(path.parent)


def set_aside(path: Path) -> Path:
    """Where `replace_file` puts the old file until the new one is in its place."""
    return path.with_name(path.name + ".old")
