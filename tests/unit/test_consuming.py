"""The parts of `RetryingConsumer`: offsets, settings, listeners, messages."""

import asyncio
import random
import re
import threading
from dataclasses import replace
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from connectors import ConsumedMessage, ConsumeResult, DeadLetters, MessageModel, RetryingConsumer
from connectors.consuming.concurrently import ConsumeConcurrently
from connectors.consuming.listener import Listener
from connectors.consuming.message import ConsumeContext, as_consumed
from connectors.consuming.orderly import BATCHES_IN_A_ROW
from connectors.consuming.process_queue import ProcessQueue
from connectors.consuming.send_back import SendBack, send_back_headers
from connectors.consuming.settings import ENDLESS, duration_ms, reconsume_limit, within_suspend_limits
from connectors.consuming.workers import Batch, InlineWorkers
from connectors.contract import TopicNames
from connectors.dead_letters.letter import Reason, reason_of
from connectors.event_log import begin_anew
from connectors.testing import TIME_OUT, Fault, InMemoryKafka, Kind

SUCCESS, LATER = ConsumeResult.CONSUME_SUCCESS, ConsumeResult.RECONSUME_LATER


def consumer(**arguments: Any) -> RetryingConsumer:
    return RetryingConsumer({"group.id": "g"}, **{"topics": ["t"], "clients": InMemoryKafka(), **arguments})


def consumer_of_ten(kafka: InMemoryKafka, **arguments: Any) -> RetryingConsumer:
    """A consumer of ten records, and no send-back topic: what fails stays in flight."""
    kafka.create_topic("t")
    kafka.create_topic("RETRY-g")
    for number in range(10):
        kafka.producer({}).produce("t", b"%d" % number)
    options = {"group.id": "g", "auto.offset.reset": "earliest", "partition.assignment.strategy": "range"}
    return RetryingConsumer(options, ["t"], clients=kafka, **arguments)


# --- what is sent back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reconsume_times", [0, 16, 40, ENDLESS])
def test_a_record_that_is_given_up_after_any_number_of_attempts_in_place_is_told_so(reconsume_times: int) -> None:
    """Its letter would else look as if it had used up sixteen retries."""
    message = as_consumed(Message(topic="t", partition=0, offset=0, value=b"v", timestamp=(1, 0)), "RETRY-g")
    message.reconsume_times = reconsume_times
    settings = consumer(orderly=True)._settings
    told = dict(send_back_headers(message, settings, -1))
    letter = {**told, "RECONSUME_TIME": b"%d" % min(reconsume_times + 1, ENDLESS - 1)}  # as the sidecar counts it
    assert reason_of(letter) == Reason.GIVEN_UP
    assert "MAX_RECONSUME_TIMES" not in dict(send_back_headers(message, settings, None))


def test_a_listener_may_not_leave_open_how_often_a_message_has_failed() -> None:
    message = as_consumed(Message(topic="t", partition=0, offset=0, value=b"v", timestamp=(1, 0)), "RETRY-g")
    with pytest.raises(TypeError, match=r"reconsume_times is set to None; it takes a whole number$"):
        message.reconsume_times = None  # type: ignore[assignment]
    message.retry_level = None


# --- which offset may be committed ------------------------------------------------------------------------------------


def test_committable_is_the_lowest_offset_that_is_not_done() -> None:
    queue = ProcessQueue(("t", 0))
    assert queue.committable is None
    for offset in (4, 5, 6, 7, 9):
        queue.read(offset)
    queue.done([5, 6, 9])
    assert (queue.committable, queue.in_flight) == (4, 5)
    queue.done([4])
    assert (queue.committable, queue.in_flight) == (7, 2)
    queue.done([7])
    assert (queue.committable, queue.in_flight) == (10, 0)


def test_a_partition_is_read_on_while_its_records_are_small_enough_together() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("t")
    kafka.create_topic("RETRY-g")
    for number in range(20):
        kafka.producer({}).produce("t", bytes(90), b"0123456789", headers=[("n", b"%d" % number)])
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "earliest"}, ["t"], clients=kafka)
    one._settings = replace(one._settings, max_in_flight_bytes=500)
    is_down, seen = True, list[int]()

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.offset)
        return ConsumeResult.RECONSUME_LATER if is_down else ConsumeResult.CONSUME_SUCCESS

    while sum(one.poll(1) for _ in range(4)):  # there is no send-back topic: what fails stays in flight
        continue
    assert set(seen) == set(range(5))
    is_down = False
    while kafka.committed("g").get(("t", 0), (0, None))[0] < 20:
        one.poll(1)
    one.close()


def test_orderly_a_message_that_is_given_up_goes_to_the_dead_letters_and_the_next_has_its_turn() -> None:
    kafka = InMemoryKafka()
    names = TopicNames()
    for topic in ("t", "RETRY-g", names.send_back):
        kafka.create_topic(topic)
    for number in range(2):
        kafka.producer({}).produce("t", b"%d" % number)
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "earliest"}, ["t"], clients=kafka, orderly=True)
    seen: list[bytes | None] = []

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        if message.value == b"0":
            message.retry_level = -1
            return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.CONSUME_SUCCESS

    while kafka.committed("g").get(("t", 0), (0, None))[0] < 2:
        one.poll(1)
    one.close()
    assert seen == [b"0", b"1"]
    reader = kafka.consumer({"group.id": "r", "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition(names.send_back, 0, 0)])
    (sent_back,) = reader.consume(10, 1.0)
    headers = dict(sent_back.headers() or [])
    assert headers["DELAY"] == b"-1"
    assert "MAX_RECONSUME_TIMES" not in headers, "there is no limit to tell"


def test_what_was_read_and_is_not_done_is_read_again_where_the_log_was_cut_behind_it() -> None:
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka)
    is_down, handled = True, set[bytes | None]()

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        if is_down:
            return ConsumeResult.RECONSUME_LATER
        handled.add(message.value)
        return ConsumeResult.CONSUME_SUCCESS

    while sum(one.poll(1) for _ in range(4)):
        continue
    loop: Any = one._by_hand
    assert loop._queue_of(Message(topic="t", partition=0, offset=7)) is None
    is_down = False
    while kafka.committed("g").get(("t", 0), (0, None))[0] < 10:
        one.poll(1)
    assert handled == {b"%d" % number for number in range(10)}
    one.close()


@pytest.mark.parametrize("seed", range(50))
def test_committable_in_any_order_of_doing(seed: int) -> None:
    chance = random.Random(seed)
    offsets = sorted(chance.sample(range(200), 60))
    queue = ProcessQueue(("t", 0))
    for offset in offsets:
        queue.read(offset)
    left = set(offsets)
    for offset in chance.sample(offsets, len(offsets)):
        assert queue.committable == min(left)
        queue.done([offset])
        left.discard(offset)
    assert queue.committable == offsets[-1] + 1


def test_an_offset_is_committed_once_unless_that_fails() -> None:
    queue = ProcessQueue(("t", 0))
    queue.read(0)
    assert [queue.take_uncommitted(), queue.take_uncommitted()] == [0, None]
    queue.commit_failed()
    assert queue.take_uncommitted() == 0
    queue.done([0])
    assert [queue.take_uncommitted(), queue.take_uncommitted()] == [1, None]


def test_an_offset_behind_is_noticed() -> None:
    queue = ProcessQueue(("t", 0))
    assert not queue.is_behind(0)
    queue.read(5)
    assert [queue.is_behind(offset) for offset in (4, 5, 6)] == [True, True, False]


def test_an_offset_that_kafka_refuses_among_others_is_committed_again(caplog: pytest.LogCaptureFixture) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("t", 2)
    for partition in (0, 1):
        kafka.producer({}).produce("t", b"v", partition=partition)
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "earliest"}, ["t"], clients=kafka)
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    while one.poll(1) or kafka.committed("g").keys() != {("t", 0), ("t", 1)}:
        continue
    loop: Any = one._by_hand
    refused = SimpleNamespace(topic="t", partition=1, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    kafka.groups.group("g").offsets.clear()
    loop._on_commit(None, [SimpleNamespace(topic="t", partition=0, error=None), refused])
    one.poll()
    assert kafka.committed("g") == {("t", 1): (1, None)}
    assert "the offset of t-1 was not committed: " in caplog.text
    one.close()


@pytest.mark.parametrize(("orderly", "wait_ms"), [(False, 5_000), (True, 1_000)])
def test_the_next_attempt_is_not_put_off_while_the_user_waits_for_records(orderly: bool, wait_ms: int) -> None:
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka, orderly=orderly, suspend="1s")
    failed_ms: list[float] = []

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        if message.value != b"9":
            return ConsumeResult.CONSUME_SUCCESS
        failed_ms.append(kafka.clock.monotonic_ms())
        return ConsumeResult.RECONSUME_LATER

    for _ in range(3):
        one.poll()
    one.poll(60)
    one.close()
    assert [after - failed_ms[0] for after in failed_ms] == [0, wait_ms]


def test_a_partition_that_was_paused_when_it_went_is_read_when_it_comes_back() -> None:
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka, max_in_flight=2)
    is_down, handled = True, set[bytes | None]()

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        if is_down:
            return ConsumeResult.RECONSUME_LATER
        handled.add(message.value)
        return ConsumeResult.CONSUME_SUCCESS

    while sum(one.poll(1) for _ in range(4)):
        continue
    kafka.rebalance("g")
    is_down = False
    for _ in range(10):
        one.poll(1)
    one.close()
    assert handled == {b"%d" % number for number in range(10)}


def test_orderly_what_is_read_again_where_the_log_was_cut_is_not_handed_over_twice() -> None:
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka, orderly=True, suspend="1s")
    seen: list[bytes | None] = []

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return ConsumeResult.RECONSUME_LATER if len(seen) == 1 else ConsumeResult.CONSUME_SUCCESS

    for _ in range(3):
        one.poll()
    loop: Any = one._by_hand
    assert loop._queue_of(Message(topic="t", partition=0, offset=7)) is None
    for _ in range(5):
        one.poll(1)
    one.close()
    assert seen == [b"0", *(b"%d" % number for number in range(10))]


def test_orderly_a_partition_of_more_records_than_a_worker_takes_in_a_row_is_gone_through() -> None:
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka, orderly=True)
    for number in range(10, 2 * BATCHES_IN_A_ROW + 10):
        kafka.producer({}).produce("t", b"%d" % number)
    seen: list[bytes | None] = []

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return ConsumeResult.CONSUME_SUCCESS

    for _ in range(3):
        one.poll(1)
    one.close()
    assert seen == [b"%d" % number for number in range(2 * BATCHES_IN_A_ROW + 10)]


# --- where a group begins ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["committed:before", "committed:after", "watermarks:before"])
def test_kafka_is_asked_where_to_begin_until_it_answers(label: str, caplog: pytest.LogCaptureFixture) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("t")
    for _ in range(7):
        kafka.faults.at(label, TIME_OUT)
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "latest"}, ["t"], clients=kafka)
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    kafka.producer({}).produce("t", b"before")
    one.poll(1)
    assert kafka.committed("g") == {("t", 0): (1, None)}
    assert caplog.text.count("Kafka does not tell where to begin") == 7
    one.close()


def test_the_end_at_which_a_group_begins_is_committed_at_once() -> None:
    """Were it killed before, the next start would begin behind what has come meanwhile."""
    kafka = InMemoryKafka()
    kafka.create_topic("t")
    kafka.producer({}).produce("t", b"before")
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "latest"}, ["t"], clients=kafka)
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    loop = one._loop(InlineWorkers(one._checked()))
    loop.turn(0)
    assert kafka.committed("g") == {("t", 0): (1, None)}
    loop.close(0)


def test_a_consumer_that_is_to_stop_does_not_wait_to_be_told_where_to_begin() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("t")
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "latest"}, ["t"], clients=kafka)
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    kafka.faults.policy = lambda label, _process: TIME_OUT if label == "committed:before" else None
    one.stop()
    one.poll(1)
    one.close()
    assert kafka.committed("g") == {}


# --- settings ---------------------------------------------------------------------------------------------------------


def test_limits_are_rocketmqs() -> None:
    assert reconsume_limit(None, is_orderly=False) == 16
    assert reconsume_limit(None, is_orderly=True) == ENDLESS
    assert reconsume_limit(0, is_orderly=True) == 0
    assert reconsume_limit(2**31 - 1, is_orderly=False) == reconsume_limit(2**63, is_orderly=True) == 2**31 - 2
    assert [within_suspend_limits(ms) for ms in (0, 10, 1_000, 30_000, 30_001)] == [10, 10, 1_000, 30_000, 30_000]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topics": []}, "give a list of at least one topic"),
        ({"topics": "t"}, "give a list of at least one topic"),
        ({"topics": ["a b"]}, "not a valid topic name"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"max_reconsume_times": -1}, "max_reconsume_times is -1"),
        ({"consume_timeout": 5}, "consume_timeout is 5; give a timedelta"),
        ({"consume_timeout": "0s"}, "consume_timeout is 0"),
        ({"consume_timeout": "15"}, "consume_timeout: '15' is not a duration"),
        ({"model": "TWICE"}, "'TWICE' is not a valid MessageModel"),
    ],
)
def test_a_wrong_argument_is_told(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        consumer(**arguments)


def test_a_group_is_needed() -> None:
    with pytest.raises(ValueError, match=r"config has no group\.id"):
        RetryingConsumer({}, ["t"], clients=InMemoryKafka())


@pytest.mark.parametrize("group", ["g" * 244, "/" * 80, "g/" * 60])
def test_a_group_whose_topics_kafka_would_refuse_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match=r"group\.id .* is too long: its topic 'RETRY-.* take a shorter one"):
        RetryingConsumer({"group.id": group}, ["t"], clients=InMemoryKafka())
    RetryingConsumer({"group.id": group}, ["t"], model=MessageModel.BROADCASTING, clients=InMemoryKafka())


@pytest.mark.parametrize("group", ["g" * 243, "/" * 79])
def test_a_group_may_be_as_long_as_its_topics_allow(group: str) -> None:
    assert len(RetryingConsumer({"group.id": group}, ["t"], clients=InMemoryKafka())._settings.retry_topic) <= 249


def test_durations_are_timedeltas_or_texts() -> None:
    assert duration_ms("x", "1m30s") == 90_000


@pytest.mark.parametrize(
    ("model", "topics", "expected"),
    [
        (MessageModel.CLUSTERING, ["a", "b"], ["a", "b", "RETRY-g"]),
        (MessageModel.CLUSTERING, ["a", "%RETRY%g"], ["a", "RETRY-g"]),
        (MessageModel.BROADCASTING, ["a", "%DLQ%h"], ["a", "DLQ-h"]),
    ],
)
def test_the_retry_topic_is_subscribed_to_once(model: MessageModel, topics: list[str], expected: list[str]) -> None:
    assert consumer(topics=topics, model=model)._settings.subscription == expected


# --- listeners --------------------------------------------------------------------------------------------------------


def test_a_consumer_has_one_listener_and_runs_once() -> None:
    one = consumer()
    with pytest.raises(ValueError, match="the consumer has no listener"):
        one.poll()
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    with pytest.raises(ValueError, match="the consumer has its listener"):
        one.batch_listener(2)(lambda _messages, _context: None)
    one.poll()
    one.close()
    with pytest.raises(RuntimeError, match="runs once"):
        one.poll()
    with pytest.raises(ValueError, match="the smallest batch is 1"):
        consumer().batch_listener(0)(lambda _messages, _context: None)


def test_a_consumer_is_started_once_and_not_after_its_end() -> None:
    one = consumer()
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    one.start()
    thread = one._thread
    with pytest.raises(RuntimeError, match="runs once"):
        one.start()
    assert one._thread is thread
    one.close()
    with pytest.raises(RuntimeError, match="runs once"):
        one.start()
    never_begun = consumer()
    never_begun.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    never_begun.close()
    with pytest.raises(RuntimeError, match="runs once"):
        never_begun.start()


def test_a_consumer_that_does_not_close_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = InMemoryKafka()
    for topic in ("t", "SCHEDULE_TOPIC_XXXX-sendback"):
        kafka.create_topic(topic)
    one = consumer(clients=kafka)
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    one.poll()
    assert one._by_hand is not None
    inner, may_end, has_ended = one._by_hand._consumer, threading.Event(), threading.Event()

    def close() -> None:
        may_end.wait(60)
        inner.close()
        has_ended.set()

    monkeypatch.setattr("connectors.consuming.loop._LEFT_WITHIN_S", 0.2)
    monkeypatch.setattr(inner, "commit", lambda **_: pytest.fail("its partitions are somebody else's by then"))
    one._by_hand._consumer = SimpleNamespace(
        **{name: getattr(inner, name) for name in ("pause", "resume", "committed", "poll", "commit")}, close=close
    )
    one.close()
    assert "does not close, and ends with the process" in caplog.text
    may_end.set()
    assert has_ended.wait(30)


def turned(kafka: InMemoryKafka, **config: Any) -> tuple[RetryingConsumer, Any]:
    """A consumer that has handled one record, turned by hand, and its client. Its rebalances are eager."""
    for topic in ("t", "SCHEDULE_TOPIC_XXXX-sendback", "RETRY-g"):
        kafka.create_topic(topic)
    kafka.producer({}).produce("t", b"v")
    options = {"group.id": "g", "auto.offset.reset": "earliest", "partition.assignment.strategy": "range", **config}
    one = RetryingConsumer(options, ["t"], clients=kafka)
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    one.poll()
    assert one._by_hand is not None
    return one, one._by_hand._consumer


def test_no_commit_is_waited_for_while_partitions_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no time-out, and a consumer that waits in its rebalance does not hear that it is to stop."""
    kafka = InMemoryKafka()
    one, client = turned(kafka)
    commit, kinds = client.commit, list[bool]()

    def noted(*, asynchronous: bool, **options: Any) -> Any:
        kinds.append(asynchronous)
        return commit(asynchronous=asynchronous, **options)

    monkeypatch.setattr(client, "commit", noted)
    kafka.rebalance("g")
    one.poll(1)
    assert kafka.committed("g")["t", 0] == (1, None)
    one.close()
    assert set(kinds) == {True}


@pytest.mark.parametrize("losses", [1, 2])
def test_broadcast_a_partition_of_which_nothing_was_read_goes_on_after_lost_sessions(losses: int) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("t", 2)
    producer, seen = kafka.producer({}), list[bytes | None]()
    producer.produce("t", b"before", partition=1)
    one = RetryingConsumer({"group.id": "g"}, ["t"], model=MessageModel.BROADCASTING, clients=kafka)

    @one.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return ConsumeResult.CONSUME_SUCCESS

    def turn() -> None:
        for _ in range(3):
            one.poll(0.1)

    turn()
    producer.produce("t", b"first", partition=0)
    turn()
    for _ in range(losses - 1):
        kafka.faults.at("consume:before", Fault(Kind.EXPEL))
        turn()
    for partition in range(2):
        producer.produce("t", b"meanwhile", partition=partition)
    producer.flush()
    kafka.faults.at("consume:before", Fault(Kind.EXPEL))
    turn()
    one.close()
    assert seen == [b"first", b"meanwhile", b"meanwhile"]


def test_what_closing_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    one = consumer()
    one.listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    one.poll()
    assert one._by_hand is not None

    def close() -> None:
        raise RuntimeError("of no more use")

    monkeypatch.setattr(one._by_hand._consumer, "close", close)
    with pytest.raises(RuntimeError, match="of no more use"):
        one.close()


@pytest.mark.parametrize("function", [5, lambda: None, lambda _message, _context: None, lambda _message, *, tags: tags])
def test_a_listener_takes_a_message(function: Any) -> None:
    with pytest.raises(TypeError, match=r"the listener .*\(message\)"):
        consumer().listener(function)


@pytest.mark.parametrize("function", [None, lambda _messages: None, lambda _messages, _context, _more: None])
def test_a_batch_listener_takes_messages_and_a_context(function: Any) -> None:
    with pytest.raises(TypeError, match=r"the listener .*\(messages, context\)"):
        consumer().batch_listener(8)(function)


@pytest.mark.parametrize(
    "function", [print, partial(max, 1), [].append, Mock(), lambda _message, _more=None: None, lambda *_messages: None]
)
def test_a_listener_may_be_anything_that_can_be_called_with_a_message(function: Any) -> None:
    consumer().listener(function)


def test_a_listener_may_be_given_more_by_what_decorates_it() -> None:
    def charge(message: ConsumedMessage, database: str) -> tuple[ConsumedMessage, str]:
        return message, database

    @wraps(charge)
    def with_database(message: ConsumedMessage) -> tuple[ConsumedMessage, str]:
        return charge(message, "billing")

    consumer().listener(with_database)


def test_a_coroutine_listener_is_not_turned_by_hand_in_an_event_loop() -> None:
    kafka = InMemoryKafka()
    for topic in ("t", "SCHEDULE_TOPIC_XXXX-sendback"):
        kafka.create_topic(topic)
    kafka.producer({}).produce("t", b"v")
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "earliest"}, ["t"], clients=kafka)
    seen: list[bytes | None] = []

    @one.listener
    async def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message.value)
        return ConsumeResult.CONSUME_SUCCESS

    async def within() -> None:
        with pytest.raises(RuntimeError, match="run_async"):
            one.poll()
        assert await asyncio.to_thread(one.poll) == 1

    asyncio.run(within())
    one.close()
    log = kafka.log("SCHEDULE_TOPIC_XXXX-sendback", 0)
    assert (seen, log is not None and log.end) == ([b"v"], 0)


@pytest.mark.parametrize(
    ("is_dropped", "words"), [(True, "given its partition up"), (False, "after its time.*raise consume_timeout")]
)
def test_a_late_answer_is_told_with_its_reason(is_dropped: bool, words: str, caplog: pytest.LogCaptureFixture) -> None:
    begin_anew()
    settings, kafka = consumer()._settings, InMemoryKafka()
    listener = Listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
    send_back = SendBack(kafka, {}, settings)
    service = ConsumeConcurrently(settings, listener, InlineWorkers(listener), send_back, kafka.clock)
    queue, batch = ProcessQueue(("t", 0)), Batch([])
    queue.is_dropped, batch.is_abandoned = is_dropped, True
    service.end(queue, batch, ConsumeResult.CONSUME_SUCCESS, None)
    assert re.search(words, caplog.text)
    assert ("consume_timeout" in caplog.text) is not is_dropped


class Charge:
    async def __call__(self, message: ConsumedMessage) -> None: ...


def test_coroutines_are_recognised_in_functions_and_objects() -> None:
    async def function(message: ConsumedMessage) -> None: ...

    assert Listener(function).is_coroutine
    assert Listener(Charge()).is_coroutine
    assert not Listener(lambda message: None).is_coroutine


def test_what_a_plain_function_leaves_to_be_awaited_is_awaited() -> None:
    kafka = InMemoryKafka()
    for topic in ("t", "SCHEDULE_TOPIC_XXXX-sendback"):
        kafka.create_topic(topic)
    kafka.producer({}).produce("t", b"v")
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "earliest"}, ["t"], clients=kafka)
    seen: list[bytes | None] = []

    async def charge(message: ConsumedMessage) -> ConsumeResult:
        await asyncio.sleep(0)
        seen.append(message.value)
        return ConsumeResult.CONSUME_SUCCESS

    one.listener(lambda message: charge(message))
    assert one.poll() == 1
    one.close()
    log = kafka.log("SCHEDULE_TOPIC_XXXX-sendback", 0)
    assert (seen, log is not None and log.end) == ([b"v"], 0)


@pytest.mark.parametrize("answer", [None, True, "CONSUME_SUCCESS", 0])
def test_what_is_no_answer_is_another_attempt(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    assert Listener(lambda message: None).result(answer, None, []) is None
    assert "which is taken for RECONSUME_LATER" in caplog.text


def test_which_messages_failed() -> None:
    messages: list[Any] = [0, 1, 2, 3]
    success = ConsumeResult.CONSUME_SUCCESS
    for ack_index, failed in [(None, ()), (9, []), (3, []), (1, [2, 3]), (-1, messages), (-7, messages)]:
        assert ConsumeContext(ack_index=ack_index).failed(success, messages) == failed
    assert ConsumeContext(ack_index=-3).failed(success, messages) == messages
    assert ConsumeContext(ack_index=1).failed(None, messages) == messages


@pytest.mark.parametrize(
    ("of_batch", "own", "level"), [(None, None, None), (5, None, 5), (5, 7, 7), (5, 0, 0), (5, -1, -1), (None, 7, 7)]
)
def test_what_a_message_is_given_of_a_level_goes_before_that_of_its_batch(
    of_batch: int | None, own: int | None, level: int | None
) -> None:
    message = as_consumed(kafka_message("t", []), "R")
    message.retry_level = own
    assert ConsumeContext(retry_level=of_batch).level_of(message) == level


class Bench:
    """A service, one record that its listener has, and the topic that it would be sent back to."""

    def __init__(self) -> None:
        settings, kafka = consumer()._settings, InMemoryKafka()
        self.kafka = kafka
        self._topic = kafka.create_topic(settings.names.send_back)
        listener = Listener(lambda _message: ConsumeResult.CONSUME_SUCCESS)
        self._send_back = SendBack(kafka, {}, settings)
        self.service = ConsumeConcurrently(settings, listener, InlineWorkers(listener), self._send_back, kafka.clock)
        self.queue, self.batch = ProcessQueue(("t", 0)), Batch([as_consumed(kafka_message("t", []), "R")])
        self.queue.read(7)
        assert self.service.begin(self.queue, self.batch)

    def sent_back(self) -> int:
        self.service.turn()
        self._send_back.serve()
        return self._topic.logs[0].end


def test_what_has_been_answered_at_the_moment_at_which_its_time_is_up_is_not_sent_back() -> None:
    bench = Bench()
    bench.service.end(bench.queue, bench.batch, ConsumeResult.CONSUME_SUCCESS, None)
    bench.service._timed_out(bench.batch, bench.queue)
    assert (bench.sent_back(), bench.queue.committable) == (0, 8)


def test_what_has_been_answered_at_the_moment_at_which_its_partition_goes_is_not_sent_back() -> None:
    """Whoever has the partition now reads it again."""
    bench = Bench()
    bench.service.end(bench.queue, bench.batch, ConsumeResult.RECONSUME_LATER, None)
    bench.queue.is_dropped = True
    bench.service.abandon([bench.queue])
    assert bench.sent_back() == 0


def test_nothing_of_a_partition_that_has_gone_is_begun() -> None:
    bench = Bench()
    bench.queue.is_dropped = True
    assert not bench.service.begin(bench.queue, Batch([]))


def test_calls_that_hang_until_none_is_left_are_told_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.service._settings = replace(bench.service._settings, concurrency=1)
    said = "all 1 calls of .* that may run at a time are overdue"
    bench.service._timed_out(bench.batch, bench.queue)
    for told in (1, 1, 2):
        assert bench.sent_back() == 1
        assert len(re.findall(said, caplog.text)) == told
        bench.kafka.clock.advance(30_000)
    bench.service.end(bench.queue, bench.batch, ConsumeResult.CONSUME_SUCCESS, None)
    bench.kafka.clock.advance(60_000)
    bench.service.turn()
    assert len(re.findall(said, caplog.text)) == 2, "it has come back"


def test_a_partition_that_is_full_behind_a_refused_message_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka, max_in_flight=3)
    one.listener(lambda message: LATER if message.value == b"2" else SUCCESS)
    for _ in range(10):
        one.poll(1)
    assert "t-0 is read no further: as much as may be in flight waits behind offset 2" in caplog.text
    assert kafka.committed("g")["t", 0] == (2, None)
    one.close()


def test_what_was_read_before_a_turn_fails_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback of the user's may raise between two records."""
    kafka = InMemoryKafka()
    one = consumer_of_ten(kafka)
    seen: list[int] = []
    one.listener(lambda message: seen.append(message.offset) or SUCCESS)
    while not one.poll(1):
        continue
    loop: Any = one._by_hand
    for number in range(10):
        kafka.producer({}).produce("t", b"%d" % number)
    poll, polled = loop._consumer.poll, iter(range(5))

    def stats_cb(timeout_s: float) -> Any:
        if next(polled, None) is None:
            raise RuntimeError("of the user's")
        return poll(timeout_s)

    monkeypatch.setattr(loop._consumer, "poll", stats_cb)
    with pytest.raises(RuntimeError, match="of the user's"):
        one.poll(1)
    monkeypatch.undo()
    while one.poll(1):
        continue
    assert seen == list(range(20))
    assert kafka.committed("g")["t", 0] == (20, None)
    one.close()


def test_more_than_the_producer_of_send_backs_has_room_for_is_sent_back_after_a_while() -> None:
    kafka = InMemoryKafka()
    sent_back = kafka.create_topic("SCHEDULE_TOPIC_XXXX-sendback")
    one = consumer_of_ten(kafka, producer_config={"queue.buffering.max.messages": 4})
    one.batch_listener(10)(lambda _messages, _context: ConsumeResult.RECONSUME_LATER)
    for _ in range(30):
        one.poll(1)
    one.close()
    assert sorted(entry[2] or b"" for entry in sent_back.logs[0].entries) == [b"%d" % number for number in range(10)]
    assert kafka.committed("g")["t", 0] == (10, None)


# --- messages ---------------------------------------------------------------------------------------------------------


def kafka_message(topic: str, headers: list[tuple[str, bytes | None]] | None) -> Message:
    return Message(topic=topic, partition=3, offset=7, value=b"v", headers=headers, timestamp=(1, 5))  # type: ignore[arg-type]


def test_the_last_of_several_headers_counts() -> None:
    message = as_consumed(kafka_message("t", [("a", b"1"), ("a", None), ("UNIQ_KEY", b"x"), ("UNIQ_KEY", b"y")]), "R")
    assert (message.header("a"), message.header("b"), message.message_id) == (None, None, "y")
    assert str(message) == "y (t-3 at 7)"


@pytest.mark.parametrize("text", [b"", b"-1", b"x", b"1e3", b"9" * 30, None])
def test_an_unreadable_count_is_none_yet(text: bytes | None) -> None:
    message = as_consumed(kafka_message("R", [("RECONSUME_TIME", text), ("RETRY_TOPIC", None)]), "R")
    assert (message.reconsume_times, message.topic, message.message_id) == (0, "R", "R-3-7")


class Unreadable:
    """A record as confluent-kafka shows it where a header's name is not UTF-8."""

    def headers(self) -> Any:
        raise SystemError("<method 'headers' of 'cimpl.Message' objects> returned a result with an exception set")

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def key(self) -> bytes:
        return b"k"

    value = key

    def timestamp(self) -> tuple[int, int]:
        return 1, 5


def test_a_record_whose_headers_cannot_be_read_is_shown_without_any(caplog: pytest.LogCaptureFixture) -> None:
    message: Any = Unreadable()
    shown = as_consumed(message, "RETRY-billing")
    assert (shown.topic, shown.headers, shown.message_id, shown.value) == ("orders", [], "orders-2-7", b"k")
    assert "orders-2, offset 7" in caplog.text


def test_what_a_listener_does_to_its_messages_is_its_own_affair() -> None:
    given: list[Any] = ["a", "b"]
    batch = Batch(given)
    given.clear()
    assert batch.messages == ("a", "b")


def test_the_id_of_a_first_attempt_is_not_taken_from_a_header_that_an_application_has_copied_on() -> None:
    kafka = InMemoryKafka()
    for topic in ("t", "SCHEDULE_TOPIC_XXXX-sendback"):
        kafka.create_topic(topic)
    for name in (b"a", b"b"):
        leftover = [("UNIQ_KEY", name), ("ORIGIN_MESSAGE_ID", b"of-another")]
        kafka.producer({}).produce("t", b"v", headers=leftover)
    one = RetryingConsumer({"group.id": "g", "auto.offset.reset": "earliest"}, ["t"], clients=kafka)
    one.listener(lambda message: ConsumeResult.RECONSUME_LATER)
    while one.poll():
        pass
    one.close()
    reader = kafka.consumer({"group.id": "reader"})
    reader.assign([TopicPartition("SCHEDULE_TOPIC_XXXX-sendback", 0, 0)])
    sent_back = [reader.poll(1) for _ in range(2)]
    reader.close()
    assert [dict(message.headers())["ORIGIN_MESSAGE_ID"] for message in sent_back] == [b"a", b"b"]


def test_dead_letters_take_callbacks_as_other_clients_do() -> None:
    DeadLetters({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "error_cb": lambda error: None})
