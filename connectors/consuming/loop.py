"""The one thread that talks to Kafka. A turn:

1. **Read** what there is and hand it to the service. Reading never stops for long, whatever listeners do: a partition
   with too much in flight is paused, so that the group always hears of this consumer.
2. **Settle** what listeners have answered. What failed is sent back.
3. **Serve** the answers to that. An offset is done when its record is handled, or sent back *and* acknowledged.
4. **Throttle**: pause partitions that have too much in flight, resume those that have room again.
5. **Commit** what is done, now and then.

Whatever is killed in between has committed less than it has done, never more.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from connectors import static_member
from connectors.bounded_call import ends_within
from connectors.client_options import for_admin, for_consumer
from connectors.clients import Clients
from connectors.clock import Deadline
from connectors.consuming.message import ConsumedMessage, MessageModel, as_consumed
from connectors.consuming.process_queue import ProcessQueue
from connectors.consuming.send_back import SendBack
from connectors.consuming.service import ConsumeService
from connectors.consuming.settings import COMMIT_EVERY_MS, ConsumerSettings
from connectors.contract import Place
from connectors.event_log import EventLog
from connectors.kafka_errors import DAMAGED, HOW_TO_MEND, REFUSALS, is_fatal

T = TypeVar("T")

_log = EventLog(logging.getLogger(__name__))

READ_MAX = 500
"""Records a turn."""

REVOKE_GRACE_S = 5.0
"""How long a rebalance waits for listeners that are in the middle of a record of a partition that goes."""

PAUSE_AFTER_MS = 500
"""Pausing throws away what librdkafka has fetched ahead. A partition that is full for a moment only is waited for."""

_CLOSED_WITHIN_S = 2.0
"""How long Kafka has for a sign of life before the last commit, which has no time-out of its own."""

_LEFT_WITHIN_S = 10.0
"""How long leaving the group may take. Where a rebalance is on its way meanwhile, librdkafka now and then waits for
itself for ever (confluentinc/librdkafka issue 4041)."""

_ASKED_WITHIN_S = 5.0
_ASK_AGAIN_S = 0.5
_NAP_S = 0.005


@contextmanager
def _raised_anew() -> Iterator[None]:
    """For callbacks of the client's: what a call of its own has raised there comes out of ``poll`` as a bare KafkaError
    otherwise, no exception, which no handler catches (confluent-kafka 2.16 with Python 3.11)."""
    try:
        yield
    except KafkaException as error:
        raise KafkaException(*error.args) from None


class ConsumerLoop:
    """Owns the consumer and the producer of send-backs.

    Args:
        is_stopping: whether the consumer has been asked to end: it does not wait for Kafka then.
        pause_after_ms: 0 where the loop's own thread calls the listener, since then nothing drains while it waits.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        settings: ConsumerSettings,
        clients: Clients,
        send_back: SendBack,
        service: ConsumeService,
        *,
        is_stopping: Callable[[], bool],
        pause_after_ms: int = PAUSE_AFTER_MS,
    ) -> None:
        self._settings = settings
        self._clock = clients.clock
        self._send_back = send_back
        self._service = service
        self._is_stopping = is_stopping
        self._pause_after_ms = pause_after_ms
        self._queues: dict[Place, ProcessQueue] = {}
        self._left_at: dict[Place, int] = {}
        """Broadcasting without a memory in Kafka: where to continue with partitions that come back."""
        options, self._commits = consumer_options(config, settings)
        self._is_incremental = not _is_classic(options) or str(
            options.get("partition.assignment.strategy", "")
        ).strip().startswith("cooperative")
        self._begins_at_end = str(options.get("auto.offset.reset", "latest")).lower() in ("latest", "largest", "end")
        if self._begins_at_end:
            # Where to begin is said with each partition. Where offsets are no more, what is left is not to be skipped.
            options["auto.offset.reset"] = "earliest"
        if _is_static(options):
            name = str(options["group.instance.id"])
            seen = self._answer(partial(static_member.look, clients.admin(for_admin(config)), settings.subscription))
            options["group.instance.id"] = name if seen is None else static_member.name_for(name, seen)
        self._grace_s = REVOKE_GRACE_S
        self._is_cut_off = False
        """Whether Kafka does not answer at the end: what is done is not committed, and comes again."""
        self._committed_ms = self._clock.monotonic_ms()
        self._consumer: Any = clients.consumer({**options, "on_commit": self._on_commit})
        self._consumer.subscribe(
            settings.subscription, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    @property
    def is_busy(self) -> bool:
        """Whether listeners have, or are about to have, something to answer."""
        return any(queue.in_flight for queue in self._queues.values())

    def turn(self, timeout_s: float) -> int:
        """Once around; waits that long for a record. How many were read.

        Raises:
            KafkaException: the consumer is of no more use, or has nowhere to begin.
        """
        count = self._read(timeout_s)
        self._service.turn()
        self._send_back.serve()
        self._throttle()
        if self._clock.monotonic_ms() - self._committed_ms >= COMMIT_EVERY_MS:
            self.commit()
        return count

    def close(self, grace_s: float) -> None:
        """End in order.

        1. Nothing new is begun, nothing more is read.
        2. What the listener is in the middle of may end. Polling goes on meanwhile: a consumer that is being closed
           sends no heartbeats, and would be expelled before it can commit.
        3. Leaving the group gives the partitions back, which commits what is done, if Kafka answers at all.
        """
        queues = list(self._queues.values())
        try:
            for queue in queues:
                queue.is_dropped = True
            self._consumer.pause([TopicPartition(*queue.place) for queue in queues])
            self._service.turn()
            deadline = Deadline(self._clock, grace_s)
            while self._service.is_active(queues) and deadline.left_s > 0:
                self._consumer.poll(0.01)  # records of partitions that come only now are somebody else's to read
                self._send_back.serve()
                self._service.turn()
        finally:
            self._grace_s = 0.0
            try:
                self._is_cut_off = self._commits and bool(queues) and not self._is_answered(queues)
                self._leave()
            finally:
                self._send_back.close()

    def commit(self) -> None:
        """What is done, of all partitions; what fails is committed the next time."""
        self._committed_ms = self._clock.monotonic_ms()
        self._commit({queue.place: queue.take_uncommitted() for queue in self._queues.values()})

    def _commit(self, offsets: Mapping[Place, int | None]) -> None:
        """Nobody waits for the answer, which may never come. Of partitions that go, librdkafka waits for it before it
        tells the group that they are free, and is polled meanwhile."""
        told = [TopicPartition(*place, offset) for place, offset in offsets.items() if offset is not None]
        if not told or not self._commits or self._is_cut_off:
            return
        try:
            self._consumer.commit(offsets=told, asynchronous=True)
        except KafkaException as exception:
            self._on_commit(exception.args[0], told)

    def _leave(self) -> None:
        if ends_within(_LEFT_WITHIN_S, self._consumer.close, "closing"):
            return
        self._is_cut_off = True  # should it go on after all: who comes next has these partitions by then
        _log.warning(
            "consumer left behind",
            "the consumer does not close, and ends with the process",
            operator_action="nothing: the group expels it; what was done since the last commit comes again",
        )

    def _is_answered(self, queues: Sequence[ProcessQueue]) -> bool:
        """Whether the group's coordinator answers."""
        try:
            self._consumer.committed([TopicPartition(*queue.place) for queue in queues], timeout=_CLOSED_WITHIN_S)
        except KafkaException as exception:
            _log.warning(
                "kafka does not answer",
                "the consumer ends without a last commit: %s",
                exception.args[0].str(),
                operator_action="nothing: what was done since the commit before comes again",
            )
            return False
        return True

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, timeout_s: float) -> int:
        if any(queue.full_since_ms is not None and not queue.is_paused for queue in self._queues.values()):
            time.sleep(min(_NAP_S, timeout_s))
            return 0
        fresh: dict[ProcessQueue, list[ConsumedMessage]] = {}
        wait_s = min(timeout_s, max(0.0, (self._service.next_timer_ms - self._clock.monotonic_ms()) / 1000))
        try:
            count = self._read_into(fresh, wait_s)
        except Exception:  # of a callback of the user's, or of one partition: what was read before it goes on
            self._hand_over(fresh)
            raise
        self._hand_over(fresh)
        return count

    def _read_into(self, fresh: dict[ProcessQueue, list[ConsumedMessage]], wait_s: float) -> int:
        """How many were read, those of partitions that have gone included."""
        count = 0
        while count < READ_MAX:
            # One by one: a rebalance between two of them must not mix records of two assignments.
            message: Message | None = self._consumer.poll(wait_s)
            wait_s = 0.0
            if message is None:
                break
            if message.error() is not None:
                self._judge(message)
                continue
            count += 1
            queue = self._queue_of(message)
            if queue is not None:
                fresh.setdefault(queue, []).append(as_consumed(message, self._settings.retry_topic))
                if self._fill(queue) >= 1:
                    break
        return count

    def _hand_over(self, fresh: Mapping[ProcessQueue, list[ConsumedMessage]]) -> None:
        for queue, messages in fresh.items():
            self._service.accept(queue, messages)

    def _queue_of(self, message: Message) -> ProcessQueue | None:
        """The partition's queue, with the record noted; None: the partition has gone, or is read again."""
        place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        queue = self._queues.get(place)
        if queue is not None and queue.is_behind(offset):
            _log.warning(
                "offset behind",
                "%s-%d goes on at offset %d, which is behind: its log was cut or made anew",
                *place,
                offset,
                operator_action="nothing, if the topic was made anew; else check for an unclean leader election",
            )
            queue.is_dropped = True
            self._service.abandon([queue])
            first = queue.committable
            queue = self._queues[place] = ProcessQueue(place)
            if first is not None and first < offset:  # it is there still, and what was begun does not count any more
                self._consumer.seek(TopicPartition(*place, first))
                return None
        if queue is not None:
            queue.read(offset, len(message) + len(message.key() or b""))
        return queue

    def _judge(self, message: Message) -> None:
        """An event or an error in place of a record."""
        error = message.error()
        assert error is not None
        if is_fatal(error) or error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaException(error)
        if error.code() == KafkaError._PARTITION_EOF:
            return
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and message.topic() == self._settings.retry_topic:
            _log.debug(
                "no retry topic yet",
                "%s does not exist yet; the sidecar makes it with the first retry",
                message.topic(),
            )
            return
        advice = HOW_TO_MEND if error.code() in DAMAGED else "check the brokers, and the consumer's rights"
        _log.warning(
            "kafka reports an error",
            "%s",
            error.str(),
            operator_action=f"{advice}; reading goes on by itself",
        )

    def _throttle(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for queue in self._queues.values():
            fill = self._fill(queue)
            if fill <= 0.5 or (fill < 1 and not queue.is_paused):
                queue.full_since_ms = None
                if queue.is_paused:
                    queue.is_paused = False
                    self._consumer.resume([TopicPartition(*queue.place)])
            elif queue.full_since_ms is None:
                queue.full_since_ms = now_ms
            if (
                queue.full_since_ms is not None
                and not queue.is_paused
                and now_ms - queue.full_since_ms >= self._pause_after_ms
            ):
                queue.is_paused = True
                self._consumer.pause([TopicPartition(*queue.place)])
                if queue.refused:
                    _log.warning(
                        "partition held up",
                        "%s-%d is read no further: as much as may be in flight waits behind offset %d, which cannot be "
                        "sent back",
                        *queue.place,
                        min(queue.refused),
                        operator_action="have the send-back topic take it, or the listener; see 'send-back refused'",
                    )

    def _fill(self, queue: ProcessQueue) -> float:
        """How much it has in flight of what it may; 1: all of it."""
        settings = self._settings
        return max(queue.in_flight / settings.max_in_flight, queue.in_flight_bytes / settings.max_in_flight_bytes)

    # --- the group ----------------------------------------------------------------------------------------------------

    @_raised_anew()
    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        begun_at = self._begin(consumer, partitions) if partitions else {}
        for partition in partitions:
            place = partition.topic, partition.partition
            if place in self._left_at:
                partition.offset = begun_at[place] = self._left_at.pop(place)
            self._queues[place] = ProcessQueue(place, begun_at.get(place))
        if self._is_incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if begun_at:
            self._committed_ms = -inf

    def _begin(self, consumer: Any, partitions: Sequence[TopicPartition]) -> dict[Place, int]:
        """Say where partitions begin of which the group has committed nothing; what of that is to be committed at once.

        topic       auto.offset.reset   begins at
        the retry   any                 its beginning: the group's first retry came before it knew the topic
                                        (RocketMQ's ``RebalancePushImpl.computePullFromWhere``)
        any other   latest              its end, which is committed: the next start shall not begin behind what comes
                                        while nobody reads (CONSUME_FROM_LAST_OFFSET)
        any other   any other           where librdkafka says

        Broadcasting without a memory in Kafka, the end is what a partition comes back with after a lost session.
        """
        begun_at: dict[Place, int] = {}
        retry = self._settings.retry_topic if self._commits else None
        told = [one for one in partitions if self._begins_at_end or one.topic == retry]
        for partition in self._unknown(consumer, told):
            if partition.topic == retry:
                partition.offset = OFFSET_BEGINNING
            else:
                end = self._answer(partial(_end, consumer, partition))
                if end is not None:
                    partition.offset = begun_at[partition.topic, partition.partition] = end
        return begun_at

    def _unknown(self, consumer: Any, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those of which there is no offset to go on at."""
        if not self._commits:
            return [one for one in partitions if (one.topic, one.partition) not in self._left_at]
        committed = (self._answer(partial(_committed, consumer, partitions)) if partitions else None) or ()
        return [
            partition
            for partition, found in zip(partitions, committed, strict=False)
            if found.offset < 0 and found.error is None
        ]

    def _answer(self, question: Callable[[], T]) -> T | None:
        """Kafka's answer, however long it takes; None: it refuses one, or the consumer is to stop.

        Raises:
            KafkaException: the consumer is of no more use.
        """
        while not self._is_stopping():
            try:
                return question()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if is_fatal(error):
                    raise
                if error.code() in REFUSALS:  # told again in place of records
                    return None
                _log.warning(
                    "start not known yet",
                    "Kafka does not tell where to begin: %s",
                    error.str(),
                    operator_action="nothing, if rare: it is asked again; else check the brokers",
                )
                self._send_back.serve(_ASK_AGAIN_S)
        return None

    @_raised_anew()
    def _on_revoke(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        """The order is the protocol.

        1. Nothing new of these partitions is begun.
        2. What the listener is in the middle of may end.
        3. What is done is committed; librdkafka gives the partitions away once Kafka has answered.
        4. What has not ended counts for nothing.
        """
        queues = self._drop(partitions)
        deadline = Deadline(self._clock, self._grace_s)
        self._service.turn()
        while self._service.is_active(queues) and deadline.left_s > 0:
            self._send_back.serve(0.01)
            self._service.turn()
        self._commit({queue.place: queue.committable for queue in queues})
        self._service.abandon(queues)
        self._remember(queues)

    @_raised_anew()
    def _on_lost(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already: there is nothing to commit."""
        queues = self._drop(partitions)
        self._service.abandon(queues)
        self._remember(queues)

    def _drop(self, partitions: Sequence[TopicPartition]) -> list[ProcessQueue]:
        self._consumer.resume(partitions)  # librdkafka remembers a pause: should they come back, they would stay silent
        dropped = []
        for partition in partitions:
            queue = self._queues.pop((partition.topic, partition.partition), None)
            if queue is not None:
                queue.is_dropped = True
                dropped.append(queue)
        return dropped

    def _remember(self, queues: Sequence[ProcessQueue]) -> None:
        if not self._commits:
            self._left_at |= {queue.place: at for queue in queues if (at := queue.committable) is not None}

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            reason = error or partition.error
            if reason is None:
                continue
            queue = self._queues.get((partition.topic, partition.partition))
            if queue is not None:
                queue.commit_failed()
            _log.warning(
                "offsets not committed",
                "the offset of %s-%d was not committed: %s",
                partition.topic,
                partition.partition,
                reason.str(),
                operator_action="nothing, if rare: it is committed later, and messages may come twice",
            )


def _committed(consumer: Any, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """What the group has committed. Raises KafkaException also where that is not known of a single partition."""
    committed: list[TopicPartition] = consumer.committed(partitions, timeout=_ASKED_WITHIN_S)
    for partition in committed:
        if partition.error is not None and partition.error.code() not in REFUSALS:
            raise KafkaException(partition.error)
    return committed


def _end(consumer: Any, partition: TopicPartition) -> int:
    watermarks: tuple[int, int] | None = consumer.get_watermark_offsets(partition, timeout=_ASKED_WITHIN_S)
    if watermarks is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return watermarks[1]


def _is_classic(options: Mapping[str, Any]) -> bool:
    """Whether the members of the group assign partitions, and not the broker."""
    return str(options.get("group.protocol", "classic")).lower() == "classic"


def _is_static(options: Mapping[str, Any]) -> bool:
    """Whether the broker gives it what it had, when it comes back, without anybody looking."""
    return _is_classic(options) and bool(options.get("group.instance.id"))


def consumer_options(config: Mapping[str, Any], settings: ConsumerSettings) -> tuple[dict[str, Any], bool]:
    """The consumer's librdkafka options, and whether offsets are committed."""
    options = {
        # A topic that comes into being, the retry topic above all, is read within the delay of a first retry.
        "topic.metadata.refresh.interval.ms": 10_000,
        # Little is fetched ahead, because a pause throws it away; and what there is room for is fetched soon.
        "queued.min.messages": 1_000,
        "fetch.queue.backoff.ms": 20,
        **for_consumer(config),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
    }
    if _is_classic(options):
        # Not cooperative where the member is static: what it had given up as it died, it would not get back, nor
        # anybody else (docs/adr/0004).
        strategy = "roundrobin" if _is_static(options) else "cooperative-sticky"
        options.setdefault("partition.assignment.strategy", strategy)
    if settings.model is MessageModel.CLUSTERING:
        return options, True
    # Everybody gets every record: each consumer is a group of its own. Who has a lasting name has a lasting position.
    instance = options.get("group.instance.id")
    options["group.id"] = f"{settings.group}-broadcast-{instance or uuid.uuid4().hex}"
    return options, instance is not None
