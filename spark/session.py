"""A Spark session for the audit: on this machine, on a cluster, or the one that spark-submit has begun."""

import os
import pwd
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from spark import packages
from spark.errors import MissingSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_NEARLY_UNIQUE = (
    "id",
    "offset",
    "timestamp_ms",
    "due_ms",
    "scheduled_ms",
    "delivered_ms",
    "delivered_offset",
    "content",
)
"""Columns of which a dictionary would be made for nothing."""
_ALWAYS = {
    **_TABLES,
    "spark.sql.session.timeZone": "UTC",
    # Of columns that are made of columns it derives more conditions than there is time to plan with.
    "spark.sql.constraintPropagation.enabled": "false",
    # A larger method is run by the JVM's interpreter for ever: operators are then compiled one by one, in small ones.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # What is kept is read once or twice, and soon: to choose how to compress each column costs more than it spares.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # A fold over millions of ids is quicker in parts whose hash maps come near to what the processor's caches hold.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4m",
    **{f"spark.hadoop.parquet.enable.dictionary#{column}": "false" for column in _NEARLY_UNIQUE},
    # Kafka's fetches of one executor follow each other; a consumer is kept for the next range of its partition. What it
    # has fetched ahead, tens of MB a partition, is then let go: what a batch has read is judged in the same memory.
    "spark.kafka.consumer.cache.timeout": "30s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "10s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "30s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "10s",
    "spark.databricks.delta.snapshotPartitions": "2",
    # Lowest and highest of every column of every file: verdicts are read whole, and facts by day.
    "spark.databricks.delta.stats.collect": "false",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}


def spark_session(app: str, *, master: str | None = None, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """A session with the Kafka source and Delta tables.

    Args:
        master: as spark-submit's; None: what spark-submit has chosen, else all cores of this machine.
        conf: Spark's options, which win over ours.

    Raises:
        MissingSparkError: pyspark, its jars, a Java runtime or a name for the user cannot be had.
    """
    packages.check_pyspark()
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    options = {**_ALWAYS, "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    if not is_submitted:
        _check_user()
        master = master or "local[*]"
        options["spark.jars"] = ",".join(map(str, packages.jars()))
        os.environ["JAVA_HOME"] = str(packages.java_home())
        options["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile=file:{_log_settings()}"
    if master and master.startswith("local"):
        options |= _LOCAL
        cores = os.cpu_count() or 1
        options["spark.sql.shuffle.partitions"] = str(2 * cores)  # a stream keeps a state for each
        options["spark.sql.adaptive.coalescePartitions.initialPartitionNum"] = str(16 * cores)
    described = SparkConf().setAppName(app)
    if master:
        described.setMaster(master)
    described.setAll([*{**options, **(conf or {})}.items()])
    try:
        with _handler_kept(signal.SIGINT):
            SparkContext.getOrCreate(described)
        session = SparkSession.builder.config(conf=described).getOrCreate()
    except (PySparkException, RuntimeError) as error:  # what the launcher had to say is on stderr
        raise MissingSparkError(f"Spark does not start: {error}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _handler_kept(number: int) -> Iterator[None]:
    """Spark's context puts a handler of its own in the place of the caller's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, handler)


def _check_user() -> None:
    """Hadoop's login, which Spark begins with, fails for a user without a name, and does not say whose is wanting.

    Raises:
        MissingSparkError: the user has none.
    """
    uid = os.geteuid()
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise MissingSparkError(
            f"Spark wants a name for its user, and uid {uid} has none in /etc/passwd. Operator action: run it as a "
            "user that has one, or mount an /etc/passwd with a line such as "
            f"'timewheel:x:{uid}:{os.getegid()}::/tmp:/bin/false'"
        ) from None


def _log_settings() -> Path:
    return Path(str(resources.files("spark").joinpath("log4j2.properties")))
