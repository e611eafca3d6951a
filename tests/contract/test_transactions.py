"""Transactions: what is seen, what is not, and how each call ends."""

from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka.admin import OffsetSpec

from tests.contract.cluster import (
    DEADLINE_S,
    Bench,
    at,
    flags,
    read,
    read_to_end,
    refusal,
    values,
)


def test_an_open_transaction_holds_readers_of_what_is_committed(bench: Bench) -> None:
    topic = bench.topic()
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"held", partition=0)
    producer.flush(DEADLINE_S)
    bench.produce(topic, [b"behind"])
    committed = bench.reader(topic)
    assert read_to_end(committed) == ([], [0])
    assert values(read(bench.reader(topic, isolation_level="read_uncommitted"), 2)) == [b"held", b"behind"]
    producer.commit_transaction(DEADLINE_S)
    assert values(read(committed, 2)) == [b"held", b"behind"]
    assert read_to_end(committed) == ([], [3])


def test_markers_take_an_offset_in_every_partition_touched(bench: Bench) -> None:
    topic = bench.topic(3)
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.produce(topic, b"b", partition=0)
    producer.produce(topic, b"c", partition=2)
    producer.commit_transaction(DEADLINE_S)
    messages, ends = read_to_end(bench.reader(topic, partitions=range(3)), 3)
    assert sorted((message.partition(), message.offset()) for message in messages) == [(0, 0), (0, 1), (2, 0)]
    assert ends == [3, 0, 2]


def test_aborted_records_leave_a_gap(bench: Bench) -> None:
    topic = bench.topic()
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=0)
    producer.flush(DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    committed = bench.reader(topic)
    assert read_to_end(committed) == ([], [2])
    producer.begin_transaction()
    producer.produce(topic, b"seen", partition=0)
    producer.commit_transaction(DEADLINE_S)
    messages, ends = read_to_end(committed)
    assert [(message.value(), message.offset()) for message in messages] == [(b"seen", 2)]
    assert ends == [4]
    assert values(read_to_end(bench.reader(topic, isolation_level="read_uncommitted"))[0]) == [b"never", b"seen"]


def test_the_position_passes_markers_with_the_news_of_the_end(bench: Bench) -> None:
    topic = bench.topic()
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction(DEADLINE_S)
    consumer = bench.reader(topic)
    assert consumer.position([at(topic)])[0].offset == -1001
    read(consumer, 1)
    assert consumer.position([at(topic)])[0].offset == 1
    assert read_to_end(consumer) == ([], [2])
    assert consumer.position([at(topic)])[0].offset == 2


def test_an_abort_forgets_what_was_not_sent(bench: Bench) -> None:
    topic = bench.topic()
    told = []
    producer = bench.transactional(
        on_delivery=lambda error, message: told.append(error and error.code()), linger_ms=5_000
    )
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=0)
    producer.abort_transaction(DEADLINE_S)
    assert told == [KafkaError._PURGE_QUEUE]
    producer.begin_transaction()
    producer.commit_transaction(DEADLINE_S)
    assert read_to_end(bench.reader(topic)) == ([], [0])


def test_calls_out_of_turn_are_refused(bench: Bench) -> None:
    topic = bench.topic()
    state = (KafkaError._STATE, False, False, False)
    producer = bench.transactional(is_initialised=False)
    assert flags(refusal(producer.begin_transaction)) == state
    producer.init_transactions(DEADLINE_S)
    assert flags(refusal(lambda: producer.init_transactions(1))) == state
    assert flags(refusal(lambda: producer.commit_transaction(1))) == state
    assert flags(refusal(lambda: producer.abort_transaction(1))) == state
    assert flags(refusal(lambda: producer.produce(topic, b"x"))) == state
    metadata = bench.consumer().consumer_group_metadata()
    assert flags(refusal(lambda: producer.send_offsets_to_transaction([at(topic, 0, 1)], metadata, 1))) == state
    producer.begin_transaction()
    assert flags(refusal(producer.begin_transaction)) == state
    producer.commit_transaction(DEADLINE_S)


def test_offsets_and_records_become_final_together(bench: Bench) -> None:
    topic, group = bench.topic(2), f"{bench.name}-group"
    consumer = bench.consumer(group)
    assert [place.offset for place in consumer.committed([at(topic), at(topic, 1)], DEADLINE_S)] == [-1001, -1001]
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"record", partition=0)
    offsets = [at(topic, 0, 5, '{"w": [1, 2]}'), at(topic, 1, 7)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)
    answers = consumer.committed([at(topic), at(topic, 1)], DEADLINE_S)
    assert [(place.offset, place.metadata or "") for place in answers] == [(5, '{"w": [1, 2]}'), (7, "")]
    assert values(read(bench.reader(topic), 1)) == [b"record"]


def test_aborted_offsets_are_forgotten(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    consumer = bench.consumer(group)
    consumer.commit(offsets=[at(topic, 0, 3, "kept")], asynchronous=False)
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([at(topic, 0, 9, "lost")], consumer.consumer_group_metadata(), DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    (answer,) = consumer.committed([at(topic)], DEADLINE_S)
    assert (answer.offset, answer.metadata) == (3, "kept")


def test_pending_offsets_make_others_wait(bench: Bench) -> None:
    topic, group = bench.topic(2), f"{bench.name}-group"
    consumer = bench.consumer(group)
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([at(topic, 0, 9)], consumer.consumer_group_metadata(), DEADLINE_S)
    error = refusal(lambda: consumer.committed([at(topic)], 0.5))
    assert flags(error) == (KafkaError._TIMED_OUT, False, False, False)
    assert bench.consumer(group, isolation_level="read_uncommitted").committed([at(topic)], 5)[0].offset == -1001
    assert consumer.committed([at(topic, 1)], 5)[0].offset == -1001
    producer.commit_transaction(DEADLINE_S)
    assert consumer.committed([at(topic)], DEADLINE_S)[0].offset == 9


def test_the_later_of_two_transactions_offsets_stays(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    consumer = bench.consumer(group)
    metadata = consumer.consumer_group_metadata()
    first, second = bench.transactional(), bench.transactional()
    first.begin_transaction()
    first.send_offsets_to_transaction([at(topic, 0, 1)], metadata, DEADLINE_S)
    second.begin_transaction()
    second.send_offsets_to_transaction([at(topic, 0, 2)], metadata, DEADLINE_S)
    second.commit_transaction(DEADLINE_S)
    first.commit_transaction(DEADLINE_S)
    assert consumer.committed([at(topic)], DEADLINE_S)[0].offset == 2


def test_a_newer_producer_ends_what_the_older_left_open(bench: Bench) -> None:
    topic, name = bench.topic(), f"{bench.name}-id"
    older = bench.transactional(name)
    older.begin_transaction()
    older.produce(topic, b"older", partition=0)
    older.flush(DEADLINE_S)
    newer = bench.transactional(name)
    assert read_to_end(bench.reader(topic)) == ([], [2])
    fenced = (KafkaError._FENCED, True, False, False)
    assert flags(refusal(lambda: older.commit_transaction(DEADLINE_S))) == fenced
    assert flags(refusal(lambda: older.abort_transaction(DEADLINE_S))) == fenced
    assert flags(refusal(older.begin_transaction)) == fenced
    assert flags(refusal(lambda: older.produce(topic, b"x"))) == (KafkaError._FATAL, False, False, False)
    newer.begin_transaction()
    newer.produce(topic, b"newer", partition=0)
    newer.commit_transaction(DEADLINE_S)
    assert values(read(bench.reader(topic), 1)) == [b"newer"]


def test_a_fenced_producer_cannot_begin_to_write(bench: Bench) -> None:
    topic, name = bench.topic(), f"{bench.name}-id"
    older = bench.transactional(name)
    bench.transactional(name)
    older.begin_transaction()
    older.produce(topic, b"older", partition=0)
    assert flags(refusal(lambda: older.commit_transaction(DEADLINE_S))) == (KafkaError._FENCED, True, False, False)
    assert read_to_end(bench.reader(topic)) == ([], [0])


def test_a_fenced_producer_cannot_commit_offsets(bench: Bench) -> None:
    topic, name = bench.topic(), f"{bench.name}-id"
    consumer = bench.consumer()
    older = bench.transactional(name)
    bench.transactional(name)
    older.begin_transaction()
    offsets, metadata = [at(topic, 0, 1)], consumer.consumer_group_metadata()
    error = refusal(lambda: older.send_offsets_to_transaction(offsets, metadata, DEADLINE_S))
    assert flags(error) == (KafkaError._FENCED, True, False, False)
    assert consumer.committed([at(topic)], DEADLINE_S)[0].offset == -1001


def test_a_fenced_producer_may_end_a_transaction_without_content(bench: Bench) -> None:
    name = f"{bench.name}-id"
    older = bench.transactional(name)
    bench.transactional(name)
    older.begin_transaction()
    older.commit_transaction(DEADLINE_S)
    older.begin_transaction()
    older.abort_transaction(DEADLINE_S)


def test_a_refused_record_fails_its_transaction(bench: Bench) -> None:
    small, topic = bench.topic(max_message_bytes="2000"), bench.topic()
    told = []
    producer = bench.transactional(on_delivery=lambda error, message: told.append(error and error.code()))
    producer.begin_transaction()
    producer.produce(small, b"x" * 2500, partition=0)
    refused = (KafkaError.MSG_SIZE_TOO_LARGE, False, False, True)
    assert flags(refusal(lambda: producer.commit_transaction(DEADLINE_S))) == refused
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert flags(refusal(lambda: producer.commit_transaction(DEADLINE_S))) == refused
    assert flags(refusal(producer.begin_transaction)) == refused
    assert refusal(lambda: producer.produce(topic, b"x")).code() == KafkaError._STATE
    offsets, metadata = [at(topic, 0, 1)], bench.consumer().consumer_group_metadata()
    assert flags(refusal(lambda: producer.send_offsets_to_transaction(offsets, metadata, 5))) == refused
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"innocent", partition=0)
    producer.commit_transaction(DEADLINE_S)
    assert values(read(bench.reader(topic), 1)) == [b"innocent"]


def test_after_a_refusal_the_next_batch_there_fails_once_more(bench: Bench) -> None:
    small = bench.topic(2, max_message_bytes="2000")
    told = []
    producer = bench.transactional(on_delivery=lambda error, message: told.append(error and error.code()))
    producer.begin_transaction()
    producer.produce(small, b"x" * 2500, partition=0)
    refusal(lambda: producer.commit_transaction(DEADLINE_S))
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(small, b"elsewhere", partition=1)
    producer.commit_transaction(DEADLINE_S)
    told.clear()
    producer.begin_transaction()
    producer.produce(small, b"there", partition=0)
    error = refusal(lambda: producer.commit_transaction(DEADLINE_S))
    assert flags(error) == (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, False, False, True)
    assert told == [KafkaError._PURGE_QUEUE]
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(small, b"there", partition=0)
    producer.commit_transaction(DEADLINE_S)
    assert values(read(bench.reader(small), 1)) == [b"there"]


def test_what_is_refused_is_told_before_a_gap_in_the_sequence(bench: Bench) -> None:
    small = bench.topic(max_message_bytes="2000")
    told = []
    producer = bench.transactional(on_delivery=lambda error, message: told.append(error and error.code()))
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(small, b"x" * 2500, partition=0)
        error = refusal(lambda: producer.commit_transaction(DEADLINE_S))
        assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        producer.abort_transaction(DEADLINE_S)
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE] * 3


def test_a_record_for_no_topic_fails_its_transaction(bench: Bench) -> None:
    told = []
    producer = bench.transactional(
        on_delivery=lambda error, message: told.append(error and error.code()),
        topic_metadata_propagation_max_ms=500,
        topic_metadata_refresh_fast_interval_ms=100,
    )
    for name, code in (("no topic", KafkaError.TOPIC_EXCEPTION), ("no-topic", KafkaError.UNKNOWN_TOPIC_OR_PART)):
        told.clear()
        producer.begin_transaction()
        producer.produce(name, b"x")
        error = refusal(lambda: producer.commit_transaction(DEADLINE_S))
        assert flags(error) == (KafkaError._INCONSISTENT, False, False, True)
        assert told == [code]
        producer.abort_transaction(DEADLINE_S)


def test_offset_metadata_has_a_limit(bench: Bench) -> None:
    topic, group = bench.topic(), f"{bench.name}-group"
    producer = bench.transactional()
    metadata = bench.consumer(group).consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([], metadata, DEADLINE_S)
    producer.send_offsets_to_transaction([at(topic, 0, 1, "x" * 4095)], metadata, DEADLINE_S)
    offsets = [at(topic, 0, 1, "x" * 4096)]
    error = refusal(lambda: producer.send_offsets_to_transaction(offsets, metadata, DEADLINE_S))
    assert flags(error) == (KafkaError.OFFSET_METADATA_TOO_LARGE, False, False, True)
    producer.abort_transaction(DEADLINE_S)


def test_ends_differ_by_isolation_level(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, [b"a"])
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(DEADLINE_S)

    def end(**options: IsolationLevel) -> int:
        answers = bench.admin.list_offsets({at(topic): OffsetSpec.latest()}, **options)
        offset: int = answers[at(topic)].result(DEADLINE_S).offset
        return offset

    assert end() == end(isolation_level=IsolationLevel.READ_UNCOMMITTED) == 2
    assert end(isolation_level=IsolationLevel.READ_COMMITTED) == 1
    assert bench.reader(topic).get_watermark_offsets(at(topic), DEADLINE_S) == (0, 1)
    assert bench.reader(topic, isolation_level="read_uncommitted").get_watermark_offsets(at(topic), 10) == (0, 2)
    producer.abort_transaction(DEADLINE_S)
