"""The in-memory Kafka's parts: hashes, sizes, the log, the assignor."""

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from connectors.murmur2 import murmur2
from connectors.testing import InMemoryKafka
from connectors.testing.assignor import spread
from connectors.testing.log import PartitionLog, Span
from connectors.testing.partitioner import PARTITIONERS
from connectors.testing.sizes import headers_bytes, record_bytes, varint_bytes

MEMBERS = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("data", "signed"),
    # From Kafka's own UtilsTest.testMurmur2.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


def test_an_empty_key_is_a_key_for_murmur2_and_none_for_the_default() -> None:
    assert {PARTITIONERS["murmur2_random"](b"", 7, turn) for turn in range(7)} == {murmur2(b"") % 2**31 % 7}
    assert {PARTITIONERS["consistent_random"](b"", 7, turn) for turn in range(7)} == set(range(7))


def test_varints_are_measured_as_zigzag() -> None:
    assert [varint_bytes(value) for value in (0, 63, 64, 8_191, 8_192, 1_048_575, 1_048_576)] == [1, 1, 2, 2, 3, 3, 4]


def test_a_record_is_measured() -> None:
    # length 1, attributes 1, timestamp 1, offset 1, key 1 + 3, value 1, headers 1, header 1 + 1 + 1
    assert record_bytes(b"key", None, headers_bytes([("a", None)]), 1, 0) == 13


def test_a_log_without_what_retention_took() -> None:
    log = PartitionLog("t", 0)
    log.append([(n, None, b"%d" % n, None, None) for n in range(5)], None)
    log.delete_before(3)
    assert (log.begin, log.end, log.stable_end) == (3, 5, 5)
    log.delete_before(1)
    assert log.begin == 3
    log.delete_before(99)
    assert (log.begin, log.end) == (5, 5)
    assert log.first_at(0) is None
    assert log.latest() is None


def test_a_log_that_has_lost_its_end_gives_the_offsets_anew_in_a_later_epoch() -> None:
    log, span = PartitionLog("t", 0), Span()
    log.append([(n, None, b"%d" % n, None, None) for n in range(5)], None)
    log.elect(0)
    log.append([(5, None, b"5", None, span)], span)
    assert [entry[2] for entry in log.elect(3)] == [b"3", b"4", b"5"]
    assert (log.end, log.stable_end) == (3, 3)
    log.append([(6, None, b"6", None, None)], None)
    assert [log.epoch_of(offset) for offset in range(4)] == [0, 0, 0, 2]
    assert [log.end_of_epoch(epoch) for epoch in range(3)] == [3, 3, 4]
    assert [entry[2] for entry in log.elect(99)] == [b"0", b"1", b"2", b"6"]
    assert log.epoch_of(0) == 3


@pytest.mark.parametrize("epoch", [None, 0])
def test_a_consumer_that_knows_the_epoch_notices_that_a_log_has_lost_its_end(epoch: int | None) -> None:
    """Grown again, it looks like itself to one that was told an offset and has read nothing."""
    kafka = InMemoryKafka(tells_epochs=True)
    kafka.create_topic("t")
    producer = kafka.producer({})

    def produce(*values: bytes) -> None:
        for value in values:
            producer.produce("t", value)
        producer.flush(1)

    produce(b"0", b"1")
    consumer = kafka.consumer({"group.id": "g", "auto.offset.reset": "error"})
    place = TopicPartition("t", 0, 2) if epoch is None else TopicPartition("t", 0, 2, leader_epoch=epoch)
    consumer.assign([place])
    assert consumer.consume(9, 0) == []
    kafka.elect("t", 0, lost=1)
    produce(b"2", b"3")
    found = [(message.error() and message.error().code(), message.leader_epoch()) for message in consumer.consume(9, 0)]
    assert found == ([(None, 1)] if epoch is None else [(KafkaError._AUTO_OFFSET_RESET, None)])


def test_the_stable_end_is_that_of_the_oldest_open_transaction() -> None:
    log, old, young = PartitionLog("t", 0), Span(), Span()
    log.append([(0, None, b"", None, None)], None)
    log.append([(0, None, b"", None, old)], old)
    log.append([(0, None, b"", None, young)], young)
    assert log.stable_end == 1
    log.mark(old, 0)
    assert log.stable_end == 2
    log.delete_before(3)
    assert log.stable_end == 3
    log.mark(young, 0)
    assert log.stable_end == log.end == 5


@given(
    partitions=st.dictionaries(st.sampled_from("tuv"), st.integers(0, 6), max_size=3),
    wanted=st.dictionaries(st.sampled_from(MEMBERS), st.sets(st.sampled_from("tuv")), min_size=1),
    owners=st.lists(st.sampled_from(MEMBERS), min_size=18, max_size=18),
)
def test_everything_wanted_is_spread_evenly_and_once(
    partitions: dict[str, int], wanted: dict[str, set[str]], owners: list[str]
) -> None:
    places = {topic: [(topic, number) for number in range(count)] for topic, count in partitions.items()}
    every = [place for topic in places.values() for place in topic]
    owned = {
        member: {place for place, owner in zip(every, owners, strict=False) if owner == member} for member in MEMBERS
    }
    topics = {member: sorted(names & places.keys()) for member, names in wanted.items()}
    result = spread(places, topics, owned)
    assigned = sorted(place for member in result for place in result[member])
    assert assigned == sorted(place for place in every if any(place[0] in names for names in topics.values()))
    for member, has in result.items():
        assert all(place[0] in topics[member] for place in has)
        for topic in {place[0] for place in has}:
            others = [len(result[other]) for other in topics if topic in topics[other]]
            assert len(has) - min(others) <= 1


def test_what_is_owned_stays_where_evenness_allows() -> None:
    places = {"t": [("t", number) for number in range(6)]}
    owned = {"a": {("t", 0), ("t", 3)}, "b": {("t", 1), ("t", 2), ("t", 4)}}
    result = spread(places, {"a": ["t"], "b": ["t"]}, owned)
    assert set(result["a"]) == {("t", 0), ("t", 3), ("t", 5)}
    assert set(result["b"]) == owned["b"]
