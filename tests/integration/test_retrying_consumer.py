"""`RetryingConsumer` as applications run it: threads, coroutines, time-outs, stops and rebalances, on a real broker."""

import asyncio
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from connectors import ConsumeContext, ConsumedMessage, ConsumeResult, RetryingConsumer, TopicNames
from connectors.consuming.loop import ConsumerLoop
from tests.support.kafka import Kafka, Record
from tests.support.proxy import OFFSET_COMMIT, Fate, KafkaProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

SUCCESS, LATER = ConsumeResult.CONSUME_SUCCESS, ConsumeResult.RECONSUME_LATER


class Group:
    """A consumer group on topics of its own."""

    def __init__(self, kafka: Kafka, prefix: str) -> None:
        self.kafka = kafka
        self.id = f"{prefix}g"
        self.names = TopicNames(prefix)
        self.topic = kafka.create_topic(f"{prefix}payments", 3)
        kafka.create_topic(self.names.send_back)
        kafka.create_topic(self.names.retry(self.id))
        self._consumers: list[RetryingConsumer] = []

    def consumer(self, *, config: dict[str, Any] | None = None, **arguments: Any) -> RetryingConsumer:
        options = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "group.id": self.id,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            **(config or {}),
        }
        consumer = RetryingConsumer(options, [self.topic], names=self.names, **arguments)
        self._consumers.append(consumer)
        return consumer

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    def produce(self, count: int, *, key: bytes | None = None) -> None:
        self.kafka.produce((self.topic, key or b"%d" % number, b"%d" % number, []) for number in range(count))

    def sent_back(self, count: int) -> list[Record]:
        records = self.kafka.read([self.names.send_back], count)
        assert len(records) == count
        return records

    def wait_committed(self) -> None:
        """Until the group has committed the end of every partition."""
        wait_until(lambda: self.kafka.lag(self.id, self.topic) == 0, "everything is committed")

    def committed(self, partition: int = 0) -> int:
        asked = [ConsumerGroupTopicPartitions(self.id, [TopicPartition(self.topic, partition)])]
        answer = self.kafka.admin.list_consumer_group_offsets(asked)[self.id].result(10)
        return int(answer.topic_partitions[0].offset)


@pytest.fixture
def group(kafka: Kafka, prefix: str) -> Iterator[Group]:
    group = Group(kafka, prefix)
    yield group
    group.close()


# --- threads ----------------------------------------------------------------------------------------------------------


def test_as_many_at_a_time_as_allowed_and_no_more(group: Group) -> None:
    group.produce(40)
    consumer = group.consumer(concurrency=4)
    together = threading.Barrier(4)
    running = Counter[str]()
    highest: list[int] = []

    @consumer.listener
    def listen(_message: ConsumedMessage) -> ConsumeResult:
        running["now"] += 1
        highest.append(running["now"])
        together.wait(20)  # passes only where four are here at a time
        running["now"] -= 1
        return SUCCESS

    with consumer:
        group.wait_committed()
    assert len(highest) == 40
    assert max(highest) == 4


def test_a_listener_that_takes_too_long_is_sent_back_and_its_answer_ignored(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.produce(4, key=b"one partition")
    consumer = group.consumer(consume_timeout="300ms")
    may_end = threading.Event()

    @consumer.batch_listener(4)
    def listen(_messages: Sequence[ConsumedMessage], _context: ConsumeContext) -> ConsumeResult:
        may_end.wait(30)
        return SUCCESS

    with consumer:
        assert sorted(record.value or b"" for record in group.sent_back(4)) == [b"0", b"1", b"2", b"3"]
        group.wait_committed()
        may_end.set()
        wait_until(lambda: "ended with CONSUME_SUCCESS after its time" in caplog.text, "the late answer is logged")
    assert "takes longer than 300ms" in caplog.text
    group.sent_back(4)


@pytest.mark.long
def test_long_work_does_not_drop_out_of_the_group(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    group.produce(1)
    config = {"max.poll.interval.ms": 6_000}
    consumer = group.consumer(config=config)
    seen: list[float] = []
    may_end = threading.Event()

    @consumer.listener
    def listen(_message: ConsumedMessage) -> ConsumeResult:
        seen.append(time.monotonic())
        may_end.wait(30)
        return SUCCESS

    with consumer:
        wait_until(lambda: seen and time.monotonic() - seen[0] > 7, "longer than max.poll.interval.ms has passed")
        may_end.set()
        group.wait_committed()
    assert len(seen) == 1
    assert "MAXPOLL" not in caplog.text
    assert "Application maximum poll interval" not in caplog.text


def test_a_full_partition_is_paused_and_the_others_go_on(group: Group) -> None:
    group.kafka.produce([(group.topic, None, b"slow", [])] * 30, partitioner="murmur2_random")
    consumer = group.consumer(concurrency=2, max_in_flight=4)
    may_end = threading.Event()
    seen: list[ConsumedMessage] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        seen.append(message)
        if message.offset == 0 and message.partition == seen[0].partition:
            may_end.wait(30)
        return SUCCESS

    with consumer:
        held = wait_until(lambda: seen, "a record has been seen")[0].partition
        for number in range(20):
            group.kafka.produce([(group.topic, b"%d" % number, b"more", [])])
        others = [partition for partition in range(3) if partition != held]
        wait_until(
            lambda: all(_lag(group, partition) == 0 for partition in others), "the other partitions have been read"
        )
        # The partition with the held record is not read beyond its limit.
        assert len([message for message in seen if message.partition == held]) <= 6
        may_end.set()
        group.wait_committed()


def _lag(group: Group, partition: int) -> int:
    place = TopicPartition(group.topic, partition)
    end = group.kafka.admin.list_offsets({place: OffsetSpec.latest()})[place].result(10).offset
    return int(end) - max(0, group.committed(partition))


@pytest.mark.parametrize("protocol", ["consumer", "CONSUMER"])
def test_partitions_that_the_broker_assigns_are_read(group: Group, protocol: str) -> None:
    """KIP-848, whose name librdkafka takes in any case."""
    group.produce(6)
    options = {
        "bootstrap.servers": group.kafka.bootstrap_servers,
        "group.id": group.id,
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
    }
    consumer = RetryingConsumer(options, [group.topic], names=group.names)
    consumer.listener(lambda _message: SUCCESS)
    with consumer:
        group.wait_committed()


def test_what_fails_as_partitions_are_assigned_is_told(
    group: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_loop: ConsumerLoop, consumer: Consumer, _partitions: object) -> None:
        consumer.incremental_unassign([TopicPartition("another", 0)])

    monkeypatch.setattr(ConsumerLoop, "_begin", fail)
    consumer = group.consumer()
    consumer.listener(lambda _message: SUCCESS)
    consumer.start()
    wait_until(lambda: not consumer.is_running, "it has ended")
    assert "nothing more is read" in caplog.text
    with pytest.raises(KafkaException, match="subtract from empty assignment"):
        consumer.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_listener_that_raises_what_only_a_process_should_costs_no_worker(group: Group, is_async: bool) -> None:
    group.produce(6)
    consumer = group.consumer(concurrency=1)

    def listen(_message: ConsumedMessage) -> ConsumeResult:
        raise SystemExit

    async def listen_async(_message: ConsumedMessage) -> ConsumeResult:
        raise SystemExit

    consumer.listener(listen_async if is_async else listen)
    with consumer:
        group.wait_committed()
    group.sent_back(6)


@pytest.mark.long
def test_stopping_outlasts_the_session(group: Group) -> None:
    group.produce(1)
    consumer = group.consumer()
    entered, may_end = threading.Event(), threading.Event()

    @consumer.listener
    def listen(_message: ConsumedMessage) -> ConsumeResult:
        entered.set()
        may_end.wait(30)
        return SUCCESS

    consumer.start()
    assert entered.wait(30)
    consumer.stop()
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 8, "longer than session.timeout.ms has passed")
    assert consumer.is_running
    may_end.set()
    consumer.close()
    assert group.kafka.lag(group.id, group.topic) == 0


@pytest.mark.long
def test_stopping_does_not_wait_for_a_broker_that_is_silent(group: Group) -> None:
    group.produce(30)
    seen: list[int] = []
    with KafkaProxy(group.kafka.bootstrap_servers) as proxy:
        consumer = group.consumer(config={"bootstrap.servers": proxy.bootstrap_servers}, stop_timeout="1s")

        @consumer.listener
        def listen(message: ConsumedMessage) -> ConsumeResult:
            seen.append(message.offset)
            return SUCCESS

        consumer.start()
        wait_until(lambda: len(seen) == 30, "all is handled")
        proxy.cut()
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(20)
        assert not closing.is_alive()
        assert not consumer.is_running


@pytest.mark.long
def test_stopping_does_not_wait_for_a_broker_that_falls_silent_when_partitions_go(group: Group) -> None:
    """The commit of a rebalance has no time-out."""
    group.produce(30)
    is_cut = threading.Event()
    with KafkaProxy(group.kafka.bootstrap_servers) as proxy:
        eager = {"partition.assignment.strategy": "range"}
        config = {**eager, "bootstrap.servers": proxy.bootstrap_servers}
        consumer = group.consumer(config=config, stop_timeout="1s")
        consumer.listener(lambda _message: SUCCESS)
        consumer.start()
        group.wait_committed()

        def cut(api: int) -> Fate:
            if api == OFFSET_COMMIT:
                proxy.cut()
                is_cut.set()
            return Fate.ANSWERED

        proxy.decide = cut
        other = group.consumer(config=eager)
        other.listener(lambda _message: SUCCESS)
        with other:
            assert is_cut.wait(30)
            closing = threading.Thread(target=consumer.close, daemon=True)
            closing.start()
            closing.join(20)
            assert not closing.is_alive()


# --- in order ---------------------------------------------------------------------------------------------------------


def test_orderly_partitions_keep_their_order_beside_each_other(group: Group) -> None:
    group.produce(300)
    consumer = group.consumer(orderly=True, suspend="10ms", concurrency=3)
    handled: dict[int, list[int]] = {0: [], 1: [], 2: []}
    inside: set[int] = set()
    overlaps: list[int] = []
    seen = Counter[tuple[int, int]]()

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        if message.partition in inside:
            overlaps.append(message.partition)
        inside.add(message.partition)
        place = message.partition, message.offset
        seen[place] += 1
        failed = message.offset % 10 == 3 and seen[place] < 3
        if not failed:
            handled[message.partition].append(message.offset)
        inside.discard(message.partition)
        return LATER if failed else SUCCESS

    with consumer:
        group.wait_committed()
    assert overlaps == []
    for partition, offsets in handled.items():
        assert offsets == list(range(len(offsets))), f"partition {partition}"
    assert sum(map(len, handled.values())) == 300


def test_orderly_a_partition_that_comes_back_waits_for_the_listener_that_still_has_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.consuming.loop.REVOKE_GRACE_S", 0.1)
    eager = {"partition.assignment.strategy": "range"}
    consumer = group.consumer(orderly=True, config={**eager, "client.id": "first"})  # by name: it keeps 0 and 1
    may_end, begun = threading.Event(), list[tuple[int, int]]()
    running: Counter[int] = Counter()
    at_a_time: list[int] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        begun.append((message.partition, message.offset))
        running[message.partition] += 1
        at_a_time.append(running[message.partition])
        if message.partition == 0:
            may_end.wait(60)
        running[message.partition] -= 1
        return SUCCESS

    producer = group.kafka.producer()
    producer.produce(group.topic, b"", partition=0)
    producer.produce(group.topic, b"", partition=0)
    producer.flush()
    with consumer:
        wait_until(lambda: begun == [(0, 0)], "the listener has the first")
        servers = {"bootstrap.servers": group.kafka.bootstrap_servers}
        other = Consumer({**servers, **eager, "group.id": group.id, "client.id": "second"})
        other.subscribe([group.topic, group.names.retry(group.id)])
        wait_until(lambda: other.poll(0.1) is None and bool(other.assignment()), "another member has its part")
        producer.produce(group.topic, b"", partition=1)
        wait_until(lambda: (1, 0) in begun, "the partitions have come back")
        assert begun.count((0, 0)) == 1
        may_end.set()
        wait_until(lambda: begun.count((0, 1)) == 1, "the partition goes on")
        other.close()
    assert begun.count((0, 0)) == 2
    assert set(at_a_time) == {1}


def test_orderly_one_worker_serves_every_partition(group: Group) -> None:
    group.produce(900)
    consumer = group.consumer(orderly=True, concurrency=1)
    order: list[int] = []

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        order.append(message.partition)
        return SUCCESS

    with consumer:
        group.wait_committed()
    assert len(order) == 900
    assert set(order) == {0, 1, 2}


# --- coroutines -------------------------------------------------------------------------------------------------------


def test_coroutines_run_in_the_applications_event_loop(group: Group) -> None:
    group.produce(50)
    consumer = group.consumer(concurrency=10)
    seen: list[bytes] = []

    async def application() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        entered = asyncio.Barrier(10)
        at_once: list[bytes] = []

        @consumer.listener
        async def listen(message: ConsumedMessage) -> ConsumeResult:
            assert asyncio.get_running_loop() is loop
            at_once.append(message.value or b"")
            assert len(at_once) <= 10
            await entered.wait()
            at_once.remove(message.value or b"")
            seen.append(message.value or b"")
            if len(seen) == 50:
                done.set()
            return LATER if message.value == b"7" else SUCCESS

        running = asyncio.create_task(consumer.run_async())
        async with asyncio.timeout(30):
            await done.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(application())
    assert sorted(map(int, seen)) == list(range(50))
    assert group.sent_back(1)[0].value == b"7"
    assert group.kafka.lag(group.id, group.topic) == 0


def test_consumers_in_an_event_loop_leave_its_executor_and_its_signals_to_the_application(group: Group) -> None:
    group.produce(3)

    async def application() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        consumers = [group.consumer(config={"group.id": f"{group.id}{number}"}) for number in range(3)]
        reached: list[asyncio.Event] = []
        for consumer in consumers:
            has_read = asyncio.Event()
            reached.append(has_read)

            @consumer.listener
            async def listen(_message: ConsumedMessage, has_read: asyncio.Event = has_read) -> ConsumeResult:
                has_read.set()
                return SUCCESS

        running = [asyncio.create_task(consumer.run_async()) for consumer in consumers]
        async with asyncio.timeout(30):
            await asyncio.gather(*(has_read.wait() for has_read in reached))
        assert handlers == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        for consumer in consumers:
            consumer.stop()
        await asyncio.gather(*running)

    asyncio.run(application())


def test_a_coroutine_that_ends_with_its_event_loop_holds_up_nothing(group: Group) -> None:
    group.produce(1)
    consumer = group.consumer(stop_timeout="60s")
    ended_s = 0.0

    async def application() -> None:
        nonlocal ended_s
        entered = asyncio.Event()

        @consumer.listener
        async def listen(_message: ConsumedMessage) -> ConsumeResult:
            entered.set()
            await asyncio.Event().wait()
            return SUCCESS

        background = asyncio.create_task(consumer.run_async())
        async with asyncio.timeout(30):
            await entered.wait()
        assert not background.done()
        ended_s = time.monotonic()

    asyncio.run(application())
    assert time.monotonic() - ended_s < 20
    group.sent_back(1)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_coroutine_that_takes_too_long_is_cancelled(group: Group, orderly: bool) -> None:
    group.produce(1)
    consumer = group.consumer(consume_timeout="200ms", orderly=orderly, suspend="10ms", max_reconsume_times=0)
    ends: list[str] = []

    @consumer.listener
    async def listen(_message: ConsumedMessage) -> ConsumeResult:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return SUCCESS

    with consumer:
        group.wait_committed()
    assert ends == ["cancelled"]
    assert group.sent_back(1)[0].header("DELAY") == (b"-1" if orderly else None)


def test_coroutines_run_without_an_event_loop_of_the_applications(group: Group) -> None:
    group.produce(5)
    consumer = group.consumer()
    seen: list[bytes | None] = []

    @consumer.batch_listener(2)
    async def listen(messages: Sequence[ConsumedMessage], _context: ConsumeContext) -> ConsumeResult:
        await asyncio.sleep(0)
        seen.extend(message.value for message in messages)
        return SUCCESS

    with consumer:
        group.wait_committed()
    assert len(seen) == 5


# --- ends and changes -------------------------------------------------------------------------------------------------


def test_stopping_lets_the_listener_finish_and_commits_what_it_did(group: Group) -> None:
    group.produce(1)
    consumer = group.consumer()
    entered, may_end = threading.Event(), threading.Event()

    @consumer.listener
    def listen(_message: ConsumedMessage) -> ConsumeResult:
        entered.set()
        may_end.wait(30)
        return LATER

    consumer.start()
    assert entered.wait(30)
    consumer.stop()
    may_end.set()
    consumer.close()
    assert group.kafka.lag(group.id, group.topic) == 0
    group.sent_back(1)


def test_what_does_not_finish_in_time_is_not_committed(group: Group) -> None:
    group.produce(3, key=b"one partition")
    consumer = group.consumer(stop_timeout="200ms")
    entered, may_end = threading.Event(), threading.Event()

    @consumer.listener
    def listen(message: ConsumedMessage) -> ConsumeResult:
        if message.value == b"1":
            entered.set()
            may_end.wait(30)
        return SUCCESS

    consumer.start()
    assert entered.wait(30)
    consumer.close()
    may_end.set()
    partition = group.kafka.read([group.topic], 3)[0].partition
    assert group.committed(partition) == 1


def test_a_rebalance_waits_for_the_listener_and_repeats_nothing(group: Group) -> None:
    group.produce(300)
    seen: Counter[tuple[int, int]] = Counter()
    entered = threading.Event()

    def member() -> RetryingConsumer:
        consumer = group.consumer(concurrency=2, config={"partition.assignment.strategy": "range"})

        @consumer.listener
        def listen(message: ConsumedMessage) -> ConsumeResult:
            seen[message.partition, message.offset] += 1
            entered.set()
            threading.Event().wait(0.005)  # work
            return SUCCESS

        return consumer

    with member():
        assert entered.wait(30)
        with member():
            group.wait_committed()
    assert sum(seen.values()) == len(seen) == 300


def test_an_end_in_the_thread_is_told_by_close(group: Group) -> None:
    consumer = group.consumer(config={"auto.offset.reset": "error"})
    consumer.listener(lambda _message: SUCCESS)
    consumer.start()
    wait_until(lambda: not consumer.is_running, "it has ended")
    with pytest.raises(KafkaException, match="no previously committed offset"):
        consumer.close()
    consumer.close()


def test_a_listener_may_stop_its_consumer(group: Group) -> None:
    group.produce(1)
    consumer = group.consumer()

    @consumer.listener
    def listen(_message: ConsumedMessage) -> ConsumeResult:
        consumer.stop()
        return SUCCESS

    consumer.run()
    assert group.kafka.lag(group.id, group.topic) == 0


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_listener_may_close_its_consumer(group: Group, is_coroutine: bool) -> None:
    """The end waits for the listener, which does not wait for the end."""
    group.produce(1)
    consumer = group.consumer(stop_timeout="20s")

    def close(_message: ConsumedMessage) -> ConsumeResult:
        consumer.close()
        return SUCCESS

    async def close_in_a_coroutine(message: ConsumedMessage) -> ConsumeResult:
        return close(message)

    consumer.listener(close_in_a_coroutine if is_coroutine else close)
    consumer.start()
    wait_until(lambda: not consumer.is_running, "it has ended", timeout_s=10)
    consumer.close()
    assert group.kafka.lag(group.id, group.topic) == 0
    group.sent_back(0)


class Impatient(BaseException):
    """As gevent's Timeout is."""


@pytest.mark.long
@pytest.mark.parametrize("orderly", [False, True])
def test_a_coroutine_that_raises_what_is_no_exception_costs_no_worker(group: Group, orderly: bool) -> None:
    group.produce(6, key=b"one partition")
    consumer = group.consumer(concurrency=1, orderly=orderly, max_reconsume_times=0)

    @consumer.listener
    async def listen(_message: ConsumedMessage) -> ConsumeResult:
        raise Impatient

    with consumer:
        group.wait_committed()
    group.sent_back(6)


def test_a_send_back_topic_that_does_not_exist_is_named(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    """Before the ten seconds are over that a send-back may take, which would tell of a time-out."""
    group.produce(1)
    group.names = TopicNames(f"{group.id}.elsewhere.")
    consumer = group.consumer()
    consumer.listener(lambda _message: ConsumeResult.RECONSUME_LATER)
    with consumer:
        wait_until(lambda: "cannot be sent back" in caplog.text, "it is refused")
    assert f"{group.names.send_back}: Broker: Unknown topic or partition" in caplog.text


def test_logs_name_the_listener_and_the_record(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    group.produce(1)
    consumer = group.consumer()

    @consumer.listener
    def charge(_message: ConsumedMessage) -> ConsumeResult:
        raise ValueError("no such account")

    caplog.set_level(logging.ERROR)
    with consumer:
        group.wait_committed()
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "charge failed on" in record.getMessage()
    assert f"{group.topic}-" in record.getMessage()
    assert isinstance(record.exc_info[1] if record.exc_info else None, ValueError)
