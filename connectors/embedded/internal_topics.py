"""The coordinators' topics, made at the start rather than at first use.

The first consumer group of a broker waits until `__consumer_offsets` has been made for it, and its client sleeps
between retries on top: some three seconds, against 0.3 when the topic is there. They get the settings that the
broker itself gives them.
"""

from collections.abc import Mapping

from confluent_kafka.cimpl import NewTopic

from connectors.embedded.server_properties import OFFSETS_PARTITIONS, TRANSACTIONS_PARTITIONS

_SEGMENT_BYTES = "104857600"  # Kafka's own default for both


def internal_topics(properties: Mapping[str, str]) -> list[NewTopic]:
    """Requests for `__consumer_offsets` and `__transaction_state` as a broker with these properties would make them."""
    return [
        NewTopic(
            "__consumer_offsets",
            num_partitions=int(properties[OFFSETS_PARTITIONS]),
            replication_factor=1,
            config={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": properties.get("offsets.topic.segment.bytes", _SEGMENT_BYTES),
            },
        ),
        NewTopic(
            "__transaction_state",
            num_partitions=int(properties[TRANSACTIONS_PARTITIONS]),
            replication_factor=1,
            config={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": properties.get("transaction.state.log.segment.bytes", _SEGMENT_BYTES),
                "unclean.leader.election.enable": "false",
            },
        ),
    ]
