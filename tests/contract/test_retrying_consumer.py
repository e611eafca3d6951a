"""`RetryingConsumer` on either cluster: what the listener is shown, what comes of its answers, what is committed.

Turns are made by hand, so that the in-memory Kafka, which bears no threads, is held to the same.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message, TopicPartition

from connectors import ConsumeContext, ConsumedMessage, ConsumeResult, MessageModel, RetryingConsumer, TopicNames
from tests.contract.cluster import Bench, read, wait_until

SUCCESS, LATER = ConsumeResult.CONSUME_SUCCESS, ConsumeResult.RECONSUME_LATER


class Group:
    """One consumer group on topics of its own, and the sidecar's part played by hand."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.id = f"{bench.name}-g"
        self.names = TopicNames(f"{bench.name}.")
        self.send_back = self.names.send_back
        self.retry = self.names.retry(self.id)
        self.topic = bench.topic(2)
        self._consumers: list[RetryingConsumer] = []

    def create(self, *topics: str) -> None:
        for topic in topics:
            self.bench.topic(1, topic)

    def consumer(
        self, *, config: dict[str, Any] | None = None, topics: Sequence[str] = (), **arguments: Any
    ) -> RetryingConsumer:
        consumer = RetryingConsumer(
            {"group.id": self.id, "auto.offset.reset": "earliest", "session.timeout.ms": 6_000, **(config or {})},
            topics or [self.topic],
            names=self.names,
            clients=self.bench.cluster,
            **{"producer_config": {"message.timeout.ms": 500}, **arguments},
        )
        self._consumers.append(consumer)
        return consumer

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    def produce(self, *values: bytes, topic: str = "", partition: int = 0, **headers: bytes) -> None:
        producer = self.bench.producer()
        for value in values:
            producer.produce(topic or self.topic, value, b"key", partition, headers=list(headers.items()))
        assert producer.flush(10) == 0

    def sent_back(self, count: int) -> list[Message]:
        """Exactly so many have been sent back."""
        messages = read(self.bench.reader(self.send_back), count) if count else []
        assert self._end(self.send_back) == count
        return messages

    def committed(self, topic: str = "", partition: int = 0) -> int:
        consumer = self.bench.consumer(self.id)
        (place,) = consumer.committed([TopicPartition(topic or self.topic, partition)], timeout=10)
        consumer.close()
        return int(place.offset)

    def _end(self, topic: str) -> int:
        consumer = self.bench.consumer()
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])


@pytest.fixture
def group(bench: Bench) -> Iterator[Group]:
    group = Group(bench)
    yield group
    group.close()


def turn_until(consumer: RetryingConsumer, condition: Callable[[], object], what: str) -> None:
    def turned() -> object:
        consumer.poll(0.1)
        return condition()

    wait_until(turned, what)


def consume_until(
    consumer: RetryingConsumer,
    seen: list[bytes | None],
    condition: Callable[[], object],
    what: str,
    *,
    answer: ConsumeResult = SUCCESS,
) -> None:
    """Note the value of everything that is read, and close the consumer in the end."""

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return answer

    turn_until(consumer, condition, what)
    consumer.close()


def headers_of(message: Message) -> dict[str, bytes | None]:
    headers = message.headers() or []
    assert len(dict(headers)) == len(headers), f"a header comes twice: {headers}"
    return dict(headers)  # type: ignore[arg-type]


# --- what comes of an answer ------------------------------------------------------------------------------------------

ANSWERS = [
    # model, answer, ack_index, which of four are sent back
    (MessageModel.CLUSTERING, SUCCESS, None, []),
    (MessageModel.CLUSTERING, SUCCESS, 1, [2, 3]),
    (MessageModel.CLUSTERING, SUCCESS, 9, []),
    (MessageModel.CLUSTERING, SUCCESS, -1, [0, 1, 2, 3]),
    (MessageModel.CLUSTERING, LATER, None, [0, 1, 2, 3]),
    (MessageModel.CLUSTERING, LATER, 1, [0, 1, 2, 3]),
    (MessageModel.CLUSTERING, None, None, [0, 1, 2, 3]),
    (MessageModel.CLUSTERING, RuntimeError("no"), None, [0, 1, 2, 3]),
    (MessageModel.BROADCASTING, SUCCESS, None, []),
    (MessageModel.BROADCASTING, LATER, None, []),
]


@pytest.mark.parametrize(("model", "answer", "ack_index", "expected"), ANSWERS)
def test_a_batch_of_four(
    group: Group,
    caplog: pytest.LogCaptureFixture,
    model: MessageModel,
    answer: ConsumeResult | Exception | None,
    ack_index: int | None,
    expected: list[int],
) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"0", b"1", b"2", b"3")
    consumer = group.consumer(model=model, config={"group.instance.id": "i"})
    seen: list[bytes | None] = []

    @consumer.batch_listener(4)
    def listen(messages: Sequence[ConsumedMessage], context: ConsumeContext) -> ConsumeResult | None:
        seen.extend(message.value for message in messages)
        context.ack_index = ack_index
        if isinstance(answer, Exception):
            raise answer
        return answer

    caplog.set_level(logging.WARNING)
    turn_until(consumer, lambda: len(seen) >= 4, "all four have been seen")
    turn_until(consumer, lambda: _is_answered(group, len(expected)), "what failed is sent back")
    consumer.close()
    assert seen == [b"0", b"1", b"2", b"3"]
    assert [message.value() for message in group.sent_back(len(expected))] == [b"%d" % index for index in expected]
    if model is MessageModel.CLUSTERING:
        assert group.committed() == 4
    elif answer is LATER:
        dropped = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
        assert len(dropped) == 4
        assert f"{group.topic}-0 at 3" in dropped[3]


def _is_answered(group: Group, count: int) -> bool:
    return group._end(group.send_back) == count


def test_what_a_transaction_has_not_committed_is_not_shown(group: Group) -> None:
    group.create(group.send_back, group.retry)
    producer = group.bench.transactional()
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(group.topic, value, partition=0)
        assert producer.flush(10) == 0
        end(10)
    consumer = group.consumer()
    seen: list[bytes | None] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS

    turn_until(consumer, lambda: b"committed" in seen, "what is committed has been seen")
    assert seen == [b"committed"]


def test_a_single_message_listener_gets_one_at_a_time(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"good", b"bad", b"good")
    consumer = group.consumer()
    seen: list[ConsumedMessage] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message)
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: len(seen) == 3, "all have been seen")
    consumer.close()
    assert [message.offset for message in seen] == [0, 1, 2]
    assert (seen[0].key, seen[0].topic, seen[0].read_topic, seen[0].partition) == (b"key", group.topic, group.topic, 0)
    assert seen[0].message_id == f"{group.topic}-0-0"
    assert group.sent_back(1)[0].value() == b"bad"
    assert group.committed() == 3


def test_a_coroutine_may_be_turned_by_hand(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"good", b"bad")
    consumer = group.consumer()
    seen: list[bytes | None] = []

    @consumer.listener
    async def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: len(seen) == 2, "both have been seen")
    consumer.close()
    assert group.sent_back(1)[0].value() == b"bad"


@pytest.mark.parametrize("orderly", [False, True])
def test_a_partition_with_as_much_in_flight_as_it_may_is_read_on_once_there_is_room(
    group: Group, orderly: bool
) -> None:
    group.create(group.send_back, group.retry)
    group.produce(*(b"%d" % number for number in range(5)))
    consumer = group.consumer(max_in_flight=1, orderly=orderly, suspend="10ms")
    seen: list[tuple[bytes | None, int]] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append((message.value, message.reconsume_times))
        return LATER if message.value == b"2" and message.reconsume_times == 0 else SUCCESS

    turn_until(consumer, lambda: len(seen) == 5 + orderly, "all have been seen")
    consumer.close()
    again = [(b"2", 1)] if orderly else []
    assert seen == [(b"0", 0), (b"1", 0), (b"2", 0), *again, (b"3", 0), (b"4", 0)]
    assert group.committed() == 5


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("field", "value"), [("ack_index", "1"), ("retry_level", "3"), ("suspend_ms", 0.5), ("message", "3")]
)
def test_what_a_listener_sets_wrongly_fails_its_batch_and_no_more(
    fake_bench: Bench, caplog: pytest.LogCaptureFixture, field: str, value: object, orderly: bool
) -> None:
    group = Group(fake_bench)
    group.create(group.send_back, group.retry)
    group.produce(b"0", b"1", b"2")
    consumer = group.consumer(orderly=orderly, max_reconsume_times=0 if orderly else None)

    @consumer.batch_listener(2)
    def listen(messages: Sequence[ConsumedMessage], context: ConsumeContext) -> ConsumeResult:
        if len(messages) == 2:
            setattr(*((messages[0], "retry_level") if field == "message" else (context, field)), value)
        return SUCCESS

    turn_until(consumer, lambda: _is_answered(group, 2), "the batch is sent back")
    turn_until(consumer, lambda: group.committed() == 3, "reading goes on")
    assert f"is set to {value!r}; it takes a whole number, or None" in caplog.text


def test_what_a_listener_has_made_of_a_message_ends_nothing(
    fake_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(fake_bench)
    group.create(group.send_back, group.retry)
    group.produce(b"0", b"1")
    consumer = group.consumer()
    seen: list[int] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.offset)
        message.topic, message.value = None, {"decoded": 1}  # type: ignore[assignment]
        return LATER if message.offset == 0 else SUCCESS

    turn_until(consumer, lambda: seen == [0, 1, 0], "it is tried again in place")
    consumer.close()
    assert "the listener has changed it" in caplog.text
    assert group.committed() == 0


# --- the record that is sent back -------------------------------------------------------------------------------------


def fail_once(group: Group, level: int | None = None, **arguments: Any) -> list[ConsumedMessage]:
    """Consume with a listener that fails, until it has seen something; ends the consumer."""
    consumer = group.consumer(**arguments)
    seen: list[ConsumedMessage] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        message.retry_level = level
        seen.append(message)
        return LATER

    turn_until(consumer, lambda: seen, "a record has been seen")
    consumer.close()
    return seen


def test_what_is_sent_back_is_the_record_as_it_was_seen(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"v", UNIQ_KEY=b"order-17", TAGS=b"a", DELAY=b"7", RECONSUME_TIME=b"9", CONSUMER_GROUP=b"other")
    fail_once(group)
    (message,) = group.sent_back(1)
    assert (message.value(), message.key()) == (b"v", b"key")
    assert headers_of(message) == {
        "UNIQ_KEY": b"order-17",
        "TAGS": b"a",
        "CONSUMER_GROUP": group.id.encode(),
        "RETRY_TOPIC": group.topic.encode(),
        "ORIGIN_MESSAGE_ID": b"order-17",
        "RECONSUME_TIME": b"0",
        "MAX_RECONSUME_TIMES": b"16",
    }


@pytest.mark.parametrize(("level", "header"), [(5, b"5"), (-1, b"-1"), (0, None), (None, None)])
def test_a_level_can_be_wished_for_a_message(group: Group, level: int | None, header: bytes | None) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"v")
    fail_once(group, level, max_reconsume_times=3)
    headers = headers_of(group.sent_back(1)[0])
    assert headers.get("DELAY") == header
    assert headers["MAX_RECONSUME_TIMES"] == b"3"


@pytest.mark.parametrize("wished", [2**31 - 1, 2**63])
def test_attempts_without_an_end_are_written_as_the_sidecar_takes_them(fake_bench: Bench, wished: int) -> None:
    group = Group(fake_bench)
    group.create(group.send_back, group.retry)
    group.produce(b"v")
    fail_once(group, max_reconsume_times=wished)
    assert headers_of(group.sent_back(1)[0])["MAX_RECONSUME_TIMES"] == b"2147483646"


def test_a_level_of_the_batch_is_for_messages_without_their_own(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"0", b"1")
    consumer = group.consumer()
    calls = []

    @consumer.batch_listener(2)
    def listen(messages: Sequence[ConsumedMessage], context: ConsumeContext) -> ConsumeResult:
        calls.append(len(messages))
        context.retry_level, messages[1].retry_level = 4, 6
        return LATER

    turn_until(consumer, lambda: calls, "they have been seen")
    consumer.close()
    assert [headers_of(message)["DELAY"] for message in group.sent_back(2)] == [b"4", b"6"]


@pytest.mark.long
def test_topic_and_id_stay_the_first_through_every_attempt(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"v", TAGS=b"a")
    message_id = f"{group.topic}-0-0"
    assert [message.message_id for message in fail_once(group)] == [message_id]
    for attempt in range(1, 17):
        before = group.sent_back(attempt)[attempt - 1]
        headers = headers_of(before) | {"RECONSUME_TIME": b"%d" % attempt}
        group.produce(b"v", topic=group.retry, **headers)  # type: ignore[arg-type]
        (seen,) = fail_once(group)
        assert (seen.topic, seen.read_topic, seen.reconsume_times) == (group.topic, group.retry, attempt)
        assert seen.message_id == message_id
        headers["RECONSUME_TIME"] = b"%d" % attempt
        assert headers_of(group.sent_back(attempt + 1)[attempt]) == headers


def test_another_groups_attempts_do_not_count(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"v", RETRY_TOPIC=b"elsewhere", RECONSUME_TIME=b"16", CONSUMER_GROUP=b"other")
    (seen,) = fail_once(group)
    assert (seen.topic, seen.reconsume_times) == (group.topic, 0)
    headers = headers_of(group.sent_back(1)[0])
    assert (headers["RETRY_TOPIC"], headers["RECONSUME_TIME"]) == (group.topic.encode(), b"0")


# --- what is committed ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_cannot_be_sent_back_is_tried_again_in_place_and_not_committed(group: Group) -> None:
    group.create(group.retry)
    group.produce(b"good", b"bad", b"good")
    consumer = group.consumer()
    seen: list[tuple[float, bytes | None]] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append((group.bench.cluster.clock.monotonic_ms(), message.value))
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: len(seen) == 4, "the one that failed has been seen twice")
    assert [value for _, value in seen] == [b"good", b"bad", b"good", b"bad"]
    assert seen[3][0] - seen[1][0] >= 5_000
    wait_until(lambda: group.committed() == 1, "committed is what was handled before it")
    group.create(group.send_back)
    turn_until(consumer, lambda: _is_answered(group, 1), "it is sent back")
    consumer.close()
    assert group.committed() == 3
    assert headers_of(group.sent_back(1)[0])["RECONSUME_TIME"] == b"0"


@pytest.mark.long
@pytest.mark.parametrize("orderly", [False, True])
def test_what_is_refused_for_good_is_told_once_and_holds_up_nobody_else(
    group: Group, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    group.bench.topic(1, group.send_back, max_message_bytes="1000")
    group.create(group.retry)
    group.produce(b"bad", bytes(5_000), b"bad")
    consumer = group.consumer(orderly=orderly, max_reconsume_times=0 if orderly else None, producer_config={})
    seen: list[int] = []

    @consumer.batch_listener(3)
    def listen(messages: Sequence[ConsumedMessage], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.offset for message in messages)
        return LATER

    turn_until(consumer, lambda: _is_answered(group, 2), "the others are sent back")
    assert seen == [0, 1, 2], "without another attempt"
    turn_until(consumer, lambda: len(seen) == 5, "it is tried again in place")
    turn_until(consumer, lambda: not consumer.poll(0.5), "and refused again")
    consumer.close()
    assert seen == [0, 1, 2, 1, 1]
    assert group.committed() == 1
    refused = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    refused = [line for line in refused if "cannot be sent back" in line]
    assert len(refused) == 1
    assert f"{group.topic}-0 at 1" in refused[0]
    assert f"raise max.message.bytes of {group.send_back}, or have the listener take it" in refused[0]


@pytest.mark.long
def test_a_fatal_error_of_the_producer_ends_nothing(group: Group) -> None:
    group.bench.topic(1, group.send_back, max_message_bytes="1000")
    group.create(group.retry)
    group.produce(bytes(5_000))
    consumer = group.consumer(producer_config={"message.timeout.ms": 500, "enable.gapless.guarantee": True})
    seen: list[int] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.offset)
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: seen.count(0) == 2, "the one that is refused has been tried again")
    turn_until(consumer, lambda: not consumer.poll(0.5), "it is refused again")
    group.produce(b"bad", b"good")
    turn_until(consumer, lambda: _is_answered(group, 1), "another is sent back")
    assert headers_of(group.sent_back(1)[0])["ORIGIN_MESSAGE_ID"] == f"{group.topic}-0-1".encode()
    turn_until(consumer, lambda: seen.count(0) == 3, "it is tried again for as long as it is refused")
    consumer.close()
    assert group.committed() == 0
    assert sorted(set(seen)) == [0, 1, 2]


@pytest.mark.parametrize("orderly", [False, True])
def test_an_interrupt_while_turned_by_hand_leaves_nothing_behind(group: Group, orderly: bool) -> None:
    group.create(group.send_back, group.retry)
    for partition in (0, 1):
        group.produce(b"0", b"1", b"2", partition=partition)
    consumer = group.consumer(orderly=orderly)
    interrupted = list[tuple[int, int]]()
    handled = set[tuple[int, int]]()

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        place = message.partition, message.offset
        if message.offset == 1 and not interrupted:
            interrupted.append(place)
            raise KeyboardInterrupt
        handled.add(place)
        return SUCCESS

    with pytest.raises(KeyboardInterrupt):
        turn_until(consumer, lambda: False, "it is interrupted")
    turn_until(consumer, lambda: len(handled) == (6 if orderly else 5), "the others are handled")
    consumer.close()
    group.sent_back(0 if orderly else 1)
    assert [group.committed(partition=partition) for partition in (0, 1)] == [3, 3]


def test_a_group_that_begins_at_the_end_still_reads_its_first_retry(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"before")
    group.produce(b"retry", topic=group.retry, RETRY_TOPIC=group.topic.encode(), RECONSUME_TIME=b"1")
    consumer = group.consumer(config={"auto.offset.reset": "latest"})
    seen: list[bytes | None] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS

    turn_until(consumer, lambda: seen, "the retry has been seen")
    consumer.close()
    assert seen == [b"retry"]
    assert group.committed(group.retry) == 1


def test_a_group_that_begins_at_the_end_goes_on_there_after_a_start_without_records(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"before", b"before")

    def consumer() -> tuple[RetryingConsumer, list[bytes | None]]:
        consumer = group.consumer(config={"auto.offset.reset": "latest"})
        seen: list[bytes | None] = []

        @consumer.listener
        def listen(message: ConsumedMessage) -> ConsumeResult:
            seen.append(message.value)
            return SUCCESS

        return consumer, seen

    first, seen_by_first = consumer()
    turn_until(first, lambda: group.committed() == 2 and group.committed(partition=1) == 0, "the ends are committed")
    first.close()
    group.produce(b"meanwhile")
    group.produce(b"meanwhile", partition=1)
    second, seen = consumer()
    turn_until(second, lambda: len(seen) == 2, "what has come meanwhile is seen")
    assert (seen_by_first, seen) == ([], [b"meanwhile"] * 2)
    assert group.committed(group.retry) < 0, "its first retries are read, whenever they come"


def test_a_retry_topic_that_comes_into_being_is_read(group: Group) -> None:
    group.create(group.send_back)
    config = {"topic.metadata.refresh.interval.ms": 200, "auto.offset.reset": "latest"}
    consumer = group.consumer(config=config)
    seen: list[bytes | None] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS

    turn_until(consumer, lambda: group.produce(b"first") or seen, "a record has been seen")
    group.create(group.retry)
    group.produce(b"retry", topic=group.retry)
    turn_until(consumer, lambda: b"retry" in seen, "the retry has been seen")


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_partitions_change_hands_without_a_gap_and_without_a_repeat(group: Group, strategy: str) -> None:
    group.create(group.send_back, group.retry)
    for partition in (0, 1):
        group.produce(*(b"%d-%d" % (partition, number) for number in range(50)), partition=partition)
    seen: list[bytes | None] = []

    def member() -> RetryingConsumer:
        consumer = group.consumer(config={"partition.assignment.strategy": strategy})

        @consumer.listener
        def listen(message: ConsumedMessage) -> ConsumeResult:
            seen.append(message.value)
            return SUCCESS

        return consumer

    first, second = member(), member()
    turn_until(first, lambda: len(seen) == 100, "the first has read all")
    known = len(seen)
    for partition in (0, 1):
        group.produce(b"more", partition=partition)

    def both_turned() -> bool:
        first.poll(0.05)
        second.poll(0.05)
        return len(seen) >= known + 2

    wait_until(both_turned, "both partitions go on")
    second.close()
    group.produce(b"last", partition=0)
    group.produce(b"last", partition=1)
    turn_until(first, lambda: len(seen) >= known + 4, "the first has both again")
    first.close()
    assert len(seen) == 104
    assert [group.committed(partition=partition) for partition in (0, 1)] == [52, 52]


# --- in order ---------------------------------------------------------------------------------------------------------


def test_orderly_what_fails_is_next_again_in_its_partition(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"a0", b"a1", b"a2", partition=0)
    group.produce(b"b0", b"b1", partition=1)
    consumer = group.consumer(orderly=True, suspend="50ms")
    seen: list[tuple[int, bytes | None, int]] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append((message.partition, message.value, message.reconsume_times))
        return LATER if message.value == b"a1" and message.reconsume_times < 2 else SUCCESS

    turn_until(consumer, lambda: len(seen) == 7, "all have been seen")
    consumer.close()
    assert [(value, times) for partition, value, times in seen if partition == 0] == [
        (b"a0", 0),
        (b"a1", 0),
        (b"a1", 1),
        (b"a1", 2),
        (b"a2", 0),
    ]
    assert [value for partition, value, _ in seen if partition == 1] == [b"b0", b"b1"]
    group.sent_back(0)
    assert [group.committed(partition=partition) for partition in (0, 1)] == [3, 2]


@pytest.mark.parametrize(
    ("suspend", "context_ms", "rest_ms"),
    [("1s", None, 1_000), ("1s", 20, 20), ("1s", 1, 10), ("1s", 0, 10), ("1ms", None, 10), ("20ms", 700, 700)],
)
def test_orderly_a_partition_rests_after_a_failure(
    group: Group, suspend: str, context_ms: int | None, rest_ms: int
) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"v")
    consumer = group.consumer(orderly=True, suspend=suspend)
    seen_ms: list[float] = []

    @consumer.batch_listener(1)
    def listen(messages: Sequence[ConsumedMessage], context: ConsumeContext) -> ConsumeResult:
        seen_ms.append(group.bench.cluster.clock.monotonic_ms())
        context.suspend_ms = context_ms
        return LATER if len(seen_ms) == 1 else SUCCESS

    turn_until(consumer, lambda: len(seen_ms) == 2, "it has been seen twice")
    rested_ms = seen_ms[1] - seen_ms[0]
    assert rest_ms <= rested_ms < rest_ms + 500


def test_orderly_after_its_last_attempt_a_record_is_a_dead_letter_and_makes_way(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"bad", b"good")
    consumer = group.consumer(orderly=True, suspend="10ms", max_reconsume_times=2)
    seen: list[tuple[bytes | None, int]] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append((message.value, message.reconsume_times))
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: len(seen) == 4, "all attempts have been made")
    consumer.close()
    assert seen == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    headers = headers_of(group.sent_back(1)[0])
    assert (headers["DELAY"], headers["RECONSUME_TIME"], headers["MAX_RECONSUME_TIMES"]) == (b"-1", b"2", b"2")
    assert group.committed() == 2


def test_orderly_of_a_batch_what_follows_the_ack_index_is_next_again(group: Group) -> None:
    group.create(group.send_back, group.retry)
    group.produce(b"0", b"1", b"2", b"3")
    consumer = group.consumer(orderly=True, suspend="10ms", max_reconsume_times=1)
    seen: list[list[bytes | None]] = []

    @consumer.batch_listener(4)
    def listen(messages: Sequence[ConsumedMessage], context: ConsumeContext) -> ConsumeResult:
        seen.append([message.value for message in messages])
        context.ack_index = 0
        return SUCCESS

    turn_until(consumer, lambda: _is_answered(group, 2), "what failed twice is sent back")
    consumer.close()
    assert seen == [[b"0", b"1", b"2", b"3"], [b"1", b"2", b"3"]]
    assert [message.value() for message in group.sent_back(2)] == [b"2", b"3"]
    assert group.committed() == 4


@pytest.mark.long
def test_orderly_a_dead_letter_that_cannot_be_sent_holds_its_partition(group: Group) -> None:
    group.create(group.retry)
    group.produce(b"bad", b"good")
    consumer = group.consumer(orderly=True, suspend="10ms", max_reconsume_times=0)
    seen: list[bytes | None] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: len(seen) == 2, "it has been tried again")
    group.create(group.send_back)
    turn_until(consumer, lambda: b"good" in seen, "the next has been seen")
    consumer.close()
    assert set(seen[:-1]) == {b"bad"}
    assert group.sent_back(1)[0].value() == b"bad"


def test_orderly_what_has_to_come_again_beside_a_dead_letter_that_cannot_be_sent_keeps_its_place(
    fake_bench: Bench,
) -> None:
    group = Group(fake_bench)
    group.create(group.retry)
    group.produce(b"0", b"1")
    consumer = group.consumer(orderly=True, suspend="10ms")
    seen: list[list[bytes | None]] = []

    @consumer.batch_listener(2)
    def listen(messages: Sequence[ConsumedMessage], _context: ConsumeContext) -> ConsumeResult:
        seen.append([message.value for message in messages])
        messages[0].retry_level = -1
        return LATER if len(seen) < 3 else SUCCESS

    turn_until(consumer, lambda: len(seen) == 3, "all attempts have been made")
    consumer.close()
    assert seen == [[b"0", b"1"]] * 3
    assert group.committed() == 2


# --- everybody --------------------------------------------------------------------------------------------------------


def test_broadcast_records_go_to_every_consumer(group: Group) -> None:
    group.produce(b"0", b"1")
    seen: dict[str, list[bytes | None]] = {"a": [], "b": []}

    def member(name: str) -> RetryingConsumer:
        consumer = group.consumer(model=MessageModel.BROADCASTING)

        @consumer.listener
        def listen(message: ConsumedMessage) -> ConsumeResult:
            seen[name].append(message.value)
            return SUCCESS

        return consumer

    for name in seen:
        turn_until(member(name), lambda name=name: len(seen[name]) == 2, f"{name} has seen both")
    assert seen == {"a": [b"0", b"1"], "b": [b"0", b"1"]}


def test_orderly_a_broadcast_record_is_dropped_after_its_last_attempt_and_makes_way(group: Group) -> None:
    group.create(group.send_back)
    group.produce(b"bad", b"good")
    consumer = group.consumer(model=MessageModel.BROADCASTING, orderly=True, suspend="10ms", max_reconsume_times=1)
    seen: list[bytes | None] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS if message.value == b"good" else LATER

    turn_until(consumer, lambda: b"good" in seen, "the next has been seen")
    consumer.close()
    assert seen == [b"bad", b"bad", b"good"]
    group.sent_back(0)


def test_a_broadcast_consumer_with_a_name_goes_on_where_it_was(group: Group) -> None:
    group.produce(b"0", b"1")
    seen: list[bytes | None] = []

    def consume(count: int) -> None:
        consumer = group.consumer(model=MessageModel.BROADCASTING, config={"group.instance.id": "screen-1"})
        consume_until(consumer, seen, lambda: len(seen) >= count, f"{count} have been seen")

    consume(2)
    group.produce(b"2")
    consume(3)
    assert seen == [b"0", b"1", b"2"]


def test_a_broadcast_record_that_has_failed_is_done_with(group: Group) -> None:
    group.produce(b"0", b"1")
    seen: list[bytes | None] = []

    def consume(value: bytes) -> None:
        consumer = group.consumer(
            model=MessageModel.BROADCASTING, config={"group.instance.id": "screen-1"}, max_in_flight=1
        )
        consume_until(consumer, seen, lambda: value in seen, f"{value!r} has been seen", answer=LATER)

    consume(b"1")
    group.produce(b"2")
    consume(b"2")
    assert seen == [b"0", b"1", b"2"]


def test_a_broadcast_consumer_without_a_name_commits_nothing(fake_bench: Bench) -> None:
    """Each start of it would leave a group behind."""
    group = Group(fake_bench)
    group.produce(b"0")
    consumer = group.consumer(model=MessageModel.BROADCASTING)
    consumer.listener(lambda _message: SUCCESS)
    turn_until(consumer, lambda: consumer._by_hand, "it has begun")
    loop: Any = consumer._by_hand
    turn_until(consumer, lambda: not loop.is_busy, "it has been seen")
    own_group = loop._consumer.consumer_group_metadata().group_id
    consumer.close()
    assert own_group != group.id
    (place,) = fake_bench.consumer(own_group).committed([TopicPartition(group.topic, 0)], timeout=10)
    assert place.offset < 0


# --- what a group that was away finds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", list(MessageModel))
def test_a_static_member_reads_what_is_new_when_it_comes_back(group: Group, model: MessageModel) -> None:
    """Kafka gives it what it had, and nobody looks for more: the retry topic, above all, is made while it is away."""
    group.create(group.send_back)
    new = group.retry if model is MessageModel.CLUSTERING else group.bench.topic(1)
    topics, seen = [group.topic], list[bytes | None]()

    def consume(value: bytes) -> None:
        consumer = group.consumer(model=model, config={"group.instance.id": "till-1"}, topics=topics)
        consume_until(consumer, seen, lambda: value in seen, f"{value!r} has been seen")

    group.produce(b"before")
    consume(b"before")
    if model is MessageModel.CLUSTERING:
        group.create(new)
    else:
        topics.append(new)
    group.produce(b"new", topic=new)
    consume(b"new")
    assert seen == [b"before", b"new"]


@pytest.mark.parametrize("reset", ["latest", "LARGEST"])
def test_where_retention_has_overtaken_a_group_it_reads_what_is_left(group: Group, reset: str) -> None:
    """The option is about the first start."""
    group.create(group.send_back, group.retry)
    group.produce(b"long before")
    seen: list[bytes | None] = []

    def consume(value: bytes) -> None:
        consumer = group.consumer(config={"auto.offset.reset": reset})

        def more() -> bool:
            if not seen and group.committed() == 1:
                group.produce(value)
            return value in seen

        consume_until(consumer, seen, more, f"{value!r} has been seen")

    consume(b"first")
    group.produce(*[b"%d" % number for number in range(10)])
    place = TopicPartition(group.topic, 0, 7)
    group.bench.admin.delete_records([place])[place].result(10)
    consume(b"9")
    assert seen[0] == b"first"
    assert [value for value in seen if value != b"first"] == [b"5", b"6", b"7", b"8", b"9"]


# --- what is wrong is told --------------------------------------------------------------------------------------------


def test_nowhere_to_begin_is_raised_where_the_user_wants_that(group: Group) -> None:
    group.create(group.send_back, group.retry)
    consumer = group.consumer(config={"auto.offset.reset": "error"})
    consumer.listener(lambda _message: SUCCESS)
    with pytest.raises(KafkaException, match="no previously committed offset"):
        turn_until(consumer, lambda: False, "it is raised")


def test_a_retry_is_read_also_where_the_user_wants_to_be_told_of_nowhere_to_begin(group: Group) -> None:
    """The group's first retry comes before it has committed anything of that topic."""
    group.create(group.send_back, group.retry)
    operator = group.bench.consumer(group.id)
    operator.commit(offsets=[TopicPartition(group.topic, number, 0) for number in (0, 1)], asynchronous=False)
    operator.close()
    group.produce(b"again", topic=group.retry)
    consumer = group.consumer(config={"auto.offset.reset": "error"})
    seen: list[bytes | None] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return SUCCESS

    turn_until(consumer, lambda: seen == [b"again"], "the retry has been seen")


def test_a_consumer_whose_name_another_has_taken_is_told(group: Group) -> None:
    """Its client reads nothing more, and says so once."""
    group.create(group.send_back, group.retry)
    first, second = (group.consumer(config={"group.instance.id": "till-1"}) for _ in range(2))
    seen: list[RetryingConsumer] = []

    def is_reading(consumer: RetryingConsumer) -> None:
        @consumer.listener
        def listen(_message: ConsumedMessage) -> ConsumeResult:
            seen.append(consumer)
            return SUCCESS

        group.produce(b"v")
        turn_until(consumer, lambda: consumer in seen, "it is a member")

    is_reading(first)
    is_reading(second)
    with pytest.raises(KafkaException, match="fenced by other consumer"):
        turn_until(first, lambda: False, "it is raised")
