"""A disk in memory that outlives its processes, and does to them what disks do.

    disk = Disk(random.Random(seed))
    mount = disk.mount(process.kill)       # a FileSystem for one life of one process
    Loop(..., file_system=mount)
    disk.boot(mount)                       # the life is over: what it has mapped or open it can no longer change

**During a life** every call passes a label (`LABELS`), and with probability `rate` something goes wrong there:

    fault    what the process sees                          why it happens in the field
    crash    SimulatedCrash, before or after the effect     kill -9 at that very moment
    torn     half of a write is done, then SimulatedCrash   kill -9 inside a write
    short    pwrite writes less than it was given           a signal, a quota
    full     OSError(ENOSPC), from now on until `full_ms`   somebody else's files

**Between two lives** `damage` does one of: lose the directory, go back to an older snapshot, flip a bit, overwrite a
stretch, cut a file. What was written stays written when a process dies, mapped pages too: only the operating system's
own end loses those, and `recovery` judges that by the boot id.
"""

import errno
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from connectors.testing import SimulatedCrash

_EFFECTS = ("write", "rename", "truncate", "unlink", "allocate", "create")
LABELS: tuple[str, ...] = (
    *(f"{effect}:{side}" for effect in _EFFECTS for side in ("before", "after")),
    "write:torn",
    "write:short",
    "write:full",
    "create:full",
    "allocate:full",
)
"""Every point at which something may go wrong."""

DAMAGES = ("lost", "stale", "flipped", "overwritten", "cut")
"""What may happen to the files between two lives."""

CHECKED_FILES = ("checkpoint", "payload")
"""Where a changed byte shows in a checksum. Timer log and wheel keep RIP-43's bytes, which have none."""


class Disk:
    """Files by path, and their history.

    Args:
        chance: decides what goes wrong.
        rate: how probable a fault is at a label.
        now_ms: for how long the disk stays full is measured by this.
    """

    def __init__(self, chance: random.Random, rate: float, now_ms: Callable[[], float]) -> None:
        self.chance = chance
        self.rate = rate
        self.now_ms = now_ms
        self.files: dict[Path, bytearray] = {}
        self.hits: Counter[str] = Counter()
        self.injected: list[str] = []
        """What went wrong, in order: what a failing seed prints."""
        self._full_until_ms = -1.0
        self._snapshots: list[dict[Path, bytes]] = []

    def mount(self, kill: Callable[[], None]) -> "Mount":
        """The disk as one process sees it; ``kill`` ends the rest of that process."""
        return Mount(self, kill)

    def boot(self, mount: "Mount") -> None:
        """A life is over: nothing of it reaches the files any more."""
        mount.is_dead = True
        self.files = {path: bytearray(data) for path, data in self.files.items()}

    def stop(self) -> None:
        """Nothing more goes wrong."""
        self.rate = 0.0
        self._full_until_ms = -1.0

    # --- between lives ------------------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Remember how it looks: what `damage` may go back to."""
        self._snapshots.append({path: bytes(data) for path, data in self.files.items()})
        del self._snapshots[:-4]

    def damage(self) -> str:
        """Something happens to the files; tells what."""
        kind = self.chance.choice(DAMAGES)
        self.hits[kind] += 1
        if kind == "lost":
            self.files.clear()
            return kind
        if kind == "stale":
            if self._snapshots:
                self.files = {path: bytearray(data) for path, data in self.chance.choice(self._snapshots).items()}
            return kind
        paths = sorted(path for path, data in self.files.items() if data)
        if kind != "cut":
            paths = [path for path in paths if any(part in CHECKED_FILES for part in path.parts)]
        if not paths:
            return f"{kind}: nothing"
        path = self.chance.choice(paths)
        data = self.files[path]
        at = self.chance.randrange(len(data))
        if kind == "cut":
            del data[at:]
        elif kind == "flipped":
            data[at] ^= 1 << self.chance.randrange(8)
        else:
            stretch = self.chance.randbytes(self.chance.randrange(1, 200))
            data[at : at + len(stretch)] = stretch[: len(data) - at]
        return f"{kind}: {path} at {at}"

    # --- asked by mounts ----------------------------------------------------------------------------------------------

    def goes_wrong(self, label: str) -> bool:
        """Count the label, and decide."""
        self.hits[label] += 1
        wrong = self.rate > 0 and self.chance.random() < self.rate
        if wrong:
            self.injected.append(label)
        return wrong

    def is_full(self, label: str) -> bool:
        """Whether there is no room for this."""
        if self.now_ms() < self._full_until_ms:
            self.hits[label] += 1
            return True
        if self.goes_wrong(label):
            self._full_until_ms = self.now_ms() + self.chance.choice([100, 2_000, 10_000])
            return True
        return False


class Mount:
    """`sidecar.store.files.FileSystem` for one life."""

    def __init__(self, disk: Disk, kill: Callable[[], None]) -> None:
        self.disk = disk
        self.is_dead = False
        self._kill = kill

    def open(self, path: Path, *, create: bool = False) -> "MemoryFile":
        self.alive()
        if path not in self.disk.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            self.room_for("create:full")
            self.point("create:before")
            self.disk.files[path] = bytearray()
            self.point("create:after")
        return MemoryFile(self, self.disk.files[path])

    def map(self, path: Path) -> "MemoryMap":
        self.alive()
        return MemoryMap(self.disk.files[path])

    def allocate(self, path: Path, size: int) -> None:
        self.room_for("allocate:full")
        self.point("allocate:before")
        self.disk.files[path] = bytearray(size)
        self.point("allocate:after")

    def size(self, path: Path) -> int | None:
        self.alive()
        data = self.disk.files.get(path)
        return None if data is None else len(data)

    def rename(self, source: Path, target: Path) -> None:
        self.point("rename:before")
        self.disk.files[target] = self.disk.files.pop(source)
        self.point("rename:after")

    def unlink(self, path: Path) -> None:
        self.point("unlink:before")
        self.disk.files.pop(path, None)
        self.point("unlink:after")

    def listdir(self, path: Path) -> list[str]:
        self.alive()
        return [found.name for found in self.disk.files if found.parent == path]

    def makedirs(self, path: Path) -> None:
        self.alive()

    def sync_directory(self, path: Path) -> None:
        self.alive()

    # ------------------------------------------------------------------------------------------------------------------

    def alive(self) -> None:
        """The dead do not touch the disk. Raises SimulatedCrash."""
        if self.is_dead:
            raise SimulatedCrash("the process is dead")

    def die(self, label: str) -> None:
        """Raises SimulatedCrash."""
        self.is_dead = True
        self._kill()
        raise SimulatedCrash(f"at the disk's {label}")

    def point(self, label: str) -> None:
        """A labelled point at which the process may die."""
        self.alive()
        if self.disk.goes_wrong(label):
            self.die(label)

    def room_for(self, label: str) -> None:
        """Raises OSError(ENOSPC) while the disk is full."""
        self.alive()
        if self.disk.is_full(label):
            raise OSError(errno.ENOSPC, "No space left on device")


class MemoryFile:
    """`sidecar.store.files.File`."""

    def __init__(self, mount: Mount, data: bytearray) -> None:
        self._mount = mount
        self._data = data

    def pread(self, length: int, position: int) -> bytes:
        self._mount.alive()
        return bytes(self._data[position : position + length])

    def pwrite(self, data: bytes | memoryview, position: int) -> int:
        mount = self._mount
        mount.room_for("write:full")
        mount.point("write:before")
        if mount.disk.goes_wrong("write:torn"):
            self._put(data[: len(data) // 2], position)
            mount.die("write:torn")
        if len(data) > 1 and mount.disk.goes_wrong("write:short"):
            data = data[: mount.disk.chance.randrange(1, len(data))]
        self._put(data, position)
        mount.point("write:after")
        return len(data)

    def _put(self, data: bytes | memoryview, position: int) -> None:
        if len(self._data) < position:
            self._data.extend(bytes(position - len(self._data)))
        self._data[position : position + len(data)] = data

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        self._mount.point("truncate:before")
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))
        self._mount.point("truncate:after")

    def sync(self) -> None:
        self._mount.alive()

    def close(self) -> None:
        pass


class MemoryMap:
    """`sidecar.store.files.MappedFile`."""

    def __init__(self, data: bytearray) -> None:
        self._view = memoryview(data)

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self) -> None:
        pass

    def release(self) -> None:
        pass

    def close(self) -> None:
        self._view.release()
