"""``audit batch``: topics, or the stream's table of facts, -> facts, verdicts and report in a directory.

DIR/facts      what was read (Delta), unless it was read from a table already
DIR/verdicts   a row a message (Delta), `spark.reconcile.COLUMNS`
DIR/report.*   the findings (`spark.report`)
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import SCHEDULE_KINDS, DelayLevels, Place, TopicKind, TopicNames
from spark import tables, topic_kinds
from spark.answers import Answers
from spark.cluster import UNREADABLE, Cluster, audited_topics
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
    held_back = cluster.held_back(cluster.written(_places(existing, ours)))
    with step(f"reading {len(ours)} schedule, retry and dead-letter topics"):
        unreadable = _append(spark, cluster, job, existing, ours, path, is_first=True)
    named = set(job.rules.destinations) or named_destinations(spark, path, job.names)
    found = sorted((named & existing.keys()) - set(ours))
    held_back |= cluster.held_back(cluster.written(_places(existing, found)))
    with step(f"reading {len(found)} destinations"):
        unreadable |= _append(spark, cluster, job, existing, found, path, is_first=False)
    # Kafka does not tell of topics that its client has no right to.
    hidden = [topic for topic in job.names.schedule_topics(job.levels) if topic not in existing]
    notes = []
    if not ours:
        notes = [f"No topic of the sidecar's can be seen, such as {job.names.wheel}: nothing was read."]
    elif hidden:
        notes = [
            f"Topic {shortened(hidden)} cannot be seen: what was asked for there was not judged. It does not exist, "
            "or it may not be described, or the sidecar has other --levels."
        ]
    awaited = named | _awaited_by_groups(spark, path, job.rules)
    notes += [
        f"Topic {topic}, which messages are scheduled for, cannot be seen: it does not exist, or it may not be "
        "described."
        for topic in sorted(awaited - existing.keys())
    ]
    notes += [
        f"{topic}, partition {partition}: the record at offset {offset} is stamped {UNREADABLE}, and nothing from "
        "there on was read. See message.timestamp.after.max.ms, which keeps such records out."
        for (topic, partition), offset in sorted(unreadable.items())
    ]
    notes += [
        f"{topic} is compacted: what was asked for there and has been replaced by a later record of the same key was "
        "not judged, and may have been lost. Set cleanup.policy=delete."
        if job.names.kind(topic) in SCHEDULE_KINDS
        else f"{topic} is compacted: what came there and has been replaced by a later record counts as missing."
        for topic in cluster.compacted([*ours, *found])
    ]
    notes += _notes_of_removed(spark, cluster, job, _places(existing, [*ours, *found]), path)
    notes += [
        f"{topic}, partition {partition}: a transaction has been open since before this was read, and nothing from "
        f"offset {offset} on was. Judge again when it has ended, or have Kafka end it."
        for (topic, partition), offset in sorted(held_back.items())
    ]
    beyond = [name for name in existing if (job.names.level_of(name) or 0) > len(job.levels)]
    notes += [f"{name} is of no level of the table (--levels), and was not read." for name in sorted(beyond)]
    return notes


_ON_ITS_WAY_MS = 86_400_000
"""For so long at most, and a level's delay, what has been sent back is on its way."""


def failures_read(cluster: Cluster, job: Job, began_ms: int) -> tuple[int, int] | None:
    """`Rules.failures_ms` of what has been read since ``began_ms``; None: it cannot be known."""
    topic, rules = job.names.send_back, job.rules
    existing = cluster.topics()
    places = _places(existing, [topic]) if topic in existing else []
    if not places or cluster.unreadable(places) or cluster.compacted([topic]):
        return None
    lost_ms = cluster.kept_since_ms(places, began_ms).get(topic, 0)
    since_ms = max(lost_ms, rules.since_ms or 0)
    return (failures_since(since_ms, job.levels) if since_ms else 0), began_ms - rules.grace_ms


def letters_lost(cluster: Cluster, job: Job) -> list[str]:
    """Dead-letter topics that no longer have all of their records."""
    existing = cluster.topics()
    topics = [topic for topic in existing if job.names.kind(topic) is TopicKind.DEAD_LETTER]
    return sorted(cluster.kept_since_ms(_places(existing, topics), 0))


def failures_since(since_ms: int, levels: DelayLevels) -> int:
    """From when on nothing can have come that was sent back before a time."""
    return since_ms + max(levels.delays_ms) + _ON_ITS_WAY_MS


def _awaited_by_groups(spark: SparkSession, path: str, rules: Rules) -> set[str]:
    """Retry and dead-letter topics that something ought to have come to; they are made when something first does."""
    was_due = F.greatest("due_ms", "timestamp_ms") < rules.as_of_ms - rules.grace_ms
    asked = tables.read(spark, path).where((F.col("kind") == "send_back") & was_due)
    return {row["destination"] for row in asked.select("destination").distinct().collect()}


def _places(existing: dict[str, list[int]], topics: Iterable[str]) -> list[Place]:
    return [(topic, partition) for topic in topics for partition in existing[topic]]


def _notes_of_removed(spark: SparkSession, cluster: Cluster, job: Job, places: list[Place], path: str) -> list[str]:
    """Of schedule topics that no longer have what asked first, and of destinations without what came first.

    Of those, where something was due by then. A schedule topic's partition that is empty may have been so for long.
    """
    asking = [place for place in places if job.names.kind(place[0]) in SCHEDULE_KINDS]
    since_ms, as_of_ms = job.rules.since_ms or 0, job.rules.as_of_ms
    asked_since_ms = cluster.kept_since_ms(asking, 0 if since_ms else as_of_ms)
    unread = {topic: at_ms for topic, at_ms in asked_since_ms.items() if at_ms > since_ms}
    notes = [
        f"{topic} no longer has its records of before {_time(at_ms)}: what they asked for was not judged, and may have "
        "been lost. A range that is judged whole begins later, with --from."
        for topic, at_ms in sorted(unread.items())
    ]
    kept_since_ms = cluster.kept_since_ms([place for place in places if place not in asking], as_of_ms)
    if not kept_since_ms:
        return notes
    asked = tables.read(spark, path).where(F.col("kind").isin(*ASKS) & F.col("destination").isin(*kept_since_ms))
    first_due = asked.groupBy("destination").agg(F.min(F.greatest("due_ms", "timestamp_ms")).alias("due_ms"))
    kept = ((row["destination"], row["due_ms"] < kept_since_ms[row["destination"]]) for row in first_due.collect())
    lacking = sorted(topic for topic, is_lacking in kept if is_lacking)
    return notes + [
        f"{topic} no longer has its records of before {_time(kept_since_ms[topic])}: what came there by then counts as "
        "missing. Judge what was asked for later alone, with --from."
        for topic in lacking
    ]


def _notes_of_made_anew(cluster: Cluster, verdicts: DataFrame, grace_ms: int) -> list[str]:
    """Of destinations whose first record is younger than what was due there before and is missing."""
    due = verdicts.where("verdict = 'missing'").groupBy("destination").agg(F.min("due_ms").alias("due_ms"))
    first_due = {row["destination"]: row["due_ms"] for row in due.where("destination is not null").collect()}
    begins_ms = cluster.begins_ms(first_due) if first_due else {}
    return [
        f"{topic} {'holds nothing' if at_ms is None else f'begins with a record of {_time(at_ms)}'}, and what was due "
        "there before is missing: it was lost, or the topic has been deleted since and made anew."
        for topic, at_ms in sorted(begins_ms.items())
        if at_ms is None or first_due[topic] + grace_ms < at_ms
    ]


def shortened(topics: Iterable[str], most: int = 3) -> str:
    """The first of them, and how many more there are: what is said of them is not to be cut off."""
    topics = list(topics)
    more = f" and {len(topics) - most} more" if len(topics) > most else ""
    return ", ".join(topics[:most]) + more


def _time(at_ms: int) -> str:
    return utc(at_ms).isoformat(timespec="milliseconds")


def _append(
    spark: SparkSession,
    cluster: Cluster,
    job: Job,
    existing: dict[str, list[int]],
    topics: Iterable[str],
    path: str,
    *,
    is_first: bool,
) -> dict[Place, int]:
    """Write facts of these topics; where each partition begins of which the rest cannot be read."""
    since_ms = job.rules.since_ms
    ranges = cluster.ranges(_places(existing, topics), None if since_ms is None else since_ms - CLOCK_SKEW_MS)
    unreadable = cluster.unreadable(ranges)
    for place, offset in unreadable.items():
        ranges[place] = ranges[place]._replace(end=min(offset, ranges[place].end))
    ranges = {place: offsets for place, offsets in ranges.items() if offsets.begin < offsets.end}
    records = read_ranges_by_kind(spark, cluster.options, ranges, job.names)
    facts = to_facts(records, job.names, job.levels)
    tables.write_facts(facts, path, "overwrite" if is_first else "append")
    return unreadable


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


def audit(
    spark: SparkSession,
    job: Job,
    facts_path: str,
    out: str,
    notes: Sequence[str],
    step: Step,
    cluster: Cluster | None = None,
) -> AuditReport:
    """Verdicts of a table of facts, written to ``out``/verdicts, and what they say.

    Args:
        cluster: where the facts were just read; None: they are a stream's.
    """
    facts = tables.read_facts(spark, facts_path)
    verdicts_path = f"{out}/verdicts"
    with step("judging"):
        judged = reconcile(facts, job.names, job.rules)
        tables.write(judged, verdicts_path)
        spark.catalog.clearCache()
    if cluster is not None:
        notes = [*notes, *_notes_of_made_anew(cluster, tables.read(spark, verdicts_path), job.rules.grace_ms)]
    if only := job.rules.destinations:
        notes = [f"Only messages for {shortened(only, 10)}, retries and dead letters were judged.", *notes]
    with step("answering"):
        return Answers(tables.read(spark, verdicts_path), facts, job.names, job.rules).report(notes)
