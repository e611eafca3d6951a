"""``audit stream``: topics -> the table of facts, for good and exactly once, without state.

    CHECKPOINT/topics     which topics each query reads (Delta): a row a topic, with the number of its query, and its id
    CHECKPOINT/<number>   that query's own progress, Spark's
    FACTS                 the table; a batch of a query is one commit of it, known by the query and the batch's number;
                          nobody else writes it, and its property says so

A query reads the same topics for life, as Spark wants it. Destinations that facts name, and topics of ours that are
new, are given to one more query, from their beginning. What waits for a month is rows of a table here, not state.

From time to time a row of the kind ``read_until`` says up to when everything has been read: an audit of the table is
as of then, so that what only has not been read yet is not missing.

A table that is begun with destinations has a row of the kind ``only`` for each, and is of no others for life: what came
for those is not in it, and would be missing.
"""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from connectors.contract import DelayLevels, Place
from connectors.durations import format_duration
from spark import tables
from spark.batch import Job, failures_since, named_destinations, shortened
from spark.cluster import UNREADABLE, Cluster, audited_topics
from spark.errors import AuditError
from spark.facts import SCHEMA, to_facts
from spark.query_topics import QueryTopics
from spark.sources import read_streams_by_kind

READ_UNTIL = "read_until"
ONLY = "only"
_WRITER = "stream"

_MARK_EVERY_MS = 15_000  # an alert is raised when a mark has passed: well within a minute
_COMPACT_EVERY_MS = 15 * 60_000
_LOOK_AT_ALL_EVERY_MS = 15 * 60_000
_DAY_MS = 86_400_000
_POLL_S = 1.0

Tell = Callable[[str], None]


class Ingest:
    """Streams facts into a table.

    Args:
        facts: the table's path. checkpoint: a directory of its own; the two belong together.
        batch_records: most records of one micro-batch.
        tell: told what happens, a line each.
        now_ms: the time.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster,
        job: Job,
        facts: str,
        checkpoint: str,
        batch_records: int,
        tell: Tell,
        now_ms: Callable[[], int],
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._job = job
        self._facts = facts
        self._checkpoint = checkpoint
        self._batch_records = batch_records
        self._tell = tell
        self._now_ms = now_ms
        self._queries: dict[int, StreamingQuery] = {}
        self._topics = QueryTopics(spark, cluster, checkpoint, facts)
        self._open()
        self._named = set(job.rules.destinations)
        self._marked_ms = 0
        self._looked: tuple[int, dict[Place, int]] | None = None
        """When it was last asked how far everything has been written by then, until all of that has been read."""
        self._compacted_ms, self._vacuumed_ms = now_ms(), 0
        self._looked_at_all_ms = 0
        """When the destinations of all facts were last gone through, instead of those of the last days."""

    # --- running ------------------------------------------------------------------------------------------------------

    def run_available(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Read what there is, and end; or what has been read when it is told to stop.

        Raises:
            AuditError: a query has failed.
        """
        began_ms = self._now_ms()
        self._discover()
        held_back: dict[Place, int] = {}
        done: set[int] = set()
        while waiting := sorted(self._topics.numbers - done):
            held_back |= self._cluster.held_back(self._written(waiting))
            for number in waiting:
                self._start(number, availableNow=True)
            for number in waiting:
                if not self._await(number, is_stopped):
                    return
            done |= set(waiting)
            self._discover()
        for (topic, partition), offset in sorted(held_back.items()):
            self._tell(
                f"{topic}, partition {partition}: a transaction was open, and nothing from offset {offset} on was "
                "read; alerts wait until a run finds it ended"
            )
        if self._topics.numbers and not held_back:
            self._mark(began_ms)
        self._compact()

    def run(self, interval_ms: int, is_stopped: Callable[[], bool]) -> None:
        """Read until told to stop.

        Raises:
            AuditError: a query has failed.
        """
        looked_ms = 0
        try:
            while not is_stopped():
                now_ms = self._now_ms()
                if now_ms - looked_ms >= interval_ms:
                    looked_ms = now_ms
                    self._discover()
                    for number in self._topics.numbers - self._queries.keys():
                        self._start(number, processingTime=f"{interval_ms} milliseconds")
                self._check()
                if now_ms - self._marked_ms >= min(_MARK_EVERY_MS, 6 * interval_ms):
                    until_ms = self._caught_up_ms()
                    if until_ms is not None and until_ms > self._marked_ms:
                        self._mark(until_ms)
                if now_ms - self._compacted_ms >= _COMPACT_EVERY_MS:
                    self._compact()
                time.sleep(_POLL_S)
        finally:
            for query in self._queries.values():
                query.stop()

    def _start(self, number: int, **trigger: Any) -> None:
        job, topics = self._job, self._topics.of(number)
        records = read_streams_by_kind(self._spark, self._cluster.options, topics, job.names, self._batch_records)
        facts = tables.with_day(to_facts(records, job.names, job.levels))
        self._queries[number] = (
            facts.writeStream.format("delta")
            .queryName(f"facts-{number}")
            .outputMode("append")
            .option("checkpointLocation", f"{self._checkpoint}/{number}")
            .partitionBy("day")
            .trigger(**trigger)
            .start(self._facts)
        )
        self._tell(f"query {number} reads {shortened(topics)}")

    def _await(self, number: int, is_stopped: Callable[[], bool]) -> bool:
        """Whether it has come to its end; else all are told to stop."""
        try:
            while not self._queries[number].awaitTermination(1):
                if is_stopped():
                    for query in self._queries.values():
                        query.stop()
                    return False
        except StreamingQueryException as error:
            raise self._failed(number, error) from error
        return True

    def _written(self, numbers: Iterable[int]) -> dict[Place, int]:
        """How far the topics of these queries are written, open transactions included."""
        return self._cluster.written(self._topics.places(*numbers))

    def _check(self) -> None:
        for number, query in self._queries.items():
            error = query.exception()
            if error is not None:
                raise self._failed(number, error) from error
            if not query.isActive:
                raise AuditError(f"query {number} has ended by itself; start the stream again")

    def _failed(self, number: int, error: PySparkException) -> AuditError:
        text = str(error)
        if "KAFKA_DATA_LOSS" in text or "Some data may have been lost" in text:
            advice = (
                "records were removed before they were read, or their topic was; what is in the table stays. Operator "
                "action: keep the topics longer than the stream may be away; to go on, begin a new table and checkpoint"
            )
        elif "UnknownTopicOrPartition" in text and (gone := self._topics.gone(number)):
            advice = (
                f"deleted: {shortened(gone)}; what is in the table stays. Operator action: a query reads its topics "
                "for life; to go on without them, begin a new table and checkpoint"
            )
        elif "long overflow" in text:
            found = sorted(self._cluster.unreadable(self._topics.places(number)).items())
            told = (f"{topic}, partition {partition}, offset {offset}" for (topic, partition), offset in found)
            advice = (
                f"a record is stamped {UNREADABLE}: {shortened(told)}. Operator action: see "
                "message.timestamp.after.max.ms, which keeps such records out; where one is, delete the records up to "
                "it (kafka-delete-records), or begin a new table of other destinations (--destination)"
            )
        else:
            advice = "start the stream again: it goes on where it was"
        return AuditError(f"query {number} has failed: {text.strip().splitlines()[0][:500]}; {advice}")

    # --- which topics -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """See that table and checkpoint belong together; make the table where there is none.

        Raises:
            AuditError: the table and the checkpoint do not belong together.
        """
        is_begun, facts = self._topics.is_begun, tables.read_or_none(self._spark, self._facts)
        is_ours = facts is not None and is_streamed(self._spark, self._facts)
        if facts is not None and not is_ours and tables.is_written_anew(self._spark, self._facts):
            raise AuditError(
                f"--facts {self._facts} is a table of 'audit batch', which writes it anew each time. Operator action: "
                "name another directory for the facts, and another checkpoint where this one knows of topics already"
            )
        if not is_begun and facts is not None and not facts.where(F.col("kind") != ONLY).isEmpty():
            raise AuditError(
                f"{self._facts} has facts already, and {self._checkpoint} does not know how far they go: everything "
                "would be there twice. Operator action: name the checkpoint that they were written with, or another "
                "directory for the facts"
            )
        if is_begun and facts is None:
            raise AuditError(
                f"{self._checkpoint} says that facts have been read, and {self._facts} holds none. "
                "Operator action: name the table that goes with it, or remove the checkpoint to read everything anew"
            )
        wanted = self._job.rules.destinations
        if facts is None:
            self._write([_row(ONLY, 0, topic) for topic in sorted(set(wanted))])
        elif set(kept := kept_destinations(facts)) != set(wanted):
            raise AuditError(
                f"{self._facts} was begun {_restricted(kept)} and cannot go on {_restricted(wanted)}: what came for "
                "some destinations would not be in it. Operator action: start the stream as it was begun, or name "
                "another table and checkpoint"
            )
        tables.complete(self._spark, self._facts)  # now: queries that did so beside each other would fail
        if tables.writer(self._spark, self._facts) != _WRITER:
            tables.give_to(self._spark, self._facts, _WRITER)
        self._compare_names()
        self._compare_levels()
        self._topics.load()

    def _compare_names(self) -> None:
        """Under other names other topics are meant, and Spark goes on with none but those it began with."""
        names = self._job.names
        told = f"{names.prefix}{names.schedule_template}, {names.retry_template}, {names.dead_letter_template}"
        before = tables.names(self._spark, self._facts)
        if before is None:
            tables.remember_names(self._spark, self._facts, told)
        elif before != told:
            raise AuditError(
                f"{self._facts} was begun for topics named {before}, and cannot go on with {told}. Operator action: "
                "start the stream with the topic_prefix and templates that it was begun with, or name another table "
                "and checkpoint"
            )

    def _compare_levels(self) -> None:
        """Other levels may be meant, where the sidecar has others; or they were forgotten, and due times are wrong."""
        delays = " ".join(map(format_duration, self._job.levels.delays_ms))
        before = tables.levels(self._spark, self._facts)
        if before == delays:
            return
        if before is not None:
            self._tell(
                f"levels were {before}, and are {delays} from here on: what comes now is due by these. If the "
                "sidecar's have not changed, stop, begin a new table and checkpoint, and give the stream its levels"
            )
        tables.remember_levels(self._spark, self._facts, delays)

    def _discover(self) -> None:
        """Give topics that nobody reads yet to one more query."""
        existing = self._cluster.topics()
        wanted = set(audited_topics(existing, self._job.names, len(self._job.levels)))
        self._topics.check_ids()
        # What has been read up to some time has been looked at, and what is new is mostly of that day or later; but for
        # records that keep an older timestamp, as copies of another cluster's do.
        now_ms = self._now_ms()
        looks_at_all = not self._marked_ms or now_ms - self._looked_at_all_ms >= _LOOK_AT_ALL_EVERY_MS
        if not self._job.rules.destinations:
            since_day = None if looks_at_all else _day(self._marked_ms - _DAY_MS)
            self._named |= named_destinations(self._spark, self._facts, self._job.names, since_day)
            if looks_at_all:
                self._looked_at_all_ms = now_ms
        wanted |= self._named & existing.keys()  # a topic may be made long after it was named
        new = sorted(wanted - self._topics.topics)
        if new:
            self._topics.give(new)

    # --- the table ----------------------------------------------------------------------------------------------------

    def _caught_up_ms(self) -> int | None:
        """Up to when everything has been read; None where something has not, or there is nothing to read yet.

        Queries that find nothing new tell of no progress: so what was written by then is held against what is
        committed.
        What lies behind an open transaction is written, and read once that has ended.
        """
        if not self._topics.numbers:
            return None
        if self._looked is None:
            now_ms = self._now_ms()
            self._looked = now_ms, self._written(self._topics.numbers)
        at_ms, written = self._looked
        read: dict[Place, int] = {}
        for number in self._topics.numbers:
            read |= committed_offsets(self._spark, f"{self._checkpoint}/{number}")
        if any(read.get(place, 0) < end for place, end in written.items()):
            return None
        self._looked = None
        known = self._topics.numbers
        self._discover()  # what has been read just now may name a destination that nobody reads
        return at_ms if self._topics.numbers == known else None

    def _mark(self, until_ms: int) -> None:
        self._write([_row(READ_UNTIL, until_ms)])
        self._marked_ms = until_ms

    def _write(self, rows: list[dict[str, Any]]) -> None:
        tables.write_facts(tables.of_rows(self._spark, rows, SCHEMA), self._facts, "append")

    def _compact(self) -> None:
        """Join the small files of the last days; once a day, remove what has been replaced a week ago."""
        self._compacted_ms = self._now_ms()
        tables.compact(self._spark, self._facts, _day(self._compacted_ms - _DAY_MS))
        if self._compacted_ms - self._vacuumed_ms >= _DAY_MS:
            self._vacuumed_ms = self._compacted_ms
            tables.vacuum(self._spark, self._facts)


def committed_offsets(spark: SparkSession, checkpoint: str) -> dict[Place, int]:
    """The next offset of each partition after the last batch that a query has committed."""
    jvm: Any = spark.sparkContext._jvm
    commits = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/commits")
    system = commits.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(commits):
        return {}
    names = [str(status.getPath().getName()) for status in system.listStatus(commits)]
    batches = [int(name) for name in names if name.isdigit()]
    if not batches:
        return {}
    lines = [row["value"] for row in spark.read.text(f"{checkpoint}/offsets/{max(batches)}").collect()]
    # The format's version, the batch's own settings, and then a line for each source, of one kind of topics.
    sources: list[dict[str, dict[str, int]]] = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    return {
        (topic, int(number)): offset
        for offsets in sources
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


def is_streamed(spark: SparkSession, path: str) -> bool:
    """Whether a stream writes this table; what one has begun before tables said so is known by its own rows."""
    table = tables.read_or_none(spark, path)
    if table is None:
        return False
    if tables.writer(spark, path) == _WRITER:
        return True
    return "kind" in table.columns and not table.where(F.col("kind").isin(READ_UNTIL, ONLY)).isEmpty()


def read_until_ms(facts: DataFrame) -> int | None:
    """Up to when everything is in a table of facts; None: nobody has said so yet."""
    row = facts.where(F.col("kind") == READ_UNTIL).agg(F.max("timestamp_ms")).collect()[0]
    until_ms: int | None = row[0]
    return until_ms


def failures_streamed(facts: DataFrame, levels: DelayLevels, grace_ms: int) -> tuple[int, int] | None:
    """`spark.reconcile.Rules.failures_ms` of a table: what has been sent back since its first mark is in it."""
    marks = facts.where(F.col("kind") == READ_UNTIL).agg(F.min("timestamp_ms"), F.max("timestamp_ms")).collect()[0]
    return None if marks[0] is None else (failures_since(marks[0], levels), marks[1] - grace_ms)


def kept_destinations(facts: DataFrame) -> tuple[str, ...]:
    """For which destinations alone a table of facts has what came; empty: for all of them."""
    rows = facts.where(F.col("kind") == ONLY).select("destination").distinct().collect()
    return tuple(sorted(row["destination"] for row in rows))


def _row(kind: str, timestamp_ms: int, destination: str | None = None) -> dict[str, Any]:
    """A row of the table that is of no record in Kafka."""
    told = {"kind": kind, "destination": destination, "timestamp_ms": timestamp_ms, "append_time": True}
    return told | {"topic": "", "partition": 0, "offset": 0}


def _restricted(destinations: tuple[str, ...]) -> str:
    return f"with --destination {', '.join(destinations)}" if destinations else "without --destination"


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
