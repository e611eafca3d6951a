"""Kafka records as Spark's source gives them, written down; and what the audit makes of them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from connectors.contract import DelayLevels, TopicKind, TopicNames
from spark.facts import SCHEMA, to_facts
from spark.reconcile import Rules, reconcile
from tests.support.kafka import Headers

NAMES = TopicNames()
LEVELS = DelayLevels.parse("1s 5s 10s 30s 1m")
WHEEL, SEND_BACK = NAMES.wheel, NAMES.send_back

SOURCE = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField(
            "headers",
            T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])),
        ),
    ]
)
"""What ``format("kafka")`` with ``includeHeaders`` gives."""


class Read(NamedTuple):
    """A record that has been read."""

    topic: str
    headers: Headers
    at_ms: int
    offset: int
    partition: int = 0
    append_time: bool = True
    key: bytes | None = b"key"
    value: bytes | None = b"value"


def source(spark: SparkSession, records: Iterable[Read]) -> DataFrame:
    """What the Kafka source gives of them."""
    rows = [
        (
            record.key,
            record.value,
            record.topic,
            record.partition,
            record.offset,
            datetime.fromtimestamp(record.at_ms / 1000, UTC),
            int(record.append_time),
            [(name, None if value is None else bytearray(value)) for name, value in record.headers] or None,
        )
        for record in records
    ]
    return spark.createDataFrame(rows, SOURCE)


def facts_of(
    spark: SparkSession, records: Iterable[Read], names: TopicNames = NAMES, levels: DelayLevels = LEVELS
) -> DataFrame:
    of_kind: dict[TopicKind, list[Read]] = {}
    for record in records:
        of_kind.setdefault(names.kind(record.topic), []).append(record)
    return to_facts({kind: source(spark, of_kind[kind]) for kind in of_kind}, names, levels)


class Story:
    """Records in the order in which they were written, at times in ms from the beginning.

    >>> story = Story()
    >>> story.write(WHEEL, 0, REAL_TOPIC="orders", UNIQ_KEY="a", TIMER_DELAY_MS=10_000)
    """

    BEGIN_MS = 1_700_000_000_000

    def __init__(self) -> None:
        self.records: list[Read] = []
        self._ends: dict[tuple[str, int], int] = {}

    def write(
        self,
        topic: str,
        at_ms: int,
        partition: int = 0,
        append_time: bool = True,
        *,
        key: bytes | None = b"key",
        value: bytes | None = b"value",
        **headers: str | int | None,
    ) -> int:
        """Append a record; its offset."""
        offset = self._ends.get((topic, partition), 0)
        self._ends[topic, partition] = offset + 1
        told: Headers = [(name, None if value is None else str(value).encode()) for name, value in headers.items()]
        self.records.append(Read(topic, told, self.BEGIN_MS + at_ms, offset, partition, append_time, key, value))
        return offset

    def due(self, at_ms: int) -> int:
        return self.BEGIN_MS + at_ms


class Found(NamedTuple):
    """A verdict, briefly."""

    id: str
    destination: str | None
    retries: int
    verdict: str


def verdicts_of(
    spark: SparkSession, story: Story, as_of_ms: int, *, only: Sequence[str] = (), **rules: Any
) -> list[Found]:
    """What is found ``as_of_ms`` after the beginning, ordered."""
    rows = rows_of(spark, story, as_of_ms, **rules)
    found = [Found(row["id"], row["destination"], row["retries"], row["verdict"]) for row in rows]
    return sorted(one for one in found if not only or one.id in only)


def rows_of(spark: SparkSession, story: Story, as_of_ms: int, **rules: Any) -> list[dict[str, Any]]:
    facts = spark.createDataFrame(facts_of(spark, story.records).collect(), SCHEMA)
    try:
        judged = reconcile(facts, NAMES, Rules(as_of_ms=story.BEGIN_MS + as_of_ms, **rules))
        return [row.asDict() for row in judged.collect()]
    finally:
        spark.catalog.clearCache()
