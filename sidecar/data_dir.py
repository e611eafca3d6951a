"""The data directory: its lock (one sidecar per directory) and what stands in it.

``wheel-<partition>/`` are the stores of a sidecar of one process. With workers they stand in ``worker-<n>/``, each of
which is a worker's own data directory, lock included.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from sidecar.errors import DataDirectoryError


class DataDir:
    """Holds the directory's lock from entering to leaving.

    Raises:
        DataDirectoryError: the directory is in use by another process, or cannot be made, read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = path / "lock"

    def __enter__(self) -> "DataDir":
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock_path.open("a+")
        except OSError as error:
            raise DataDirectoryError(
                f"data_dir {self.path} cannot be used: {error.strerror}; name a directory that this user may write"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise DataDirectoryError(
                f"data_dir {self.path} is in use by another sidecar; give each one a directory of its own"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.close()


@contextmanager
def at_rest(path: Path) -> Iterator[None]:
    """Keep sidecars out of a directory while it is looked at, and write nothing, not even a lock.

    Raises:
        DataDirectoryError: a sidecar uses it.
    """
    lock_path = path / "lock"
    if not lock_path.exists():  # a copy, or of no sidecar yet
        yield
        return
    with lock_path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirectoryError(f"data_dir {path} is in use by a sidecar; stop it first") from error
        yield


def worker_name(number: int) -> str:
    """A worker's directory in the data directory, and the end of its identity."""
    return f"worker-{number}"


def stores(path: Path) -> list[Path]:
    """The directory of every wheel partition, those of workers included."""
    return sorted(
        found for pattern in ("wheel-*", "worker-*/wheel-*") for found in path.glob(pattern) if found.is_dir()
    )


def left_over(path: Path, workers: int) -> list[Path]:
    """What another number of workers has left here.

    It stays: going back to that number finds it, and its checkpoint tells then how much of it is worth anything. It may
    also be removed while the sidecar is stopped: it is a cache of what Kafka holds.
    """
    if workers == 1:
        return sorted(path.glob("worker-*"))
    used = {worker_name(number) for number in range(1, workers + 1)}
    return sorted([*path.glob("wheel-*"), *(found for found in path.glob("worker-*") if found.name not in used)])
