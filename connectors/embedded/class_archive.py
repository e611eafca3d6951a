"""A class data sharing archive (JEP 350) of the classes that the broker loads: it halves the start.

The first run records one when it stops, which takes some two seconds once; later runs and tools map it. The JVM checks
an archive against its own build and the class path, and runs without one that does not fit, so a stale or damaged file
costs time and nothing else. Its name is made of what it depends on: runtime and jars.
"""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from connectors.embedded.java import Java

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_BASE_DUMP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one runtime and one class path; neither file need exist."""

    java: Java
    path: Path
    base: Path | None
    """The archive of Java's own classes below it: None where the runtime brings its own, as most do."""

    @classmethod
    def of(cls, java: Java, class_path: str) -> "ClassArchive":
        key = hashlib.sha256(f"{java.path.resolve()} {java.version}".encode())
        for jar in class_path.split(":"):
            key.update(f"{jar} {os.stat(jar).st_mtime_ns}".encode())  # noqa: PTH116
        folder = Path(class_path.split(":", 1)[0]).parent
        name = key.hexdigest()[:16]
        has_base = (java.path.resolve().parent.parent / "lib" / "server" / "classes.jsa").exists()
        return cls(java, folder / f"classes-{name}.jsa", None if has_base else folder / f"base-{name}.jsa")

    @property
    def exists(self) -> bool:
        return self.path.exists() and (self.base is None or self.base.exists())

    def flags_to_use(self) -> list[str]:
        """JVM flags; none when nothing has been recorded yet."""
        if not self.exists:
            return []
        files = [str(file) for file in (self.base, self.path) if file]
        return [f"-XX:SharedArchiveFile={':'.join(files)}", *_QUIET]

    def flags_to_record(self, target: Path) -> list[str]:
        """JVM flags that write the archive to the target at a clean exit; none where it could not be kept."""
        if not os.access(self.path.parent, os.W_OK) or not self._ensure_base():
            return []
        on_base = [] if self.base is None else [f"-XX:SharedArchiveFile={self.base}"]
        return [*on_base, f"-XX:ArchiveClassesAtExit={target}", *_QUIET]

    def keep(self, recorded: Path) -> None:
        """Move what a run recorded, if it did, to where later runs look."""
        if recorded.exists():
            _into_place(recorded, self.path)

    def _ensure_base(self) -> bool:
        if self.base is None or self.base.exists():
            return True
        dumped = self.base.with_name(f"{self.base.name}.{os.getpid()}")
        command = [str(self.java.path), "-Xshare:dump", "-XX:+UseG1GC", f"-XX:SharedArchiveFile={dumped}"]
        try:
            subprocess.run(command, capture_output=True, timeout=_BASE_DUMP_TIMEOUT_S, check=True)
            dumped.replace(self.base)
        except (OSError, subprocess.SubprocessError):
            dumped.unlink(missing_ok=True)
            return False
        return True


def _into_place(source: Path, destination: Path) -> None:
    """Atomic for who reads the destination, also from another file system; a failure only means no archive."""
    beside = destination.with_name(f"{destination.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, beside)
        beside.replace(destination)
    except OSError:
        beside.unlink(missing_ok=True)
    source.unlink(missing_ok=True)
