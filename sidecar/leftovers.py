"""Directories of wheel partitions that are another sidecar's by now: removed once nothing in them can be of use.

Until then they are worth keeping: a partition that comes back has little to read again. But what is stored in them is
done, or written to the wheel topic again, within `roll_window`; afterwards a start would find them stale. They count
against no quota, and a replica that partitions come to and go from would end with all of them on its disk.

One may hold tens of gigabytes, and what is due does not wait for it: a look removes a file, and the checkpoint first,
for without one nothing is taken for whole. Wherever that is interrupted, by a crash or because the partition comes
back, a start rebuilds it; and what is left of it without a checkpoint is of no use at the next look, either.
"""

from collections.abc import Collection
from pathlib import Path

import structlog

from sidecar.clock import Clock
from sidecar.store import checkpoint as checkpoints
from sidecar.store.files import FileSystem
from sidecar.store.timer_store import CHECKPOINT, PAYLOAD_LOG, TIMER_LOG

LOOK_EVERY_MS = 3_600_000
"""And not before so long after a start: until the group has come to rest, a partition may be on its way here."""

log = structlog.get_logger("timewheel.wheel")


class Leftovers:
    """Those in the directory of one process.

    Args:
        keep_ms: how long after the last checkpoint they are kept.
    """

    def __init__(self, data_dir: Path, keep_ms: int, clock: Clock, fs: FileSystem) -> None:
        self._data_dir = data_dir
        self._keep_ms = keep_ms
        self._clock = clock
        self._fs = fs
        self._looked_ms = clock.monotonic_ms()
        self._partitions: list[int] = []
        """Of those with a directory that was there when it was last looked for, the ones not yet dealt with."""

    def look(self, assigned: Collection[int]) -> None:
        """Remove a file that is of no use, if there is one; now and then, find out where.

        Args:
            assigned: the wheel partitions that are ours, also those that are closed just now.
        """
        if self._clock.monotonic_ms() - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = self._clock.monotonic_ms()
            self._partitions = self._found()
        while self._partitions:
            partition = self._partitions[-1]
            directory = self._data_dir / f"wheel-{partition}"
            try:
                # Asked anew for each file: it may have come, and gone again, since the last one.
                if partition not in assigned and not self._is_of_use(directory):
                    if self._remove_one(directory):
                        return
                    log.info("directory removed", directory=str(directory))
            except OSError as error:
                log.warning(
                    "directory not removed",
                    directory=str(directory),
                    reason=str(error),
                    operator_action="remove it while the sidecar is stopped: its partition is another sidecar's by now",
                )
            self._partitions.pop()

    def _found(self) -> list[int]:
        try:
            names = self._fs.listdir(self._data_dir)
        except OSError as error:  # the disk's trouble: whose partition is ours will find it, too
            log.warning(
                "directory not read",
                directory=str(self._data_dir),
                reason=str(error),
                operator_action="check the disk under data_dir",
            )
            return []
        numbers = [name.removeprefix("wheel-") for name in names if name.startswith("wheel-")]
        return sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)

    def _is_of_use(self, directory: Path) -> bool:
        saved_ms = checkpoints.saved_ms(directory / CHECKPOINT, self._fs)
        return saved_ms is not None and saved_ms >= self._clock.now_ms() - self._keep_ms

    def _remove_one(self, directory: Path) -> bool:
        """The checkpoint, or else a file, or a directory that has become empty; False if that was the last."""
        checkpoint = directory / CHECKPOINT
        if checkpoints.saved_ms(checkpoint, self._fs) is not None:
            checkpoints.remove(checkpoint, self._fs)
            return True
        for name in self._fs.listdir(directory):
            path = directory / name
            if name not in (TIMER_LOG, PAYLOAD_LOG):
                self._fs.unlink(path)
            elif segments := self._fs.listdir(path):
                self._fs.unlink(path / segments[0])
            else:
                self._fs.rmdir(path)
            return True
        self._fs.rmdir(directory)
        return False
