"""The coordinators' topics that are made at the start."""

from connectors.embedded.internal_topics import internal_topics
from connectors.embedded.server_properties import with_defaults


def test_both_coordinators_get_their_compacted_topic_with_one_partition() -> None:
    topics = {topic.topic: topic for topic in internal_topics(with_defaults({}))}
    assert topics.keys() == {"__consumer_offsets", "__transaction_state"}
    assert {topic.num_partitions for topic in topics.values()} == {1}
    assert {topic.config["cleanup.policy"] for topic in topics.values()} == {"compact"}


def test_the_number_of_partitions_is_the_one_the_broker_was_told() -> None:
    overrides = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "7"}
    assert [topic.num_partitions for topic in internal_topics(with_defaults(overrides))] == [5, 7]
