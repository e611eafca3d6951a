"""The audit's tables: what an overwrite leaves behind."""

import os
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import tables
from spark.errors import AuditError
from spark.facts import SCHEMA
from spark.stream import is_streamed

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

DAY_S = 86_400


def test_a_table_that_is_written_anew_is_cleared_once_a_day(spark: SparkSession, tmp_path: Path) -> None:
    young, old = tmp_path / "young", tmp_path / "old"
    for number in range(3):
        tables.write(spark.range(number + 1).coalesce(1), str(young))
    spark.sql(
        f"ALTER TABLE delta.`{young}` SET TBLPROPERTIES ('delta.deletedFileRetentionDuration'='interval 0 hours')"
    )
    shutil.copytree(young, old)
    long_ago = time.time() - 2 * DAY_S
    for commit in (old / "_delta_log").glob("*.json"):
        os.utime(commit, (long_ago, long_ago))
    for path, kept in ((young, 3), (old, 1)):
        tables.vacuum_daily(spark, str(path))
        assert len(list(path.glob("*.parquet"))) == kept
    tables.write(spark.range(9).coalesce(1), str(old))
    tables.vacuum_daily(spark, str(old))
    assert len(list(old.glob("*.parquet"))) == 2
    assert tables.read(spark, str(old)).count() == 9


def test_what_has_been_replaced_within_a_week_stays_unless_nobody_else_reads_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        tables.write(spark.range(number + 1).coalesce(1), str(tmp_path))
    for is_private, kept in ((False, 3), (True, 1)):
        tables.vacuum(spark, str(tmp_path), is_private=is_private)
        assert len(list(tmp_path.glob("*.parquet"))) == kept
    assert tables.read(spark, str(tmp_path)).count() == 3


def test_a_relative_path_is_as_good_as_any(spark: SparkSession, tmp_path: Path) -> None:
    path = os.path.relpath(tmp_path)
    facts = spark.createDataFrame([], SCHEMA)
    for _ in range(2):
        tables.write_facts(facts, path, "append")
    tables.compact(spark, path, "2020-01-01")
    tables.vacuum(spark, path)
    tables.vacuum_daily(spark, path)
    assert tables.read_facts(spark, path).count() == 0


def test_where_the_first_write_was_interrupted_there_is_no_table_and_the_next_one_makes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "_delta_log" / "_staged_commits").mkdir(parents=True)
    with pytest.raises(AuditError, match=r"holds no table of the audit: .*doesn't exist"):
        tables.read(spark, str(tmp_path))
    assert not is_streamed(spark, str(tmp_path))
    tables.write(spark.range(3), str(tmp_path))
    assert tables.read(spark, str(tmp_path)).count() == 3
