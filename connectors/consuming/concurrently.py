"""Batches in any order, as many at a time as there are workers (RocketMQ's ``ConsumeMessageConcurrentlyService``).

What fails is sent back, one record each; its offset is done once Kafka has acknowledged that. What cannot be sent back
is handed to the listener again after a while, and holds the committed offset meanwhile.
"""

import logging
from collections import deque
from collections.abc import Sequence
from math import inf

from connectors.clock import Clock
from connectors.consuming.listener import Answer, Listener
from connectors.consuming.message import ConsumedMessage
from connectors.consuming.process_queue import ProcessQueue
from connectors.consuming.send_back import SendBack
from connectors.consuming.service import ConsumeService
from connectors.consuming.settings import LOCAL_RETRY_MS, ConsumerSettings
from connectors.consuming.workers import Batch, Workers
from connectors.event_log import EventLog

_log = EventLog(logging.getLogger(__name__))

_SAID_EVERY_MS = 60_000


class ConsumeConcurrently(ConsumeService):
    """No order, not even within a partition."""

    def __init__(
        self, settings: ConsumerSettings, listener: Listener, workers: Workers, send_back: SendBack, clock: Clock
    ) -> None:
        super().__init__(settings, listener, workers, send_back, clock)
        self._waiting: deque[tuple[float, ProcessQueue, ConsumedMessage]] = deque()
        """What could not be sent back, and when it is handed to the listener again (monotonic ms)."""
        self._hanging: set[Batch] = set()
        """Sent back without an answer, and a worker has them still."""
        self._said_ms = -inf

    def end(self, queue: ProcessQueue, batch: Batch, answer: object, error: BaseException | None) -> Answer:
        result = super().end(queue, batch, answer, error)
        with self.lock:
            self._hanging.discard(batch)
        return result

    def accept(self, queue: ProcessQueue, messages: Sequence[ConsumedMessage]) -> None:
        size = self._listener.batch_size
        for first in range(0, len(messages), size):
            self._workers.submit(_OneBatch(self, queue, messages[first : first + size]))

    @property
    def next_timer_ms(self) -> float:
        return self._waiting[0][0] if self._waiting else inf

    def _settle(self, batch: Batch, queue: ProcessQueue, answer: Answer) -> None:
        failed = batch.context.failed(answer, batch.messages)
        queue.done(message.offset for message in batch.messages[: len(batch.messages) - len(failed)])
        if not failed or self._drop_if_broadcast(queue, failed):
            self._finished(batch)
            return
        batch.unanswered += 1  # ours, until all are on their way: answers may come at once
        for message in failed:
            self._begin_send_back(batch, queue, message, batch.context.level_of(message))
        batch.unanswered -= 1
        if not batch.unanswered:
            self._finished(batch)

    def _sent_back(self, batch: Batch, queue: ProcessQueue, message: ConsumedMessage, *, is_acknowledged: bool) -> None:
        if not is_acknowledged:
            self._waiting.append((self._clock.monotonic_ms() + LOCAL_RETRY_MS, queue, message))
        if not batch.unanswered:
            self._finished(batch)

    def _resume(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, queue, message = self._waiting.popleft()
            self.accept(queue, [message])
        if len(self._hanging) >= self._settings.concurrency and now_ms - self._said_ms >= _SAID_EVERY_MS:
            self._said_ms = now_ms
            _log.error(
                "all listener calls hang",
                "all %d calls of %s that may run at a time are overdue: nothing more is handled",
                self._settings.concurrency,
                self._listener.name,
                operator_action="restart the process; give what the listener waits for a shorter time-out than its own",
            )

    def _timed_out(self, batch: Batch, queue: ProcessQueue) -> None:
        """Sent back without the listener's answer, which will count for nothing (``cleanExpireMsg``)."""
        with self.lock:
            if batch not in self._running:  # it has answered this very moment
                return
            self._running.discard(batch)
            batch.is_abandoned = True
            self._hanging.add(batch)
        if batch.cancel is not None:
            batch.cancel()
        self._listener.log_timeout(batch.messages, self._settings.consume_timeout_ms)
        self._settle(batch, queue, None)


class _OneBatch:
    """A lane with a single batch."""

    def __init__(self, service: ConsumeConcurrently, queue: ProcessQueue, messages: Sequence[ConsumedMessage]) -> None:
        self._service = service
        self._queue = queue
        self._batch: Batch | None = Batch(messages)

    def next(self) -> Batch | None:
        batch, self._batch = self._batch, None
        return batch if batch is not None and self._service.begin(self._queue, batch) else None

    def finish(self, batch: Batch, answer: object, error: BaseException | None) -> bool:
        self._service.end(self._queue, batch, answer, error)
        return False
