"""The cluster as ``list_topics`` tells it, in confluent-kafka's own objects."""

from collections.abc import Mapping

from confluent_kafka import KafkaError
from confluent_kafka.admin import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from connectors.testing.errors import error
from connectors.testing.topics import Topic

BROKER_ID = 1
HOST, PORT = "in-memory", 9092


def cluster_metadata(topics: Mapping[str, Topic], wanted: str | None) -> ClusterMetadata:
    """All topics, or the one that is wanted, with an error where it does not exist."""
    cluster = ClusterMetadata()
    broker = BrokerMetadata()
    broker.id, broker.host, broker.port = BROKER_ID, HOST, PORT  # type: ignore[assignment]
    cluster.cluster_id = "in-memory"  # type: ignore[assignment]
    cluster.controller_id = BROKER_ID
    cluster.brokers = {BROKER_ID: broker}
    for name in topics if wanted is None else [wanted]:
        topic = TopicMetadata()
        topic.topic = name
        if name in topics:
            topic.partitions = {log.number: _partition(log.number) for log in topics[name].logs}
        else:
            topic.error = error(KafkaError.UNKNOWN_TOPIC_OR_PART)
        cluster.topics[name] = topic
    return cluster


def _partition(number: int) -> PartitionMetadata:
    partition = PartitionMetadata()
    partition.id = number
    partition.leader = BROKER_ID
    partition.replicas = [BROKER_ID]
    partition.isrs = [BROKER_ID]
    return partition
