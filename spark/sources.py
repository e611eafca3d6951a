"""Kafka topics -> Spark DataFrames, committed records only."""

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from connectors.contract import Place, TopicKind, TopicNames
from spark import tables
from spark.cluster import Range
from spark.kafka_options import for_spark

_RECORDS_A_TASK = 250_000
"""A larger partition is read by several tasks."""

_READING = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
    # At the end of a partition a fetch waits for more to come, and nobody wants more.
    "kafka.fetch.max.wait.ms": "50",
    "kafka.max.partition.fetch.bytes": str(8 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    "kafka.max.poll.records": "5000",
    "kafka.receive.buffer.bytes": str(2**20),
}

RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def read_ranges(spark: SparkSession, options: Mapping[str, str], ranges: Mapping[Place, Range]) -> DataFrame:
    """The records of these offsets, as a batch.

    Args:
        options: librdkafka's, ``bootstrap.servers`` among them.
    """
    if not ranges:
        return tables.of_rows(spark, [], T.StructType.fromDDL(RECORD_SCHEMA))
    assigned: dict[str, list[int]] = {}
    begins: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (begin, end) in sorted(ranges.items()):
        assigned.setdefault(topic, []).append(partition)
        begins.setdefault(topic, {})[str(partition)] = begin
        ends.setdefault(topic, {})[str(partition)] = end
    reader = spark.read.format("kafka").options(**_READING, **for_spark(options))
    return (
        reader.option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(begins))
        .option("endingOffsets", json.dumps(ends))
        .option("maxRecordsPerPartition", str(_RECORDS_A_TASK))
        .load()
    )


def read_ranges_by_kind(
    spark: SparkSession, options: Mapping[str, str], ranges: Mapping[Place, Range], names: TopicNames
) -> dict[TopicKind, DataFrame]:
    """The same, by the kind of their topics; of one kind at least."""
    of_kind: dict[TopicKind, dict[Place, Range]] = {}
    for place, offsets in ranges.items():
        of_kind.setdefault(names.kind(place[0]), {})[place] = offsets
    return {kind: read_ranges(spark, options, of_kind[kind]) for kind in sorted(of_kind)} or {
        TopicKind.OTHER: read_ranges(spark, options, {})
    }


def read_streams_by_kind(
    spark: SparkSession, options: Mapping[str, str], topics: Iterable[str], names: TopicNames, max_records: int
) -> dict[TopicKind, DataFrame]:
    """All of these topics from their beginning on, as streams, by their kind and always in the same order.

    Args:
        max_records: of one micro-batch.
    """
    of_kind: dict[TopicKind, list[str]] = {}
    for topic in sorted(topics):
        of_kind.setdefault(names.kind(topic), []).append(topic)
    reader = spark.readStream.format("kafka").options(**_READING, **for_spark(options))
    reader = reader.option("startingOffsets", "earliest").option("maxRecordsPerPartition", str(_RECORDS_A_TASK))
    reader = reader.option("maxOffsetsPerTrigger", str(max(1, max_records // len(of_kind))))
    return {kind: reader.option("subscribe", ",".join(of_kind[kind])).load() for kind in sorted(of_kind)}
