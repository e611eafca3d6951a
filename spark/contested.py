"""Ids that a fold cannot decide: cancelled, replaced, rolled by others, used again, arrived more often than once.

    1. who asks       the records that ask, and copies whose original is not here
    2. who took back  of each, the first cancel or replacement after it in its partition that speaks of it
    3. what arrived   arrivals are given to askers: first to the one whose due time they name, of several to one with
                      the same content, then, of those that name nobody's, in the order of time; what is left over is a
                      copy too many of the asker it names
    4. who is void    a replacement replaces what it took back; where that had gone out, or was void, it is void

Joins and windows over the rows of one identity; nothing is collected, so an id that is used a million times costs
a sort, and no memory.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import WindowSpec

from connectors.contract import ErrorCode, TopicNames
from spark import topic_kinds
from spark.content import altered, is_misplaced
from spark.facts import ARRIVALS, ASKS, CLOCK_SKEW_MS, COORDINATES, IDENTITY
from spark.plans import hinted, settled

_IDENTITY, _COORDINATES = list(IDENTITY), list(COORDINATES)

_REFUSED_WHEN_READ = (ErrorCode.DELAY_TOO_LONG, ErrorCode.UNREADABLE_HEADERS)
"""Reasons for which the sidecar does not even look for what a record takes back, and which are not in its fact."""


def settle(
    facts: DataFrame,
    names: TopicNames,
    grace_ms: int,
    letters: DataFrame | None,
    is_read: Column,
    *,
    is_whole: bool,
) -> DataFrame:
    """The rows that `spark.reconcile.judge` judges, of the facts of some ids.

    Args:
        is_whole: see `spark.reconcile.Rules`.
        letters: dead letters of what was rejected (`spark.rejections.letters_by_coordinates`); None: there are none.
        is_read: whether what has come for a ``destination`` is among the facts.
    """
    if letters is None:
        letters = facts.select(*_COORDINATES, F.col("why").alias("code")).limit(0)
    askers = _with_standing(_with_letters(who_asks(facts), letters), facts)
    askers = settled(_with_cut(askers, facts, letters))
    arrivals = facts.where(F.col("kind").isin(*ARRIVALS))
    given = _with_letters_of_postponed(_give(askers, arrivals, is_whole=is_whole), facts, letters)
    rolls = facts.where("kind = 'rolled'").groupBy(*_IDENTITY, "topic", "partition", F.col("of_offset").alias("offset"))
    counted = given.join(rolls.agg(F.count("*").alias("copies")), [*_IDENTITY, *_COORDINATES], "left")
    # The first copy of a replacement is what it brings; it has not been rolled by then.
    has_rolled = F.coalesce("copies", F.lit(0)) - (F.col("kind") == "replace").cast("int")
    # An id is used again, and then cancelled: what had gone out by then is not meant.
    is_meant = ~(F.col("is_followed") & F.coalesce(F.col("delivered_ms") < F.col("cut_ms"), F.lit(False)))
    return _with_void(settled(counted), grace_ms, is_read).select(
        *_IDENTITY,
        *_COORDINATES,
        F.col("timestamp_ms").alias("scheduled_ms"),
        F.when(F.col("kind") != "send_back", F.col("level")).alias("level"),
        topic_kinds.group(F.col("destination"), names).alias("group"),
        "due_ms",
        "append_time",
        "arrivals",
        F.greatest(has_rolled, F.lit(0)).cast("bigint").alias("rolls"),
        "delivered_ms",
        "delivered_partition",
        "delivered_offset",
        F.when(is_meant, F.col("cut_ms")).alias("cut_ms"),
        "is_void",
        F.when(F.col("arrivals") > 1, F.concat(F.col("arrivals"), F.lit(" copies; one more at "), "extra")).alias(
            "remark"
        ),
        "altered",
        "is_misplaced",
    )


# --- 1. who asks ------------------------------------------------------------------------------------------------------


def who_asks(facts: DataFrame) -> DataFrame:
    """Facts that ask for a delivery each.

    A copy of a roll is none where its original is here and says the same: the same id, destination and time. One that
    says otherwise is not a copy, whatever it calls itself, for the sidecar does not take it for one either; then it has
    copies of its own. A retry on its way is none where what was sent back is here. A postponed message is none where
    anything before it is that waited for the same time.
    """
    originals = facts.where(F.col("kind").isin(*ASKS))
    copies = facts.where("kind = 'rolled'")
    said = (
        originals.where("level = 0 and kind != 'send_back'")
        .unionByName(copies)
        .select(*_IDENTITY, "due_ms", "topic", "partition", F.col("offset").alias("of_offset"))
    )
    alone = copies.join(said, [*_IDENTITY, "due_ms", "topic", "partition", "of_offset"], "left_anti")
    # Of several copies of one original that is not here (it is older than what was read) the first asks.
    alone = _first_of_each(alone, [*_IDENTITY, "due_ms", "topic", "partition", "of_offset"], ["offset"])
    sent_back = facts.where("kind = 'send_back'").select(*_IDENTITY).distinct()
    hops = facts.where("kind = 'retry'").join(sent_back, _IDENTITY, "left_anti")
    columns = originals.columns
    askers = originals.unionByName(alone.select(*columns)).unionByName(hops.select(*columns))
    return askers.unionByName(_postponed_alone(facts).select(*columns))


def _postponed_alone(facts: DataFrame) -> DataFrame:
    """Of messages that were postponed and whose originals are not here, the first copy of each.

    A level record whose producer's clock is ahead of the sidecar's waits for less than it says.
    """
    before = facts.where(F.col("kind").isin(*ASKS, "rolled", "retry")).withColumn("waits_until", _waits_until())
    ahead = before.where("level > 0 and not append_time").groupBy(*_IDENTITY).agg(F.max("due_ms").alias("latest_ms"))
    copies = facts.where("kind = 'postponed'").withColumn("waits_until", _waits_until())
    alone = copies.join(before, [*_IDENTITY, "waits_until"], "left_anti").join(ahead, _IDENTITY, "left")
    alone = alone.where("latest_ms is null or latest_ms < due_ms")
    return _first_of_each(alone, [*_IDENTITY, "due_ms"], ["timestamp_ms", "partition", "offset"])


def _waits_until() -> Column:
    """What a postponed copy has from its original: the due time; of a retry, which has it from its level record, 0."""
    return F.when(F.col("retries") > 0, 0).otherwise(F.col("due_ms")).alias("waits_until")


def _first_of_each(rows: DataFrame, group: list[str], order: list[str]) -> DataFrame:
    number = F.row_number().over(Window.partitionBy(*group).orderBy(*order))
    return rows.withColumn("nth", number).where("nth = 1").drop("nth")


def _with_letters(askers: DataFrame, letters: DataFrame) -> DataFrame:
    """With ``is_rejected``, and ``is_refused`` where it never came as far as being scheduled."""
    told = askers.join(letters, _COORDINATES, "left")
    is_rejected, is_refused = F.col("code").isNotNull(), F.coalesce(_is_refused(), F.lit(False))
    return told.select(*askers.columns, is_rejected.alias("is_rejected"), is_refused.alias("is_refused"))


def _with_letters_of_postponed(given: DataFrame, facts: DataFrame, letters: DataFrame) -> DataFrame:
    """With ``is_rejected`` also where what was rejected is a postponed copy; that names nobody, but waits for a time.

    Of several that waited for it none is, unless there is a letter for each that has not come.
    """
    buried = facts.where("kind = 'postponed'").join(letters, _COORDINATES).groupBy(*_IDENTITY, _waits_until())
    told = hinted(buried.agg(F.count("*").alias("buried")))
    if told is None:
        return given
    has_not_come = F.col("arrivals") == 0
    alike = Window.partitionBy(*_IDENTITY, "waits_until")
    has_a_letter = has_not_come & (F.sum(has_not_come.cast("int")).over(alike) <= F.col("buried"))
    rows = given.withColumn("waits_until", _waits_until()).join(told, [*_IDENTITY, "waits_until"], "left")
    is_rejected = F.col("is_rejected") | F.coalesce(has_a_letter, F.lit(False))
    return rows.withColumn("is_rejected", is_rejected).drop("waits_until", "buried")


def _is_refused() -> Column:
    return F.col("code").isin(*(code.value for code in _REFUSED_WHEN_READ))


# --- 2. who took back -------------------------------------------------------------------------------------------------


def _with_standing(askers: DataFrame, facts: DataFrame) -> DataFrame:
    """With ``wheel_partition`` and ``stands_at``: what is written there behind it may take it back; else null.

    A copy stands where its original stood. What waits on a level stands nowhere, until an outage of its destination
    puts it onto the wheel: then where its first copy stands, the one that names no original there.
    """
    c = F.col
    stands_at = F.coalesce(F.when(c("kind").isin("rolled", "postponed"), c("of_offset")), "offset")
    is_on_wheel = (c("level") == 0) & (c("kind") != "send_back")
    put = facts.where("kind = 'postponed' and of_offset is null").groupBy(*_IDENTITY, _waits_until())
    first = hinted(put.agg(F.min(F.struct("partition", "offset")).alias("put")))
    if first is None:
        put_partition = put_at = F.lit(None)
        told = askers
    else:
        put_partition, put_at = c("put.partition"), c("put.offset")
        told = askers.withColumn("waits_until", _waits_until()).join(first, [*_IDENTITY, "waits_until"], "left")
    return told.select(
        *askers.columns,
        F.when(is_on_wheel, c("partition")).otherwise(put_partition).alias("wheel_partition"),
        F.when(is_on_wheel, stands_at).otherwise(put_at).alias("stands_at"),
    )


def _with_cut(askers: DataFrame, facts: DataFrame, letters: DataFrame) -> DataFrame:
    """With ``cut_offset`` and ``cut_ms`` of the first record after it that takes it back; null where there is none.

    What was refused takes nothing back, and is not taken back.

    ``is_followed`` says whether the id has been used again before that.
    """
    heeded = facts.join(letters.where(_is_refused()), _COORDINATES, "left_anti")
    place = F.col("partition").alias("wheel_partition"), F.col("offset")
    takes = heeded.where(F.col("kind") == "cancel").select(
        "id", *place, "timestamp_ms", F.col("destination").alias("cut_destination")
    )
    replaces = heeded.where(F.col("kind") == "replace").select(
        F.col("replaces").alias("id"), *place, "timestamp_ms", F.lit(None).alias("cut_destination")
    )
    cuts = takes.unionByName(replaces).withColumns({"is_cut": F.lit(True), "stands_at": F.col("offset")})
    asked = {"is_cut": F.lit(False), "cut_destination": F.col("destination")}
    rows = askers.withColumns(asked).unionByName(cuts, allowMissingColumns=True)
    # Upwards would be quadratic: downwards the last one seen is the next one after.
    # A replacement asks and takes back at one offset: it asks first, and is not taken back by itself.
    downwards = [F.col("stands_at").desc(), F.col("is_cut").asc()]
    after = Window.partitionBy("id", "wheel_partition").orderBy(*downwards)
    after_for = Window.partitionBy("id", "wheel_partition", "cut_destination").orderBy(*downwards)

    def next_of(condition: Column, what: Column, window: WindowSpec) -> Column:
        before = window.rowsBetween(Window.unboundedPreceding, -1)
        return F.last(F.when(condition, what), ignorenulls=True).over(before)

    is_cut, cut = F.col("is_cut"), F.struct("offset", "timestamp_ms")
    can_be_cut = F.col("stands_at").isNotNull() & ~F.col("is_refused")
    found = rows.withColumns(
        {
            "any_cut": next_of(is_cut & F.col("cut_destination").isNull(), cut, after),
            "own_cut": next_of(is_cut, cut, after_for),
            "next_asker": next_of(~is_cut & can_be_cut, F.col("stands_at"), after_for),
        }
    ).where(~is_cut)
    nearest = F.least("any_cut", "own_cut")
    return found.select(
        *askers.columns,
        F.when(can_be_cut, nearest["offset"]).alias("cut_offset"),
        F.when(can_be_cut, nearest["timestamp_ms"]).alias("cut_ms"),
        F.coalesce(F.col("next_asker") < nearest["offset"], F.lit(False)).alias("is_followed"),
    )


# --- 3. what arrived --------------------------------------------------------------------------------------------------


def _give(askers: DataFrame, arrivals: DataFrame, *, is_whole: bool) -> DataFrame:
    """Askers with what they were given: ``arrivals``, the first one's time and place, and ``extra``, where one is.

    And whether that is what they asked for: ``altered`` in words, ``is_misplaced``.
    """
    came = arrivals.select(
        *_IDENTITY,
        F.col("due_ms").alias("claimed_ms"),
        F.col("timestamp_ms").alias("delivered_ms"),
        F.col("partition").alias("delivered_partition"),
        F.col("offset").alias("delivered_offset"),
        F.col("content").alias("delivered_content"),
    )
    # a. By the time that they name, and by their content, where somebody asked for that then. What has been taken back
    #    in time comes last, as it ought to get nothing, and what was rejected behind those that were not.
    wish: list[Column | str] = [F.col("cut_ms").isNotNull(), "is_rejected", "due_ms", "timestamp_ms", "offset"]
    by_due = Window.partitionBy(*_IDENTITY, "due_ms").orderBy(*wish)
    told = askers.withColumn("known_content", F.coalesce("content", F.lit(_NOT_KNOWN)))
    first_asked = F.first("known_content").over(by_due)
    by_what = Window.partitionBy(*_IDENTITY, "due_ms", "known_content").orderBy(*wish)
    asked = told.withColumns({"nth": F.row_number().over(by_what), "first_content": first_asked})
    known = asked.select(
        *_IDENTITY,
        F.col("due_ms").alias("claimed_ms"),
        F.col("known_content").alias("delivered_content"),
        F.lit(True).alias("is_alike"),
    ).distinct()
    named = asked.select(*_IDENTITY, F.col("due_ms").alias("claimed_ms"), "first_content").distinct()
    came = came.join(named.withColumn("is_named", F.lit(True)), [*_IDENTITY, "claimed_ms"], "left")
    came = _without_those_of_before(came, askers, is_whole=is_whole)
    came = came.join(known, [*_IDENTITY, "claimed_ms", "delivered_content"], "left")
    came = came.withColumn(
        "known_content", F.when(F.col("is_alike"), F.col("delivered_content")).otherwise(F.col("first_content"))
    )
    by_claim = Window.partitionBy(*_IDENTITY, "claimed_ms", "known_content").orderBy("delivered_ms", "delivered_offset")
    came = settled(came.withColumn("nth", F.row_number().over(by_claim)))
    claim = [*_IDENTITY, "due_ms", "known_content"]
    first = came.where("is_named").select(
        *_IDENTITY,
        F.col("claimed_ms").alias("due_ms"),
        "known_content",
        "nth",
        *_ARRIVAL,
        F.lit(True).alias("is_given"),
    )
    with_first = asked.join(first, [*claim, "nth"], "left")
    # b. The others, in the order of time.
    in_turn = Window.partitionBy(*_IDENTITY, F.col("is_given").isNull()).orderBy(*wish)
    turn = F.when(F.col("is_given").isNull(), F.row_number().over(in_turn))
    open_askers = settled(with_first.withColumn("turn", turn))
    somebodys = askers.select(
        *_IDENTITY, F.col("content").alias("delivered_content"), F.lit(True).alias("is_somebodys")
    )
    others = (
        came.where("is_named is null")
        .withColumn(
            "turn", F.row_number().over(Window.partitionBy(*_IDENTITY).orderBy("delivered_ms", "delivered_offset"))
        )
        .join(somebodys.distinct(), [*_IDENTITY, "delivered_content"], "left")
    )
    second = others.select(
        *_IDENTITY, "turn", "is_somebodys", *(F.col(name).alias(f"other_{name}") for name in _ARRIVAL)
    )
    paired = open_askers.join(second, [*_IDENTITY, "turn"], "left")
    # c. What nobody was given is a copy too many of the one it names, else of the first.
    asked_by_due = asked.groupBy(*_IDENTITY, F.col("due_ms").alias("claimed_ms"), "known_content").agg(
        F.count("*").alias("askers")
    )
    over_named = (
        came.where("is_named")
        .join(asked_by_due, [*_IDENTITY, "claimed_ms", "known_content"])
        .where("nth > askers")
        .groupBy(*_IDENTITY, F.col("claimed_ms").alias("due_ms"), "known_content")
        .agg(F.count("*").alias("surplus"), F.max(_place_of_arrival()).alias("surplus_at"))
        .withColumn("nth", F.lit(1))
    )
    still_open = open_askers.groupBy(*_IDENTITY).agg(F.count("turn").alias("open"))
    over_others = (
        others.join(still_open, _IDENTITY)
        .where("turn > open")
        .groupBy(*_IDENTITY)
        .agg(F.count("*").alias("stray"), F.max(_place_of_arrival()).alias("stray_at"))
        .withColumn("rank", F.lit(1))
    )
    alike = Window.partitionBy(*_IDENTITY)
    place = F.coalesce("asked_partition", F.lit(-1))
    ranked = paired.withColumns(
        {
            "rank": F.row_number().over(Window.partitionBy(*_IDENTITY).orderBy(*wish)),
            "only_partition": F.when(F.min(place).over(alike) == F.max(place).over(alike), F.col("asked_partition")),
        }
    )
    full = ranked.join(over_named, [*claim, "nth"], "left").join(over_others, [*_IDENTITY, "rank"], "left")
    got = F.col("is_given").isNotNull() | F.col("other_delivered_ms").isNotNull()
    extra = F.coalesce("surplus", F.lit(0)) + F.coalesce("stray", F.lit(0))
    given = full.withColumns({name: F.coalesce(name, f"other_{name}") for name in _ARRIVAL})
    # In turn they may have been given each other's.
    is_other = F.col("is_somebodys").isNull()
    return given.select(
        *askers.columns,
        *_ARRIVAL,
        (got.cast("bigint") + extra).alias("arrivals"),
        F.coalesce("surplus_at", "stray_at").alias("extra"),
        F.when(is_other, altered(F.col("content"), F.col("delivered_content"))).alias("altered"),
        is_misplaced(F.col("only_partition")).alias("is_misplaced"),
    )


def _without_those_of_before(came: DataFrame, askers: DataFrame, *, is_whole: bool) -> DataFrame:
    """Arrivals less those that were asked for by a record that was not read (`is_of_before`).

    What consumers send back is due when the sidecar has written it on, and a level record whose producer's clock is
    ahead when it has waited since it was seen: their arrivals name other times.
    """
    names_another = (F.col("kind") == "send_back") | ((F.col("level") > 0) & ~F.col("append_time"))
    since = askers.groupBy(*_IDENTITY).agg(
        F.min(F.when(F.col("append_time"), F.col("timestamp_ms")).otherwise(0)).alias("since_ms"),
        F.bool_or(names_another).alias("names_another"),
    )
    is_for_another = F.col("claimed_ms").isNotNull() & F.col("is_named").isNull() & ~F.col("names_another")
    is_own = ~is_of_before(is_for_another, F.col("since_ms"), is_whole=is_whole)
    return came.join(since, _IDENTITY).where(is_own).select(*came.columns)


def is_of_before(is_for_another: Column, since_ms: Column, *, is_whole: bool) -> Column:
    """Whether what arrived at ``delivered_ms`` was asked for by a record that was not read.

    It came before the first that was, by more than clocks differ, or names a due time that is nobody's. Where not even
    all was read that could be, to name such a time is enough.

    Args:
        since_ms: when the first was asked for, by a broker's clock.
        is_whole: see `spark.reconcile.Rules`.
    """
    ahead_ms = F.when(is_for_another, 0).otherwise(CLOCK_SKEW_MS)
    came_before = F.col("delivered_ms") < since_ms - ahead_ms
    return came_before if is_whole else came_before | is_for_another


_ARRIVAL = ("delivered_ms", "delivered_partition", "delivered_offset", "delivered_content")
_NOT_KNOWN = -1
"""No record's content."""


def _place_of_arrival() -> Column:
    return F.concat(
        F.col("destination"), F.lit(", partition "), "delivered_partition", F.lit(", offset "), "delivered_offset"
    )


# --- 4. who is void ---------------------------------------------------------------------------------------------------


def _with_void(given: DataFrame, grace_ms: int, is_read: Column) -> DataFrame:
    """With ``is_void``: a replacement that found nothing to replace.

    It found what it names if that had not gone out, and was not void itself; or if that ought not to have gone out, and
    the replacement came, or another in its stead. What it names may be older than what was read: one that came, or
    another in its stead, is believed, where nothing of that id before it is here; so is one that replaces what may have
    come, unread.
    """
    has_come = F.col("arrivals") > 0
    replacements = given.where("kind = 'replace'").select(*_COORDINATES, has_come.alias("replacement_has_come"))
    was_in_time = F.col("cut_ms") < F.greatest("due_ms", "timestamp_ms") - grace_ms
    named = given.where("cut_offset is not null").select(
        F.col("wheel_partition").alias("partition"),
        F.col("offset").alias("named_offset"),
        F.col("cut_offset").alias("offset"),
        (F.col("kind") == "replace").alias("can_be_void"),
        (~has_come & ~F.col("is_rejected") & (is_read | was_in_time)).alias("was_there"),
        (was_in_time | ~(is_read | has_come | F.col("is_rejected"))).alias("may_have_been_there"),
    )
    links = settled(named.join(replacements, ["partition", "offset"]))
    carried_out = _carried_out(links, replacements)
    believed = _with_nothing_before(given).join(carried_out, _COORDINATES, "left_semi")
    carried_out = carried_out.withColumn("is_carried_out", F.lit(True))
    taken = links.join(carried_out, _COORDINATES, "left").where("was_there or (is_carried_out and may_have_been_there)")
    first = taken.where("not can_be_void").select(*_COORDINATES).unionAll(believed).distinct()
    chained = taken.where("can_be_void").select("topic", "partition", "named_offset", "offset")
    found = _reached(first, chained).withColumn("has_found", F.lit(True))
    has_found = F.coalesce("has_found", F.lit(False))
    return given.join(found, _COORDINATES, "left").withColumn("is_void", (F.col("kind") == "replace") & ~has_found)


def _carried_out(links: DataFrame, replacements: DataFrame) -> DataFrame:
    """Places of replacements that came, and of those that were replaced in turn by one that did."""
    came = replacements.where("replacement_has_come").select(*_COORDINATES)
    replaced = links.where("can_be_void and was_there")
    if replaced.isEmpty():
        return came
    back = replaced.select(
        "topic", "partition", F.col("offset").alias("named_offset"), F.col("named_offset").alias("offset")
    )
    return _reached(came, back)


def _with_nothing_before(given: DataFrame) -> DataFrame:
    """Replacements of which no message that they can have meant is here: not even one that is gone."""
    replacements = given.where("kind = 'replace'").select(*_COORDINATES, "replaces")
    can_be_meant = given.where("stands_at is not null and not is_refused")
    earliest = can_be_meant.groupBy(F.col("wheel_partition").alias("partition"), F.col("id").alias("replaces")).agg(
        F.min("stands_at").alias("earliest_offset")
    )
    told = replacements.join(earliest, ["partition", "replaces"], "left")
    return told.where("earliest_offset is null or earliest_offset >= offset").select(*_COORDINATES)


def _reached(first: DataFrame, steps: DataFrame) -> DataFrame:
    """Places that steps from ``named_offset`` to ``offset`` lead to, the first among them.

    Steps are joined with themselves, and double in length each time: a chain of a million takes twenty rounds.
    """
    reached = first
    while not steps.isEmpty():
        begins, ends = (steps.withColumnRenamed(name, "between") for name in ("named_offset", "offset"))
        further = begins.join(reached.withColumnRenamed("offset", "between"), ["topic", "partition", "between"])
        reached = settled(reached.unionAll(further.select(*_COORDINATES)).distinct())
        steps = settled(ends.join(begins, ["topic", "partition", "between"]).select(*steps.columns))
    return reached
