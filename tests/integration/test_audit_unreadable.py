"""A record that Spark cannot hold, for its timestamp's sake: what is before it is read, and its place is named."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connectors.contract import TopicNames
from spark import tables
from spark.batch import Job, read_facts
from spark.cluster import Cluster
from spark.errors import AuditError
from spark.reconcile import Rules
from spark.stream import Ingest
from tests.support.audit_story import LEVELS
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_record_stamped_in_nanoseconds_ends_its_own_partition_alone(
    spark: SparkSession, kafka: Kafka, prefix: str, tmp_path: Path
) -> None:
    names = TopicNames(prefix)
    at_any_time = str(2**63 - 1)
    orders = kafka.create_topic(f"{prefix}orders", 2, message_timestamp_after_max_ms=at_any_time)
    payments = kafka.create_topic(f"{prefix}payments", message_timestamp_after_max_ms=at_any_time)
    kafka.create_topic(names.wheel)
    producer = kafka.producer()
    now_ns = time.time_ns()
    for topic, partition, name, at in (
        (orders, 0, b"before", now_ns // 10**6),
        (orders, 0, b"in nanoseconds", now_ns),
        (orders, 0, b"behind it", now_ns // 10**6),
        (orders, 1, b"beside it", now_ns // 10**6),
        (payments, 0, b"in microseconds", now_ns // 10**3),
        (payments, 0, b"in nanoseconds", now_ns),
    ):
        producer.produce(topic, partition=partition, timestamp=at, headers=[("UNIQ_KEY", name)])
    producer.flush(30)
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    places = [(orders, 0), (orders, 1), (payments, 0), (names.wheel, 0)]
    assert cluster.unreadable(places) == {(orders, 0): 1, (payments, 0): 1}

    job = Job(names, LEVELS, Rules(now_ns // 10**6 + 60_000, destinations=(orders, payments)))
    notes = read_facts(spark, cluster, job, str(tmp_path / "facts"), lambda _: nullcontext())
    read = tables.read(spark, str(tmp_path / "facts")).collect()
    assert sorted(row["id"] for row in read) == ["before", "beside it", "in microseconds"]
    told = [note for note in notes if "stamped after the year 294247" in note]
    assert [note.split(" is stamped")[0] for note in told] == [
        f"{orders}, partition 0: the record at offset 1",
        f"{payments}, partition 0: the record at offset 1",
    ]

    ingest = Ingest(
        spark,
        cluster,
        job,
        str(tmp_path / "table"),
        str(tmp_path / "checkpoint"),
        1_000,
        print,
        lambda: now_ns // 10**6,
    )
    with pytest.raises(AuditError, match="is stamped after the year 294247") as caught:
        ingest.run_available()
    assert f"{orders}, partition 0, offset 1, {payments}, partition 0, offset 1. Operator action" in str(caught.value)
