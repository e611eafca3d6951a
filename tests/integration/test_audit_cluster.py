"""What the audit asks of Kafka before it reads: which offsets of a partition."""

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark.cluster import Cluster, Range
from spark.errors import NotAnsweredError
from tests.support.kafka import Kafka
from tests.support.waiting import wait_until

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


def test_a_topic_that_is_made_anew_has_another_id(kafka: Kafka, prefix: str) -> None:
    topic = kafka.create_topic(f"{prefix}orders")
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    before = cluster.topic_ids([topic, f"{prefix}nowhere"])
    kafka.admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in kafka.topics(), "the topic is gone", 30)
    kafka.create_topic(topic)
    wait_until(lambda: topic in cluster.topic_ids([topic]), "the topic is there", 30)
    assert before.keys() == {topic}
    assert cluster.topic_ids([topic]) != before
    assert cluster.topic_ids([]) == {}


@pytest.mark.parametrize("question", [Cluster.topic_ids, Cluster.compacted], ids=lambda question: question.__name__)
def test_silence_is_not_taken_for_a_topic_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, question: Callable[[Cluster, list[str]], object]
) -> None:
    monkeypatch.setattr("spark.cluster._TIMEOUT_S", 0.5)
    with pytest.raises(NotAnsweredError, match="does not tell of its topics"):
        question(Cluster({"bootstrap.servers": "127.0.0.1:1"}), ["orders"])


def test_topics_that_have_lost_their_first_records_are_known(kafka: Kafka, prefix: str) -> None:
    whole, cut, empty = (kafka.create_topic(f"{prefix}{name}", 2) for name in ("whole", "cut", "empty"))
    producer = kafka.producer()
    for topic in (whole, cut, empty):
        for number in range(6):
            producer.produce(topic, b"v", partition=number % 2, timestamp=AT_MS + number)
    producer.flush(30)
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    removed = [(cut, 0, 1), (cut, 1, 2), (empty, 0, 3)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(*place) for place in removed]).values():
        done.result(30)
    places = [(topic, partition) for topic in (whole, cut, empty) for partition in range(2)]
    assert cluster.kept_since_ms(places, AT_MS + 100) == {cut: AT_MS + 5, empty: AT_MS + 100}
    assert cluster.kept_since_ms([], AT_MS) == {}


def test_a_transaction_that_stays_open_holds_back_what_is_behind_it(kafka: Kafka, prefix: str) -> None:
    held, free = (kafka.create_topic(f"{prefix}{name}", 2) for name in ("held", "free"))
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    places = [(topic, partition) for topic in (held, free) for partition in range(2)]
    kafka.produce([(held, None, b"v", []) for _ in range(4)])
    producer = kafka.producer(transactional_id=f"{prefix}open")
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(held, b"v", partition=1)
    producer.flush(10)
    before = cluster.ranges(places).get((held, 1), Range(0, 0)).end
    written = cluster.written(places)
    assert written[held, 1] == before + 1
    assert cluster.held_back(written) == {(held, 1): before}
    soon = threading.Timer(0.3, producer.abort_transaction, [10])
    soon.start()
    assert cluster.held_back(written) == {}, "one that is about to end is waited for"
    soon.join()
    assert cluster.written([]) == cluster.held_back({}) == {}


def test_since_when_a_topic_has_records_is_known(kafka: Kafka, prefix: str) -> None:
    whole, cut, empty = (kafka.create_topic(f"{prefix}{name}", 2) for name in ("whole", "cut", "empty"))
    producer = kafka.producer()
    for topic in (whole, cut):
        for number in range(4):
            producer.produce(topic, b"v", partition=number % 2, timestamp=AT_MS + number)
    producer.flush(30)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(cut, 1, 1)])[TopicPartition(cut, 1, 1)].result(30)
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap_servers})
    assert cluster.begins_ms([whole, cut, empty, f"{prefix}none"]) == {whole: AT_MS, empty: None}
    assert cluster.begins_ms([]) == {}
