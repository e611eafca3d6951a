"""The pinned jars that make up the broker: which they are, and where they lie in the cache.

The list is package data (`jars.txt`), checksums included, so no POM is resolved and two machines run the same bytes.
A jar reaches the cache under its final name only when it is whole and its checksum fits; so *present* means *good*, and
a start with a full cache touches neither the network nor the packages that would be needed for it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from connectors.embedded.cache import cache_dir
from connectors.embedded.errors import EmbeddedKafkaError

_LINE = re.compile(r"(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+)\s+(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of a Maven repository."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The group is part of it: two groups may publish artifacts of one name."""
        return f"{self.group}.{self.artifact}-{self.version}.jar"


def parse_jar_list(text: str) -> tuple[Jar, ...]:
    """Read `group:artifact:version sha256` lines; blank lines and `#` comments are skipped.

    Raises `EmbeddedKafkaError` naming the first line that is neither, or that names an artifact again.
    """
    jars: dict[tuple[str, str], Jar] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise EmbeddedKafkaError(f"jar list, line {number}: {line!r} is not 'group:artifact:version sha256'")
        jar = Jar(**match.groupdict())
        if (jar.group, jar.artifact) in jars:
            raise EmbeddedKafkaError(f"jar list, line {number}: {jar.group}:{jar.artifact} is there twice")
        jars[jar.group, jar.artifact] = jar
    return tuple(jars.values())


@cache
def pinned_jars() -> tuple[Jar, ...]:
    """The jars of this release, in class path order."""
    return parse_jar_list(resources.files("connectors.embedded").joinpath("jars.txt").read_text(encoding="utf-8"))


def kafka_version() -> str:
    return next(jar.version for jar in pinned_jars() if jar.artifact == "kafka-clients")


def jars_dir() -> Path:
    """The folder of the cache that holds this release's jars."""
    return cache_dir() / f"kafka-{kafka_version()}"


def missing_jars(folder: Path, jars: Iterable[Jar]) -> list[Jar]:
    """The jars that are not in the folder yet."""
    return [jar for jar in jars if not _is_there(folder / jar.file_name)]


def class_path() -> str:
    """Kafka's class path for `java -cp`; fetches what is not cached yet.

    Raises `JarFetchError` or `MissingExtraError`.
    """
    return ":".join(map(str, present_jars(f"Kafka {kafka_version()}", jars_dir(), pinned_jars())))


def present_jars(title: str, folder: Path, jars: Iterable[Jar]) -> list[Path]:
    """Where the jars lie, in their order; fetches what is not there yet.

    Raises `JarFetchError` or `MissingExtraError`.
    """
    jars = tuple(jars)
    if missing_jars(folder, jars):
        from connectors.embedded.fetch import fetch_jars  # only now: it takes jgo and a network

        fetch_jars(title, folder, jars)
    return [folder / jar.file_name for jar in jars]


def _is_there(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
