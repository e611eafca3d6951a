"""`ScheduledProducer` for asyncio.

    async with AsyncScheduledProducer({"bootstrap.servers": "localhost:9092"}) as producer:
        receipt = await producer.send("orders", "order 17 is unpaid", key="17", delay="15m")
        await producer.cancel(receipt)

Waiting for each record costs a round trip; many are sent together with ``asyncio.gather``. (confluent-kafka's own
``AIOProducer`` cannot be used: it takes no headers.)
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException

from connectors.arguments import at_least_one
from connectors.clients import Clients, KafkaClients
from connectors.clock import Deadline, SystemClock
from connectors.contract import DelayLevels, Headers, TopicNames
from connectors.event_log import EventLog
from connectors.producer import ScheduledProducer
from connectors.receipt import Receipt
from connectors.schedule_record import HeadersArgument

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

T = TypeVar("T")

_log = EventLog(logging.getLogger(__name__))

_POLL_S = 0.1
_IDLE_POLL_S = 1.0
"""While nothing is on its way: for the callbacks among the client's options alone, such as those that bring tokens."""
_LOOK_S = 0.001
_ROOM_WAIT_S = 0.05


class AsyncScheduledProducer:
    """An async context manager. A thread of its own serves Kafka's answers; what awaits them wakes in its event loop.

    Args: as `ScheduledProducer`.
        max_in_flight: records that may be on their way; beyond it ``send`` waits for room.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        names: TopicNames | None = None,
        levels: DelayLevels | None = None,
        max_in_flight: int = 10_000,
        clients: Clients | None = None,
        tracing: "TracerProvider | bool" = False,
    ) -> None:
        clients = clients or KafkaClients()
        self._producer = ScheduledProducer(config, names=names, levels=levels, clients=clients, tracing=tracing)
        self._clock = clients.clock
        self._moves_clock = not isinstance(clients.clock, SystemClock)
        """Whether polling would move a clock, which is a test's own to move: then only what has come is told."""
        self._room = asyncio.Semaphore(at_least_one("max_in_flight", max_in_flight))
        self._awaited: set[asyncio.Future[Any]] = set()
        self._answers: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._telling = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = threading.Event()
        self._has_begun = threading.Event()
        """Something is on its way since the thread has last looked."""
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="scheduled-producer", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersArgument = (),
        deliver_at: datetime | None = None,
        delay: timedelta | str | None = None,
        delay_ms: int | None = None,
        level: int | None = None,
    ) -> Receipt:
        """Schedule one record; returns once Kafka has it. Not retried, but by librdkafka.

        How long it may take is librdkafka's ``message.timeout.ms``, or an ``asyncio.timeout`` around it.

        Raises:
            ScheduleError: as `ScheduledProducer.send`.
            KafkaException: Kafka has not taken the record.
        """
        if headers is not None and not isinstance(headers, Mapping):
            headers = list(headers)  # it may have to be begun more than once, which an iterator does not bear
        return await self._answer_of(
            lambda told: self._producer.begin_send(
                topic,
                value,
                told,
                key=key,
                headers=headers,
                deliver_at=deliver_at,
                delay=delay,
                delay_ms=delay_ms,
                level=level,
                wait_for_room=False,
            )
        )

    async def cancel(self, receipt: Receipt | str) -> tuple[int, int]:
        """Take a message back; returns the partition and offset of the cancel once Kafka has it.

        Raises:
            ReceiptError: the word is no receipt.
            ScheduleError: the message stands on a level topic.
            KafkaException: Kafka has not taken the cancel.
        """
        return await self._answer_of(lambda told: self._producer.begin_cancel(receipt, told, wait_for_room=False))

    async def write(self, topic: str, value: bytes | None, *, key: bytes | None, headers: Headers) -> tuple[int, int]:
        """Write a record as it is; returns its partition and offset once Kafka has it.

        Raises:
            KafkaException: Kafka has not taken the record.
        """
        return await self._answer_of(
            lambda told: self._producer.begin_write(topic, value, told, key=key, headers=headers, wait_for_room=False)
        )

    async def reschedule(
        self,
        receipt: Receipt | str,
        *,
        deliver_at: datetime | None = None,
        delay: timedelta | str | None = None,
        delay_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Give a pending message another time, as `ScheduledProducer.reschedule`."""
        return await asyncio.to_thread(
            self._producer.reschedule,
            receipt,
            deliver_at=deliver_at,
            delay=delay,
            delay_ms=delay_ms,
            timeout_s=timeout_s,
        )

    async def close(self, timeout_s: float = 30.0) -> int:
        """Wait for what is on its way; how many records are still unanswered. Whoever awaits one of them is told."""
        is_closed = self._is_closing.is_set()
        try:
            still_out = await asyncio.to_thread(self._flush, 0.0 if is_closed else timeout_s)
            self._end_serving()
            if self._thread is not None:
                await asyncio.to_thread(self._thread.join)
        finally:  # also where this is cancelled: nobody else would tell them
            self._end_serving()
            self._wake()
            for answer in self._awaited:
                if not answer.done():
                    silence = KafkaError(KafkaError._TIMED_OUT, "the producer was closed before Kafka has answered")
                    answer.set_result(silence)
        return still_out

    def _end_serving(self) -> None:
        self._is_closing.set()
        self._has_begun.set()

    async def _answer_of(self, begin: Callable[[Callable[[T | KafkaError], None]], object]) -> T:
        """Begin something, and wait until Kafka has answered."""
        loop = self._loop
        if loop is None:
            raise RuntimeError("use the producer as 'async with AsyncScheduledProducer(...) as producer:'")
        if asyncio.get_running_loop() is not loop:  # its answer could not be awaited, and the record would be there
            raise RuntimeError("the producer belongs to another event loop; make one in each, or use ScheduledProducer")
        answer: asyncio.Future[T | KafkaError] = loop.create_future()
        async with self._room:
            self._awaited.add(answer)
            try:
                await self._begin(lambda: begin(lambda told: self._tell(answer, told)))
                self._has_begun.set()
                told = await answer
            finally:
                self._awaited.discard(answer)
        if isinstance(told, KafkaError):
            raise KafkaException(told)
        return told

    async def _begin(self, begin: Callable[[], object]) -> None:
        """Begin something once the client's queue has room for it."""
        while True:
            if self._is_closing.is_set():
                raise RuntimeError("the producer is closed")
            try:
                begin()
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError._QUEUE_FULL:
                    raise
                await asyncio.sleep(_ROOM_WAIT_S)
            else:
                return

    def _tell(self, answer: asyncio.Future[Any], told: Any) -> None:
        """From a thread that serves: one wake-up of the event loop for all that have come together."""
        with self._telling:
            self._answers.append((answer, told))
            is_first = len(self._answers) == 1
        if is_first and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        answers = self._answers
        while answers:
            answer, told = answers[0]
            if not answer.done():  # whoever waited may have been cancelled
                answer.set_result(told)
            answers.popleft()

    def _serve(self) -> None:
        while not self._is_closing.is_set():
            if not self._awaited:
                self._has_begun.wait(_IDLE_POLL_S)
            self._has_begun.clear()
            try:
                if self._moves_clock:
                    self._is_closing.wait(_LOOK_S)
                self._producer.poll(0 if self._moves_clock else _POLL_S)
            except Exception as error:  # noqa: BLE001
                _tell_of_callback(error)

    def _flush(self, timeout_s: float) -> int:
        """How many records are still unanswered."""
        deadline = Deadline(self._clock, timeout_s)
        while True:
            try:
                return self._producer.flush(deadline.left_s)
            except Exception as error:  # noqa: BLE001
                _tell_of_callback(error)
                if deadline.left_s == 0:
                    return len(self._awaited)


def _tell_of_callback(error: Exception) -> None:
    _log.error(
        "client callback failed",
        "a callback among the client's options has raised",
        operator_action="fix error_cb, stats_cb or whichever it is; sending goes on",
        exc_info=error,
    )
