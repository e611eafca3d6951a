"""What is produced comes back: fields, headers, timestamps, places."""

import random

import pytest
from confluent_kafka import KafkaError, Message

from tests.contract.cluster import DEADLINE_S, Bench, at, flags, next_error, read, read_to_end, refusal, values


def test_key_value_and_headers_come_back_as_they_were(bench: Bench) -> None:
    topic = bench.topic()
    headers = [("a", b"1"), ("a", None), ("b", b""), ("ü", b"text"), ("a", b"1")]
    producer = bench.producer()
    producer.produce(topic, b"value", b"key", 0, headers=list(headers))
    producer.produce(topic, None, b"tombstone", 0)
    producer.produce(topic, b"", b"", 0, headers=[])
    producer.produce(topic, "text", "text", 0, headers={"name": "text"})
    producer.flush(DEADLINE_S)
    full, tombstone, empty, text = read(bench.reader(topic), 4)
    assert (full.key(), full.value(), full.headers(), full.error()) == (b"key", b"value", headers, None)
    assert (full.topic(), full.partition(), full.offset()) == (topic, 0, 0)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"tombstone", None, None)
    assert (empty.key(), empty.value(), empty.headers()) == (b"", b"", None)
    assert (text.key(), text.value(), text.headers()) == (b"text", b"text", [("name", b"text")])


def test_arguments_may_be_given_by_position(bench: Bench) -> None:
    """Topic, value, key, partition, two names of the callback, timestamp, headers; what is None is as if not given."""
    topic = bench.topic()
    told = []
    producer = bench.producer(on_delivery=lambda error, message: told.append((error, "default")))
    producer.produce(topic, b"value", b"key", 0, None, None, 0, [("name", b"text")])
    producer.produce(topic, b"value", b"key", 0, lambda error, _: told.append((error, "own")), None, 1_234_567, [])
    producer.flush(DEADLINE_S)
    first, second = read(bench.reader(topic), 2)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", [("name", b"text")])
    assert first.timestamp()[1] > 1_600_000_000_000
    assert (second.headers(), second.timestamp()) == (None, (1, 1_234_567))
    assert told == [(None, "default"), (None, "own")]


def test_timestamps_are_the_producers_or_the_brokers(bench: Bench) -> None:
    created, appended = bench.topic(), bench.topic(message_timestamp_type="LogAppendTime")
    producer = bench.producer()
    producer.produce(created, b"", partition=0, timestamp=1_234_567)
    producer.produce(appended, b"", partition=0, timestamp=1_234_567)
    producer.produce(created, b"", partition=0)
    producer.flush(DEADLINE_S)
    given, now = read(bench.reader(created), 2)
    (broker,) = read(bench.reader(appended), 1)
    assert given.timestamp() == (1, 1_234_567)
    assert now.timestamp()[0] == 1
    assert broker.timestamp()[0] == 2
    assert abs(now.timestamp()[1] - broker.timestamp()[1]) < 60_000


def test_delivery_reports_tell_place_and_order(bench: Bench) -> None:
    topic = bench.topic()
    told = []
    producer = bench.producer(on_delivery=lambda error, message: told.append((error, message.offset(), "default")))
    for _ in range(3):
        producer.produce(topic, b"x", partition=0)
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, m: told.append((error, m.offset(), "own")))
    assert told == []
    assert producer.flush(DEADLINE_S) == 0
    assert told == [(None, 0, "default"), (None, 1, "default"), (None, 2, "default"), (None, 3, "own")]


def test_a_callback_that_raises_costs_no_other_report(bench: Bench) -> None:
    topic = bench.topic()
    told = []

    def on_delivery(_error: KafkaError | None, message: Message) -> None:
        told.append(message.value())
        if message.value() == b"0":
            raise ValueError("once")

    producer = bench.producer(on_delivery=on_delivery)
    for number in range(3):
        producer.produce(topic, b"%d" % number, partition=0)
    with pytest.raises(ValueError, match="once"):
        producer.flush(DEADLINE_S)
    producer.flush(DEADLINE_S)
    assert told == [b"0", b"1", b"2"]


def test_only_errors_are_reported_where_so_configured(bench: Bench) -> None:
    topic = bench.topic(max_message_bytes="500")
    told = []
    producer = bench.producer(
        delivery_report_only_error=True, on_delivery=lambda error, message: told.append((error.code(), message.value()))
    )
    producer.produce(topic, b"fits", partition=0)
    producer.flush(DEADLINE_S)
    producer.produce(topic, b"x" * 600, partition=0)
    producer.flush(DEADLINE_S)
    assert told == [(KafkaError.MSG_SIZE_TOO_LARGE, b"x" * 600)]
    assert values(read_to_end(bench.reader(topic))[0]) == [b"fits"]


@pytest.mark.parametrize("partitioner", ["murmur2_random", "murmur2", "consistent_random", "consistent"])
def test_keys_find_the_same_partition(bench: Bench, partitioner: str) -> None:
    # The fake's partitions are held against the real ones through this table: both must equal it.
    topic = bench.topic(7)
    chance = random.Random(7)
    keys = [bytes(chance.randrange(256) for _ in range(length)) for length in [*range(1, 40), 100, 257] * 3]
    producer = bench.producer(partitioner=partitioner)
    for key in keys:
        producer.produce(topic, b"", key)
    if partitioner in ("murmur2_random", "murmur2", "consistent"):
        producer.produce(topic, b"", b"")
    producer.flush(DEADLINE_S)
    from connectors.testing.partitioner import PARTITIONERS

    messages, _ = read_to_end(bench.reader(topic, partitions=range(7)), 7)
    assert len(messages) >= len(keys)
    for message in messages:
        assert message.partition() == PARTITIONERS[partitioner](message.key() or b"", 7, -1), message.key()


def test_records_without_a_key_go_anywhere(bench: Bench) -> None:
    topic = bench.topic(3)
    producer = bench.producer()
    for number in range(20):
        producer.produce(topic, b"%d" % number)
    producer.flush(DEADLINE_S)
    messages, _ = read_to_end(bench.reader(topic, partitions=range(3)), 3)
    assert sorted(values(messages)) == sorted(b"%d" % number for number in range(20))  # type: ignore[type-var]


def test_a_key_keeps_its_order(bench: Bench) -> None:
    topic = bench.topic(3)
    producer = bench.producer()
    for number in range(50):
        producer.produce(topic, b"%d" % number, b"key")
    producer.flush(DEADLINE_S)
    assert values(read(bench.reader(topic, partitions=range(3)), 50)) == [b"%d" % number for number in range(50)]


def test_a_partition_that_does_not_exist_is_refused_at_once(bench: Bench) -> None:
    topic = bench.topic(2)
    producer = bench.producer()
    producer.produce(topic, b"", partition=1)
    producer.flush(DEADLINE_S)
    assert refusal(lambda: producer.produce(topic, b"", partition=2)).code() == KafkaError._UNKNOWN_PARTITION


def test_the_client_refuses_what_is_too_large_for_itself(bench: Bench) -> None:
    topic = bench.topic()
    producer = bench.producer()
    error = refusal(lambda: producer.produce(topic, b"x" * 999_965))
    assert flags(error) == (KafkaError.MSG_SIZE_TOO_LARGE, False, False, False)
    refusal(lambda: producer.produce(topic, b"x" * 999_961, headers=[("a", b"b")]))
    producer.produce(topic, b"x" * 999_964)
    producer.produce(topic, b"x" * 999_960, headers=[("a", b"b")])
    assert producer.flush(DEADLINE_S) == 0


def test_max_message_bytes_limits_the_batch(bench: Bench) -> None:
    topic = bench.topic(max_message_bytes="2000")
    told = []
    producer = bench.producer(on_delivery=lambda error, message: told.append(error and error.code()))
    for _ in range(3):
        producer.produce(topic, b"x" * 900, partition=0)
    producer.flush(DEADLINE_S)
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE] * 3
    assert read_to_end(bench.reader(topic)) == ([], [0])


def test_the_size_limit_bites_at_the_same_byte(bench: Bench) -> None:
    topic = bench.topic(max_message_bytes="1000")
    headers = [("name", b"v" * 70), ("n", None)]
    told: list[int | None] = []
    for size in range(843, 852):
        producer = bench.producer(on_delivery=lambda error, message: told.append(error and error.code()))
        producer.produce(topic, b"x" * size, b"key", 0, headers=list(headers))
        producer.flush(DEADLINE_S)
    assert told == [None] * 5 + [KafkaError.MSG_SIZE_TOO_LARGE] * 4


def test_out_of_range_is_told_once_and_reading_stops(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"0", b"1", b"2"])
    bench.admin.delete_records([at(topic, 0, 2)])[at(topic, 0, 2)].result(DEADLINE_S)
    for offset in (0, 1, 50):
        consumer = bench.reader(topic, offset)
        message = next_error(consumer)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert (message.topic(), message.partition(), message.offset()) == (topic, 0, offset)
        assert consumer.poll(0.3) is None
    assert values(read(bench.reader(topic, 2), 1)) == [b"2"]
    no_progress = next_error(bench.reader(topic, -1001))
    assert (no_progress.error().code(), no_progress.offset()) == (KafkaError._AUTO_OFFSET_RESET, None)


def test_out_of_range_begins_where_the_reset_says(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"0", b"1", b"2"])
    bench.admin.delete_records([at(topic, 0, 2)])[at(topic, 0, 2)].result(DEADLINE_S)
    assert values(read(bench.reader(topic, 0, auto_offset_reset="earliest"), 1)) == [b"2"]
    assert read_to_end(bench.reader(topic, 0, auto_offset_reset="latest")) == ([], [3])
