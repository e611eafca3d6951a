"""Kafka topics -> Spark DataFrames, committed records only."""

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from spark.cluster import Place, Range
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
        return spark.createDataFrame([], RECORD_SCHEMA)
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


def read_stream(
    spark: SparkSession, options: Mapping[str, str], topics: Iterable[str], max_records: int | None = None
) -> DataFrame:
    """All of these topics from their beginning on, as a stream.

    Args:
        max_records: of one micro-batch.
    """
    reader = spark.readStream.format("kafka").options(**_READING, **for_spark(options))
    reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    if max_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_records))
    return reader.option("maxRecordsPerPartition", str(_RECORDS_A_TASK)).load()
