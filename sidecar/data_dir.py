"""The data directory and its lock: one sidecar per directory."""

import fcntl
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
