"""Consumes with retries: what a listener cannot handle comes back later, and in the end becomes a dead letter.

consumer = RetryingConsumer({"bootstrap.servers": "localhost:9092", "group.id": "billing"}, ["payments"])

@consumer.listener
def charge(message):
    bank.charge(message.value)
    return ConsumeResult.CONSUME_SUCCESS

consumer.run()
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from connectors.arguments import at_least_one
from connectors.client_options import RETRYING, SCHEDULING, check_protected
from connectors.clients import Clients, KafkaClients
from connectors.consuming.concurrently import ConsumeConcurrently
from connectors.consuming.listener import BatchListener, Listener, MessageListener
from connectors.consuming.loop import PAUSE_AFTER_MS, ConsumerLoop
from connectors.consuming.message import MessageModel
from connectors.consuming.orderly import ConsumeOrderly
from connectors.consuming.send_back import SendBack
from connectors.consuming.service import ConsumeService
from connectors.consuming.settings import (
    MAX_IN_FLIGHT,
    ConsumerSettings,
    duration_ms,
    reconsume_limit,
    within_suspend_limits,
)
from connectors.consuming.workers import AsyncWorkers, InlineWorkers, ThreadWorkers, Workers
from connectors.contract import MAX_TOPIC_NAME_LENGTH, TopicNames, is_legal_topic_name
from connectors.event_log import EventLog

_log = EventLog(logging.getLogger(__name__))

OneT = TypeVar("OneT", bound=MessageListener)
ManyT = TypeVar("ManyT", bound=BatchListener)

_IDLE_POLL_S = 0.1
_BUSY_POLL_S = 0.005
"""How long the loop waits for a record while listeners are at work: no longer, because their answers wait meanwhile."""


class RetryingConsumer:
    """Hands records to a listener; what fails comes back through the sidecar after a growing delay.

    A listener answers CONSUME_SUCCESS or RECONSUME_LATER (`ConsumeResult`); an exception, a time-out and no answer at
    all mean RECONSUME_LATER. A failed record is sent back to the sidecar, which delivers it to this group's retry topic
    (10 s later, then 30 s, 1 min, … 2 h) and after ``max_reconsume_times`` to its dead letters. The consumer subscribes
    to the retry topic by itself, and shows the listener the topic of the first attempt.

    An offset is committed when its record, and every one before it, has been handled, or sent back and that has been
    acknowledged. So nothing is lost with the process. What was in flight is seen again, and listeners have to bear that
    (`ConsumedMessage.message_id` is the same every time).

    Run it in one of these ways, once:

    - `run()`: in this thread, until SIGTERM, Ctrl-C or `stop()`.
    - ``with consumer:`` or `start()` and `close()`: beside the application, in a thread of its own.
    - ``await consumer.run_async()``: coroutine listeners run in this event loop.
    - `poll()`: by hand, a turn a call, the listener in the calling thread: for tests.

    >>> from connectors import ConsumeResult
    >>> from connectors.testing import InMemoryKafka
    >>> kafka = InMemoryKafka()
    >>> for topic in ("payments", "SCHEDULE_TOPIC_XXXX-sendback"):
    ...     _ = kafka.create_topic(topic)
    >>> kafka.producer({}).produce("payments", b"17 EUR")
    >>> config = {"group.id": "billing", "auto.offset.reset": "earliest"}
    >>> consumer = RetryingConsumer(config, ["payments"], clients=kafka)
    >>> @consumer.listener
    ... def charge(message):
    ...     print(message.topic, message.value, message.reconsume_times)
    ...     return ConsumeResult.RECONSUME_LATER
    >>> consumer.poll()
    payments b'17 EUR' 0
    1
    >>> consumer.close()
    >>> kafka.log("SCHEDULE_TOPIC_XXXX-sendback", 0).end
    1

    Args:
        config: librdkafka's, with ``group.id``. Offsets are committed by the consumer alone, and only committed records
            are read: these options cannot be changed. ``auto.offset.reset`` says where to begin where nothing is
            committed; should retention have removed what comes next, reading goes on with the oldest record that is
            left. A ``group.instance.id`` gets a checksum of the topics behind it: once there is more to read, it is
            another member, and gets its partitions when the one before has expired (``session.timeout.ms``).
        topics: to read; RocketMQ's logical names are understood.
        orderly: a partition's records one after the other; what fails is tried again in place.
        model: BROADCASTING: every consumer gets every record, and what fails is dropped, with a warning (in orderly
            mode once it has been tried ``max_reconsume_times``, in place). Positions are remembered (in Kafka) where
            the consumer has a ``group.instance.id``; else each start begins as ``auto.offset.reset`` says.
        concurrency: how many listener calls run at a time.
        max_reconsume_times: after which a record becomes a dead letter: 16; in orderly mode never, unless set.
        consume_timeout: after which a call counts as failed. A coroutine is cancelled. A thread cannot be: its record
            is sent back, its answer ignored, and it is missing until it returns (in orderly mode this is only logged).
        suspend: orderly mode: how long a partition rests after a failure; 10 ms to 30 s.
        stop_timeout: how long stopping waits for listeners. If Kafka does not answer then, the last commit is left out
            after some seconds, and what was done since the one before comes again. A rebalance waits 5 s: a record
            whose listener takes longer is handled again by whoever gets its partition.
        max_in_flight: records of a partition that may be read and not done; at the most so many are seen again after a
            crash. Nor may they have more than 100 MiB.
        producer_config: librdkafka options for sending back, on top of what ``config`` says about the cluster.
        names: topic names, for sidecars with a prefix or templates of their own.
        clients: an `InMemoryKafka`, in tests.

    Raises:
        ProtectedOptionError: an option is set that cannot be changed.
        ValueError: another argument is wrong.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        orderly: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
        concurrency: int = 20,
        max_reconsume_times: int | None = None,
        consume_timeout: timedelta | str = "15m",
        suspend: timedelta | str = "1s",
        stop_timeout: timedelta | str = "30s",
        max_in_flight: int = MAX_IN_FLIGHT,
        producer_config: Mapping[str, Any] | None = None,
        names: TopicNames | None = None,
        clients: Clients | None = None,
    ) -> None:
        check_protected(config, RETRYING)
        names = names or TopicNames()
        self._config = dict(config)
        self._producer_config = {**config, **(producer_config or {})}
        check_protected(self._producer_config, SCHEDULING)
        self._clients: Clients = clients or KafkaClients()
        self._settings = ConsumerSettings(
            group=_group(config, names, MessageModel(model)),
            topics=_topics(topics, names),
            names=names,
            model=MessageModel(model),
            is_orderly=orderly,
            concurrency=at_least_one("concurrency", concurrency),
            max_reconsume_times=reconsume_limit(max_reconsume_times, is_orderly=orderly),
            consume_timeout_ms=at_least_one("consume_timeout", duration_ms("consume_timeout", consume_timeout)),
            suspend_ms=within_suspend_limits(duration_ms("suspend", suspend)),
            stop_timeout_ms=duration_ms("stop_timeout", stop_timeout),
            max_in_flight=at_least_one("max_in_flight", max_in_flight),
        )
        self._listener: Listener | None = None
        self._stopping = threading.Event()
        self._has_run = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._workers: Workers | None = None
        """Who calls the listener."""
        self._by_hand: ConsumerLoop | None = None
        self._turned_by: int | None = None
        """The thread that is in a turn of `poll`."""
        self._leaves_after_turn = False

    # --- listeners ----------------------------------------------------------------------------------------------------

    def listener(self, function: OneT) -> OneT:
        """Decorator: called with one `ConsumedMessage`, answers a `ConsumeResult`. May be a coroutine function."""
        self._set(Listener(function))
        return function

    def batch_listener(self, max_size: int) -> Callable[[ManyT], ManyT]:
        """Decorator: called with up to ``max_size`` messages of one partition, and a `ConsumeContext`.

        Where only the first of them could be handled, the others come again:

            @consumer.batch_listener(32)
            def store(messages, context):
                context.ack_index = database.insert(messages) - 1
                return ConsumeResult.CONSUME_SUCCESS
        """

        def register(function: ManyT) -> ManyT:
            self._set(Listener(function, max_size))
            return function

        return register

    def _set(self, listener: Listener) -> None:
        if self._listener is not None:
            raise ValueError(f"the consumer has its listener, {self._listener.name}; for another make another consumer")
        self._listener = listener

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Consume until SIGTERM, SIGINT (both only in the main thread) or `stop`; then end in order.

        Listeners may finish what they are at, what is done is committed, and the group is left.

        Raises:
            KafkaException: the consumer is of no more use.
        """
        self._claim()
        self._run_here()

    async def run_async(self) -> None:
        """Consume until `stop`, or until the task is cancelled; then end in order. Kafka is talked to in a thread.

        Signals are the application's: for SIGTERM, ``loop.add_signal_handler(signal.SIGTERM, consumer.stop)``.

        Raises:
            KafkaException: the consumer is of no more use.
        """
        self._claim()
        await self._run_async()

    async def _run_async(self) -> None:
        listener, event_loop = self._checked(), asyncio.get_running_loop()
        workers: Workers
        if listener.is_coroutine:
            workers = AsyncWorkers(listener, self._settings.concurrency, event_loop)
        else:
            workers = ThreadWorkers(listener, self._settings.concurrency)
        # A thread of its own: the loop's executor has few, and an application other uses for them.
        thread = ThreadPoolExecutor(1, "retrying-consumer")
        running = event_loop.run_in_executor(thread, self._run, workers)
        thread.shutdown(wait=False)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    def start(self) -> None:
        """Consume in a thread of its own, until `close`.

        Raises:
            RuntimeError: it runs, has run, or is closed.
        """
        self._claim()
        self._thread = threading.Thread(target=self._run_in_thread, name="retrying-consumer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; returns at once. Signal handlers and listeners may call it."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and wait for the end. In a listener, which the end waits for, it follows the listener's return.

        Of `run` and `run_async` it asks for the end, which is theirs; `poll` is not to be under way in another thread.

        Raises:
            KafkaException: what the thread that `start` began had ended with; told once.
        """
        self.stop()
        self._has_run = True
        if self._turned_by == threading.get_ident():
            self._leaves_after_turn = True
            return
        self._leave()
        if self._thread is not None and not (self._workers and self._workers.is_called_here()):
            self._thread.join()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    @property
    def is_running(self) -> bool:
        """Whether the thread that `start` began is alive: it ends by itself when the consumer is of no more use."""
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def poll(self, timeout_s: float = 0.0) -> int:
        """Read what there is, call the listener here and now, send back and commit; how many records were read.

        With an `InMemoryKafka` no thread runs, and waiting moves its clock. Ended by `close`.

        Interrupted by Ctrl-C, or by a listener's SystemExit, it leaves the group. The next call joins it again,
        and what was not done comes again; the message that the listener had counts as failed.

        Raises:
            RuntimeError: the listener is a coroutine function, and an event loop runs in this thread already.
        """
        if self._checked().is_coroutine and _is_in_event_loop():
            raise RuntimeError(
                "poll() cannot call a coroutine listener where an event loop runs; "
                "await consumer.run_async(), or await asyncio.to_thread(consumer.poll)"
            )
        if self._by_hand is None:
            self._claim()
            self._by_hand = self._loop(InlineWorkers(self._checked()), pause_after_ms=0)
        loop, self._turned_by = self._by_hand, threading.get_ident()
        try:
            count = loop.turn(timeout_s)
            loop.commit()
        except Exception:
            raise
        except BaseException:
            # Ctrl-C in a notebook. Were the loop to go on, what it has read and not yet handled would wait for ever.
            self._has_run = self._leaves_after_turn
            self._leaves_after_turn = True
            raise
        finally:
            self._turned_by = None
            if self._leaves_after_turn:
                self._leaves_after_turn = False
                self._leave()
        return count

    # ------------------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """End what `poll` has begun."""
        loop, self._by_hand = self._by_hand, None
        if loop is not None:
            loop.close(self._settings.stop_timeout_ms / 1000)

    def _checked(self) -> Listener:
        if self._listener is None:
            raise ValueError("the consumer has no listener; decorate a function with @consumer.listener")
        return self._listener

    def _claim(self) -> None:
        self._checked()
        if self._has_run:
            raise RuntimeError("a consumer runs once; make another")
        self._has_run = True

    def _loop(self, workers: Workers, *, pause_after_ms: int = PAUSE_AFTER_MS) -> ConsumerLoop:
        settings, clients, self._workers = self._settings, self._clients, workers
        send_back = SendBack(clients, self._producer_config, settings)
        kind: type[ConsumeService] = ConsumeOrderly if settings.is_orderly else ConsumeConcurrently
        service = kind(settings, self._checked(), workers, send_back, clients.clock)
        is_stopping = self._stopping.is_set
        return ConsumerLoop(
            self._config, settings, clients, send_back, service, is_stopping=is_stopping, pause_after_ms=pause_after_ms
        )

    def _run(self, workers: Workers) -> None:
        loop: ConsumerLoop | None = None
        try:
            loop = self._loop(workers)
            while not self._stopping.is_set():
                loop.turn(_BUSY_POLL_S if loop.is_busy else _IDLE_POLL_S)
        finally:
            # Listeners end before their workers, and workers before nobody is left to hear of them.
            try:
                if loop is not None:
                    loop.close(self._settings.stop_timeout_ms / 1000)
            finally:
                workers.close()

    def _run_here(self) -> None:
        with self._stopped_by_signals():
            if self._checked().is_coroutine:
                asyncio.run(self._run_async())
            else:
                self._run(ThreadWorkers(self._checked(), self._settings.concurrency))

    def _run_in_thread(self) -> None:
        try:
            self._run_here()
        except BaseException as error:  # noqa: BLE001
            self._failure = error
            _log.error(
                "consumer ended",
                "the consumer is of no more use, and nothing more is read",
                operator_action="make another; close() raises the reason, and is_running tells that it has ended",
                exc_info=error,
            )

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop it; a second one is Python's again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.stop()
            restore()

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            restore()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _group(config: Mapping[str, Any], names: TopicNames, model: MessageModel) -> str:
    group = str(config.get("group.id") or "")
    if not group:
        raise ValueError("config has no group.id; retries and dead letters are a group's own")
    if model is MessageModel.CLUSTERING:
        for topic in (names.retry(group), names.dead_letter(group)):
            if not is_legal_topic_name(topic):
                raise ValueError(
                    f"the group.id '{group}' is too long: its topic '{topic}' would have {len(topic)} characters, and "
                    f"Kafka takes {MAX_TOPIC_NAME_LENGTH}; take a shorter one (where it has other characters than "
                    "letters, digits, '.', '_' and '-', it is written longer)"
                )
    return group


def _topics(topics: Sequence[str], names: TopicNames) -> tuple[str, ...]:
    if isinstance(topics, str) or not topics:
        raise ValueError(f"topics is {topics!r}; give a list of at least one topic")
    physical = tuple(names.physical(topic) for topic in topics)
    for topic in physical:
        if not is_legal_topic_name(topic):
            raise ValueError(f"'{topic}' is not a valid topic name (at most 249 letters, digits, '.', '_' and '-')")
    return physical
