"""What ``audit batch`` says of what it could not read; there is no Kafka here, and nothing in its topics."""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connectors.contract import TopicNames
from spark.batch import Job, read_facts
from spark.cluster import Cluster, Place, Range
from spark.reconcile import Rules
from tests.support.audit_story import LEVELS, NAMES, WHEEL

pytestmark = [pytest.mark.slow]


class Empty(Cluster):
    """Topics of a partition each, without a record."""

    def __init__(self, *topics: str) -> None:
        self.options = {}
        self._topics = topics

    def topics(self) -> dict[str, list[int]]:
        return {topic: [0] for topic in self._topics}

    def compacted(self, topics: Iterable[str]) -> list[str]:
        return []

    def ranges(self, places: Iterable[Place], since_ms: int | None = None) -> dict[Place, Range]:
        return {}


def notes_of(spark: SparkSession, path: Path, cluster: Cluster, names: TopicNames = NAMES) -> list[str]:
    job = Job(names, LEVELS, Rules(0), ("orders",))
    return read_facts(spark, cluster, job, str(path), lambda _: nullcontext())


def test_a_destination_that_is_not_seen_may_be_there(spark: SparkSession, tmp_path: Path) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL))
    assert note.startswith("No topic orders is to be seen")
    assert "or it may not be described" in note


def test_an_audit_that_sees_no_topic_of_ours_says_so(spark: SparkSession, tmp_path: Path) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL, "orders"), TopicNames("typo."))
    assert f"such as typo.{WHEEL}: nothing was read" in note


def test_a_level_beyond_the_table_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL, "orders", NAMES.level(6)))
    assert note.startswith(f"{NAMES.level(6)} is of no level of the table")
