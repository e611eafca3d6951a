"""Facts -> verdicts, as of a time: what became of every message that was asked for.

One fold by identity (id, destination, retries, redrives), free of any order, of sums and maxima only, so that it costs
a few numbers an id however many facts there are. It decides nearly all: one record that asks, at most one that arrived.
Ids of which it cannot tell (cancelled, replaced, used again, arrived twice) are looked at once more, by `contested`.

    verdict             when
    on_time, late       arrived once; late: more than ``late_after`` after it was due
    early               arrived once, before it was due
    duplicate           arrived more often than it was asked for; a retry or dead letter that nobody asked for
    missing             has not arrived, and ``grace`` has passed since it was due; or what arrived is not as asked for
    pending             has not arrived, and need not have
    cancelled           has not arrived; a cancel or a replacement came after it
    cancelled_too_late  arrived; a cancel or a replacement came too late, or its own replacing did
    cancel_ignored      arrived, although it had been cancelled more than ``grace`` before it was due
    rejected            is among the dead letters, with the reason

Due counts from the asking record, and not before it: what was asked for too late is due at once. What arrived
before it was asked for was asked for by a record that was not read; so was what names a due time that nobody asked for,
where there is more that was not read.
"""

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import TopicKind, TopicNames
from spark import contested, topic_kinds
from spark.content import altered, is_misplaced
from spark.facts import ARRIVALS, ASKS, CLOCK_SKEW_MS, IDENTITY
from spark.plans import hinted, settled
from spark.rejections import group_of_letter, is_parked, letters_by_coordinates, number_of_letters, with_rejections

COLUMNS = (
    *IDENTITY,
    "verdict",
    "why",
    "topic",  # of the asking record, as partition, offset, scheduled_ms, level
    "partition",
    "offset",
    "scheduled_ms",
    "level",
    "group",
    "due_ms",
    "delivered_ms",
    "delivered_partition",
    "delivered_offset",
    "lateness_ms",
    "arrivals",
    "rolls",
)

_LETTERS = ("dead_letter", "rejected")
"""Kinds that a redrive begins with."""

_SENT_BACK = -1
"""For a level, of what a consumer sent back: it has none before its next attempt."""


class Rules(NamedTuple):
    """By what is judged.

    ``since_ms`` and ``until_ms`` choose messages by when they were asked for; either may be None. ``is_whole``: whether
    what was asked for before was read, too, as far as there still is any. ``destinations``: only messages for these,
    for groups, and for none that can be told; empty: all. What came for others need not have been read.
    ``failures_ms``: from when to when, if at all, what came for groups has been sent back by records that were read.
    ``are_letters_whole``: whether no dead-letter topic has lost records.
    """

    as_of_ms: int
    grace_ms: int = 5_000
    late_after_ms: int = 1_000
    since_ms: int | None = None
    until_ms: int | None = None
    is_whole: bool = True
    destinations: tuple[str, ...] = ()
    failures_ms: tuple[int, int] | None = None
    are_letters_whole: bool = True


def reconcile(facts: DataFrame, names: TopicNames, rules: Rules) -> DataFrame:
    """A verdict a message.

    What is needed more than once is computed at once, and kept; clear the session's cache when the result is written.

    Args:
        facts: rows of `spark.facts.SCHEMA`; those after ``as_of_ms`` are left out.

    Returns:
        Rows of `COLUMNS`.
    """
    known = facts.where(F.col("timestamp_ms") <= rules.as_of_ms)
    kinds = {row["kind"] for row in known.select("kind").distinct().collect()}  # what there is none of is not planned
    letters = letters_by_coordinates(known) if "rejected" in kinds else None
    folded = fold(known, is_whole=rules.is_whole).persist()
    plain = folded.where("is_plain")
    odd_ids = folded.where("is_odd").select("id")
    if "replace" in kinds:
        odd_ids = odd_ids.unionByName(known.where("kind = 'replace'").select(F.col("replaces").alias("id")))
    odd = hinted(odd_ids.distinct())
    asked = plain.select(*_asked_once(names))
    if odd is not None:
        theirs = settled(known.join(odd, "id", "left_semi"))
        is_read = is_for(rules.destinations, names)
        again = contested.settle(theirs, names, rules.grace_ms, letters, is_read, is_whole=rules.is_whole)
        asked = plain.join(odd, "id", "left_anti").select(*_asked_once(names)).unionByName(again)
    verdicts = judge(asked, rules)
    if "invalid" in kinds:
        verdicts = verdicts.unionByName(_invalid(known, rules))
    if letters is not None:
        verdicts = with_rejections(verdicts, known, letters)
    if not kinds.isdisjoint(_LETTERS):
        is_whole = rules.is_whole and rules.are_letters_whole
        verdicts = verdicts.unionByName(_moved_twice(folded, known, names, is_whole=is_whole))
    if "delivered" in kinds or "dead_letter" in kinds:
        unasked = _never_sent_back(folded, known, names, rules)
        verdicts = verdicts if unasked is None else verdicts.unionByName(unasked)
    return verdicts.where(_is_meant(rules) & is_for(rules.destinations, names)).select(*COLUMNS)


def fold(facts: DataFrame, *, is_whole: bool) -> DataFrame:
    """Facts by identity: counts, and the numbers of the only record of a kind. See `reconcile`."""
    kind = F.col("kind")
    asks, arrives, rolls = kind.isin(*ASKS), kind.isin(*ARRIVALS), kind == "rolled"

    def only(condition: Column, name: str, alias: str) -> Column:
        return F.max(F.when(condition, F.col(name))).alias(alias)

    # What an original and its copies have in common; of a few million, two that differ will hardly ever look the same.
    said = F.xxhash64(F.when(rolls, F.col("of_offset")).otherwise(F.col("offset")), "partition", "due_ms")
    level = F.when(kind == "send_back", _SENT_BACK).otherwise(F.col("level"))
    # Nearly every identity is two facts in two topics: to add up before they are brought together spares nothing.
    together = facts.repartition("id")
    sums = together.groupBy(*IDENTITY).agg(
        F.count_if(asks).alias("asks"),
        F.count_if(kind.isin("replace", "cancel")).alias("takes_back"),
        only(kind.isin("retry", "postponed"), "due_ms", "copied_due_ms"),
        F.count_if(rolls).alias("rolls"),
        F.count_if(arrives).alias("arrivals"),
        F.max(F.when(asks, level)).alias("level"),
        *(only(asks, name, name) for name in ("partition", "offset", "due_ms")),
        only(asks, "timestamp_ms", "scheduled_ms"),
        F.max(F.when(asks, F.col("append_time").cast("int"))).alias("append_time"),
        F.min(F.when(asks | rolls, said)).alias("said"),
        F.max(F.when(asks | rolls, said)).alias("also_said"),
        only(arrives, "timestamp_ms", "delivered_ms"),
        only(arrives, "due_ms", "claimed_ms"),
        only(arrives, "partition", "delivered_partition"),
        only(arrives, "offset", "delivered_offset"),
        only(asks, "asked_partition", "asked_partition"),
        only(asks, "content", "content"),
        only(arrives, "content", "delivered_content"),
    )
    c = F.col
    are_copies_true = F.coalesce((c("level") == 0) & (c("said") == c("also_said")), F.lit(False))
    # A copy of a retry is due when the sidecar has written it on.
    is_postponed_itself = F.coalesce((c("retries") > 0) | (c("copied_due_ms") == c("due_ms")), F.lit(True))
    is_asked_once = (c("asks") == 1) & ((c("rolls") == 0) | are_copies_true) & is_postponed_itself
    is_plain = (c("takes_back") == 0) & (c("arrivals") <= 1) & is_asked_once & ~_is_of_before(is_whole=is_whole)
    is_unasked = (c("takes_back") + c("asks") + c("rolls") == 0) & c("copied_due_ms").isNull()
    told = sums.select("*", is_plain.alias("is_plain"), (~is_plain & ~is_unasked).alias("is_odd"))
    return told.drop("claimed_ms", "copied_due_ms")


def _is_of_before(*, is_whole: bool) -> Column:
    """Of an identity in `fold`: `contested.is_of_before` of what arrived."""
    c = F.col
    stamped_by_broker = c("append_time") == 1
    names_its_own = (c("level") == 0) | ((c("level") > 0) & stamped_by_broker)
    is_for_another = F.coalesce(names_its_own & (c("claimed_ms") != c("due_ms")), F.lit(False))
    asked_ms = F.when(stamped_by_broker, c("scheduled_ms")).otherwise(0)
    return F.coalesce(contested.is_of_before(is_for_another, asked_ms, is_whole=is_whole), F.lit(False))


def _asked_once(names: TopicNames) -> list[Column | str]:
    """Columns for `judge`, of an identity that `fold` can decide."""
    c = F.col
    level = F.when(c("level") != _SENT_BACK, c("level"))
    topic = F.when(c("level") == _SENT_BACK, names.send_back).otherwise(topic_kinds.schedule_topic(level, names))
    return [
        *map(F.col, IDENTITY),
        topic.alias("topic"),
        "partition",
        "offset",
        "scheduled_ms",
        level.alias("level"),
        topic_kinds.group(c("destination"), names).alias("group"),
        "due_ms",
        (c("append_time") == 1).alias("append_time"),
        "arrivals",
        "rolls",
        "delivered_ms",
        "delivered_partition",
        "delivered_offset",
        F.lit(None).cast("bigint").alias("cut_ms"),
        F.lit(False).alias("is_void"),
        F.lit(None).cast("string").alias("remark"),
        altered(c("content"), c("delivered_content")).alias("altered"),
        is_misplaced(c("asked_partition")).alias("is_misplaced"),
    ]


def judge(asked: DataFrame, rules: Rules) -> DataFrame:
    """Verdicts of messages whose arrivals have been found.

    Args:
        asked: with ``cut_ms``, when the first cancel after it was written (null: never); ``is_void``, whether it was to
            replace something and found nothing; ``arrivals``, how often it came; ``altered`` and ``is_misplaced``,
            what of it was not as asked for.
    """
    c = F.col
    due = F.greatest("due_ms", "scheduled_ms")
    has_come, is_cut = c("arrivals") > 0, c("cut_ms").isNotNull()
    cut_in_time = is_cut & (c("cut_ms") < due - rules.grace_ms)
    # A level record from the future waits for its delay from when it was seen: it cannot be early before its own time.
    stamped_by_client = F.coalesce(c("level") > 0, F.lit(False)) & ~c("append_time")
    from_the_future = stamped_by_client & F.coalesce(c("delivered_ms") < c("scheduled_ms"), F.lit(False))
    # Nobody waits with what is due when it is asked for: where it seems to have come before, clocks differ.
    due_at_once = (c("due_ms") <= c("scheduled_ms")) & (c("delivered_ms") >= c("scheduled_ms") - CLOCK_SKEW_MS)
    is_another = has_come & (c("altered").isNotNull() | c("is_misplaced"))
    is_early = (c("delivered_ms") < c("due_ms")) & ~from_the_future & ~due_at_once
    verdict = (
        F.when(has_come & F.coalesce(cut_in_time, F.lit(False)), "cancel_ignored")
        .when(has_come & c("is_void"), "duplicate")
        .when(c("arrivals") > 1, "duplicate")
        .when(has_come & is_early, "early")
        .when(is_another, "missing")
        .when(has_come & is_cut, "cancelled_too_late")
        .when(has_come & (c("delivered_ms") - due > rules.late_after_ms), "late")
        .when(has_come, "on_time")
        .when(c("is_void"), "cancelled_too_late")
        .when(is_cut, "cancelled")
        .when(F.lit(rules.as_of_ms) - rules.grace_ms > due, "missing")
        .otherwise("pending")
    )
    why = (
        F.when(has_come & c("is_void"), "delivered, although what it was to replace had gone out")
        .when(c("is_void"), "there was nothing left to replace")
        .when(has_come & c("remark").isNotNull(), c("remark"))
        .when(has_come & c("altered").isNotNull(), F.concat(F.lit("what came has not the same "), "altered"))
        .when(has_come & c("is_misplaced"), "it came in another partition than its REAL_QID names")
        .when(has_come & from_the_future, "its record was stamped in the future")
        .otherwise(c("remark"))
    )
    kept = [name for name in COLUMNS if name not in ("verdict", "why", "due_ms", "lateness_ms")]
    return asked.select(
        *kept,
        verdict.alias("verdict"),
        F.coalesce(why, F.lit("")).alias("why"),
        due.alias("due_ms"),
        (c("delivered_ms") - due).alias("lateness_ms"),
    )


def _invalid(facts: DataFrame, rules: Rules) -> DataFrame:
    """Records that ask for what cannot be done: missing, until their dead letter is found."""
    c = F.col
    verdict = F.when(F.lit(rules.as_of_ms) - rules.grace_ms > c("timestamp_ms"), "missing").otherwise("pending")
    nothing = {name: F.lit(None).cast("bigint") for name in ("delivered_ms", "delivered_offset", "lateness_ms")}
    given = {
        **nothing,
        "verdict": verdict,
        "scheduled_ms": c("timestamp_ms"),
        "delivered_partition": F.lit(None).cast("int"),
        "arrivals": F.lit(0).cast("bigint"),
        "rolls": F.lit(0).cast("bigint"),
    }
    columns = [given.get(name, c(name)).alias(name) for name in COLUMNS]
    return facts.where(c("kind") == "invalid").select(*columns)


def _moved_twice(folded: DataFrame, facts: DataFrame, names: TopicNames, *, is_whole: bool) -> DataFrame:
    """What nobody scheduled, because a redrive wrote it: more of a message than there were dead letters of it."""
    c = F.col
    unasked = folded.where((c("redrives") > 0) & (c("arrivals") > 1) & ~c("is_plain") & ~c("is_odd"))
    unasked = unasked.withColumn("group", topic_kinds.group(c("destination"), names))
    redriven, parked = unasked.where(~is_parked()), unasked.where(is_parked())
    surplus = _redriven_twice(redriven, facts, is_whole=is_whole).unionByName(_parked_twice(parked, facts))
    return _surplus(surplus, F.concat("moved", F.lit(" "), "times", F.lit(" times, of dead letters "), "of_letters"))


def _never_sent_back(folded: DataFrame, facts: DataFrame, names: TopicNames, rules: Rules) -> DataFrame | None:
    """Retries and dead letters that no consumer asked for: only the sidecar writes to their topics.

    What came before anything was sent back may be older than the topic for that.
    """
    if rules.failures_ms is None:
        return None
    c = F.col
    since_ms, until_ms = rules.failures_ms[0], min(rules.failures_ms[1], rules.as_of_ms - rules.grace_ms)
    is_unasked = ~c("is_plain") & ~c("is_odd") & (c("retries") > 0) & (c("redrives") == 0) & (c("arrivals") > 0)
    kind = topic_kinds.kind(c("destination"), names)
    is_of_group = kind.isin(TopicKind.RETRY.value, TopicKind.DEAD_LETTER.value)
    is_within = (c("delivered_ms") >= since_ms) & (c("delivered_ms") <= until_ms)
    unasked = folded.where(is_unasked & is_of_group & is_within)
    found = hinted(unasked.withColumn("group", topic_kinds.group(c("destination"), names)).where(~is_parked()))
    if found is None:
        return None
    first_ms = facts.where(c("topic") == names.send_back).agg(F.min("timestamp_ms")).collect()[0][0]
    if first_ms is None:
        return None
    return _surplus(found.where(c("delivered_ms") >= first_ms), F.lit("no consumer has sent it back"))


def _surplus(found: DataFrame, why: Column) -> DataFrame:
    """Verdicts of what came and was asked for by nobody, or by fewer."""
    c = F.col
    given = {
        "verdict": F.lit("duplicate"),
        "why": why,
        "topic": c("destination"),
        "partition": c("delivered_partition"),
        "offset": c("delivered_offset"),
        "scheduled_ms": F.lit(None).cast("bigint"),
        "level": F.lit(None).cast("int"),
        "due_ms": F.lit(None).cast("bigint"),
        "lateness_ms": F.lit(None).cast("bigint"),
    }
    return found.select(*(given.get(name, c(name)).alias(name) for name in COLUMNS))


def _redriven_twice(unasked: DataFrame, facts: DataFrame, *, is_whole: bool) -> DataFrame:
    """More than all dead letters of that message, or, of those that say where which group failed, than these.

    Where not even all letters were read that there are, only of the latter can be told.
    """
    c = F.col
    whose = ["id", "redrives", "of_topic", "reader"]
    letters = (
        facts.where(c("kind").isin(*_LETTERS))
        .groupBy("id", (c("redrives") + 1).alias("redrives"), "of_topic", group_of_letter().alias("reader"))
        .agg(number_of_letters().alias("own_letters"))
    )
    came = facts.where("kind = 'delivered' and retries = 0 and redrives > 0 and of_topic is not null")
    of_one = came.groupBy(*IDENTITY, "of_topic", c("group").alias("reader")).agg(F.count("*").alias("of_one"))
    surplus_of_one = of_one.join(letters, whose).where("of_one > own_letters").groupBy(*IDENTITY)
    by_letter = surplus_of_one.agg(F.max(F.struct("of_one", "own_letters")).alias("most"))
    total = letters.groupBy("id", "redrives").agg(F.sum("own_letters").alias("letters"))
    known = unasked.join(total, ["id", "redrives"]).join(by_letter, [*IDENTITY], "left")
    is_over_all = (c("arrivals") > c("letters")) & F.lit(is_whole)
    return known.where(is_over_all | c("most").isNotNull()).select(
        *unasked.columns,
        F.lit("redriven").alias("moved"),
        F.when(is_over_all, c("arrivals")).otherwise(c("most.of_one")).alias("times"),
        F.when(is_over_all, c("letters")).otherwise(c("most.own_letters")).alias("of_letters"),
    )


def _parked_twice(unasked: DataFrame, facts: DataFrame) -> DataFrame:
    """More than the dead letters that they are copies of: those say the same, the count of redrives included."""
    said = ["id", "retries", "redrives", "reader"]
    letters = facts.where((F.col("kind") == "dead_letter") & ~is_parked()).withColumn("reader", F.col("group"))
    counted = letters.groupBy(*said).agg(F.count("*").alias("of_letters"))
    known = unasked.withColumn("reader", group_of_letter()).join(counted, said)
    return known.where("arrivals > of_letters").select(
        *unasked.columns, F.lit("parked").alias("moved"), F.col("arrivals").alias("times"), "of_letters"
    )


def _is_meant(rules: Rules) -> Column:
    asked_ms = F.coalesce("scheduled_ms", "delivered_ms")
    since = F.lit(True) if rules.since_ms is None else asked_ms >= rules.since_ms
    until = F.lit(True) if rules.until_ms is None else asked_ms < rules.until_ms
    return since & until


def is_for(destinations: Collection[str], names: TopicNames) -> Column:
    """Whether a message is for one of these, for a group, or for none that can be told."""
    if not destinations:
        return F.lit(True)
    kind = topic_kinds.kind(F.col("destination"), names)
    is_group = kind.isin(TopicKind.RETRY.value, TopicKind.DEAD_LETTER.value)
    return F.col("destination").isin(*destinations) | F.col("destination").isNull() | is_group
