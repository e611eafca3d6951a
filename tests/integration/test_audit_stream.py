"""What ``audit stream`` reads, and when it says so; topics are directories here, and Kafka is none."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connectors.contract import DelayLevels, Place, TopicKind, TopicNames
from spark import tables
from spark.batch import Job
from spark.cluster import Cluster
from spark.errors import AuditError
from spark.facts import LATER_COLUMNS, SCHEMA
from spark.reconcile import Rules
from spark.sources import read_ranges
from spark.stream import ONLY, READ_UNTIL, Ingest, is_streamed, kept_destinations
from tests.support.audit_story import LEVELS, NAMES, SOURCE, WHEEL, Read, facts_of, source

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

AT_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class Topics(Cluster):
    """Topics of a partition each, and the table that is made of them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.options = {}
        self.at_ms = AT_MS
        self.ends: dict[Place, int] = {}
        """How far partitions are written."""
        self.open: dict[Place, int] = {}
        """Where transactions begin that are open."""
        self.ids: dict[str, str] = {}
        self.told: list[str] = []
        self._spark = spark
        self._directory = directory

    def write(self, record: Read) -> None:
        """A record; makes its topic."""
        source(self._spark, [record]).coalesce(1).write.mode("append").parquet(self._path(record.topic))

    def delete(self, topic: str) -> None:
        shutil.rmtree(self._path(topic))

    def topics(self) -> dict[str, list[int]]:
        return {path.name: [0] for path in (self._directory / "topics").glob("*")}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def written(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.ends[place] for place in places if place in self.ends}

    def held_back(self, written: Mapping[Place, int]) -> dict[Place, int]:
        return {place: self.open[place] for place in written if place in self.open}

    def streams(
        self, spark: SparkSession, _: Mapping[str, str], topics: Iterable[str], names: TopicNames, max_records: int
    ) -> dict[TopicKind, DataFrame]:
        """As `spark.sources.read_streams_by_kind`."""
        of_kind: dict[TopicKind, list[str]] = {}
        for topic in topics:
            of_kind.setdefault(names.kind(topic), []).append(topic)
        reader = spark.readStream.schema(SOURCE)
        return {kind: reader.parquet(self._path("{" + ",".join(of_kind[kind]) + "}")) for kind in of_kind}

    def ingest(self, *destinations: str, levels: DelayLevels = LEVELS, names: TopicNames = NAMES) -> Ingest:
        """As a process that was started has it."""
        checkpoint = str(self._directory / "checkpoint")
        job = Job(names, levels, Rules(0, destinations=destinations))
        return Ingest(self._spark, self, job, self.facts, checkpoint, 1_000, self.told.append, lambda: self.at_ms)

    def kinds(self) -> list[str]:
        return sorted(row["kind"] for row in tables.read_facts(self._spark, self.facts).collect())

    @property
    def facts(self) -> str:
        return str(self._directory / "facts")

    def _path(self, topic: str) -> str:
        return str(self._directory / "topics" / topic)


@pytest.fixture
def topics(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topics:
    topics = Topics(spark, tmp_path)
    monkeypatch.setattr("spark.stream.read_streams_by_kind", topics.streams)
    return topics


def a_message(destination: str) -> Read:
    headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"a"), ("TIMER_DELIVER_MS", b"%d" % (AT_MS + DAY_MS))]
    return Read(WHEEL, headers, AT_MS, 0)


def test_a_stream_that_found_no_topics_reads_them_when_they_are_there(topics: Topics) -> None:
    topics.ingest().run_available()
    topics.ingest().run(100, iter([False, True]).__next__)
    assert topics.kinds() == [], "nothing has been read, up to no time"
    topics.write(a_message("orders"))
    topics.ingest().run_available()
    assert topics.kinds() == [READ_UNTIL, "scheduled"]


def test_what_lies_behind_an_open_transaction_is_not_taken_for_read(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert of what is asked for there would never be raised: its time would be judged already."""
    topics.write(a_message("orders"))
    topics.ends = {(WHEEL, 0): 3}
    topics.open = {(WHEEL, 0): 1}
    topics.ingest().run_available()
    assert topics.kinds() == ["scheduled"]
    assert f"{WHEEL}, partition 0: a transaction was open, and nothing from offset 1 on was read" in topics.told[-1]
    # Watched, it waits for the transaction's end, and then marks the time at which it had looked.
    committed = {(WHEEL, 0): 1}
    monkeypatch.setattr("spark.stream.committed_offsets", lambda *_: committed)
    ingest = topics.ingest()
    assert ingest._caught_up_ms() is None
    looked_ms, topics.at_ms = topics.at_ms, topics.at_ms + 60_000
    topics.ends = {(WHEEL, 0): 9}
    assert ingest._caught_up_ms() is None
    committed[WHEEL, 0] = 3
    assert ingest._caught_up_ms() == looked_ms
    assert ingest._caught_up_ms() is None, "what has been written since is not read"


def test_executors_need_no_python(spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.write(a_message("orders"))
    topics.write(Read("orders", [("UNIQ_KEY", b"a")], AT_MS + DAY_MS, 0))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "no-such-python")
    topics.ingest("orders").run_available()
    assert read_ranges(spark, {}, {}).columns == SOURCE.names
    assert read_ranges(spark, {}, {}).isEmpty()
    monkeypatch.undo()
    assert topics.kinds() == ["delivered", ONLY, READ_UNTIL, "scheduled"]


def test_a_run_over_what_there_is_ends_when_it_is_told_to(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.write(a_message("orders"))
    awaited = StreamingQuery.awaitTermination
    monkeypatch.setattr(
        StreamingQuery, "awaitTermination", lambda query, seconds: awaited(query, seconds) and seconds == 0
    )
    topics.ingest().run_available(lambda: True)
    assert READ_UNTIL not in topics.kinds()


def test_topics_that_have_been_deleted_are_named(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.write(a_message("orders"))
    topics.write(Read("orders", [("UNIQ_KEY", b"a")], AT_MS + DAY_MS, 0))
    thrown = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host it."

    def fail(query: StreamingQuery, _: int) -> bool:
        query.stop()
        topics.delete("orders")
        raise StreamingQueryException(thrown)

    monkeypatch.setattr(StreamingQuery, "awaitTermination", fail)
    with pytest.raises(AuditError, match=r"deleted: orders; .* begin a new table and checkpoint"):
        topics.ingest("orders").run_available()


def test_a_topic_that_is_made_anew_while_the_stream_runs_ends_it_without_a_mark(topics: Topics) -> None:
    topics.write(a_message("orders"))
    topics.ids = {WHEEL: "id-1"}
    ingest = topics.ingest()
    ingest.run_available()
    topics.ids = {WHEEL: "id-2"}
    with pytest.raises(AuditError, match=f"deleted and made anew: {WHEEL}"):
        ingest.run_available()
    assert topics.kinds() == [READ_UNTIL, "scheduled"]


def test_a_destination_that_records_of_days_ago_name_is_read_within_a_quarter_of_an_hour(topics: Topics) -> None:
    """Copies of another cluster's records keep their timestamps."""
    topics.write(a_message("orders"))
    ingest = topics.ingest()
    for _ in range(2):
        ingest.run_available()
        topics.at_ms += 5 * DAY_MS
    ingest.run_available()
    topics.write(a_message("invoices"))
    topics.write(Read("invoices", [("UNIQ_KEY", b"a")], topics.at_ms, 0))
    topics.at_ms += 15 * 60_000
    ingest.run_available()  # names it
    topics.at_ms += 15 * 60_000
    ingest.run_available()
    assert "delivered" in topics.kinds()


def test_a_destination_that_is_made_days_after_it_was_named_is_read(topics: Topics) -> None:
    topics.write(a_message("orders"))
    ingest = topics.ingest()
    ingest.run_available()
    topics.at_ms += 5 * DAY_MS
    ingest.run_available()
    topics.write(Read("orders", [("UNIQ_KEY", b"a")], topics.at_ms, 0))
    ingest.run_available()
    assert topics.kinds() == ["delivered", *3 * [READ_UNTIL], "scheduled"]


def test_a_table_that_was_begun_for_some_destinations_is_of_those_for_life(spark: SparkSession, topics: Topics) -> None:
    topics.ingest("orders").run_available()
    topics.ingest("orders").run_available()  # there was no topic yet
    topics.write(a_message("payments"))
    topics.write(Read("payments", [("UNIQ_KEY", b"a")], AT_MS, 0))
    topics.write(Read("orders", [("UNIQ_KEY", b"b")], AT_MS, 0))
    topics.ingest("orders").run_available()
    assert topics.kinds() == ["delivered", ONLY, READ_UNTIL, "scheduled"]
    assert kept_destinations(tables.read_facts(spark, topics.facts)) == ("orders",)
    with pytest.raises(AuditError, match="begun with --destination orders and cannot go on without"):
        topics.ingest()
    with pytest.raises(AuditError, match="cannot go on with --destination orders, payments"):
        topics.ingest("orders", "payments")


def test_a_checkpoint_goes_with_the_table_that_it_was_begun_with(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.write(a_message("orders"))
    topics.ingest().run_available()
    topics.ingest()
    other = Topics(spark, tmp_path / "other")
    other.write(a_message("orders"))
    monkeypatch.setattr("spark.stream.read_streams_by_kind", other.streams)
    other.ingest().run_available()
    monkeypatch.setattr(Topics, "facts", other.facts)
    with pytest.raises(AuditError, match=rf"checkpoint goes with another table than {other.facts}"):
        topics.ingest()


def test_a_table_that_goes_on_with_other_levels_is_told_of(topics: Topics) -> None:
    topics.ingest()
    topics.ingest()
    assert not topics.told
    topics.ingest(levels=DelayLevels.parse("1s 2s"))
    (told,) = topics.told
    assert told.startswith("levels were 1s 5s 10s 30s 1m, and are 1s 2s from here on")
    topics.ingest(levels=DelayLevels.parse("1s 2s"))
    assert len(topics.told) == 1


def test_a_table_does_not_go_on_with_topics_of_other_names(topics: Topics) -> None:
    topics.ingest().run_available()
    with pytest.raises(AuditError, match=r"begun for topics named SCHEDULE_TOPIC_XXXX-.* cannot go on with eu\.SCHED"):
        topics.ingest(names=TopicNames(prefix="eu."))
    topics.ingest().run_available()


def test_a_table_of_all_destinations_does_not_become_one_of_some(topics: Topics) -> None:
    topics.ingest().run_available()
    with pytest.raises(AuditError, match="begun without --destination and cannot go on with --destination orders"):
        topics.ingest("orders")


def test_a_table_that_a_batch_writes_is_not_added_to(spark: SparkSession, topics: Topics) -> None:
    tables.write_facts(spark.createDataFrame([], SCHEMA), topics.facts, "overwrite")
    with pytest.raises(AuditError, match=rf"--facts {topics.facts} is a table of 'audit batch'"):
        topics.ingest()


def test_a_table_that_a_batch_has_overwritten_is_not_gone_on_with(spark: SparkSession, topics: Topics) -> None:
    topics.write(a_message("orders"))
    topics.ingest().run_available()
    shutil.rmtree(topics.facts)
    tables.write_facts(facts_of(spark, [a_message("orders")]), topics.facts, "overwrite")
    with pytest.raises(AuditError, match="is a table of 'audit batch'"):
        topics.ingest()


def test_a_table_that_was_begun_before_tables_said_whose_they_are_is_gone_on_with(
    spark: SparkSession, topics: Topics
) -> None:
    tables.write_facts(spark.createDataFrame([], SCHEMA), topics.facts, "append")
    topics.ingest()
    assert is_streamed(spark, topics.facts)


def test_a_table_that_an_earlier_version_has_begun_gets_the_columns_that_it_lacks(
    spark: SparkSession, topics: Topics
) -> None:
    topics.write(a_message("orders"))
    earlier = spark.createDataFrame([], SCHEMA).drop(*LATER_COLUMNS).withColumn("day", tables.day())
    earlier.write.format("delta").mode("append").partitionBy("day").save(topics.facts)
    facts = tables.read_facts(spark, topics.facts)
    assert set(facts.columns) >= set(LATER_COLUMNS)
    topics.ingest().run_available()
    assert topics.kinds() == ["read_until", "scheduled"]
    assert tables.read_facts(spark, topics.facts).where("content is not null").count() == 1


def test_a_topic_that_was_made_anew_between_two_runs_is_named(topics: Topics) -> None:
    topics.write(a_message("orders"))
    topics.ingest().run_available()
    topics.ids = {WHEEL: "1"}
    topics.ingest()  # of a checkpoint that does not know of ids it is noted now
    topics.ingest().run_available()
    topics.ids = {WHEEL: "2"}
    with pytest.raises(AuditError, match=f"deleted and made anew: {WHEEL}"):
        topics.ingest()
