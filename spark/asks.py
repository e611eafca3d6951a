"""What records of schedule topics ask for: a delivery, a retry, a cancellation, or what cannot be done.

In steps, each on the columns of the one before: what headers say, what that means, what speaks against it. An
expression that stands in another twice would be planned twice.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import (
    DEFAULT_MAX_RECONSUME_TIMES,
    FIRST_RETRY_LEVEL,
    DelayLevels,
    ErrorCode,
    Header,
    TopicKind,
    TopicNames,
)
from spark import topic_kinds
from spark.arrivals import Told
from spark.headers import (
    COUNT_MAX,
    REDRIVES_MAX,
    Headers,
    coordinates,
    count,
    encode_group,
    is_legal_topic,
    meant_by_all,
    once,
    physical,
    readable,
    said_by_all,
    whole_number,
)

_LEVEL, _SEC, _MS, _AT = (
    header.value for header in (Header.DELAY, Header.TIMER_DELAY_SEC, Header.TIMER_DELAY_MS, Header.TIMER_DELIVER_MS)
)


def of_levels(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """A delivery after the level's delay, or a retry on its way."""
    c, headers = F.col, Headers()
    said = records.withColumns(
        {
            "is_cancel": headers.has(Header.TIMER_DEL_UNIQKEY) | headers.has(Header.TIMER_REPLACE_UNIQKEY),
            **_destination_said(headers),
            **said_by_all(headers),
        }
    )
    meant = said.withColumns(
        {
            "named_topic": physical(_named(), names),
            "own_level": topic_kinds.level(c("topic"), names),
            **meant_by_all(),
        }
    )
    told = meant.withColumn("topic_code", _topic_code(names))
    rejection = F.when(c("is_cancel"), ErrorCode.NOT_CANCELLABLE.value).otherwise(
        F.coalesce(_partition_code(), c("topic_code"))
    )
    told = told.withColumns({"retries": count(c("reconsume")), "rejection": once(rejection)})
    is_accepted = c("rejection").isNull()
    is_retry = (c("retries") > 0) & (topic_kinds.kind(c("named_topic"), names) == TopicKind.RETRY.value)
    return told, {
        "kind": F.when(~is_accepted, "invalid").when(is_retry, "retry").otherwise("scheduled"),
        "id": F.coalesce(c("told_id"), coordinates()),
        "destination": F.when(is_accepted, c("named_topic")),
        "retries": c("retries"),
        "redrives": count(c("redrives"), REDRIVES_MAX),
        "due_ms": c("timestamp_ms") + F.when(is_accepted, _delay_ms(c("own_level"), levels)).otherwise(0),
        "level": c("own_level"),
        "group": F.when(c("retries") > 0, topic_kinds.group(c("named_topic"), names)),
        "why": c("rejection"),
        "asked_partition": F.when(is_accepted, c("partition_text").try_cast("int")),
    }


def of_the_wheel(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """A delivery at any time, in place of another or not; a cancellation; what the sidecar wrote for itself."""
    c, headers = F.col, Headers()
    said = records.withColumns(
        {
            "is_cancel": headers.has(Header.TIMER_DEL_UNIQKEY),
            "is_replace": headers.has(Header.TIMER_REPLACE_UNIQKEY),
            "raw_cancels": headers.last(Header.TIMER_DEL_UNIQKEY),
            "raw_replaces": headers.last(Header.TIMER_REPLACE_UNIQKEY),
            "says_when": _says_when(headers),
            "time_text": headers.text(_says_when(headers)),
            "origin_text": headers.text(Header.TIMER_ORIGIN_OFFSET),
            "roll_times_text": headers.text(Header.TIMER_ROLL_TIMES),
            "not_before_text": headers.text(Header.TIMER_NOT_BEFORE_MS),
            **_destination_said(headers),
            **said_by_all(headers),
        }
    )
    meant = said.withColumns(
        {
            "named_topic": physical(_named(), names),
            "cancels": readable(c("raw_cancels")),
            "replaces": readable(c("raw_replaces")),
            **{name: whole_number(c(f"{name}_text")) for name in ("time", "origin", "roll_times", "not_before")},
            **meant_by_all(),
        }
    )
    told = meant.withColumns(
        {"topic_code": _topic_code(names), "time_code": _time_code(), "wheel_due_ms": _wheel_due_ms(levels)}
    )
    cancel_code = F.when(c("cancels").isNull(), ErrorCode.MISSING_UNIQ_KEY.value).when(
        c("names_topic"), c("topic_code")
    )
    replace_code = F.when(c("is_replace") & c("replaces").isNull(), ErrorCode.MISSING_UNIQ_KEY.value)
    rejection = F.when(c("is_cancel"), cancel_code).otherwise(
        F.coalesce(c("topic_code"), _partition_code(), c("time_code"), replace_code)
    )
    told = told.withColumn("rejection", once(rejection))
    is_accepted = c("rejection").isNull()
    is_copy = F.coalesce(c("origin").between(0, c("offset") - 1) & (c("roll_times") >= 0), F.lit(False))
    return told, {
        "kind": F.when(~is_accepted, "invalid")
        .when(c("is_cancel"), "cancel")
        .when(c("is_replace"), "replace")
        .when(c("not_before") > 0, "postponed")
        .when(is_copy, "rolled")
        .otherwise("scheduled"),
        "id": F.coalesce(F.when(c("is_cancel"), c("cancels")).otherwise(c("told_id")), coordinates()),
        "destination": F.when(is_accepted & (~c("is_cancel") | c("names_topic")), c("named_topic")),
        "retries": count(c("reconsume")),
        "redrives": count(c("redrives"), REDRIVES_MAX),
        "due_ms": F.when(~is_accepted, c("timestamp_ms")).when(~c("is_cancel"), c("wheel_due_ms")),
        "level": F.lit(0),
        "of_topic": F.when(is_copy, c("topic")),
        "of_partition": F.when(is_copy, c("partition")),
        "of_offset": F.when(is_copy, c("origin")),
        "replaces": F.when(~c("is_cancel"), c("replaces")),
        "why": c("rejection"),
        "asked_partition": F.when(is_accepted & ~c("is_cancel"), c("partition_text").try_cast("int")),
    }


def of_send_back(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """A retry, or a dead letter."""
    c, headers = F.col, Headers()
    said = records.withColumns(
        {
            "raw_topic": _origin(headers, names),
            "raw_origin_id": headers.last(Header.ORIGIN_MESSAGE_ID),
            "consumer_group": headers.text(Header.CONSUMER_GROUP),
            "delay_text": headers.text(Header.DELAY),
            "max_reconsume_text": headers.text(Header.MAX_RECONSUME_TIMES),
            **said_by_all(headers),
        }
    )
    meant = said.withColumns(
        {
            "named_topic": physical(F.make_valid_utf8(c("raw_topic").cast("string")), names),
            "origin_id": readable(c("raw_origin_id")),
            "encoded_group": encode_group(c("consumer_group")),
            "delay": whole_number(c("delay_text")),
            "max_reconsume": whole_number(c("max_reconsume_text")),
            **meant_by_all(),
        }
    )
    told = meant.withColumns(
        {
            "retry_topic": topic_kinds.group_topic(names.retry_template, names, c("encoded_group")),
            "dead_letter_topic": topic_kinds.group_topic(names.dead_letter_template, names, c("encoded_group")),
            "retries": count(c("reconsume"), COUNT_MAX),
            "next_level": _next_level(levels),
        }
    )
    told = told.withColumn("rejection", once(_send_back_code(names)))
    is_accepted = c("rejection").isNull()
    next_topic = F.when(c("next_level").isNull(), c("dead_letter_topic")).otherwise(c("retry_topic"))
    delay_ms = F.coalesce(_delay_ms(c("next_level"), levels), F.lit(0))
    return told, {
        "kind": F.when(is_accepted, "send_back").otherwise("invalid"),
        "id": F.coalesce(c("told_id"), c("origin_id"), coordinates()),
        "destination": F.when(is_accepted, next_topic),
        "retries": c("retries") + 1,
        "redrives": count(c("redrives"), REDRIVES_MAX),
        "due_ms": c("timestamp_ms") + F.when(is_accepted, delay_ms).otherwise(0),
        "level": c("next_level"),
        "group": F.when(F.octet_length("consumer_group") > 0, F.make_valid_utf8(c("consumer_group"))),
        "why": c("rejection"),
    }


# --- where to ---------------------------------------------------------------------------------------------------------


def _destination_said(headers: Headers) -> dict[str, Column]:
    return {
        "raw_topic": headers.last(Header.REAL_TOPIC),
        "names_topic": headers.has(Header.REAL_TOPIC),
        "partition_text": headers.text(Header.REAL_QID),
        "names_partition": headers.has(Header.REAL_QID),
    }


def _named() -> Column:
    """``REAL_TOPIC``, where it is text."""
    name = F.col("raw_topic").cast("string")
    return F.when(F.is_valid_utf8(name), name)


def _topic_code(names: TopicNames) -> Column:
    topic = F.col("named_topic")
    return (
        F.when(_is_empty("raw_topic"), ErrorCode.MISSING_REAL_TOPIC.value)
        .when(~F.coalesce(is_legal_topic(topic), F.lit(False)), ErrorCode.ILLEGAL_REAL_TOPIC.value)
        .when(topic_kinds.is_input(topic, names), ErrorCode.DESTINATION_NOT_ALLOWED.value)
    )


def _partition_code() -> Column:
    text = F.col("partition_text")
    is_partition = text.rlike(r"\A[0-9]{1,10}\z") & (text.try_cast("bigint") <= 2**31 - 1)
    is_illegal = F.col("names_partition") & ~F.coalesce(is_partition, F.lit(False))
    return F.when(is_illegal, ErrorCode.ILLEGAL_REAL_QID.value)


def _is_empty(name: str) -> Column:
    """Whether a column is null or without a byte."""
    return F.coalesce(F.octet_length(name) == 0, F.lit(True))


# --- when -------------------------------------------------------------------------------------------------------------

_LATEST_DUE_MS = 253_402_300_799_999
"""The end of the year 9999."""


def _says_when(headers: Headers) -> Column:
    """The header that says when, by RocketMQ's priority: level, seconds, milliseconds, absolute time; or null."""
    chosen = F.when(headers.has(_LEVEL), _LEVEL)
    for name in (_SEC, _MS, _AT):
        chosen = chosen.when(headers.has(name), name)
    return chosen


def _wheel_due_ms(levels: DelayLevels) -> Column:
    of_level = F.col("timestamp_ms") + _delay_ms(F.col("time"), levels)
    return F.when(F.col("says_when") == _LEVEL, of_level).otherwise(_given_due_ms())


def _given_due_ms() -> Column:
    """Of what names no level. Null where it is farther off than a number can say."""
    says, time = F.col("says_when"), F.col("time")
    after_seconds = F.try_add("timestamp_ms", F.try_multiply(time, F.lit(1_000).cast("bigint")))
    return F.when(says == _SEC, after_seconds).when(says == _MS, F.try_add("timestamp_ms", time)).otherwise(time)


def _time_code() -> Column:
    says, time = F.col("says_when"), F.col("time")
    least = F.when(says == _LEVEL, 1).when(says != _AT, 0)
    is_too_far = F.coalesce(_given_due_ms() > _LATEST_DUE_MS, F.lit(True))
    return (
        F.when(says.isNull(), ErrorCode.NO_DELIVERY_TIME.value)
        .when(time.isNull() | F.coalesce(time < least, F.lit(False)), ErrorCode.ILLEGAL_DELIVERY_TIME.value)
        .when((says != _LEVEL) & is_too_far, ErrorCode.DELAY_TOO_LONG.value)
    )


def _delay_ms(level: Column, levels: DelayLevels) -> Column:
    """Of a level from 1 on, clamped to the last; null where there is none."""
    table = F.array(*(F.lit(delay_ms).cast("bigint") for delay_ms in levels.delays_ms))
    clamped = F.least(level.cast("bigint"), F.lit(len(levels)).cast("bigint")).cast("int")
    return F.when(level >= 1, F.try_element_at(table, clamped))


# --- what failed ------------------------------------------------------------------------------------------------------


def _origin(headers: Headers, names: TopicNames) -> Column:
    """``RETRY_TOPIC`` of a failed message: the last, but that of several a retry topic is no origin."""
    all_of_them = F.zip_with(
        headers.names,
        headers.values,
        lambda name, value: F.when(name == Header.RETRY_TOPIC.value, F.struct(value.alias("value"))),
    )
    last_first = F.filter(all_of_them, lambda entry: entry.isNotNull())
    origins = F.filter(
        last_first,
        lambda entry: ~topic_kinds.is_retry(F.coalesce(entry["value"].cast("string"), F.lit("")), names),
    )
    # The first header stands whatever it is, and each later one that is no retry topic takes its place.
    return F.coalesce(F.try_element_at(origins, F.lit(1)), F.try_element_at(last_first, F.lit(-1)))["value"]


def _next_level(levels: DelayLevels) -> Column:
    """The level of a failed message's next attempt; null: there is none, and it dies (`contract.retry_level`)."""
    retries = count(F.col("reconsume"), COUNT_MAX).cast("bigint")
    most = F.coalesce("max_reconsume", F.lit(DEFAULT_MAX_RECONSUME_TIMES).cast("bigint"))
    wish = F.coalesce("delay", F.lit(0).cast("bigint"))
    chosen = F.when(wish == 0, F.lit(FIRST_RETRY_LEVEL) + retries).otherwise(wish)
    lives = (wish >= 0) & (retries < most)
    return F.when(lives, F.least(chosen, F.lit(len(levels)).cast("bigint")).cast("int"))


def _send_back_code(names: TopicNames) -> Column:
    c, no = F.col, F.lit(False)

    def is_count(name: str) -> Column:
        return c(f"{name}_text").isNull() | F.coalesce(c(name).between(0, COUNT_MAX), no)

    is_group = (
        F.is_valid_utf8("consumer_group") & is_legal_topic(c("retry_topic")) & is_legal_topic(c("dead_letter_topic"))
    )
    return (
        F.when(_is_empty("consumer_group"), ErrorCode.MISSING_CONSUMER_GROUP.value)
        .when(~is_group, ErrorCode.ILLEGAL_CONSUMER_GROUP.value)
        .when(_is_empty("raw_topic"), ErrorCode.MISSING_RETRY_TOPIC.value)
        .when(~F.coalesce(is_legal_topic(c("named_topic")), no), ErrorCode.ILLEGAL_RETRY_TOPIC.value)
        .when(topic_kinds.is_reserved(c("named_topic"), names), ErrorCode.DESTINATION_NOT_ALLOWED.value)
        .when(~is_count("reconsume") | ~is_count("max_reconsume"), ErrorCode.ILLEGAL_RECONSUME_TIMES.value)
        .when(c("delay_text").isNotNull() & c("delay").isNull(), ErrorCode.ILLEGAL_DELIVERY_TIME.value)
    )
