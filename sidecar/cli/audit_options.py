"""What ``audit batch`` and ``audit stream`` have in common: options, the session, errors, progress."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connectors.contract import is_legal_topic_name
from sidecar.cli.audit_ending import end_on_signals
from sidecar.errors import KafkaUnreachableError, TimewheelError, UsageError
from sidecar.settings import Settings
from spark.errors import AuditError, NotAnsweredError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.cluster import Cluster

SETTINGS = ("bootstrap_servers", "kafka", "topic_prefix", "levels")

Destinations = Annotated[
    list[str] | None,
    typer.Option(
        "--destination",
        help="Only messages for this topic, beside retries, dead letters, and what names no topic; repeat for more. "
        "Default: for every topic that messages name.",
        metavar="TOPIC",
    ),
]
_MASTER = re.compile(r"local(\[(\*|[0-9]+)(, *[0-9]+)?])?|local-cluster\[.+]|(spark|k8s)://.+|yarn")
"""What Spark takes; of anything else it shows where in Java it has failed."""


def known_master(given: str | None) -> str | None:
    """The option as it was given.

    Raises:
        UsageError: Spark would not take it.
    """
    if given and not _MASTER.fullmatch(given):
        raise UsageError(
            f"--master '{given}' is no place where Spark runs; write local[*], local[2], spark://HOST:PORT, yarn or "
            "k8s://https://HOST:PORT"
        )
    return given


Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs, as spark-submit's --master. Default: spark-submit's, else all cores here.",
        callback=known_master,
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", help="An option of Spark's; repeat for more.", metavar="NAME=VALUE"),
]


@contextmanager
def audit_errors() -> Iterator[None]:
    """The audit's errors with their exit codes; what Spark itself fails with, in a sentence."""
    try:
        yield
    except NotAnsweredError as error:
        raise KafkaUnreachableError(str(error)) from error
    except AuditError as error:
        raise TimewheelError(str(error)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise TimewheelError(f"Spark has failed: {_cause(error)[:1_000]}") from error


def _cause(error: Exception) -> str:
    """The first line of an error; of one that Java has thrown, its first line and that of its innermost cause."""
    told = str(error).strip().splitlines() or [type(error).__name__]
    if len(told) == 1 or not told[0].startswith("An error occurred while calling"):  # py4j's words; Java's follow
        return told[0]
    causes = [line.removeprefix("Caused by: ") for line in told if line.startswith("Caused by: ")]
    return "; caused by ".join([told[1].removeprefix(": "), *causes[-1:]])


def session(name: str, master: str | None, conf: list[str] | None) -> "SparkSession":
    """The session that the options describe. From here on a SIGTERM or Ctrl-C ends Spark, too.

    Raises:
        UsageError: the options cannot be used.
    """
    from spark.session import spark_session

    options = {}
    for text in conf or []:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f"--spark-conf '{text}' is not name=value")
        options[key] = value
    end_on_signals()
    return spark_session(f"timewheel audit {name}", master=master, conf=options)


def cluster(settings: Settings, *, is_read_by_spark: bool = True) -> "Cluster":
    """Kafka, as the settings describe it; it has answered, and Spark's client can be told the same."""
    from spark.cluster import Cluster
    from spark.kafka_options import for_spark

    found = Cluster({"bootstrap.servers": settings.bootstrap_servers, **settings.kafka})
    if is_read_by_spark:
        for_spark(found.options)
    found.topics()
    return found


def destinations(settings: Settings, given: list[str] | None) -> tuple[str, ...]:
    """The topics that `Destinations` names. Raises UsageError for what can be none."""
    return tuple(topic("--destination", name, settings.topic_names.physical(name)) for name in given or [])


def topic(option: str, given: str, name: str) -> str:
    """The topic's name. Raises UsageError where Kafka can have none of that name."""
    if not is_legal_topic_name(name):
        raise UsageError(
            f"{option} '{given}' is not a legal topic name (at most 249 letters, digits, '.', '_' and '-'); "
            "write it as Kafka lists it"
        )
    return name


def check_named(option: str, path: str) -> None:
    """Raises UsageError where no directory is named: what lies in it would lie in the root of the file system."""
    if not path.strip():
        raise UsageError(f"{option} is empty; name a directory")


def is_uri(path: str) -> bool:
    """Whether a directory is in a file system that Spark knows by its scheme, such as s3a:// or hdfs:/."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) is not None


def check_output(option: str, path: str) -> None:
    """Raises UsageError where a directory on this machine cannot be made, or written to."""
    check_named(option, path)
    if is_uri(path):
        return
    try:
        there = next(above for above in (Path(path), *Path(path).absolute().parents) if above.exists())
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be used: {error.strerror}; name another directory") from error
    if not there.is_dir():
        raise UsageError(f"{option} {path}: {there} is not a directory; name one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: this user may not write to {there}; name another directory")


def check_apart(option: str, path: str, table: str) -> None:
    """Raises UsageError where a directory is in the stream's table: each day Delta removes from there what is not its.

    What begins with ``_`` it leaves alone.
    """
    inner, outer = (one if is_uri(one) else str(Path(one).resolve()) for one in (path, table))
    rest = f"{inner}/".removeprefix(f"{outer.rstrip('/')}/")
    if rest != f"{inner}/" and not rest.startswith("_"):
        raise UsageError(
            f"{option} {path} is within --facts {table}, from where files that are not the table's are removed after a "
            "week; name a directory beside it"
        )


class Step:
    """One step: a line when it begins, and how long it took."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began_s = 0.0

    def __enter__(self) -> "Step":
        self._began_s = time.monotonic()
        print(f"timewheel: {self._name} …", file=sys.stderr, flush=True)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            seconds = time.monotonic() - self._began_s
            print(f"timewheel: {self._name}: {seconds:.1f} s", file=sys.stderr, flush=True)
