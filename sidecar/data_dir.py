"""The data directory: its lock (one sidecar per directory) and what stands in it.

``wheel-<partition>/`` are the stores of a sidecar of one process. With workers they stand in ``worker-<n>/``, each of
which is a worker's own data directory, lock included.
"""

import fcntl
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from sidecar.errors import DataDirectoryError

_LOCK = "lock"
_STORE = re.compile(r"wheel-[0-9]+")

OPEN_FILES = 65_536
"""Files that a sidecar may want to have open."""


class DataDir:
    """Holds the directory's lock from entering to leaving.

    Raises:
        DataDirectoryError: the directory is in use by another process, or cannot be made, read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "DataDir":
        self._lock = _locked(self.path, "a+", "another sidecar; give each one a directory of its own")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.close()


@contextmanager
def at_rest(path: Path) -> Iterator[None]:
    """Keep sidecars out of a directory while it is looked at, and write nothing, not even a lock.

    Raises:
        DataDirectoryError: a sidecar uses it, or it cannot be read.
    """
    if not (path / _LOCK).exists():  # a copy, or of no sidecar yet
        yield
        return
    with _locked(path, "r", "a sidecar; stop it first"):
        yield


def _locked(path: Path, mode: str, in_use_by: str) -> IO[str]:
    """The lock's file, held until it is closed; made, with the directory, where the mode is to write."""
    try:
        if mode != "r":
            path.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = (path / _LOCK).open(mode)
    except OSError as error:
        remedy = "name a directory that this user may write"
        if isinstance(error, PermissionError) and path.is_dir():
            remedy = f"let user {os.geteuid()} write to all that is in it, or {remedy}; it is a cache of Kafka"
        raise DataDirectoryError(f"data_dir {path} cannot be used: {error.strerror}; {remedy}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if isinstance(error, BlockingIOError):
            raise DataDirectoryError(f"data_dir {path} is in use by {in_use_by}") from error
        raise DataDirectoryError(
            f"data_dir {path} cannot be locked: {error.strerror}; name a directory on a local disk"
        ) from error
    return lock


def allow_open_files() -> None:
    """Let this process open as many files as its system lets it.

    Of a wheel partition up to 128 stay open, so that a few large ones use up the 1,024 that a shell or a service begins
    with; beyond that, a partition's files could not be opened, nor a connection to a broker.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # as it was, then
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def worker_name(number: int) -> str:
    """A worker's directory in the data directory, and the end of its identity."""
    return f"worker-{number}"


def is_store(path: Path) -> bool:
    """Whether a directory is that of a wheel partition, by its name."""
    return _STORE.fullmatch(path.name) is not None and path.is_dir()


def stores(path: Path) -> list[Path]:
    """The directory of every wheel partition, those of workers included."""
    return sorted(
        found for pattern in ("wheel-*", "worker-*/wheel-*") for found in path.glob(pattern) if is_store(found)
    )


def left_over(path: Path, workers: int) -> list[Path]:
    """What another number of workers has left here.

    It stays: going back to that number finds it, and its checkpoint tells then how much of it is worth anything. It may
    also be removed while the sidecar is stopped: it is a cache of what Kafka holds.

    Raises:
        DataDirectoryError: it cannot be read.
    """
    used = {worker_name(number) for number in range(1, workers + 1)} if workers > 1 else set()
    try:
        there = [*path.glob("worker-*"), *(path.glob("wheel-*") if workers > 1 else ())]
    except OSError as error:
        raise DataDirectoryError(
            f"data_dir {path} cannot be used: {error.strerror}; name a directory that this user may read and write"
        ) from error
    return sorted(found for found in there if found.name not in used)
