"""A disk in memory that outlives its processes, and does to them what disks do.

    disk = Disk(random.Random(seed), rate, clock)
    mount = disk.mount(process)            # a FileSystem for one life of one process
    Loop(..., file_system=mount)
    disk.boot(mount)                       # the life is over: what it has mapped or open it can no longer change

**During a life** every call passes a label (`LABELS`), and with probability `rate` something goes wrong there:

    fault    what the process sees                          why it happens in the field
    crash    SimulatedCrash, before or after the effect     kill -9 at that very moment
    torn     half of a write is done, then SimulatedCrash   kill -9 inside a write
    short    pwrite writes less than it was given           a signal, a quota
             pread reads less than it was asked for         a signal, a network's file system
    full     OSError(ENOSPC), from now on for seconds       somebody else's files
    failed   OSError(EIO) by a sync                         a cable, a dying device

**Between two lives** `damage` does one of `DAMAGES`, and `lose_power` takes what was not synced: of the names that
have changed since the last sync of a directory the latest few (journals keep order), of the bytes that have changed
since the last sync of their file any pages (nothing keeps those in order).
"""

import errno
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from connectors.testing import Process, SimulatedCrash
from sidecar.clock import Clock

_EFFECTS = ("write", "rename", "truncate", "unlink", "rmdir", "allocate", "create", "sync")
LABELS: tuple[str, ...] = (
    *(f"{effect}:{side}" for effect in _EFFECTS for side in ("before", "after")),
    "write:torn",
    "write:short",
    "read:short",
    "write:full",
    "create:full",
    "allocate:full",
    "sync:failed",
)
"""Every point at which something may go wrong."""

DAMAGES = ("lost", "stale", "flipped", "overwritten", "zeroed", "cut")
"""What may happen to the files between two lives: `Disk.damage`."""

FULL_MS = (100, 2_000, 10_000)
PAGE_BYTES = 64
"""Far less than a real one, as the files are far smaller."""
_UNSYNCED_NAMES_MAX = 20
"""Changes of names that a loss of power may undo; the ones before have reached the disk by themselves."""


class Inode:
    """A file: its bytes, those that a sync has made durable, and when it was last written to."""

    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self, data: bytes = b"", synced: bytes = b"", *, modified_ms: int = 0) -> None:
        self.data = bytearray(data)
        self.synced = synced
        self.modified_ms = modified_ms

    def sync(self) -> None:
        self.synced = bytes(self.data)


class Disk:
    """Files by path, and their history.

    Args:
        chance: decides what goes wrong.
        rate: how probable a fault is at a label.
        clock: the machine's.
    """

    def __init__(self, chance: random.Random, rate: float, clock: Clock) -> None:
        self.chance = chance
        self.rate = rate
        self.clock = clock
        self._read_chance = random.Random(repr(chance.getstate()))
        """Reads are many: what else goes wrong does not depend on how many."""
        self.files: dict[Path, Inode] = {}
        self.boots = 1
        """Runs of the operating system."""
        self.hits: Counter[str] = Counter()
        self.injected: list[str] = []
        """What went wrong, in order: what a failing seed prints."""
        self._full_until_ms = -1.0
        self._snapshots: list[dict[Path, bytes]] = []
        self._names: list[dict[Path, Inode]] = [{}]
        """How the directories looked at their last sync, and after each change since."""

    def mount(self, process: Process) -> "Mount":
        """The disk as one process sees it."""
        return Mount(self, process)

    def boot(self, mount: "Mount") -> None:
        """A life is over: nothing of it reaches the files any more."""
        mount.is_cut_off = True
        for inode in self.files.values():
            inode.data = bytearray(inode.data)

    def fill(self, for_ms: float) -> None:
        """Nothing can be written for so long."""
        self._full_until_ms = self.clock.monotonic_ms() + for_ms

    def stop(self) -> None:
        """Nothing more goes wrong."""
        self.rate = 0.0
        self._full_until_ms = -1.0

    # --- between lives ------------------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Remember how it looks: what `damage` may go back to."""
        self._snapshots.append({path: bytes(inode.data) for path, inode in self.files.items()})
        if len(self._snapshots) > 4:
            del self._snapshots[self.chance.randrange(4)]

    def lose_power(self) -> None:
        """The machine goes down with whatever was not synced. No process may be left."""
        self.boots += 1
        self.files = dict(self.chance.choice(self._names))
        for inode in self.files.values():
            inode.data = self._left_of(inode)
        self._settle()

    def _left_of(self, inode: Inode) -> bytearray:
        size = self.chance.choice([len(inode.synced), len(inode.data)])
        left = bytearray(inode.synced.ljust(size, b"\0")[:size])
        share = self.chance.choice([0.0, 0.5, 1.0])
        for begin in range(0, size, PAGE_BYTES):
            if self.chance.random() < share:
                page = inode.data[begin : min(begin + PAGE_BYTES, size)]
                left[begin : begin + len(page)] = page
        return left

    def _settle(self) -> None:
        """What is there now has reached the disk."""
        for inode in self.files.values():
            inode.sync()
        self._names = [dict(self.files)]

    def damage(self) -> str:
        """Something happens to the files; tells what. No process may be left."""
        kind = self.chance.choice(DAMAGES)
        self.hits[kind] += 1
        told = kind
        if kind == "lost":
            self.files.clear()
        elif kind == "stale":
            if self._snapshots:
                files, now_ms = self.chance.choice(self._snapshots), self.clock.now_ms()
                self.files = {path: Inode(data, modified_ms=now_ms) for path, data in files.items()}
        else:
            told += self._damage_file(kind)
        self._settle()
        return told

    def _damage_file(self, kind: str) -> str:
        """Any byte of any file: all are under a checksum, those of timer log and wheel in the checkpoint."""
        paths = sorted(path for path, inode in self.files.items() if inode.data)
        if not paths:
            return ": nothing"
        path = self.chance.choice(paths)
        data = self.files[path].data
        begin = self.chance.randrange(len(data))
        end = min(len(data), begin + self.chance.randrange(1, 200))
        if kind == "cut":
            del data[begin:]
        elif kind == "flipped":
            data[begin] ^= 1 << self.chance.randrange(8)
        elif kind == "overwritten":
            data[begin:end] = self.chance.randbytes(end - begin)
        else:
            data[begin:end] = bytes(end - begin)
        return f": {path} from {begin}"

    # --- asked by mounts ----------------------------------------------------------------------------------------------

    def renamed(self) -> None:
        """A name has been made, moved or removed."""
        self._names.append(dict(self.files))
        del self._names[:-_UNSYNCED_NAMES_MAX]

    def names_synced(self) -> None:
        self._names = [dict(self.files)]

    def goes_wrong(self, label: str) -> bool:
        """Count the label, and decide."""
        self.hits[label] += 1
        wrong = self.rate > 0 and self.chance.random() < self.rate
        if wrong:
            self.injected.append(label)
        return wrong

    def length_read(self, length: int) -> int:
        """How many bytes a read of so many is given."""
        self.hits["read:short"] += 1
        if length < 2 or self.rate == 0 or self._read_chance.random() >= self.rate:
            return length
        self.injected.append("read:short")
        return self._read_chance.randrange(1, length)

    def is_full(self, label: str) -> bool:
        """Whether there is no room for this."""
        if self.clock.monotonic_ms() < self._full_until_ms:
            self.hits[label] += 1
            return True
        if self.goes_wrong(label):
            self.fill(self.chance.choice(FULL_MS))
            return True
        return False


class Mount:
    """`sidecar.store.files.FileSystem` for one life."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self.disk = disk
        self.is_cut_off = False
        self._process = process

    def open(self, path: Path, *, create: bool = False) -> "MemoryFile":
        self.alive()
        if path not in self.disk.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            self.room_for("create:full")
            self.point("create:before")
            self.disk.files[path] = Inode(modified_ms=self.disk.clock.now_ms())
            self.disk.renamed()
            self.point("create:after")
        return MemoryFile(self, self.disk.files[path])

    def map(self, path: Path) -> "MemoryMap":
        self.alive()
        return MemoryMap(self, self.disk.files[path])

    def allocate(self, path: Path, size: int) -> None:
        self.room_for("allocate:full")
        self.point("allocate:before")
        self.disk.files[path] = Inode(bytes(size), modified_ms=self.disk.clock.now_ms())
        self.disk.renamed()
        self.point("allocate:after")

    def size(self, path: Path) -> int | None:
        self.alive()
        inode = self.disk.files.get(path)
        return None if inode is None else len(inode.data)

    def modified_ms(self, path: Path) -> int | None:
        self.alive()
        inode = self.disk.files.get(path)
        return None if inode is None else inode.modified_ms

    def rename(self, source: Path, target: Path) -> None:
        self.point("rename:before")
        self.disk.files[target] = self.disk.files.pop(source)
        self.disk.renamed()
        self.point("rename:after")

    def unlink(self, path: Path) -> None:
        self.point("unlink:before")
        if self.disk.files.pop(path, None) is not None:
            self.disk.renamed()
        self.point("unlink:after")

    def listdir(self, path: Path) -> list[str]:
        self.alive()
        depth = len(path.parts)
        return list({found.parts[depth]: None for found in self.disk.files if path in found.parents})

    def rmdir(self, path: Path) -> None:
        """There are none but those with files in them."""
        self.point("rmdir:before")
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        self.point("rmdir:after")

    def makedirs(self, path: Path) -> None:
        self.alive()

    def sync_directory(self, path: Path) -> None:
        self.sync(self.disk.names_synced)

    # ------------------------------------------------------------------------------------------------------------------

    def alive(self) -> None:
        """The dead do not touch the disk. Raises SimulatedCrash."""
        if self.is_cut_off or self._process.is_dead:
            raise SimulatedCrash("the process is dead")

    def die(self, label: str) -> None:
        """Raises SimulatedCrash."""
        self._process.kill()
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

    def sync(self, effect: Callable[[], None]) -> None:
        """Raises OSError(EIO) where it fails: nothing is durable by it then."""
        self.point("sync:before")
        if self.disk.goes_wrong("sync:failed"):
            raise OSError(errno.EIO, "Input/output error")
        effect()
        self.point("sync:after")


class MemoryFile:
    """`sidecar.store.files.File`."""

    def __init__(self, mount: Mount, inode: Inode) -> None:
        self._mount = mount
        self._inode = inode

    def pread(self, length: int, position: int) -> bytes:
        self._mount.alive()
        return bytes(self._inode.data[position : position + self._mount.disk.length_read(length)])

    def will_need(self, length: int, position: int) -> None:
        self._mount.alive()

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
        held = self._inode.data
        if len(held) < position:
            held.extend(bytes(position - len(held)))
        held[position : position + len(data)] = data
        self._inode.modified_ms = self._mount.disk.clock.now_ms()

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._mount.point("truncate:before")
        held = self._inode.data
        del held[size:]
        held.extend(bytes(size - len(held)))
        self._inode.modified_ms = self._mount.disk.clock.now_ms()
        self._mount.point("truncate:after")

    def sync(self) -> None:
        self._mount.sync(self._inode.sync)

    def close(self) -> None:
        pass


class MemoryMap:
    """`sidecar.store.files.MappedFile`."""

    def __init__(self, mount: Mount, inode: Inode) -> None:
        self._mount = mount
        self._inode = inode
        self._view = memoryview(inode.data)

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self) -> None:
        self._mount.sync(self._inode.sync)

    def release(self) -> None:
        pass

    def close(self) -> None:
        self._view.release()
