"""Kafka records -> facts: what each record says, by the contract, and nothing that the sidecar says of itself.

    kind         of which topic                  what it is
    scheduled    level, wheel                    asks for a delivery
    replace      wheel                           asks for a delivery in place of a pending one (``replaces``)
    send_back    send-back                       a consumer failed it: asks for a retry, or for a dead letter
    cancel       wheel                           takes a pending message back
    invalid      level, wheel, send-back         asks for what cannot be done (``why``): to be rejected
    rolled       wheel                           calls itself a copy of the record at ``of_offset``
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
    told = read.select("*", *_told(names))
    judged = told.select("*", _rejection(names).alias("rejection"))
    return judged.select(*_fact(names, levels)).where(F.col("kind").isNotNull()).select(*_typed())


def _typed() -> list[Column]:
    return [F.col(field.name).try_cast(field.dataType).alias(field.name) for field in SCHEMA]


# --- what the headers say ---------------------------------------------------------------------------------------------


def _told(names: TopicNames) -> list[Column]:
    """Columns that the rest is made of."""
    headers = Headers(F.col("header_names"), F.col("header_values"))
    coordinates = F.concat_ws("-", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    of_inputs = F.col("topic_kind").isin(*_INPUTS)
    is_rejected = (
        (F.col("topic_kind") == _DEAD_LETTER)
        & headers.filled(Header.ERROR_CODE).isNotNull()
        & topic_kinds.kind(headers.text(Header.ERROR_TOPIC), names).isin(*_INPUTS)
        & whole_number(headers.text(Header.ERROR_OFFSET)).isNotNull()
    )
    uniq_key = readable(headers.filled(Header.UNIQ_KEY))
    real_topic = headers.filled(Header.REAL_TOPIC)
    named = F.when(
        F.col("topic_kind") == _SEND_BACK, _origin(F.col("header_names"), F.col("header_values"), names)
    ).otherwise(F.when(F.is_valid_utf8(real_topic.cast("string")), real_topic.cast("string")))
    return [
        is_rejected.alias("is_rejected"),
        uniq_key.alias("uniq_key"),
        readable(headers.filled(Header.ORIGIN_MESSAGE_ID)).alias("origin_id"),
        coordinates.alias("coordinates"),
        F.when(of_inputs, physical(named, names)).alias("named_topic"),
        F.when(of_inputs, real_topic.isNotNull()).alias("has_real_topic"),
        headers.text(Header.REAL_QID).alias("real_qid"),
        headers.has(Header.REAL_QID).alias("has_real_qid"),
        headers.has(Header.REAL_TOPIC).alias("names_real_topic"),
        headers.has(Header.TIMER_DEL_UNIQKEY).alias("is_cancel"),
        headers.has(Header.TIMER_REPLACE_UNIQKEY).alias("is_replace"),
        readable(headers.filled(Header.TIMER_DEL_UNIQKEY)).alias("cancels"),
        readable(headers.filled(Header.TIMER_REPLACE_UNIQKEY)).alias("replaces"),
        headers.has(Header.DELAY).alias("has_delay"),
        headers.has(Header.TIMER_DELAY_SEC).alias("has_delay_sec"),
        headers.has(Header.TIMER_DELAY_MS).alias("has_delay_ms"),
        headers.has(Header.TIMER_DELIVER_MS).alias("has_deliver_ms"),
        whole_number(headers.text(Header.DELAY)).alias("delay"),
        whole_number(headers.text(Header.TIMER_DELAY_SEC)).alias("delay_sec"),
        whole_number(headers.text(Header.TIMER_DELAY_MS)).alias("delay_ms"),
        whole_number(headers.text(Header.TIMER_DELIVER_MS)).alias("deliver_ms"),
        (headers.last(Header.DELAY).isNull()).alias("delay_is_null"),
        whole_number(headers.text(Header.TIMER_OUT_MS)).alias("out_ms"),
        whole_number(headers.text(Header.TIMER_ORIGIN_OFFSET)).alias("origin_offset"),
        whole_number(headers.text(Header.TIMER_ROLL_TIMES)).alias("roll_times"),
        count(headers.text(Header.RECONSUME_TIME)).alias("retries"),
        whole_number(headers.text(Header.RECONSUME_TIME)).alias("reconsume"),
        headers.last(Header.RECONSUME_TIME).isNull().alias("reconsume_is_null"),
        whole_number(headers.text(Header.MAX_RECONSUME_TIMES)).alias("max_reconsume"),
        headers.last(Header.MAX_RECONSUME_TIMES).isNull().alias("max_is_null"),
        count(headers.text(Header.REDRIVE_COUNT), 999_999_999).alias("redrives"),
        headers.filled(Header.CONSUMER_GROUP).cast("string").alias("consumer_group"),
        F.when(is_rejected, headers.text(Header.ERROR_TOPIC)).alias("error_topic"),
        F.when(is_rejected, whole_number(headers.text(Header.ERROR_PARTITION))).alias("error_partition"),
        F.when(is_rejected, whole_number(headers.text(Header.ERROR_OFFSET))).alias("error_offset"),
        F.when(is_rejected, readable(headers.filled(Header.ERROR_CODE))).alias("error_code"),
    ]


def _origin(header_names: Column, header_values: Column, names: TopicNames) -> Column:
    """``RETRY_TOPIC`` of a failed message: the last, but that of several a retry topic is no origin."""
    all_of_them = F.zip_with(
        header_names,
        header_values,
        lambda name, value: F.when(name == Header.RETRY_TOPIC.value, F.struct(value.alias("value"))),
    )
    last_first = F.filter(all_of_them, lambda entry: entry.isNotNull())

    def is_retry_topic(value: Column) -> Column:
        topic = physical(F.make_valid_utf8(F.coalesce(value.cast("string"), F.lit(""))), names)
        return topic_kinds.kind(topic, names) == _RETRY

    origins = F.filter(last_first, lambda entry: ~is_retry_topic(entry["value"]))
    # The first header stands whatever it is, and each later one that is no retry topic takes its place.
    chosen = F.coalesce(F.try_element_at(origins, F.lit(1)), F.try_element_at(last_first, F.lit(-1)))["value"]
    return F.when(F.octet_length(chosen) > 0, F.make_valid_utf8(chosen.cast("string")))


def _rejection(names: TopicNames) -> Column:
    """The `ErrorCode` of a record that cannot be done whatever the settings are; null where it can."""
    c = F.col
    has_qid = c("has_real_qid")
    bad_qid = has_qid & ~F.coalesce(
        c("real_qid").rlike(r"\A[0-9]{1,10}\z") & (c("real_qid").try_cast("bigint") <= 2**31 - 1), F.lit(False)
    )
    topic_code = (
        F.when(~c("has_real_topic"), ErrorCode.MISSING_REAL_TOPIC.value)
        .when(~F.coalesce(is_legal_topic(c("named_topic")), F.lit(False)), ErrorCode.ILLEGAL_REAL_TOPIC.value)
        .when(topic_kinds.kind(c("named_topic"), names).isin(*_INPUTS), ErrorCode.DESTINATION_NOT_ALLOWED.value)
    )
    level_code = (
        F.when(c("is_cancel") | c("is_replace"), ErrorCode.NOT_CANCELLABLE.value)
        .when(bad_qid, ErrorCode.ILLEGAL_REAL_QID.value)
        .otherwise(topic_code)
    )
    cancel_code = F.when(c("cancels").isNull(), ErrorCode.MISSING_UNIQ_KEY.value).when(
        c("names_real_topic"), topic_code
    )
    illegal = F.lit(ErrorCode.ILLEGAL_DELIVERY_TIME.value)
    too_long = F.lit(ErrorCode.DELAY_TOO_LONG.value)  # farther off than a number of ms can say
    no = F.lit(False)
    time_code = (
        F.when(c("has_delay"), F.when(~F.coalesce(c("delay") >= 1, no), illegal))
        .when(
            c("has_delay_sec"),
            F.when(~F.coalesce(c("delay_sec") >= 0, no), illegal).when(_wheel_due_sec().isNull(), too_long),
        )
        .when(c("has_delay_ms"), F.when(~F.coalesce(c("delay_ms") >= 0, no), illegal))
        .when(c("has_deliver_ms"), F.when(c("deliver_ms").isNull(), illegal))
        .otherwise(ErrorCode.NO_DELIVERY_TIME.value)
    )
    replace_code = F.when(c("is_replace") & c("replaces").isNull(), ErrorCode.MISSING_UNIQ_KEY.value)
    wheel_code = F.when(c("is_cancel"), cancel_code).otherwise(
        F.coalesce(topic_code, F.when(bad_qid, ErrorCode.ILLEGAL_REAL_QID.value), time_code, replace_code)
    )
    group = c("consumer_group")
    group_topics = [
        topic_kinds.group_topic(template, names, encode_group(group))
        for template in (names.retry_template, names.dead_letter_template)
    ]
    send_back_code = (
        F.when(group.isNull(), ErrorCode.MISSING_CONSUMER_GROUP.value)
        .when(
            ~F.is_valid_utf8(group) | ~is_legal_topic(group_topics[0]) | ~is_legal_topic(group_topics[1]),
            ErrorCode.ILLEGAL_CONSUMER_GROUP.value,
        )
        .when(c("named_topic").isNull(), ErrorCode.MISSING_RETRY_TOPIC.value)
        .when(~is_legal_topic(c("named_topic")), ErrorCode.ILLEGAL_RETRY_TOPIC.value)
        .when(
            ~(c("reconsume_is_null") | F.coalesce(c("reconsume").between(0, _MAX_RECONSUME), no))
            | ~(c("max_is_null") | F.coalesce(c("max_reconsume").between(0, _MAX_RECONSUME), no)),
            ErrorCode.ILLEGAL_RECONSUME_TIMES.value,
        )
        .when(~c("delay_is_null") & c("delay").isNull(), ErrorCode.ILLEGAL_DELIVERY_TIME.value)
    )
    return (
        F.when(c("topic_kind") == _LEVEL, level_code)
        .when(c("topic_kind") == _WHEEL, wheel_code)
        .when(c("topic_kind") == _SEND_BACK, send_back_code)
    )


# --- the fact ---------------------------------------------------------------------------------------------------------


def _fact(names: TopicNames, levels: DelayLevels) -> list[Column]:
    c = F.col
    on_level, on_wheel = c("topic_kind") == _LEVEL, c("topic_kind") == _WHEEL
    on_send_back, on_dead_letters = c("topic_kind") == _SEND_BACK, c("topic_kind") == _DEAD_LETTER
    is_input = on_level | on_wheel | on_send_back
    is_copy = c("origin_offset").between(0, c("offset") - 1) & (c("roll_times") >= 0)
    kind = (
        F.when(c("rejection").isNotNull(), "invalid")
        .when(on_send_back, "send_back")
        .when(on_wheel & c("is_cancel"), "cancel")
        .when(on_wheel & F.coalesce(is_copy, F.lit(False)) & ~c("is_replace"), "rolled")
        .when(on_wheel & c("is_replace"), "replace")
        .when(on_level & (c("retries") > 0) & (topic_kinds.kind(c("named_topic"), names) == _RETRY), "retry")
        .when(on_level | on_wheel, "scheduled")
        .when(c("is_rejected"), "rejected")
        .when(c("uniq_key").isNull(), None)
        .when(on_dead_letters, "dead_letter")
        .when(c("topic_kind").isin(_RETRY, _OTHER), "delivered")
    )
    rejected_id = F.concat_ws("-", "error_topic", c("error_partition").cast("string"), c("error_offset").cast("string"))
    identifier = (
        F.when(on_wheel & c("is_cancel"), F.coalesce(c("cancels"), c("coordinates")))
        .when(on_send_back, F.coalesce(c("uniq_key"), c("origin_id"), c("coordinates")))
        .when(c("is_rejected"), F.coalesce(c("uniq_key"), rejected_id))
        .otherwise(F.coalesce(c("uniq_key"), c("coordinates")))
    )
    level = topic_kinds.level(c("topic"), names)
    next_level = _retry_level(levels)
    encoded = encode_group(c("consumer_group"))
    next_topic = F.when(
        next_level.isNull(), topic_kinds.group_topic(names.dead_letter_template, names, encoded)
    ).otherwise(topic_kinds.group_topic(names.retry_template, names, encoded))
    destination = (
        F.when(c("rejection").isNotNull() & ~c("is_cancel"), None)
        .when(on_send_back, next_topic)
        .when(on_wheel & c("is_cancel"), F.when(c("names_real_topic"), c("named_topic")))
        .when(is_input, c("named_topic"))
        .otherwise(c("topic"))
    )
    due = (
        F.when(c("rejection").isNotNull(), c("timestamp_ms"))
        .when(on_level, c("timestamp_ms") + _delay_ms(level, levels))
        .when(on_wheel & ~c("is_cancel"), _wheel_due(levels))
        .when(on_send_back, c("timestamp_ms") + F.coalesce(_delay_ms(next_level, levels), F.lit(0)))
        .when(~is_input, c("out_ms"))
    )
    group = F.when(on_send_back, F.make_valid_utf8(c("consumer_group"))).otherwise(
        F.when(c("topic_kind").isin(_RETRY, _DEAD_LETTER), topic_kinds.group(c("topic"), names)).otherwise(
            F.when(on_level & (c("retries") > 0), topic_kinds.group(c("named_topic"), names))
        )
    )
    return [
        kind.alias("kind"),
        identifier.alias("id"),
        destination.alias("destination"),
        F.when(on_send_back, c("retries") + 1).otherwise(c("retries")).alias("retries"),
        c("redrives"),
        due.alias("due_ms"),
        F.when(on_wheel, F.lit(0)).when(on_level, level).when(on_send_back, next_level).alias("level"),
        group.alias("group"),
        c("topic"),
        c("partition"),
        c("offset"),
        c("timestamp_ms"),
        c("append_time"),
        F.when(c("is_rejected"), c("error_topic")).when(on_wheel & is_copy, c("topic")).alias("of_topic"),
        F.when(c("is_rejected"), c("error_partition")).when(on_wheel & is_copy, c("partition")).alias("of_partition"),
        F.when(c("is_rejected"), c("error_offset")).when(on_wheel & is_copy, c("origin_offset")).alias("of_offset"),
        F.when(on_wheel & c("is_replace") & ~c("is_cancel"), c("replaces")).alias("replaces"),
        F.coalesce(c("rejection"), F.when(c("is_rejected"), c("error_code"))).alias("why"),
    ]


def _wheel_due(levels: DelayLevels) -> Column:
    """RocketMQ's priority: level, seconds, milliseconds, absolute time."""
    c = F.col
    return (
        F.when(c("has_delay"), c("timestamp_ms") + _delay_ms(c("delay"), levels))
        .when(c("has_delay_sec"), _wheel_due_sec())
        .when(c("has_delay_ms"), F.try_add(c("timestamp_ms"), c("delay_ms")))
        .otherwise(c("deliver_ms"))
    )


def _wheel_due_sec() -> Column:
    return F.try_add(F.col("timestamp_ms"), F.try_multiply(F.col("delay_sec"), F.lit(1_000).cast("bigint")))


def _delay_ms(level: Column, levels: DelayLevels) -> Column:
    """Of a level from 1 on, clamped to the last; null where there is none."""
    table = F.array(*(F.lit(delay_ms).cast("bigint") for delay_ms in levels.delays_ms))
    clamped = F.least(level.cast("bigint"), F.lit(len(levels)).cast("bigint")).cast("int")
    return F.when(level >= 1, F.try_element_at(table, clamped))


def _retry_level(levels: DelayLevels) -> Column:
    """The level of the next attempt; null: there is none, and it dies (`connectors.contract.retry_level`)."""
    c = F.col
    most = F.coalesce(c("max_reconsume"), F.lit(DEFAULT_MAX_RECONSUME_TIMES).cast("bigint"))
    wish = F.coalesce(c("delay"), F.lit(0).cast("bigint"))
    chosen = F.when(wish == 0, F.lit(FIRST_RETRY_LEVEL) + c("retries").cast("bigint")).otherwise(wish)
    lives = (wish >= 0) & (c("retries") < most)
    return F.when(lives, F.least(chosen, F.lit(len(levels)).cast("bigint")).cast("int"))
