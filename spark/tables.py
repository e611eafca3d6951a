"""The audit's tables: Delta, facts partitioned by day."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from spark.errors import AuditError
from spark.facts import LATER_COLUMNS, SCHEMA

_WRITER = "timewheel.writer"
"""The table's property that says who writes it, if nobody else may."""
_GOES_WITH = "timewheel.goes-with"
"""That of a checkpoint's list of topics: the id of the table of facts that it was begun with."""
_LEVELS = "timewheel.levels"
"""That of a table of facts: the delays that its stream has read level records by, last."""
_NAMES = "timewheel.names"
"""That of a table of facts: what the topics are called that it is about."""

_FIRST_DAY, _LAST_DAY = "2000-01-01", "2100-01-01"


def day() -> Column:
    """Of a fact's timestamp, in UTC; producers may stamp what they like, and a table has so many days."""
    at = F.timestamp_millis(F.col("timestamp_ms")).cast("date")
    return F.greatest(F.least(at, F.lit(_LAST_DAY).cast("date")), F.lit(_FIRST_DAY).cast("date"))


def of_rows(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: T.DataType) -> DataFrame:
    """A few rows, which Spark makes itself: ``createDataFrame`` wants this Python on the executors."""
    told = F.from_json(F.lit(json.dumps(rows)), T.ArrayType(schema))
    return spark.range(1, numPartitions=1).select(F.inline(told))


def with_day(facts: DataFrame) -> DataFrame:
    return facts.withColumn("day", day())


def write_facts(facts: DataFrame, path: str, mode: str) -> None:
    """Write a batch of facts; ``mode`` is overwrite or append."""
    writer = with_day(facts).write.format("delta").mode(mode).partitionBy("day")
    writer.option("overwriteSchema", str(mode == "overwrite").lower()).save(path)


def write(frame: DataFrame, path: str) -> None:
    """Write a table anew."""
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)


def read(spark: SparkSession, path: str) -> DataFrame:
    """A table.

    Raises:
        AuditError: there is none.
    """
    try:
        return spark.read.format("delta").load(path)
    except AnalysisException as error:  # whose getMessage fails for the errors of Delta's own
        raise AuditError(f"{path} holds no table of the audit: {str(error).splitlines()[0]}") from error


def read_facts(spark: SparkSession, path: str) -> DataFrame:
    """A table of facts; the same columns whoever wrote it.

    Raises:
        AuditError: there is none, or it is no table of facts.
    """
    table = read(spark, path)
    missing = {field.name for field in SCHEMA} - set(table.columns)
    if not missing.issubset(LATER_COLUMNS):
        raise AuditError(f"{path} is not a table of facts: it lacks {', '.join(sorted(missing))}")
    unknown = {field.name: F.lit(None).cast(field.dataType) for field in SCHEMA if field.name in missing}
    return table.withColumns(unknown)


def complete(spark: SparkSession, path: str) -> None:
    """Give a table of facts the columns that it lacks because an earlier version has begun it."""
    known = read(spark, path).columns
    lacking = [f"{name} {SCHEMA[name].dataType.simpleString()}" for name in LATER_COLUMNS if name not in known]
    if lacking:
        spark.sql(f"ALTER TABLE {_table(spark, path)} ADD COLUMNS ({', '.join(lacking)})")


def read_or_none(spark: SparkSession, path: str) -> DataFrame | None:
    """A table; None where there is none."""
    try:
        return read(spark, path)
    except AuditError:
        return None


def writer(spark: SparkSession, path: str) -> str | None:
    """To whom a table belongs (`give_to`); None: to nobody."""
    return _property(spark, path, _WRITER)


def give_to(spark: SparkSession, path: str, name: str) -> None:
    _set_property(spark, path, _WRITER, name)


def goes_with(spark: SparkSession, path: str) -> str | None:
    """The id of the table that it was begun with (`bind`)."""
    return _property(spark, path, _GOES_WITH)


def bind(spark: SparkSession, path: str, table_id: str) -> None:
    _set_property(spark, path, _GOES_WITH, table_id)


def levels(spark: SparkSession, path: str) -> str | None:
    """The delay levels that a table's records were last read by (`remember_levels`)."""
    return _property(spark, path, _LEVELS)


def remember_levels(spark: SparkSession, path: str, delays: str) -> None:
    _set_property(spark, path, _LEVELS, delays)


def names(spark: SparkSession, path: str) -> str | None:
    """What a table's topics are called (`remember_names`)."""
    return _property(spark, path, _NAMES)


def remember_names(spark: SparkSession, path: str, told: str) -> None:
    _set_property(spark, path, _NAMES, told)


def id_of(spark: SparkSession, path: str) -> str:
    """Delta's, which a table keeps wherever it is copied to."""
    table_id: str = spark.sql(f"DESCRIBE DETAIL {_table(spark, path)}").collect()[0]["id"]
    return table_id


def _property(spark: SparkSession, path: str, name: str) -> str | None:
    rows = spark.sql(f"SHOW TBLPROPERTIES {_table(spark, path)}").where(F.col("key") == name).collect()
    return rows[0]["value"] if rows else None


def _set_property(spark: SparkSession, path: str, name: str, value: str) -> None:
    spark.sql(f"ALTER TABLE {_table(spark, path)} SET TBLPROPERTIES ('{name}' = '{value}')")


def is_written_anew(spark: SparkSession, path: str) -> bool:
    """Whether a table has been overwritten, or made by what overwrites."""
    history = spark.sql(f"DESCRIBE HISTORY {_table(spark, path)}")
    return not history.where("operationParameters['mode'] = 'Overwrite'").isEmpty()


def _table(spark: SparkSession, path: str) -> str:
    """By its path, in SQL, which knows no relative one."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    whole = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).makeQualified(place)
    return f"delta.`{whole.toString()}`"


def compact(spark: SparkSession, path: str, since_day: str | None = None) -> None:
    """Join small files, of the days from one on."""
    where = "" if since_day is None else f" WHERE day >= '{since_day}'"
    spark.sql(f"OPTIMIZE {_table(spark, path)}{where}")


def vacuum(spark: SparkSession, path: str, *, is_private: bool = False) -> None:
    """Remove files that have been no part of the table for a week; at once, where nobody else reads it."""
    session = spark.newSession()  # its settings are its own
    # Delta would list the files in ten thousand tasks.
    parallelism = spark.sparkContext.defaultParallelism
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", parallelism)
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(f"VACUUM {_table(spark, path)}" + (" RETAIN 0 HOURS" if is_private else ""))


def vacuum_daily(spark: SparkSession, path: str) -> None:
    """The same for a table that is written anew from time to time: not within a day of the last, nor of its making."""
    history = spark.sql(f"DESCRIBE HISTORY {_table(spark, path)}")
    is_recent = F.col("timestamp") > F.current_timestamp() - F.expr("interval 1 day")
    if history.where(is_recent & ((F.col("operation") == "VACUUM END") | (F.col("version") == 0))).isEmpty():
        vacuum(spark, path)
