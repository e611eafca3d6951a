"""What the audit asks of Kafka before it reads: which offsets of a partition."""

import pytest

from spark.cluster import Cluster, Range
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.kafka]

AT_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("since_ms", "begin"), [(None, 0), (AT_MS + 1, 1), (AT_MS, 0), (0, 0), (-60_000, 0), (-62_135_596_800_000, 0)]
)
def test_a_partition_is_read_from_a_time_on(kafka: Kafka, prefix: str, since_ms: int | None, begin: int) -> None:
    topic = kafka.create_topic(f"{prefix}orders")
    producer = kafka.producer()
    for later_ms in range(2):
        producer.produce(topic, b"v", timestamp=AT_MS + later_ms)
    producer.flush(30)
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    assert cluster.ranges([(topic, 0)], since_ms) == {(topic, 0): Range(begin, 2)}


def test_a_partition_with_nothing_of_that_time_is_left_out(kafka: Kafka, prefix: str) -> None:
    topic = kafka.create_topic(f"{prefix}orders")
    kafka.produce([(topic, None, b"v", [])])
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    assert cluster.ranges([(topic, 0)], 253_402_300_799_999) == {}


def test_topics_that_are_compacted_are_known(kafka: Kafka, prefix: str) -> None:
    topics = [
        kafka.create_topic(f"{prefix}orders"),
        kafka.create_topic(f"{prefix}states", cleanup_policy="compact"),
        kafka.create_topic(f"{prefix}prices", cleanup_policy="compact,delete"),
    ]
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    assert cluster.compacted(topics) == topics[1:]
    assert cluster.compacted([]) == []
