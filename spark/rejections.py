"""Dead letters of rejected records, put to the verdicts of what they were.

A letter names its record by its coordinates. That may be a copy: one of a roll tells of which record, one of a retry or
of what was postponed tells by its own headers whose it is. Where a letter's reason can be read off the record itself,
it is believed only if it is there.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import ErrorCode, TopicNames
from spark.content import altered
from spark.facts import ASKS, CLOCK_SKEW_MS, COORDINATES, IDENTITY
from spark.plans import hinted, settled

_IDENTITY, _COORDINATES = list(IDENTITY), list(COORDINATES)
_SAID = [*_IDENTITY, "due_ms", "topic", "partition", "origin"]  # by an original and its copies alike

_WITH_OWN_ID = (*ASKS, "rolled", "retry", "postponed")
"""Kinds whose id a letter has, too, if it has any; a cancel goes by the id that it takes back."""

_NOT_SEEN_IN_THE_RECORD = (
    ErrorCode.UNREADABLE_HEADERS,
    ErrorCode.DELAY_TOO_LONG,
    ErrorCode.TOO_MANY_GROUP_TOPICS,
    ErrorCode.DESTINATION_NOT_ALLOWED,
    ErrorCode.UNKNOWN_DESTINATION,
    ErrorCode.DESTINATION_REFUSED,
    ErrorCode.RECORD_TOO_LARGE,
)
"""Reasons that a setting or the state of the cluster decides, or that are not in a fact."""


_PARKED = TopicNames.parked_group("")


def is_parked() -> Column:
    """Whether a ``group`` is that of parked letters (`TopicNames.is_parked_group`)."""
    return F.coalesce(F.endswith("group", F.lit(_PARKED)), F.lit(False))


def group_of_letter() -> Column:
    """Whose reader failed, also of a letter that is parked."""
    return F.when(is_parked(), F.left("group", F.length("group") - len(_PARKED))).otherwise(F.col("group"))


def number_of_letters() -> Column:
    """Of a group of letters. One that is parked is a copy of another, whether that was read or not."""
    return F.greatest(F.count_if(~is_parked()), F.count_if(is_parked()))


def letters_by_coordinates(facts: DataFrame) -> DataFrame | None:
    """``letters``, how many, a ``code``, and what of one is ``altered``, by the coordinates of the record that asked.

    None: there are none.

    A letter that its reader failed and somebody redrove is among the letters again, with one more redrive.
    """
    found = hinted(
        facts.where("kind = 'rejected'").select(
            *(F.col(f"of_{name}").alias(name) for name in _COORDINATES),
            "redrives",
            "group",
            "why",
            F.col("id").alias("letter_id"),
            F.col("timestamp_ms").alias("letter_ms"),
            F.struct(*_COORDINATES).alias("letter"),
            F.when(F.col("why") != ErrorCode.UNREADABLE_HEADERS.value, F.col("content")).alias("letter_content"),
        )
    )
    if found is None:
        return None
    origin = F.when(F.col("kind") == "rolled", F.col("of_offset")).otherwise(F.col("offset"))
    records = facts.where(F.col("kind").isin(*_WITH_OWN_ID, "invalid", "cancel")).withColumn("origin", origin)
    told_of = settled(
        records.select(*_SAID, "offset", "kind", "timestamp_ms", "append_time", "content").join(
            found.select(*_COORDINATES, "letter_id", "letter_ms", "letter", "letter_content"), _COORDINATES
        )
    )
    of_others = told_of.where(_is_of_another()).select("letter")
    differing = told_of.select("letter", altered(F.col("content"), F.col("letter_content")).alias("altered"))
    differing = differing.groupBy("letter").agg(
        F.max("altered").alias("altered"), F.bool_and(F.col("altered").isNotNull()).alias("is_altered")
    )
    letters = (
        found.join(of_others, "letter", "left_anti")
        .join(differing.where("is_altered"), "letter", "left")
        .groupBy(*_COORDINATES, "redrives")
        .agg(number_of_letters().alias("letters"), F.max("why").alias("code"), F.max("altered").alias("altered"))
        .groupBy(*_COORDINATES)
        .agg(F.max("letters").alias("letters"), *_kept())
    )
    hint = hinted(letters)
    if hint is None:
        return None
    rolled = hinted(
        told_of.where("kind = 'rolled'").join(hint, _COORDINATES, "left_semi").select(*_SAID, "offset").distinct()
    )
    if rolled is None:
        return hint
    # The original, which may itself be a copy of what is not here; where it is not here, the first copy of it asks.
    alike = records.where("kind in ('scheduled', 'replace', 'rolled') and level = 0")
    alike = alike.unionByName(alike.where("kind = 'rolled'").withColumn("origin", F.col("offset")))
    homes = alike.join(rolled, _SAID, "left_semi").groupBy(*_SAID).agg(F.min("offset").alias("home"))
    moved = rolled.join(homes, _SAID).select(*_COORDINATES, "home")
    return hinted(
        hint.join(moved, _COORDINATES, "left")
        .groupBy("topic", "partition", F.coalesce("home", "offset").alias("offset"))
        .agg(F.sum("letters").alias("letters"), *_kept())
    )


def _kept() -> list[Column]:
    """Of letters of one message, whatever tells against them."""
    return [F.max(name).alias(name) for name in ("code", "altered")]


def _is_of_another() -> Column:
    """Whether a letter cannot be of the record that is at its coordinates now.

    One without an id has the coordinates in its place. What a producer has stamped may be of any time.
    """
    c = F.col
    has_id = c("letter_id") != F.concat_ws("-", "topic", "partition", "offset")
    is_named_otherwise = c("kind").isin(*_WITH_OWN_ID) & has_id & (c("letter_id") != c("id"))
    return is_named_otherwise | (c("append_time") & (c("letter_ms") < c("timestamp_ms") - CLOCK_SKEW_MS))


def with_rejections(judged: DataFrame, facts: DataFrame, letters: DataFrame) -> DataFrame:
    """Verdicts, with ``rejected`` where a dead letter tells of it.

    Args:
        letters: as `letters_by_coordinates` has them.
    """
    rows = judged.join(_with_those_of_copies(letters, judged, facts), _COORDINATES, "left")
    told = rows.withColumn("letters", F.coalesce("letters", F.lit(0).cast("bigint")))
    return told.withColumns({"verdict": _verdict(), "why": _why()}).select(*judged.columns)


def _with_those_of_copies(letters: DataFrame, judged: DataFrame, facts: DataFrame) -> DataFrame:
    """The same, and letters of copies whose headers tell whose they are, at the coordinates of what asked for it.

    Where an identity was asked for more than once, each letter is that of another message, missing ones first.
    """
    copies = facts.where("kind in ('retry', 'postponed')").select(*_COORDINATES, *_IDENTITY)
    of_copies = hinted(copies.join(letters, _COORDINATES))
    if of_copies is None:
        return letters
    messages = settled(judged.join(of_copies.select(*_IDENTITY).distinct(), _IDENTITY, "left_semi"))
    of_others = of_copies.join(messages, _COORDINATES, "left_anti")  # a copy that asks has its letter at its own
    oldest_first = Window.partitionBy(*_IDENTITY).orderBy("partition", "offset")
    has_need = [F.col("arrivals") > 0, F.col("verdict") != "missing", F.col("due_ms"), F.col("offset")]
    neediest_first = Window.partitionBy(*_IDENTITY).orderBy(*has_need)
    count = F.count("*").over(Window.partitionBy(*_IDENTITY))
    turns = messages.select(
        *_COORDINATES, *_IDENTITY, (F.row_number().over(neediest_first) - 1).alias("turn"), count.alias("turns")
    )
    waiting = of_others.select(
        *_IDENTITY, "letters", "code", "altered", (F.row_number().over(oldest_first) - 1).alias("number")
    )
    given = turns.join(waiting, _IDENTITY).where(F.col("number") % F.col("turns") == F.col("turn"))
    together = (
        letters.unionByName(given.select(*letters.columns))
        .groupBy(*_COORDINATES)
        .agg(F.sum("letters").alias("letters"), *_kept())
    )
    return hinted(together) or letters


def _without_cause() -> Column:
    """Whether the reason would be in the record, which has another, or none."""
    c = F.col
    is_invalid = c("why").isin(*(code.value for code in ErrorCode))
    # Of the sidecar's own group, whose name the audit does not know, nothing can be sent back.
    is_of_group = (c("code") == ErrorCode.ILLEGAL_CONSUMER_GROUP.value) & c("group").isNotNull()
    may_be = c("code").isin(*(code.value for code in _NOT_SEEN_IN_THE_RECORD)) | is_of_group
    return ((c("why") == "") | is_invalid) & ~may_be & (c("code") != c("why"))


def _verdict() -> Column:
    c = F.col
    return (
        F.when(c("letters") == 0, c("verdict"))
        .when((c("arrivals") > 0) | (c("letters") > 1), "duplicate")
        .when(_without_cause() | c("altered").isNotNull(), "missing")
        .otherwise("rejected")
    )


def _why() -> Column:
    c = F.col
    return (
        F.when(c("letters") == 0, c("why"))
        .when(c("arrivals") > 0, F.concat(F.lit("delivered, and rejected as "), "code"))
        .when(c("letters") > 1, F.concat(F.lit("rejected "), c("letters"), F.lit(" times as "), "code"))
        .when(_without_cause(), F.concat(F.lit("rejected as "), c("code"), F.lit(", which is not so")))
        .when(c("altered").isNotNull(), F.concat(F.lit("its dead letter has not the same "), "altered"))
        .otherwise(c("code"))
    )
