"""Kafka records -> facts: what each record says, by the contract, and nothing that the sidecar says of itself.

    kind         of which topic                  what it is
    scheduled    level, wheel                    asks for a delivery
    replace      wheel                           asks for a delivery in place of a pending one (``replaces``)
    send_back    send-back                       a consumer failed it: asks for a retry, or for a dead letter
    cancel       wheel                           takes a pending message back
    invalid      level, wheel, send-back         asks for what cannot be done (``why``): to be rejected
    rolled       wheel                           calls itself a copy of the record at ``of_offset``
    postponed    wheel                           calls itself a message whose destination took nothing when it was due
    retry        level                           a retry on its way, which the sidecar wrote for a send_back
    delivered    destinations, RETRY-<group>     arrived
    dead_letter  DLQ-<group>                     arrived as a dead letter
    rejected     DLQ-<group>                     the record at ``of_topic``, ``of_partition``, ``of_offset`` was refused

When something is due follows from the record that asked for it: its headers, its timestamp, the level table. Records of
a destination without a ``UNIQ_KEY`` are none of ours and make no fact. The rules are those of `sidecar.intake`, written
a second time on purpose; a test holds the two against each other.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

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
from spark.headers import (
    Headers,
    count,
    encode_group,
    is_legal_topic,
    names_of,
    physical,
    readable,
    values_of,
    whole_number,
)

SCHEMA = T.StructType(
    [
        T.StructField("kind", T.StringType(), False),
        T.StructField("id", T.StringType()),
        T.StructField("destination", T.StringType()),  # of a delivery, the topic it is in
        T.StructField("retries", T.IntegerType()),
        T.StructField("redrives", T.IntegerType()),
        T.StructField("due_ms", T.LongType()),  # of a delivery, what it says it was
        T.StructField("level", T.IntegerType()),  # 0: the wheel
        T.StructField("group", T.StringType()),
        T.StructField("topic", T.StringType(), False),
        T.StructField("partition", T.IntegerType(), False),
        T.StructField("offset", T.LongType(), False),
        T.StructField("timestamp_ms", T.LongType(), False),
        T.StructField("append_time", T.BooleanType(), False),  # whether the broker set the timestamp
        T.StructField("of_topic", T.StringType()),
        T.StructField("of_partition", T.IntegerType()),
        T.StructField("of_offset", T.LongType()),
        T.StructField("replaces", T.StringType()),
        T.StructField("why", T.StringType()),
    ]
)

ASKS = ("scheduled", "replace", "send_back")
"""Kinds that promise a delivery."""

ARRIVALS = ("delivered", "dead_letter")
"""Kinds that are one."""

_MAX_RECONSUME = 2**31 - 2
_LEVEL, _WHEEL, _SEND_BACK = TopicKind.LEVEL.value, TopicKind.WHEEL.value, TopicKind.SEND_BACK.value
_RETRY, _DEAD_LETTER, _OTHER = TopicKind.RETRY.value, TopicKind.DEAD_LETTER.value, TopicKind.OTHER.value
_INPUTS = (_LEVEL, _WHEEL, _SEND_BACK)


def to_facts(records: DataFrame, names: TopicNames, levels: DelayLevels) -> DataFrame:
    """A fact a record, of those that make one; works on batches and on streams.

    Args:
        records: as Spark's Kafka source gives them, with headers.

    Returns:
        Rows of `SCHEMA`.
    """
    read = records.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        (F.col("timestampType") == 1).alias("append_time"),
        topic_kinds.kind(F.col("topic"), names).alias("topic_kind"),
        names_of(F.col("headers")).alias("header_names"),
        values_of(F.col("headers")).alias("header_values"),
    )
    # In steps, each on the columns of the one before: an expression that stands in another twice is planned twice.
    for step in (_headers, _meanings, _is_rejected):
        read = read.select("*", *(column.alias(name) for name, column in step(names, levels).items()))
    read = read.where(_is_of_ours())
    for step in (_places, _kinds_of_places, _rejection, _next_attempt):
        read = read.select("*", *(column.alias(name) for name, column in step(names, levels).items()))
    return read.select(*_fact(names, levels)).select(*_typed())


Columns = dict[str, Column]


def _typed() -> list[Column]:
    given = {"kind": _computed_here(F.col("kind"))}
    return [
        given.get(field.name, F.col(field.name).try_cast(field.dataType)).alias(field.name) for field in SCHEMA.fields
    ]


def _computed_here(column: Column) -> Column:
    """The same, but no filter is carried past it: through all the steps, it would be planned for minutes."""
    return F.when(F.spark_partition_id() >= 0, column)  # always; Spark takes it for what differs from task to task


# --- what the headers say ---------------------------------------------------------------------------------------------


def _headers(names: TopicNames, levels: DelayLevels) -> Columns:
    """Headers by name, as they are."""
    headers = Headers(F.col("header_names"), F.col("header_values"))
    origin = _origin(F.col("header_names"), F.col("header_values"), names)
    return {
        "raw_id": headers.filled(Header.UNIQ_KEY),
        "raw_origin_id": headers.filled(Header.ORIGIN_MESSAGE_ID),
        "raw_topic": F.when(F.col("topic_kind") == _SEND_BACK, origin).otherwise(headers.last(Header.REAL_TOPIC)),
        "raw_cancels": headers.filled(Header.TIMER_DEL_UNIQKEY),
        "raw_replaces": headers.filled(Header.TIMER_REPLACE_UNIQKEY),
        "raw_group": headers.filled(Header.CONSUMER_GROUP),
        "raw_code": headers.filled(Header.ERROR_CODE),
        "real_qid": headers.text(Header.REAL_QID),
        "has_real_qid": headers.has(Header.REAL_QID),
        "names_real_topic": headers.has(Header.REAL_TOPIC),
        "is_cancel": headers.has(Header.TIMER_DEL_UNIQKEY),
        "is_replace": headers.has(Header.TIMER_REPLACE_UNIQKEY),
        "has_delay": headers.has(Header.DELAY),
        "has_delay_sec": headers.has(Header.TIMER_DELAY_SEC),
        "has_delay_ms": headers.has(Header.TIMER_DELAY_MS),
        "has_deliver_ms": headers.has(Header.TIMER_DELIVER_MS),
        "error_topic": headers.text(Header.ERROR_TOPIC),
        **{
            name: headers.text(header)
            for name, header in {
                "delay_text": Header.DELAY,
                "delay_sec_text": Header.TIMER_DELAY_SEC,
                "delay_ms_text": Header.TIMER_DELAY_MS,
                "deliver_ms_text": Header.TIMER_DELIVER_MS,
                "out_ms_text": Header.TIMER_OUT_MS,
                "origin_offset_text": Header.TIMER_ORIGIN_OFFSET,
                "roll_times_text": Header.TIMER_ROLL_TIMES,
                "not_before_text": Header.TIMER_NOT_BEFORE_MS,
                "reconsume_text": Header.RECONSUME_TIME,
                "max_reconsume_text": Header.MAX_RECONSUME_TIMES,
                "redrives_text": Header.REDRIVE_COUNT,
                "error_partition_text": Header.ERROR_PARTITION,
                "error_offset_text": Header.ERROR_OFFSET,
            }.items()
        },
    }


def _origin(header_names: Column, header_values: Column, names: TopicNames) -> Column:
    """``RETRY_TOPIC`` of a failed message: the last, but that of several a retry topic is no origin."""
    all_of_them = F.zip_with(
        header_names,
        header_values,
        lambda name, value: F.when(name == Header.RETRY_TOPIC.value, F.struct(value.alias("value"))),
    )
    last_first = F.filter(all_of_them, lambda entry: entry.isNotNull())
    origins = F.filter(
        last_first,
        lambda entry: ~topic_kinds.is_retry(F.coalesce(entry["value"].cast("string"), F.lit("")), names),
    )
    # The first header stands whatever it is, and each later one that is no retry topic takes its place.
    return F.coalesce(F.try_element_at(origins, F.lit(1)), F.try_element_at(last_first, F.lit(-1)))["value"]


def _meanings(names: TopicNames, levels: DelayLevels) -> Columns:
    """Numbers, ids and names."""
    c = F.col
    told = {"coordinates": F.concat_ws("-", "topic", c("partition").cast("string"), c("offset").cast("string"))}
    for name in ("delay", "delay_sec", "delay_ms", "deliver_ms", "out_ms", "origin_offset", "roll_times", "not_before"):
        told[name] = whole_number(c(f"{name}_text"))
    for name in ("reconsume", "max_reconsume", "error_partition", "error_offset"):
        told[name] = whole_number(c(f"{name}_text"))
    told["redrives"] = count(c("redrives_text"), 999_999_999)
    told["retries"] = count(c("reconsume_text"))
    for name, raw in {"uniq_key": "id", "origin_id": "origin_id", "cancels": "cancels", "replaces": "replaces"}.items():
        told[name] = readable(c(f"raw_{raw}"))
    told["error_code"] = readable(c("raw_code"))
    told["consumer_group"] = c("raw_group").cast("string")
    text = c("raw_topic").cast("string")
    told["has_topic"] = F.coalesce(F.octet_length("raw_topic") > 0, F.lit(False))
    told["named"] = F.when(c("topic_kind") == _SEND_BACK, F.make_valid_utf8(text)).when(F.is_valid_utf8(text), text)
    return told


def _is_rejected(names: TopicNames, levels: DelayLevels) -> Columns:
    c = F.col
    is_letter = (c("topic_kind") == _DEAD_LETTER) & c("error_code").isNotNull() & c("error_offset").isNotNull()
    is_rejected = is_letter & topic_kinds.kind(c("error_topic"), names).isin(*_INPUTS)
    return {"is_rejected": _computed_here(F.coalesce(is_rejected, F.lit(False)))}


def _is_of_ours() -> Column:
    arrives = F.col("topic_kind").isin(_RETRY, _DEAD_LETTER, _OTHER) & F.col("uniq_key").isNotNull()
    return F.col("topic_kind").isin(*_INPUTS) | F.col("is_rejected") | arrives


def _places(names: TopicNames, levels: DelayLevels) -> Columns:
    """Topics that are named."""
    c = F.col
    return {
        "named_topic": F.when(c("topic_kind").isin(*_INPUTS), physical(c("named"), names)),
        "encoded_group": F.when(c("topic_kind") == _SEND_BACK, encode_group(c("consumer_group"))),
    }


def _kinds_of_places(names: TopicNames, levels: DelayLevels) -> Columns:
    c = F.col
    return {
        "named_kind": topic_kinds.kind(c("named_topic"), names),
        "is_legal": F.coalesce(is_legal_topic(c("named_topic")), F.lit(False)),
        "retry_topic": topic_kinds.group_topic(names.retry_template, names, c("encoded_group")),
        "dead_letter_topic": topic_kinds.group_topic(names.dead_letter_template, names, c("encoded_group")),
        "wheel_due_sec": F.try_add(c("timestamp_ms"), F.try_multiply(c("delay_sec"), F.lit(1_000).cast("bigint"))),
    }


def _rejection(names: TopicNames, levels: DelayLevels) -> Columns:
    """The `ErrorCode` of a record that cannot be done whatever the settings are; null where it can."""
    c = F.col
    no = F.lit(False)
    is_partition = c("real_qid").rlike(r"\A[0-9]{1,10}\z") & (c("real_qid").try_cast("bigint") <= 2**31 - 1)
    qid_code = F.when(c("has_real_qid") & ~F.coalesce(is_partition, no), ErrorCode.ILLEGAL_REAL_QID.value)
    topic_code = (
        F.when(~c("has_topic"), ErrorCode.MISSING_REAL_TOPIC.value)
        .when(~c("is_legal"), ErrorCode.ILLEGAL_REAL_TOPIC.value)
        .when(c("named_kind").isin(*_INPUTS), ErrorCode.DESTINATION_NOT_ALLOWED.value)
    )
    level_code = F.when(c("is_cancel") | c("is_replace"), ErrorCode.NOT_CANCELLABLE.value).otherwise(
        F.coalesce(qid_code, topic_code)
    )
    cancel_code = F.when(c("cancels").isNull(), ErrorCode.MISSING_UNIQ_KEY.value).when(
        c("names_real_topic"), topic_code
    )
    illegal = F.lit(ErrorCode.ILLEGAL_DELIVERY_TIME.value)
    too_long = F.lit(ErrorCode.DELAY_TOO_LONG.value)  # farther off than a number of ms can say
    time_code = (
        F.when(c("has_delay"), F.when(~F.coalesce(c("delay") >= 1, no), illegal))
        .when(
            c("has_delay_sec"),
            F.when(~F.coalesce(c("delay_sec") >= 0, no), illegal).when(c("wheel_due_sec").isNull(), too_long),
        )
        .when(c("has_delay_ms"), F.when(~F.coalesce(c("delay_ms") >= 0, no), illegal))
        .when(c("has_deliver_ms"), F.when(c("deliver_ms").isNull(), illegal))
        .otherwise(ErrorCode.NO_DELIVERY_TIME.value)
    )
    replace_code = F.when(c("is_replace") & c("replaces").isNull(), ErrorCode.MISSING_UNIQ_KEY.value)
    wheel_code = F.when(c("is_cancel"), cancel_code).otherwise(
        F.coalesce(topic_code, qid_code, time_code, replace_code)
    )

    def is_count(name: str) -> Column:
        return c(f"{name}_text").isNull() | F.coalesce(c(name).between(0, _MAX_RECONSUME), no)

    is_group = (
        F.is_valid_utf8("consumer_group") & is_legal_topic(c("retry_topic")) & is_legal_topic(c("dead_letter_topic"))
    )
    send_back_code = (
        F.when(c("consumer_group").isNull(), ErrorCode.MISSING_CONSUMER_GROUP.value)
        .when(~is_group, ErrorCode.ILLEGAL_CONSUMER_GROUP.value)
        .when(~c("has_topic"), ErrorCode.MISSING_RETRY_TOPIC.value)
        .when(~c("is_legal"), ErrorCode.ILLEGAL_RETRY_TOPIC.value)
        .when(~is_count("reconsume") | ~is_count("max_reconsume"), ErrorCode.ILLEGAL_RECONSUME_TIMES.value)
        .when(c("delay_text").isNotNull() & c("delay").isNull(), ErrorCode.ILLEGAL_DELIVERY_TIME.value)
    )
    return {
        "rejection": F.when(c("topic_kind") == _LEVEL, level_code)
        .when(c("topic_kind") == _WHEEL, wheel_code)
        .when(c("topic_kind") == _SEND_BACK, send_back_code)
    }


def _next_attempt(names: TopicNames, levels: DelayLevels) -> Columns:
    """The level of a failed message's next attempt; null: there is none, and it dies (`contract.retry_level`)."""
    c = F.col
    most = F.coalesce(c("max_reconsume"), F.lit(DEFAULT_MAX_RECONSUME_TIMES).cast("bigint"))
    wish = F.coalesce(c("delay"), F.lit(0).cast("bigint"))
    chosen = F.when(wish == 0, F.lit(FIRST_RETRY_LEVEL) + c("retries").cast("bigint")).otherwise(wish)
    lives = (c("topic_kind") == _SEND_BACK) & (wish >= 0) & (c("retries") < most)
    return {
        "next_level": F.when(lives, F.least(chosen, F.lit(len(levels)).cast("bigint")).cast("int")),
        "own_level": topic_kinds.level(c("topic"), names),
    }


# --- the fact ---------------------------------------------------------------------------------------------------------


def _fact(names: TopicNames, levels: DelayLevels) -> list[Column]:
    c = F.col
    on_level, on_wheel = c("topic_kind") == _LEVEL, c("topic_kind") == _WHEEL
    on_send_back = c("topic_kind") == _SEND_BACK
    is_input = c("topic_kind").isin(*_INPUTS)
    takes_back = on_wheel & c("is_cancel")
    is_copy = on_wheel & F.coalesce(
        c("origin_offset").between(0, c("offset") - 1) & (c("roll_times") >= 0), F.lit(False)
    )
    is_postponed = on_wheel & F.coalesce(c("not_before") > 0, F.lit(False))
    kind = (
        F.when(c("rejection").isNotNull(), "invalid")
        .when(on_send_back, "send_back")
        .when(takes_back, "cancel")
        .when(on_wheel & c("is_replace"), "replace")
        .when(is_postponed, "postponed")
        .when(is_copy, "rolled")
        .when(on_level & (c("retries") > 0) & (c("named_kind") == _RETRY), "retry")
        .when(is_input, "scheduled")
        .when(c("is_rejected"), "rejected")
        .when(c("topic_kind") == _DEAD_LETTER, "dead_letter")
        .otherwise("delivered")
    )
    of_coordinates = F.concat_ws("-", "error_topic", "error_partition_text", "error_offset_text")
    identifier = F.coalesce(
        F.when(takes_back, c("cancels")).otherwise(c("uniq_key")),
        F.when(on_send_back, c("origin_id")),
        F.when(c("is_rejected"), of_coordinates),
        c("coordinates"),
    )
    destination = (
        F.when(takes_back, F.when(c("names_real_topic") & c("rejection").isNull(), c("named_topic")))
        .when(c("rejection").isNotNull(), None)
        .when(on_send_back, F.when(c("next_level").isNull(), c("dead_letter_topic")).otherwise(c("retry_topic")))
        .when(is_input, c("named_topic"))
        .otherwise(c("topic"))
    )
    due = (
        F.when(c("rejection").isNotNull(), c("timestamp_ms"))
        .when(on_level, c("timestamp_ms") + _delay_ms(c("own_level"), levels))
        .when(on_wheel & ~c("is_cancel"), _wheel_due(levels))
        .when(on_send_back, c("timestamp_ms") + F.coalesce(_delay_ms(c("next_level"), levels), F.lit(0)))
        .when(~is_input, c("out_ms"))
    )
    group_topic = F.when(on_level & (c("retries") > 0), c("named_topic")).when(~is_input, c("topic"))
    group = F.when(on_send_back, F.make_valid_utf8(c("consumer_group"))).otherwise(
        topic_kinds.group(group_topic, names)
    )

    def of(told: Column, own: Column) -> Column:
        return F.when(c("is_rejected"), told).when(is_copy, own)

    return [
        kind.alias("kind"),
        identifier.alias("id"),
        destination.alias("destination"),
        F.when(on_send_back, c("retries") + 1).otherwise(c("retries")).alias("retries"),
        c("redrives"),
        due.alias("due_ms"),
        F.when(on_wheel, 0).when(on_level, c("own_level")).when(on_send_back, c("next_level")).alias("level"),
        group.alias("group"),
        c("topic"),
        c("partition"),
        c("offset"),
        c("timestamp_ms"),
        c("append_time"),
        of(F.make_valid_utf8(c("error_topic")), c("topic")).alias("of_topic"),
        of(c("error_partition"), c("partition")).alias("of_partition"),
        of(c("error_offset"), c("origin_offset")).alias("of_offset"),
        F.when(on_wheel & c("is_replace") & ~c("is_cancel"), c("replaces")).alias("replaces"),
        F.coalesce(c("rejection"), F.when(c("is_rejected"), c("error_code"))).alias("why"),
    ]


def _wheel_due(levels: DelayLevels) -> Column:
    """RocketMQ's priority: level, seconds, milliseconds, absolute time."""
    c = F.col
    return (
        F.when(c("has_delay"), c("timestamp_ms") + _delay_ms(c("delay"), levels))
        .when(c("has_delay_sec"), c("wheel_due_sec"))
        .when(c("has_delay_ms"), F.try_add(c("timestamp_ms"), c("delay_ms")))
        .otherwise(c("deliver_ms"))
    )


def _delay_ms(level: Column, levels: DelayLevels) -> Column:
    """Of a level from 1 on, clamped to the last; null where there is none."""
    table = F.array(*(F.lit(delay_ms).cast("bigint") for delay_ms in levels.delays_ms))
    clamped = F.least(level.cast("bigint"), F.lit(len(levels)).cast("bigint")).cast("int")
    return F.when(level >= 1, F.try_element_at(table, clamped))
