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

They are written by the kind of topic (`spark.asks`, `spark.arrivals`), and records come sorted by it: a record pays for
the rules of its own kind alone, and Spark plans no more than there is.
"""

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from connectors.contract import DelayLevels, TopicKind, TopicNames
from spark import arrivals, asks
from spark.content import content

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
        T.StructField("of_topic", T.StringType()),  # of a dead letter, and redriven, where the message failed
        T.StructField("of_partition", T.IntegerType()),
        T.StructField("of_offset", T.LongType()),
        T.StructField("replaces", T.StringType()),
        T.StructField("why", T.StringType()),
        T.StructField("asked_partition", T.IntegerType()),  # where alone it may go
        T.StructField("content", T.LongType()),  # `spark.content`
    ]
)

LATER_COLUMNS = ("asked_partition", "content")
"""What tables lack that were begun before there was such a column: it is not known of their facts."""

ASKS = ("scheduled", "replace", "send_back")
"""Kinds that promise a delivery."""

ARRIVALS = ("delivered", "dead_letter")
"""Kinds that are one."""

IDENTITY = ("id", "destination", "retries", "redrives")
"""Of a message: what asks for it and what arrives have it in common."""

COORDINATES = ("topic", "partition", "offset")
"""Of a record in Kafka."""

CLOCK_SKEW_MS = 60_000
"""How much earlier than it was asked for a record may claim to have arrived."""

_TOLD_BY_ALL = ("topic", "partition", "offset", "timestamp_ms", "append_time")

Rule = Callable[[DataFrame, TopicNames, DelayLevels], arrivals.Told]
"""What records of one kind of topic say."""

_RULES: dict[TopicKind, Rule] = {
    TopicKind.LEVEL: asks.of_levels,
    TopicKind.WHEEL: asks.of_the_wheel,
    TopicKind.SEND_BACK: asks.of_send_back,
    TopicKind.RETRY: arrivals.of_retries,
    TopicKind.DEAD_LETTER: arrivals.of_dead_letters,
    TopicKind.OTHER: arrivals.of_destinations,
}


def to_facts(records: Mapping[TopicKind, DataFrame], names: TopicNames, levels: DelayLevels) -> DataFrame:
    """A fact a record, of those that make one; works on batches and on streams.

    Args:
        records: as Spark's Kafka source gives them, with headers, by the kind of their topics; of one kind at least.

    Returns:
        Rows of `SCHEMA`.
    """
    return reduce(DataFrame.unionAll, (_facts_of(kind, read, names, levels) for kind, read in records.items()))


def _facts_of(kind: TopicKind, records: DataFrame, names: TopicNames, levels: DelayLevels) -> DataFrame:
    read = records.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        (F.col("timestampType") == 1).alias("append_time"),
        "key",
        "value",
        "headers",
    )
    rule = _RULES.get(kind, arrivals.of_no_interest)
    told, columns = rule(read, names, levels)
    return told.select(*(_typed(field, {"content": content(), **columns}) for field in SCHEMA))


def _typed(field: T.StructField, columns: Mapping[str, Column]) -> Column:
    column = F.col(field.name) if field.name in _TOLD_BY_ALL else columns.get(field.name, F.lit(None))
    return column.try_cast(field.dataType).alias(field.name)
