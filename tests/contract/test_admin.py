"""Topics, their configuration, and the offsets of their logs."""

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import AclOperation, ConfigResource, OffsetSpec, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.contract.cluster import DEADLINE_S, Bench, at, refusal, wait_until


def test_topics_are_listed_and_described(bench: Bench) -> None:
    topic = bench.topic(3)
    listed = bench.admin.list_topics(timeout=10)
    assert sorted(listed.topics[topic].partitions) == [0, 1, 2]
    assert len(listed.brokers) == 1
    described = bench.admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
    assert (described.name, [partition.id for partition in described.partitions]) == (topic, [0, 1, 2])
    assert described.topic_id is not None
    one = bench.consumer().list_topics(topic, timeout=10).topics
    assert (list(one), one[topic].error) == ([topic], None)


def test_a_topic_tells_what_may_be_done_to_it(bench: Bench) -> None:
    topics = TopicCollection([topic := bench.topic()])
    described = bench.admin.describe_topics(topics, include_authorized_operations=True)[topic].result(DEADLINE_S)
    assert AclOperation.WRITE in described.authorized_operations
    assert not bench.admin.describe_topics(topics)[topic].result(DEADLINE_S).authorized_operations


def test_a_topic_that_does_not_exist_stays_so(bench: Bench) -> None:
    name = f"{bench.name}-none"
    described = bench.admin.describe_topics(TopicCollection([name]))[name]
    assert refusal(lambda: described.result(DEADLINE_S)).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    illegal = bench.admin.describe_topics(TopicCollection(["a b"]))["a b"]
    assert refusal(lambda: illegal.result(DEADLINE_S)).code() == KafkaError.TOPIC_EXCEPTION
    listed = bench.admin.list_topics(name, timeout=10).topics[name]
    assert listed.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in bench.admin.list_topics(timeout=10).topics
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = bench.admin.describe_configs([resource])[resource]
    assert refusal(lambda: config.result(DEADLINE_S)).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    offsets = bench.admin.list_offsets({at(name): OffsetSpec.latest()})[at(name)]
    assert refusal(lambda: offsets.result(DEADLINE_S)).code() == KafkaError._NOENT


def test_creating_is_refused_with_a_reason(bench: Bench) -> None:
    topic = bench.topic()

    def create(name: str, **config: str) -> KafkaError:
        return refusal(lambda: bench.admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(20))

    assert create(topic).code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert create("a b").code() == KafkaError.TOPIC_EXCEPTION
    assert create(f"{topic}-x", nonsense="1").code() == KafkaError.INVALID_CONFIG


def test_the_default_is_one_partition(bench: Bench) -> None:
    name = f"{bench.name}-default"
    bench.admin.create_topics([NewTopic(name, -1, -1)])[name].result(DEADLINE_S)
    wait_until(lambda: name in bench.admin.list_topics(timeout=5).topics, "it is there")
    assert list(bench.admin.list_topics(timeout=10).topics[name].partitions) == [0]


def test_a_deleted_topic_is_gone(bench: Bench) -> None:
    topic = bench.topic()
    bench.admin.delete_topics([topic])[topic].result(DEADLINE_S)
    wait_until(lambda: topic not in bench.admin.list_topics(timeout=5).topics, "it is gone")
    gone = bench.admin.delete_topics([f"{topic}-none"])[f"{topic}-none"]
    assert refusal(lambda: gone.result(DEADLINE_S)).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configuration_is_told_with_defaults(bench: Bench) -> None:
    topic = bench.topic(retention_ms="1234567", message_timestamp_type="LogAppendTime")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = bench.admin.describe_configs([resource])[resource].result(DEADLINE_S)
    expected = {
        "retention.ms": "1234567",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
    }
    assert {name: config[name].value for name in expected} == expected
    assert (config["retention.ms"].is_default, config["retention.bytes"].is_default) == (False, True)
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(bench.admin.list_topics(timeout=10).brokers))))
    assert bench.admin.describe_configs([broker])[broker].result(10)["offsets.retention.minutes"].value == "10080"


def test_offsets_are_found_by_kind_and_by_time(bench: Bench) -> None:
    topic = bench.topic()
    producer = bench.producer()
    for timestamp_ms in (1_000, 3_000, 2_000):
        producer.produce(topic, b"x", partition=0, timestamp=timestamp_ms)
    producer.flush(DEADLINE_S)

    def find(spec: OffsetSpec) -> tuple[int, int]:
        found = bench.admin.list_offsets({at(topic): spec})[at(topic)].result(DEADLINE_S)
        return found.offset, found.timestamp

    assert find(OffsetSpec.earliest()) == (0, -1)
    assert find(OffsetSpec.latest()) == (3, -1)
    assert find(OffsetSpec.for_timestamp(0)) == (0, 1_000)
    assert find(OffsetSpec.for_timestamp(1_001)) == (1, 3_000)
    assert find(OffsetSpec.for_timestamp(3_001)) == (-1, -1)
    assert find(OffsetSpec.max_timestamp()) == (1, 3_000)
    consumer = bench.consumer()
    assert [place.offset for place in consumer.offsets_for_times([at(topic, 0, 1_001)], 10)] == [1]
    assert [place.offset for place in consumer.offsets_for_times([at(topic, 0, 9_999)], 10)] == [-1]


def test_deleted_records_move_the_begin(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"0", b"1", b"2"])
    assert bench.admin.delete_records([at(topic, 0, 2)])[at(topic, 0, 2)].result(DEADLINE_S).low_watermark == 2
    found = bench.admin.list_offsets({at(topic): OffsetSpec.earliest()})[at(topic)].result(DEADLINE_S)
    assert found.offset == 2
    assert bench.reader(topic, 2).get_watermark_offsets(at(topic), 10) == (2, 3)
