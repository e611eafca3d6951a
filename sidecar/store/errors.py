"""The one error tree of the timer store. An error's docstring is its message where none is given.

A full or broken disk is not in the tree: it stays the `OSError` of the operating system, so that `errno` tells them
apart (`ENOSPC`: intake pauses).
"""
# ruff: noqa: N818 - the names say what happened

from __future__ import annotations

import errno
from pathlib import Path

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

MAKE_ROOM = (
    "make room on the disk of data_dir, and intake goes on by itself; where disk_quota_bytes is exceeded, raise it "
    "and restart"
)
"""What an operator can do where `is_disk_full`."""


def is_disk_full(error: BaseException) -> bool:
    """Whether nothing is wrong but that there is no more room: on the disk, in a quota, or below a limit."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def is_unreadable(error: BaseException | None) -> bool:
    """Whether a sector of the disk could not be read, which no waiting mends as a rule."""
    return isinstance(error, OSError) and error.errno == errno.EIO


class StoreError(Exception):
    """The timer store failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").strip())


class CorruptFile(StoreError):
    """A file of the timer store does not hold what was written to it."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.detail = detail


class CorruptRecord(CorruptFile):
    """A record of the timer log or the payload log does not hold what was written to it."""

    def __init__(self, path: Path, position: int, detail: str) -> None:
        super().__init__(path, f"record at position {position}: {detail}")
        self.position = position


class CorruptCheckpoint(CorruptFile):
    """The checkpoint does not hold what was written to it."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            path,
            f"{detail}. Operator action: none, the partition is rebuilt from Kafka; "
            "if it happens again, check the disk under the data directory.",
        )


class UnknownFormatVersion(StoreError):
    """The files were written in a format that this version does not know."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path}: format version {found}, this version knows {known}. Operator action: start the version that "
            f"wrote it, or delete {path.parent} and let the partition be rebuilt from Kafka."
        )
        self.found = found
        self.known = known


class WrongFileSize(CorruptFile):
    """The timer wheel's file is not of the size that its settings make."""

    def __init__(self, path: Path, found_bytes: int, expected_bytes: int) -> None:
        super().__init__(
            path,
            f"{found_bytes} bytes, the settings make {expected_bytes}. Operator action: give the number of slots it "
            "was made with, or delete it and let it be rebuilt from the timer log.",
        )


class IncompleteLog(CorruptFile):
    """A log holds less than its checkpoint says."""


class EndPositionRequired(StoreError):
    """The directory already holds a log, and only its checkpoint knows where that ends."""


class PositionOutOfRange(StoreError):
    """The log holds no record at this position."""


class SlotConflict(StoreError):
    """The slot is held by another lap of the wheel that is not dispatched yet; a put would lose its chain."""
