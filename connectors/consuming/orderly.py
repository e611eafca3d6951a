"""A partition's batches one after the other (RocketMQ's ``ConsumeMessageOrderlyService``).

What fails rests for a while and is handed to the listener again, and what follows it in its partition waits. What has
failed ``max_reconsume_times`` times goes to the dead letters, through the send-back topic, and makes way.

A listener may still be in the middle of a partition that has gone in a rebalance. Should it come back to this consumer,
it waits for that listener, as RocketMQ's waits for the lock of the queue: one at a time is what the order is worth.
"""

from collections.abc import Collection, Sequence
from math import inf

from connectors.clock import Clock
from connectors.consuming.listener import Answer, Listener
from connectors.consuming.message import ConsumedMessage
from connectors.consuming.process_queue import ProcessQueue
from connectors.consuming.send_back import DEAD_LETTER, SendBack
from connectors.consuming.service import ConsumeService
from connectors.consuming.settings import LOCAL_RETRY_MS, ConsumerSettings, within_suspend_limits
from connectors.consuming.workers import Batch, Workers
from connectors.contract import Place

BATCHES_IN_A_ROW = 100
"""After which a partition lets others have its worker."""


class ConsumeOrderly(ConsumeService):
    """Order within each partition."""

    def __init__(
        self, settings: ConsumerSettings, listener: Listener, workers: Workers, send_back: SendBack, clock: Clock
    ) -> None:
        super().__init__(settings, listener, workers, send_back, clock)
        self._lanes: dict[ProcessQueue, PartitionLane] = {}
        self._complained: set[Batch] = set()
        self._lingering: dict[Place, tuple[Batch, ProcessQueue]] = {}
        """What the listener still has of partitions that have gone, which may have come back."""
        self._waiting: dict[Place, PartitionLane] = {}
        """The partitions that have come back, and wait for that."""

    def accept(self, queue: ProcessQueue, messages: Sequence[ConsumedMessage]) -> None:
        lane = self._lanes.get(queue)
        if lane is None:
            self._lanes = {queue: lane for queue, lane in self._lanes.items() if not queue.is_dropped}
            lane = self._lanes[queue] = PartitionLane(self, queue, self._workers, self._listener.batch_size)
        lane.add(messages)

    def abandon(self, queues: Collection[ProcessQueue]) -> None:
        with self.lock:
            for batch in self._running:
                queue = self._active[batch]
                if queue in queues:
                    self._lingering[queue.place] = batch, queue
        super().abandon(queues)

    def has_to_wait(self, lane: "PartitionLane", place: Place) -> bool:
        """Whether the listener still has something of the partition from before it had gone; the lane goes on
        afterwards. Called with the lock."""
        if place not in self._lingering:
            return False
        self._waiting[place] = lane
        return True

    def end(self, queue: ProcessQueue, batch: Batch, answer: object, error: BaseException | None) -> Answer:
        result = super().end(queue, batch, answer, error)
        with self.lock:
            lingering, _ = self._lingering.get(queue.place, (None, None))
            if lingering is not batch:
                return result
            del self._lingering[queue.place]
            self._complained.discard(batch)
            lane = self._waiting.pop(queue.place, None)
        if lane is not None:
            self._workers.submit(lane)
        return result

    @property
    def next_timer_ms(self) -> float:
        return min((lane.rests_until_ms for lane in self._lanes.values()), default=inf)

    def _settle(self, batch: Batch, queue: ProcessQueue, answer: Answer) -> None:
        self._complained.discard(batch)
        failed = list(batch.context.failed(answer, batch.messages))
        queue.done(message.offset for message in batch.messages[: len(batch.messages) - len(failed)])
        if not failed:
            self._finished(batch)
            return
        lane, suspend_ms = self._lanes[queue], batch.context.suspend_ms
        lane.rest_ms = within_suspend_limits(self._settings.suspend_ms if suspend_ms is None else suspend_ms)
        batch.unanswered += 1  # ours, until all are judged: answers may come at once
        for message in failed:
            is_given_up = (batch.context.level_of(message) or 0) < 0
            if not is_given_up and message.reconsume_times < self._settings.max_reconsume_times:
                message.reconsume_times += 1
                lane.held.append(message)
            elif not self._drop_if_broadcast(queue, [message]):
                self._begin_send_back(batch, queue, message, DEAD_LETTER)
        batch.unanswered -= 1
        self._go_on_if_answered(batch, lane)

    def _sent_back(self, batch: Batch, queue: ProcessQueue, message: ConsumedMessage, *, is_acknowledged: bool) -> None:
        lane = self._lanes.get(queue)
        if lane is None or batch.is_abandoned:  # the partition has gone meanwhile
            return
        if not is_acknowledged:
            lane.held.append(message)
            lane.rest_ms = max(lane.rest_ms, LOCAL_RETRY_MS)
        self._go_on_if_answered(batch, lane)

    def _go_on_if_answered(self, batch: Batch, lane: "PartitionLane") -> None:
        if batch.unanswered:
            return
        self._finished(batch)
        lane.put_back(self._clock.monotonic_ms())

    def _held(self) -> list[tuple[Batch, ProcessQueue]]:
        return [*super()._held(), *self._lingering.values()]

    def _resume(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for lane in self._lanes.values():
            if lane.rests_until_ms <= now_ms:
                lane.go_on()

    def _timed_out(self, batch: Batch, queue: ProcessQueue) -> None:
        """A coroutine is cancelled and counts as failed; a thread cannot be, and a second one would break the order."""
        if batch in self._complained:
            return
        self._complained.add(batch)
        self._listener.log_timeout(batch.messages, self._settings.consume_timeout_ms)
        if batch.cancel is not None:
            batch.cancel()


class PartitionLane:
    """One partition's way through the listener: worked on, resting after a failure, or idle for want of records."""

    def __init__(self, service: ConsumeOrderly, queue: ProcessQueue, workers: Workers, batch_size: int) -> None:
        self.rests_until_ms = inf
        """Monotonic; infinite unless it rests."""
        self.rest_ms = 0
        self.held: list[ConsumedMessage] = []
        """Failed, and not yet back in the backlog."""
        self._service = service
        self._queue = queue
        self._workers = workers
        self._batch_size = batch_size
        self._is_taken = False
        """A worker has it or will, or a failed batch is being settled, or it rests."""
        self._in_a_row = 0

    # --- the loop's side ----------------------------------------------------------------------------------------------

    def add(self, messages: Sequence[ConsumedMessage]) -> None:
        with self._service.lock:
            self._queue.backlog.extend(messages)
            if self._is_taken:
                return
            self._is_taken = True
        self._workers.submit(self)

    def put_back(self, now_ms: float) -> None:
        """The failed ones are next again, after their rest; none: it goes on with what follows."""
        self.held.sort(key=_offset)
        self._queue.backlog.extendleft(reversed(self.held))
        self.rests_until_ms = now_ms + (self.rest_ms if self.held else 0)
        self.held = []

    def go_on(self) -> None:
        self.rests_until_ms = inf
        self._workers.submit(self)

    # --- the worker's side --------------------------------------------------------------------------------------------

    def next(self) -> Batch | None:
        backlog = self._queue.backlog
        self._in_a_row += 1
        if self._in_a_row > BATCHES_IN_A_ROW:
            self._in_a_row = 0
            self._workers.submit(self)
            return None
        with self._service.lock:
            if not backlog or self._queue.is_dropped:
                self._is_taken = False
                self._in_a_row = 0
                return None
            if self._service.has_to_wait(self, self._queue.place):
                return None
            batch = Batch([backlog.popleft() for _ in range(min(self._batch_size, len(backlog)))])
        return batch if self._service.begin(self._queue, batch) else None

    def finish(self, batch: Batch, answer: object, error: BaseException | None) -> bool:
        result = self._service.end(self._queue, batch, answer, error)
        return not batch.is_abandoned and not batch.context.failed(result, batch.messages)


def _offset(message: ConsumedMessage) -> int:
    return message.offset
