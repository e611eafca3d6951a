"""Directories of wheel partitions that are another sidecar's by now: removed once nothing in them can be of use.

Until then they are worth keeping: a partition that comes back has little to read again. But what is stored in them is
done, or written to the wheel topic again, within `roll_window`; afterwards a start would find them stale. They count
against no quota, and a replica that partitions come to and go from would end with all of them on its disk.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

import structlog

from sidecar.clock import Clock
from sidecar.store import checkpoint as checkpoints
from sidecar.store.files import RealFileSystem
from sidecar.store.timer_store import CHECKPOINT

LOOK_EVERY_MS = 3_600_000
"""And not before so long after a start: until the group has come to rest, a partition may be on its way here."""

log = structlog.get_logger("timewheel.wheel")


class Leftovers:
    """Those in the directory of one process.

    Args:
        keep_ms: how long after the last checkpoint they are kept.
    """

    def __init__(self, data_dir: Path, keep_ms: int, clock: Clock) -> None:
        self._data_dir = data_dir
        self._keep_ms = keep_ms
        self._clock = clock
        self._fs = RealFileSystem()
        self._looked_ms = clock.monotonic_ms()

    def look(self, assigned: Collection[int]) -> None:
        """Now and then, remove what is of no use.

        Args:
            assigned: the wheel partitions that are ours, also those that are closed just now.
        """
        if self._clock.monotonic_ms() - self._looked_ms < LOOK_EVERY_MS:
            return
        self._looked_ms = self._clock.monotonic_ms()
        before_s = (self._clock.now_ms() - self._keep_ms) / 1000
        for directory in self._directories():
            partition = directory.name.removeprefix("wheel-")
            try:
                is_kept = not partition.isdecimal() or int(partition) in assigned
                if not is_kept and directory.stat().st_mtime < before_s:  # set with each checkpoint
                    checkpoints.remove(directory / CHECKPOINT, self._fs)  # without one nothing is taken for whole
                    shutil.rmtree(directory)
                    log.info("directory removed", directory=str(directory))
            except OSError as error:
                log.warning(
                    "directory not removed",
                    directory=str(directory),
                    reason=str(error),
                    operator_action="remove it while the sidecar is stopped: its partition is another sidecar's by now",
                )

    def _directories(self) -> list[Path]:
        try:
            return sorted(self._data_dir.glob("wheel-*"))
        except OSError as error:  # the disk's trouble: whose partition is ours will find it, too
            log.warning(
                "directory not read",
                directory=str(self._data_dir),
                reason=str(error),
                operator_action="check the disk under data_dir",
            )
            return []
