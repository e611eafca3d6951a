"""Ways to let a sidecar's disk become full, and to make room again, without harm to anybody else's disk."""

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil

from tests.support.sidecar import SidecarProcess

SIZE_BYTES = 64 * 2**20


class SmallDisk(Protocol):
    """A disk under the sidecar's data directory."""

    def fill(self) -> None:
        """From now on nothing more can be written."""

    def make_room(self) -> None:
        """Undo `fill`."""


@contextmanager
def suppress_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


class MountedDisk:
    """A small file system of its own: ENOSPC for every file, new ones included."""

    def __init__(self, directory: Path) -> None:
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            for chunk_bytes in (2**20, 4_096):
                with suppress_full_disk():
                    while True:
                        ballast.write(bytes(chunk_bytes))

    def make_room(self) -> None:
        self._ballast.unlink()


class FileSizeLimit:
    """No file of the process may grow beyond the largest that it has (EFBIG): needs no rights and no mount."""

    def __init__(self, sidecar: SidecarProcess) -> None:
        self._sidecar = sidecar

    def fill(self) -> None:
        logs = Path(self._sidecar.settings["data_dir"]).glob("wheel-*/payload/*")
        self._limit(max(path.stat().st_size for path in logs))

    def make_room(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        # The soft limit alone: it may be raised again.
        process = psutil.Process(self._sidecar.process.pid)
        process.rlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def mounted_disk(directory: Path) -> Iterator[MountedDisk | None]:
    """A tmpfs mounted on a new directory; None where neither this user nor sudo may mount."""
    directory.mkdir()
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    options = f"size={SIZE_BYTES},uid={os.geteuid()},mode=0700"
    mount = [*as_root, "mount", "-t", "tmpfs", "-o", options, "timewheel-test", str(directory)]
    if shutil.which(mount[0]) is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield None
        return
    try:
        yield MountedDisk(directory)
    finally:
        subprocess.run([*as_root, "umount", "--lazy", str(directory)], check=True)
