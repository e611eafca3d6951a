"""``audit batch``: topics, or the stream's table of facts, -> facts, verdicts and report in a directory.

DIR/facts      what was read (Delta), unless it was read from a table already
DIR/verdicts   a row a message (Delta), `spark.reconcile.COLUMNS`
DIR/report.*   the findings (`spark.report`)
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import DelayLevels, TopicKind, TopicNames
from spark import tables, topic_kinds
from spark.answers import Answers
from spark.cluster import Cluster, audited_topics
from spark.facts import ASKS, CLOCK_SKEW_MS, to_facts
from spark.reconcile import Rules, reconcile
from spark.report import AuditReport
from spark.report.model import utc
from spark.sources import read_ranges_by_kind

Step = Callable[[str], AbstractContextManager[object]]
"""Begins a step of the work, by name; it ends with the context."""


class Job(NamedTuple):
    """What is audited, and by which rules."""

    names: TopicNames
    levels: DelayLevels
    rules: Rules


def read_facts(spark: SparkSession, cluster: Cluster, job: Job, path: str, step: Step) -> list[str]:
    """Read the topics into a table of facts at ``path``; what the reader of the report has to know.

    Destinations are read after the records that name them, so that what has been asked for is not missed.
    """
    existing = cluster.topics()
    ours = audited_topics(existing, job.names, len(job.levels))
    with step(f"reading {len(ours)} schedule, retry and dead-letter topics"):
        _append(spark, cluster, job, existing, ours, path, is_first=True)
    named = set(job.rules.destinations) or named_destinations(spark, path, job.names)
    found = sorted((named & existing.keys()) - set(ours))
    with step(f"reading {len(found)} destinations"):
        _append(spark, cluster, job, existing, found, path, is_first=False)
    # Kafka does not tell of topics that its client has no right to.
    notes = [] if ours else [f"No topic of the sidecar's is to be seen, such as {job.names.wheel}: nothing was read."]
    notes += [
        f"No topic {topic} is to be seen, which messages are for: it does not exist, or it may not be described."
        for topic in sorted(named - existing.keys())
    ]
    notes += [
        f"{topic} is compacted: what came there and has been replaced by a later record counts as missing."
        for topic in cluster.compacted(found)
    ]
    notes += _notes_of_removed(spark, cluster, job, existing, [*ours, *found], path)
    beyond = [name for name in existing if (job.names.level_of(name) or 0) > len(job.levels)]
    notes += [f"{name} is of no level of the table (--levels), and was not read." for name in sorted(beyond)]
    return notes


def _notes_of_removed(
    spark: SparkSession, cluster: Cluster, job: Job, existing: dict[str, list[int]], topics: list[str], path: str
) -> list[str]:
    """Of destinations that no longer have what came when the first of their messages were due."""
    places = [(topic, partition) for topic in topics for partition in existing[topic]]
    kept_since_ms = cluster.kept_since_ms(places, job.rules.as_of_ms)
    if not kept_since_ms:
        return []
    asked = tables.read(spark, path).where(F.col("kind").isin(*ASKS) & F.col("destination").isin(*kept_since_ms))
    first_due = asked.groupBy("destination").agg(F.min(F.greatest("due_ms", "timestamp_ms")).alias("due_ms"))
    kept = ((row["destination"], row["due_ms"] < kept_since_ms[row["destination"]]) for row in first_due.collect())
    lacking = sorted(topic for topic, is_lacking in kept if is_lacking)
    since = {topic: utc(kept_since_ms[topic]).isoformat(timespec="milliseconds") for topic in lacking}
    return [
        f"{topic} no longer has its records of before {since[topic]}: what came there by then counts as missing. "
        "Judge what was asked for later alone, with --from."
        for topic in lacking
    ]


def _append(
    spark: SparkSession,
    cluster: Cluster,
    job: Job,
    existing: dict[str, list[int]],
    topics: Iterable[str],
    path: str,
    *,
    is_first: bool,
) -> None:
    places = [(topic, partition) for topic in topics for partition in existing[topic]]
    since_ms = job.rules.since_ms
    ranges = cluster.ranges(places, None if since_ms is None else since_ms - CLOCK_SKEW_MS)
    records = read_ranges_by_kind(spark, cluster.options, ranges, job.names)
    facts = to_facts(records, job.names, job.levels)
    tables.write_facts(facts, path, "overwrite" if is_first else "append")


def named_destinations(spark: SparkSession, path: str, names: TopicNames, since_day: str | None = None) -> set[str]:
    """The destinations that facts ask for, and where dead letters may be redriven to.

    Not retry and dead-letter topics, nor Kafka's own, where nothing may go.
    """
    facts = tables.read(spark, path)
    if since_day is not None:
        facts = facts.where(F.col("day") >= since_day)
    asked = facts.where(F.col("kind").isin("scheduled", "replace", "rolled", "postponed")).select("destination")
    origins = facts.where("kind = 'dead_letter'").select(F.col("of_topic").alias("destination"))
    kind, is_reserved = (rule(F.col("destination"), names) for rule in (topic_kinds.kind, topic_kinds.is_reserved))
    is_other = (kind == TopicKind.OTHER.value) & ~is_reserved
    return {row["destination"] for row in asked.unionAll(origins).where(is_other).distinct().collect()}


def audit(spark: SparkSession, job: Job, facts_path: str, out: str, notes: Sequence[str], step: Step) -> AuditReport:
    """Verdicts of a table of facts, written to ``out``/verdicts, and what they say."""
    facts = tables.read_facts(spark, facts_path)
    verdicts_path = f"{out}/verdicts"
    with step("judging"):
        judged = reconcile(facts, job.names, job.rules)
        tables.write(judged, verdicts_path)
        spark.catalog.clearCache()
    only = ", ".join(job.rules.destinations)
    if only:
        notes = [f"Only messages for {only}, retries and dead letters were judged.", *notes]
    with step("answering"):
        return Answers(tables.read(spark, verdicts_path), facts, job.names, job.rules).report(notes)
