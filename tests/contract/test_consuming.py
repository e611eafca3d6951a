"""Assignment, position, pausing, seeking, plain commits."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, TopicPartition

from tests.contract.cluster import DEADLINE_S, Bench, at, flags, read, read_to_end, refusal, values, wait_until


def test_a_paused_partition_goes_on_where_the_application_stands(bench: Bench) -> None:
    topic = bench.topic(2)
    bench.produce(topic, [b"0", b"1", b"2"])
    consumer = bench.reader(topic)
    assert values(read(consumer, 1)) == [b"0"]
    consumer.pause([at(topic)])
    assert consumer.consume(10, 0.3) == []
    assert consumer.position([at(topic)])[0].offset == 1
    bench.produce(topic, [b"3"])
    consumer.resume([at(topic)])
    assert values(read(consumer, 3)) == [b"1", b"2", b"3"]


def test_a_pause_outlives_the_assignment(bench: Bench) -> None:
    topic = bench.topic(2)
    bench.produce(topic, [b"0"])
    bench.produce(topic, [b"1"], partition=1)
    consumer = bench.reader(topic)
    assert values(read(consumer, 1)) == [b"0"]
    consumer.pause([at(topic)])
    consumer.unassign()
    consumer.assign([at(topic, 0, 0), at(topic, 1, 0)])
    assert values(read(consumer, 1)) == [b"1"]
    assert [message for message in consumer.consume(10, 0.3) if message.error() is None] == []
    consumer.resume([at(topic)])
    assert values(read(consumer, 1)) == [b"0"]


def test_seeking_forgets_the_position(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"0", b"1", b"2"])
    consumer = bench.reader(topic)
    read(consumer, 3)
    consumer.seek(at(topic, 0, 1))
    assert consumer.position([at(topic)])[0].offset == -1001
    assert values(read(consumer, 2)) == [b"1", b"2"]
    assert flags(refusal(lambda: consumer.seek(at(topic, 9, 1)))) == (KafkaError._STATE, False, False, False)


def test_assignments_are_extended_and_cut(bench: Bench) -> None:
    topic = bench.topic(3)
    for partition in range(3):
        bench.produce(topic, [b"%d-%d" % (partition, number) for number in range(2)], partition)
    consumer = bench.reader(topic, partitions=[0])
    read(consumer, 2)
    consumer.incremental_assign([at(topic, 1, 1)])
    assert values(read(consumer, 1)) == [b"1-1"]
    assert refusal(lambda: consumer.incremental_assign([at(topic, 1, 0)])).code() == KafkaError._CONFLICT
    consumer.incremental_unassign([at(topic, 0)])
    assert [place.partition for place in consumer.assignment()] == [1]
    assert refusal(lambda: consumer.incremental_unassign([at(topic, 0)])).code() == KafkaError._INVALID_ARG
    consumer.assign([at(topic, 2, 0)])
    assert values(read(consumer, 2)) == [b"2-0", b"2-1"]
    consumer.unassign()
    assert consumer.assignment() == []


def test_logical_offsets_are_begin_end_and_what_is_committed(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    bench.produce(topic, [b"0", b"1", b"2"])
    bench.consumer(group).commit(offsets=[at(topic, 0, 2)], asynchronous=False)
    assert values(read(bench.reader(topic, OFFSET_BEGINNING), 1)) == [b"0"]
    assert read_to_end(bench.reader(topic, OFFSET_END)) == ([], [3])
    assert values(read(bench.reader(topic, -1001, group=group), 1)) == [b"2"]


def test_each_end_is_told_once(bench: Bench) -> None:
    topic = bench.topic()
    consumer = bench.reader(topic)
    assert read_to_end(consumer) == ([], [0])
    assert consumer.poll(0.3) is None
    bench.produce(topic, [b"0"])
    messages, ends = read_to_end(consumer)
    assert (values(messages), ends) == ([b"0"], [1])
    assert consumer.poll(0.3) is None


def test_ends_are_told_only_where_so_configured(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"0"])
    consumer = bench.reader(topic, enable_partition_eof=False)
    assert values(read(consumer, 1)) == [b"0"]
    assert consumer.poll(0.3) is None


def test_a_message_is_committed_by_the_offset_after_it(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    bench.produce(topic, [b"0", b"1"])
    consumer = bench.reader(topic, group=group)
    first, _ = read(consumer, 2)
    (answer,) = consumer.commit(message=first, asynchronous=False)
    assert (answer.topic, answer.partition, answer.offset) == (topic, 0, 1)
    assert consumer.committed([at(topic)], DEADLINE_S)[0].offset == 1
    consumer.commit(offsets=[at(topic, 0, 2, "words")], asynchronous=False)
    (answer,) = consumer.committed([at(topic)], DEADLINE_S)
    assert (answer.offset, answer.metadata) == (2, "words")
    consumer.commit(offsets=[at(topic, 0, 1)], asynchronous=False)
    (answer,) = consumer.committed([at(topic)], DEADLINE_S)
    assert (answer.offset, answer.metadata or "") == (1, "")


def test_what_was_consumed_is_committed_where_it_is_stored(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    bench.produce(topic, [b"0", b"1"])
    consumer = bench.reader(topic, group=group, enable_auto_offset_store=True)
    assert refusal(lambda: consumer.commit(asynchronous=False)).code() == KafkaError._NO_OFFSET
    read(consumer, 2)
    consumer.commit(asynchronous=False)
    assert consumer.committed([at(topic)], DEADLINE_S)[0].offset == 2


def test_polling_tells_what_became_of_commits_that_nobody_waited_for(bench: Bench) -> None:
    topic, told = bench.topic(), list[tuple[int | None, list[tuple[int, int]]]]()

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        told.append((error and error.code(), [(one.partition, one.offset) for one in partitions]))

    def next_told(consumer: Any) -> tuple[int | None, list[tuple[int, int]]]:
        wait_until(lambda: consumer.poll(0.1) is None and told, "it is told")
        return told.pop(0)

    bench.produce(topic, [b"0", b"1"])
    consumer = bench.reader(topic, on_commit=on_commit, enable_partition_eof=False)
    consumer.commit(offsets=[at(topic, 0, 1)], asynchronous=False)
    read(consumer, 2)
    assert told == [], "who waited is not told again"
    consumer.commit(offsets=[at(topic, 0, 2)])
    assert told == []
    assert next_told(consumer) == (None, [(0, 2)])
    consumer.commit()
    assert next_told(consumer) == (KafkaError._NO_OFFSET, [(0, OFFSET_INVALID)])
    consumer.commit(offsets=[at(topic, 0, 1)])
    consumer.close()
    assert told == [(None, [(0, 1)])]


def test_what_on_commit_raises_polling_raises(bench: Bench) -> None:
    topic = bench.topic()

    def on_commit(_error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        raise ValueError("not mine")

    consumer = bench.reader(topic, on_commit=on_commit)
    consumer.commit(offsets=[at(topic, 0, 0)])
    with pytest.raises(ValueError, match="not mine"):
        wait_until(lambda: consumer.poll(0.1) is None and None, "it is told")


def test_what_is_committed_by_itself_is_told_once(bench: Bench) -> None:
    topic, told = bench.topic(2), list[tuple[KafkaError | None, dict[int, int]]]()
    bench.produce(topic, [b"0", b"1"])

    def consumer(interval_ms: int) -> Any:
        return bench.consumer(
            f"{bench.name}-group",
            enable_auto_commit=True,
            enable_auto_offset_store=True,
            auto_commit_interval_ms=interval_ms,
            auto_offset_reset="earliest",
            on_commit=lambda error, partitions: told.append((error, {one.partition: one.offset for one in partitions})),
        )

    first = consumer(200)
    first.subscribe([topic])
    read(first, 2)
    wait_until(lambda: first.poll(0.1) is None and told, "it is told")
    for _ in range(10):
        first.poll(0.1)
    assert told == [(None, {0: 2, 1: OFFSET_INVALID})]
    first.close()
    assert told[1:] == [(None, {0: 2, 1: OFFSET_INVALID})], "closing commits once more"
    bench.produce(topic, [b"2"])
    second = consumer(60_000)
    second.subscribe([topic])
    read(second, 1)
    second.close()
    assert told[2:] == [(None, {0: 3, 1: OFFSET_INVALID})]


def test_closing_commits_where_that_is_automatic(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    bench.produce(topic, [b"0", b"1"])
    consumer = bench.consumer(
        group, enable_auto_commit=True, enable_auto_offset_store=True, auto_offset_reset="earliest"
    )
    consumer.subscribe([topic])
    read(consumer, 2)
    consumer.close()
    assert bench.consumer(group).committed([at(topic)], DEADLINE_S)[0].offset == 2


def test_consume_returns_what_there_is(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"%d" % number for number in range(10)])
    consumer = bench.reader(topic, enable_partition_eof=False)
    first = wait_until(lambda: consumer.consume(4, 1.0), "something has been read")
    rest = wait_until(lambda: consumer.consume(100, 1.0), "the rest has been read")
    assert len(first) <= 4
    assert values([*first, *rest]) == [b"%d" % number for number in range(10)]
    assert consumer.consume(5, 0) == []


def test_a_closed_consumer_refuses_everything(bench: Bench) -> None:
    consumer = bench.consumer()
    consumer.close()
    for call in (lambda: consumer.poll(0), lambda: consumer.committed([at("t")], 1), consumer.assignment):
        try:
            call()
        except RuntimeError as error:
            assert "closed" in str(error)  # noqa: PT017
        else:
            raise AssertionError("nothing was raised")


def test_a_partition_stays_paused_when_another_is(bench: Bench) -> None:
    topic = bench.topic(2)
    for partition in (0, 1):
        bench.produce(topic, [b"%d" % partition], partition)
    consumer = bench.reader(topic, partitions=(0, 1))
    for partition in (0, 1):
        consumer.pause([at(topic, partition)])
    assert consumer.poll(0.5) is None
    consumer.resume([at(topic, 1)])
    assert values(read(consumer, 1)) == [b"1"]
    consumer.resume([at(topic, 0)])
    assert values(read(consumer, 1)) == [b"0"]
