"""What ``audit batch`` and ``audit stream`` have in common: options, the session, errors, progress."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from connectors.durations import DurationError, parse_duration_ms
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
        help="Only messages for this topic; repeat for more. Default: for every topic that messages name.",
        metavar="TOPIC",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs, as spark-submit's --master. Default: spark-submit's, else all cores here."),
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
    """The session that the options describe."""
    from spark.session import spark_session

    options = {}
    for text in conf or []:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f"--spark-conf '{text}' is not name=value")
        options[key] = value
    return spark_session(f"timewheel audit {name}", master=master, conf=options)


def cluster(settings: Settings) -> "Cluster":
    """Kafka, as the settings describe it; it has answered."""
    from spark.cluster import Cluster

    found = Cluster({"bootstrap.servers": settings.bootstrap_servers, **settings.kafka})
    found.topics()
    return found


def time_ms(option: str, text: str | None) -> int | None:
    """An ISO 8601 time as epoch milliseconds; None where none is given."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} '{text}' is not an ISO 8601 time, such as 2030-01-31T09:00:00+01:00") from error
    if at.utcoffset() is None:
        raise UsageError(f"{option} '{text}' has no time zone; add one, such as {at.isoformat()}+00:00")
    return int(at.timestamp() * 1000)


def duration_ms(option: str, text: str) -> int:
    try:
        return parse_duration_ms(text)
    except DurationError as error:
        raise UsageError(f"{option} {error}") from None


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
