"""What both ways of consuming share: which batches the listener has, and what it has answered.

A batch is *active* from the moment a worker takes it until its outcome is settled: its offsets done, or its messages
sent back and that acknowledged, or waiting for another attempt. Workers begin and end batches; all else is the loop's.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Sequence

from confluent_kafka import KafkaError

from connectors.clock import Clock
from connectors.consuming.listener import Answer, Listener
from connectors.consuming.message import ConsumedMessage, MessageModel
from connectors.consuming.process_queue import ProcessQueue
from connectors.consuming.send_back import SendBack
from connectors.consuming.settings import LOCAL_RETRY_MS, ConsumerSettings
from connectors.consuming.workers import Batch, Workers
from connectors.event_log import EventLog, named
from connectors.kafka_errors import REFUSALS, remedy

_log = EventLog(logging.getLogger(__name__))

_OVERDUE = "its time", "its messages come again; raise consume_timeout, or make the listener faster"
_GONE = (
    "the consumer had given its partition up, in a rebalance or at its end",
    "its messages come again, to whoever has the partition; nothing, if rare, else make the listener faster",
)


class ConsumeService(ABC):
    """Between the loop, which brings records, and the workers, who call the listener."""

    def __init__(
        self, settings: ConsumerSettings, listener: Listener, workers: Workers, send_back: SendBack, clock: Clock
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._workers = workers
        self._send_back = send_back
        self._clock = clock
        self.lock = threading.Lock()
        """Guards what workers and the loop share."""
        self._active: dict[Batch, ProcessQueue] = {}
        self._running: set[Batch] = set()
        """The active batches that the listener has just now."""
        self._answered: deque[tuple[Batch, ProcessQueue, Answer]] = deque()

    # --- the loop's side ----------------------------------------------------------------------------------------------

    @abstractmethod
    def accept(self, queue: ProcessQueue, messages: Sequence[ConsumedMessage]) -> None:
        """Records that have been read, in order."""

    def turn(self) -> None:
        """Settle what has been answered, end what takes too long, and begin again what has waited long enough."""
        while self._answered:
            batch, queue, answer = self._answered.popleft()
            if not batch.is_abandoned:
                self._settle(batch, queue, answer)
        self._expire()
        self._resume()

    @property
    @abstractmethod
    def next_timer_ms(self) -> float:
        """Monotonic time at which something has waited long enough; infinite where nothing waits."""

    def is_active(self, queues: Collection[ProcessQueue]) -> bool:
        """Whether the outcome of a batch of these partitions is still open."""
        with self.lock:
            return any(queue in queues for queue in self._active.values())

    def abandon(self, queues: Collection[ProcessQueue]) -> None:
        """These partitions are gone: what the listener is in the middle of counts for nothing."""
        with self.lock:
            for batch in [batch for batch, queue in self._active.items() if queue in queues]:
                batch.is_abandoned = True
                self._forget(batch)

    # --- the workers' side --------------------------------------------------------------------------------------------

    def begin(self, queue: ProcessQueue, batch: Batch) -> bool:
        """Whether the listener may have the batch."""
        with self.lock:
            if queue.is_dropped:
                return False
            batch.started_ms = self._clock.monotonic_ms()
            self._active[batch] = queue
            self._running.add(batch)
            return True

    def end(self, queue: ProcessQueue, batch: Batch, answer: object, error: BaseException | None) -> Answer:
        """Take the listener's answer. One that comes too late is only logged."""
        result = self._listener.result(answer, error, batch.messages)
        with self.lock:
            if not batch.is_abandoned:
                self._running.discard(batch)
                self._answered.append((batch, queue, result))
                return result
        why, operator_action = _GONE if queue.is_dropped else _OVERDUE
        _log.warning(
            "listener ended late",
            "the listener ended with %s after %s: %s",
            result,
            why,
            named(batch.messages),
            operator_action=operator_action,
        )
        return result

    # ------------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _settle(self, batch: Batch, queue: ProcessQueue, answer: Answer) -> None:
        """Act on the listener's answer."""

    @abstractmethod
    def _resume(self) -> None:
        """Begin what has waited long enough."""

    @abstractmethod
    def _timed_out(self, batch: Batch, queue: ProcessQueue) -> None:
        """The listener has had a batch for longer than ``consume_timeout``."""

    def _expire(self) -> None:
        latest_ms = self._clock.monotonic_ms() - self._settings.consume_timeout_ms
        with self.lock:
            overdue = [(batch, queue) for batch, queue in self._held() if batch.started_ms <= latest_ms]
        for batch, queue in overdue:
            self._timed_out(batch, queue)

    def _held(self) -> list[tuple[Batch, ProcessQueue]]:
        """What the listener has. Called with the lock."""
        return [(batch, self._active[batch]) for batch in self._running]

    def _begin_send_back(self, batch: Batch, queue: ProcessQueue, message: ConsumedMessage, level: int | None) -> None:
        """Send one message of a batch back; `_sent_back` is told."""
        batch.unanswered += 1

        def on_answer(error: KafkaError | None) -> None:
            batch.unanswered -= 1
            if error is None:
                queue.done([message.offset])
            elif error.code() not in REFUSALS:
                _log.error(
                    "not sent back",
                    "not sent back: %s: %s",
                    message,
                    error.str(),
                    operator_action="it is tried again in place; check the brokers and the consumer's rights",
                )
            elif message.offset not in queue.refused:
                queue.refused.add(message.offset)
                self._log_refused(message, error)
            self._sent_back(batch, queue, message, is_acknowledged=error is None)

        self._send_back.send(message, level, on_answer)

    def _log_refused(self, message: ConsumedMessage, error: KafkaError) -> None:
        """Once a message, however often it is refused."""
        topic = self._settings.names.send_back
        _log.error(
            "send-back refused",
            "%s cannot be sent back: %s: %s",
            message,
            topic,
            error.str(),
            operator_action=(
                f"{remedy(error, topic)}, or have the listener take it; until then the listener is given it every "
                f"{LOCAL_RETRY_MS // 1000} s, its partition's committed offset stays before it, and with "
                f"{self._settings.max_in_flight:,} records behind it the partition is read no further"
            ),
        )

    @abstractmethod
    def _sent_back(self, batch: Batch, queue: ProcessQueue, message: ConsumedMessage, *, is_acknowledged: bool) -> None:
        """Kafka has answered for one message."""

    def _drop_if_broadcast(self, queue: ProcessQueue, messages: Sequence[ConsumedMessage]) -> bool:
        """A failed broadcast record has nowhere to come back from."""
        if self._settings.model is not MessageModel.BROADCASTING:
            return False
        for message in messages:
            _log.warning(
                "broadcast dropped",
                "broadcast consumption failed; dropped: %s",
                message,
                operator_action="fix the listener: a broadcast does not come again",
            )
        queue.done(message.offset for message in messages)
        return True

    def _finished(self, batch: Batch) -> None:
        with self.lock:
            self._forget(batch)

    def _forget(self, batch: Batch) -> None:
        self._active.pop(batch, None)
        self._running.discard(batch)
