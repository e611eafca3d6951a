"""Schedules records: a Kafka producer that writes to the schedule topics and hands out receipts.

producer = ScheduledProducer({"bootstrap.servers": "localhost:9092"})
receipt = producer.send("orders", "order 17 is unpaid", key="17", delay="15m")
producer.cancel(receipt)
"""

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import count
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from connectors.client_options import SCHEDULING, check_protected, for_consumer, for_producer
from connectors.clients import Clients, KafkaClients
from connectors.clock import Deadline
from connectors.contract import DEFAULT_LEVELS, DelayLevels, Headers, TopicNames, is_legal_topic_name
from connectors.event_log import EventLog
from connectors.extras import how_to_install
from connectors.header_names import REAL_QID, REAL_TOPIC, UNIQ_KEY
from connectors.kafka import BY_KEY, HEADER_ERRORS
from connectors.kafka_errors import is_about_group, with_remedy
from connectors.lasting_producer import LastingProducer
from connectors.pending_receipt import OnReceipt, PendingReceipt, Plan, tell
from connectors.receipt import Receipt
from connectors.schedule_record import (
    HeaderPairs,
    HeadersArgument,
    RecordGoneError,
    ScheduleError,
    cancel_headers,
    carried,
    check_cancellable,
    is_utf8,
    is_whole,
    replacement_headers,
    when,
)

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from connectors.tracing import ScheduleTracer

__all__ = ["HeaderPairs", "OnPlace", "OnReceipt", "ScheduleError", "ScheduledProducer", "check_cancellable"]

OnPlace = Callable[[tuple[int, int] | KafkaError], None]
"""Told the partition and offset of a cancel once Kafka has it, or why Kafka has not taken it."""

SYNC_ATTEMPTS = 3
"""RocketMQ's 1 + ``retryTimesWhenSendFailed`` (2), of `ScheduledProducer.send`."""

_REFUSED_BY_PARTITION = frozenset(
    {
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""A partition's own trouble, told before anything was appended: the record is certainly not there."""

_log = EventLog(logging.getLogger(__name__))

_REMEMBERED_MAX = 10_000
_ROOM_WAIT_S = 0.1
_SERVE_S = 0.05

_NOTHING_GIVEN: tuple[Headers, bytes] = ([], b"")


class ScheduledProducer:
    """Schedules records for a time, after a delay, or by delay level; cancels and reschedules them.

    `send`, `cancel` and `reschedule` wait for Kafka; `begin_send` and `begin_cancel` do not, as a batch wants it: their
    answers come from within `poll` and `flush`. `AsyncScheduledProducer` is the same for asyncio. As a context manager,
    it waits for everything that was begun, for 30 s; what Kafka has not answered by then fails, and that is raised.
    Make it in the process that uses it: after a fork, librdkafka's threads are in the parent alone, and nothing is sent
    from the child.

    >>> from connectors.testing import InMemoryKafka
    >>> kafka = InMemoryKafka()
    >>> _ = kafka.create_topic("SCHEDULE_TOPIC_XXXX-wheel")
    >>> producer = ScheduledProducer({}, clients=kafka)
    >>> receipt = producer.send("orders", "order 17 is unpaid", key="17", delay="15m")
    >>> (receipt.deliver_ms - kafka.clock.now_ms()) // 60_000
    15
    >>> producer.cancel(receipt)
    (0, 1)

    Args:
        config: librdkafka's. The options that receipts and cancels hang on (the partitioner, which is Kafka's own
            murmur2, idempotence, acks) cannot be changed. What is not set has librdkafka's default, except that no
            topic is made by accident.
        names: names of the schedule topics, for sidecars with a prefix or templates of their own.
        levels: the sidecar's delay levels, where they are not the default ones.
        clients: an `InMemoryKafka`, in tests.
        tracing: make an OpenTelemetry span of each scheduling and carry its context to the destination
            (``traceparent``), by this provider, or with ``True`` by the global one; needs the extra ``otel``.

    Raises:
        ProtectedOptionError: one of those options is set otherwise.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        names: TopicNames | None = None,
        levels: DelayLevels | None = None,
        clients: Clients | None = None,
        tracing: "TracerProvider | bool" = False,
    ) -> None:
        if not isinstance(config, Mapping):
            raise TypeError(f"config is {config!r}; give librdkafka's options, {{'bootstrap.servers': ...}}")
        check_protected(config, SCHEDULING)
        self._tracer = _tracer(tracing)
        self._config = dict(config)
        self._clients: Clients = clients or KafkaClients()
        self._producer: Any = self._make_client(self._client_options(config))
        self._client_in_use = self._find_client_in_use()
        """Asked first, where a call in between would be felt."""
        self._in_callback = threading.local()
        self._names = names or TopicNames()
        self._levels = levels or DelayLevels.parse(DEFAULT_LEVELS)
        self._plans: dict[tuple[str, timedelta | str | None, int | None, int | None], Plan] = {}
        """By topic, delay, delay_ms and level."""
        self._destinations: dict[str, tuple[str, tuple[str, bytes]]] = {}
        self._wheel = self._names.wheel
        self._ids = map(f"{uuid.uuid4().hex[:20]}%012x".encode().__mod__, count())
        """Endless new ids, for messages that bring none."""

    def _client_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "allow.auto.create.topics": False,
            # A schedule topic that does not exist is told by its name, before most callers give up.
            "topic.metadata.propagation.max.ms": 5_000,
            **for_producer(config),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }

    def _make_client(self, options: Mapping[str, Any]) -> Any:
        return LastingProducer(self._clients, options)

    def _find_client_in_use(self) -> Any:
        return self._producer.client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        unanswered = self.flush()
        if not unanswered:
            return
        self._serve(lambda _: self._producer.give_up(), 0)
        told = f"{unanswered} records had no answer from Kafka when the producer was closed"
        if error is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{told}; their receipts tell which"))
        _log.error("records unanswered", "%s", told, operator_action="see their receipts; check the brokers")

    # --- scheduling ---------------------------------------------------------------------------------------------------

    def send(
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
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Schedule one record and wait for Kafka's acknowledgement.

        Errors of sending are mended by librdkafka's idempotent retries, which never schedule twice, for as long as the
        timeout allows. RocketMQ tries another broker; what stands in for it is another partition of the schedule topic,
        at most twice, where the record's place is free (no key, no ``REAL_QID``) and the partition's broker has said
        that it did not take it.

        Args:
            key: decides the partition, here and at the destination, as a Java producer's would.
            headers: carried to the destination; ``UNIQ_KEY`` among them is the message's id, ``REAL_QID`` the
                destination's partition.
            deliver_at: a time with a zone.
            delay: from the moment Kafka takes the record: a timedelta, or a text such as ``90s`` or ``1h30m``.
            delay_ms: the same as a number of milliseconds.
            level: the delay level, from 1; clamped to the last of ``levels``. Such a record cannot be cancelled.
            timeout_s: how long to wait for the acknowledgement, attempts included.

        Raises:
            ValueError: the timeout is below 0.
            ScheduleError: not exactly one of ``deliver_at``, ``delay`` and ``level``, or one, or a value or key, that
                cannot be used.
            KafkaException: Kafka refused the record, or did not answer in time; then it is not known whether it waits.
        """
        _check_timeout(timeout_s)
        plan = self._plan(topic, deliver_at, delay, delay_ms, level)
        written, pending = self._prepare(plan, headers)
        if pending.span is None:
            return self._send(plan.schedule_topic, value, key, written, pending, timeout_s)
        span, pending.span = pending.span, None  # of all attempts together
        try:
            return self._send(plan.schedule_topic, value, key, written, pending, timeout_s)
        except (KafkaException, ScheduleError) as exception:
            pending.error = _as_kafka_error(exception)
            raise
        finally:
            pending.span = span
            pending.end_span(pending.error)

    def _send(
        self,
        schedule_topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        written: Headers,
        pending: PendingReceipt,
        timeout_s: float,
    ) -> Receipt:
        deadline = Deadline(self._clients.clock, timeout_s)
        is_free = key is None and not any(name == REAL_QID for name, _ in written)
        partition, refused = BY_KEY, set[int]()
        for attempt in range(1, SYNC_ATTEMPTS + 1):
            self._produce(schedule_topic, value, key, partition, written, pending, deadline.left_s)
            self.serve_until_answered(pending, deadline.left_s)
            error, message = pending.error, pending.message
            if error is None:
                break
            elsewhere = None
            if is_free and attempt < SYNC_ATTEMPTS and error.code() in _REFUSED_BY_PARTITION:
                refused.add(_place(message)[0])
                elsewhere = self._another_partition(schedule_topic, refused, deadline.left_s)
            if elsewhere is None:
                raise KafkaException(error)
            partition, pending.message = elsewhere, None
        return pending.receipt()

    def begin_send(
        self,
        topic: str,
        value: bytes | str | None,
        on_receipt: OnReceipt | None = None,
        *,
        key: bytes | str | None = None,
        headers: HeadersArgument = (),
        deliver_at: datetime | None = None,
        delay: timedelta | str | None = None,
        delay_ms: int | None = None,
        level: int | None = None,
        wait_for_room: bool = True,
    ) -> PendingReceipt:
        """Schedule one record, as `send` does, and do not wait; but for room, where the client's queue is full.

        Failures are told (to ``on_receipt``, and by the pending receipt's ``result``), and not retried. What
        ``on_receipt`` raises is logged. It may begin more, but wait for nothing of this producer's: RuntimeError.

        Args:
            wait_for_room: False: a full queue raises _QUEUE_FULL, for those who must not block.

        Raises:
            ScheduleError: as `send`.
            KafkaException: the client refuses the record, for its size; ``on_receipt`` is not called then.
        """
        # Short: it runs once a record.
        try:
            plan = self._plans.get((topic, delay, delay_ms, level)) if deliver_at is None else None
        except TypeError:  # one that no dictionary takes is of no use: which, is told below
            plan = None
        if plan is None:
            plan = self._plan(topic, deliver_at, delay, delay_ms, level)
        if headers or self._tracer is not None:
            written, pending = self._prepare(plan, headers, on_receipt)
        else:
            uniq_key = next(self._ids)
            written, pending = [(UNIQ_KEY, uniq_key), *plan.headers], PendingReceipt(self, plan, uniq_key, on_receipt)
        try:
            self._client_in_use.produce(plan.schedule_topic, value, key, BY_KEY, pending, None, 0, written)
        except (BufferError, KafkaException, TypeError, UnicodeEncodeError):
            pass
        else:
            return pending
        # Not while the exception is handled: another one of confluent-kafka's would never be freed then, and hold the
        # record (github.com/confluentinc/confluent-kafka-python/issues/1266, seen with 2.16.1).
        room_within_s = inf if wait_for_room else 0
        try:
            self._produce(plan.schedule_topic, value, key, BY_KEY, written, pending, room_within_s)
        except (KafkaException, ScheduleError) as exception:
            pending.end_span(_as_kafka_error(exception))
            raise
        finally:
            self._client_in_use = self._find_client_in_use()  # another may have taken its place
        return pending

    def check(
        self,
        topic: str,
        *,
        headers: HeadersArgument = (),
        deliver_at: datetime | None = None,
        delay: timedelta | str | None = None,
        delay_ms: int | None = None,
        level: int | None = None,
    ) -> None:
        """Whether such a record can be scheduled, as far as that can be told without asking Kafka.

        Raises:
            ScheduleError: as `send` with the same arguments.
        """
        self._plan(topic, deliver_at, delay, delay_ms, level)
        carried(headers)

    # --- changing one's mind ------------------------------------------------------------------------------------------

    def cancel(self, receipt: Receipt | str, *, timeout_s: float = 30.0) -> tuple[int, int]:
        """Take a message back; returns the partition and offset of the cancel once Kafka has it.

        Whether it came in time is decided by the sidecar.

        Raises:
            ReceiptError: the word is no receipt.
            ScheduleError: the message stands on a level topic.
            KafkaException: Kafka refused the cancel, or did not answer in time.
        """
        _check_timeout(timeout_s)
        receipt = Receipt.of(receipt)
        headers = cancel_headers(receipt)
        pending = self._about(receipt)
        deadline = Deadline(self._clients.clock, timeout_s)
        self._produce(receipt.schedule_topic, None, receipt.key, receipt.partition, headers, pending, timeout_s)
        pending.result(deadline.left_s)
        return _place(pending.message)

    def begin_cancel(self, receipt: Receipt | str, on_place: OnPlace, *, wait_for_room: bool = True) -> None:
        """Take a message back, as `cancel` does, and do not wait; but for room, as `begin_send`.

        Raises:
            ReceiptError: the word is no receipt.
            ScheduleError: the message stands on a level topic.
        """

        receipt = Receipt.of(receipt)
        headers = cancel_headers(receipt)
        self._begin(receipt.schedule_topic, None, receipt.key, receipt.partition, headers, on_place, wait_for_room)

    def begin_write(
        self,
        topic: str,
        value: bytes | None,
        on_place: OnPlace,
        *,
        key: bytes | None,
        headers: Headers,
        wait_for_room: bool = True,
    ) -> None:
        """Write a record as it is, that of a send-back for one, and do not wait; but for room, as `begin_send`."""
        self._begin(topic, value, key, BY_KEY, headers, on_place, wait_for_room)

    def reschedule(
        self,
        receipt: Receipt | str,
        *,
        deliver_at: datetime | None = None,
        delay: timedelta | str | None = None,
        delay_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Give a pending message another time: one record that replaces it, or does nothing if it has gone out.

        The message itself is read from the schedule topic.

        Raises:
            ReceiptError: the word is no receipt.
            ScheduleError: the message stands on a level topic.
            RecordGoneError: Kafka no longer has the record, another stands in its place, or its headers cannot be read.
            KafkaException: Kafka refused the record, or did not answer in time.
        """
        _check_timeout(timeout_s)
        receipt = Receipt.of(receipt)
        check_cancellable(receipt)
        time, due_ms = when(deliver_at, delay, delay_ms)
        deadline = Deadline(self._clients.clock, timeout_s)
        original = self._read(receipt, deadline)
        try:
            given: Headers = original.headers() or []  # type: ignore[assignment]
        except HEADER_ERRORS:
            raise RecordGoneError(
                f"{receipt.schedule_topic}-{receipt.partition}, offset {receipt.offset}: a header's name is not UTF-8 "
                "text, so that the record is in the sidecar's dead letters; send the message again without that header"
            ) from None
        if _id_of(original, given) != receipt.id.encode():
            raise RecordGoneError(
                f"another record stands at {receipt.schedule_topic}-{receipt.partition}, offset {receipt.offset}: the "
                "receipt is of another cluster, or of a log that has lost its end; 'timewheel pending --id' shows the "
                "message's receipt here"
            )
        written = replacement_headers(receipt, given, time)
        pending = self._about(receipt, due_ms, counts_from_timestamp=deliver_at is None)
        value, key, partition = original.value(), original.key(), receipt.partition
        self._produce(receipt.schedule_topic, value, key, partition, written, pending, deadline.left_s)
        return pending.result(deadline.left_s)

    # --- answers ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float = 0.0) -> int:
        """Tell of the answers that have come, or wait for some; how many there were. Negative: for ever."""
        return self._serve(self._producer.poll, timeout_s)

    def flush(self, timeout_s: float = 30.0) -> int:
        """Wait for the answer to everything that was begun; how many are still out. Negative: for ever."""
        return self._serve(self._producer.flush, timeout_s)

    def serve_until_answered(self, pending: PendingReceipt, timeout_s: float) -> None:
        """Wait for one answer, and tell of others that come meanwhile.

        Raises:
            KafkaException: it has not come in time.
        """
        deadline = Deadline(self._clients.clock, timeout_s)
        while not pending.is_answered:
            # Flushing sends at once, without lingering. In short turns: it would wait for everybody's records, and
            # another thread's turn may bring this one's answer.
            self._serve(self._producer.flush, min(_SERVE_S, deadline.left_s))
            if not pending.is_answered and deadline.left_s == 0:
                asked = self._config.get("bootstrap.servers") or self._config.get("metadata.broker.list")
                silence = (
                    f"no acknowledgement from the schedule topic within {timeout_s:.0f} s; check that Kafka is at "
                    f"{asked} (bootstrap.servers), and the security options"
                )
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, silence))

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _is_in_callback(self) -> bool:
        """Whether this thread is in a callback of this producer."""
        return getattr(self._in_callback, "is_served", False)

    def _serve(self, serve: Callable[[float], int], timeout_s: float) -> int:
        """The client's ``poll`` or ``flush``, which call back.

        Raises:
            RuntimeError: a callback waits. The client does not allow for that: it ends the process at the next report
                (github.com/confluentinc/confluent-kafka-python/issues/457).
        """
        if self._is_in_callback:
            raise RuntimeError(
                "a callback of a ScheduledProducer cannot wait for Kafka: call begin_send or begin_cancel in it, or "
                "have another thread do what waits (send, cancel, reschedule, result, poll, flush)"
            )
        self._in_callback.is_served = True
        try:
            return serve(timeout_s)
        finally:
            self._in_callback.is_served = False

    def _prepare(
        self, plan: Plan, headers: HeadersArgument, on_receipt: OnReceipt | None = None
    ) -> tuple[Headers, PendingReceipt]:
        """The headers and the receipt to come."""
        given, uniq_key = carried(headers) if headers else _NOTHING_GIVEN
        if uniq_key:
            written = [*given, *plan.headers]
        else:
            uniq_key = next(self._ids)
            written = [*given, (UNIQ_KEY, uniq_key), *plan.headers]
        pending = PendingReceipt(self, plan, uniq_key, on_receipt)
        if self._tracer is not None:
            pending.span = self._tracer.start(written, plan.schedule_topic, plan.destination, uniq_key)
        return written, pending

    def _plan(
        self,
        topic: str,
        deliver_at: datetime | None,
        delay: timedelta | str | None,
        delay_ms: int | None,
        level: int | None,
    ) -> Plan:
        """Remembered for destinations, delays and levels, of which applications have few; not for times.

        Raises:
            ScheduleError: one of the arguments cannot be used.
        """
        if not isinstance(topic, str):
            raise ScheduleError(f"the topic {topic!r} is not text")
        destination, real_topic = self._destinations.get(topic) or self._destination(topic)
        if level is not None:
            if deliver_at is not None or delay is not None or delay_ms is not None:
                raise ScheduleError("give one of deliver_at, delay and level")
            schedule_topic, due_ms = self._level(level)
            plan = Plan(schedule_topic, destination, (real_topic,), due_ms, True, is_cancellable=False)
        else:
            time, due_ms = when(deliver_at, delay, delay_ms)
            plan = Plan(self._wheel, destination, (real_topic, time), due_ms, deliver_at is None)
        if deliver_at is None:
            _make_room(self._plans)
            self._plans[topic, delay, delay_ms, level] = plan
        return plan

    def _destination(self, topic: str) -> tuple[str, tuple[str, bytes]]:
        """The physical topic and its header."""
        physical = self._names.physical(topic)
        if not is_legal_topic_name(physical):
            raise ScheduleError(f"'{topic}' is not a valid topic name (at most 249 letters, digits, '.', '_' and '-')")
        if not self._names.is_destination(physical):
            raise ScheduleError(f"'{topic}' is one of Timewheel's or Kafka's own; name the topic to deliver to")
        _make_room(self._destinations)
        found = self._destinations[topic] = physical, (REAL_TOPIC, physical.encode())
        return found

    def _level(self, level: int) -> tuple[str, int]:
        """The level's topic and its delay in ms."""
        if not is_whole(level):
            raise ScheduleError(f"level is {level!r}; give a whole number, counted from 1")
        if level < 1:
            raise ScheduleError(f"level {level} does not exist; levels are counted from 1")
        return self._names.level(self._levels.clamp(level)), self._levels.delay_ms(level)

    def _about(self, receipt: Receipt, due_ms: int = 0, *, counts_from_timestamp: bool = False) -> PendingReceipt:
        """For a record about a message that has a receipt."""
        plan = Plan(receipt.schedule_topic, receipt.topic, (), due_ms, counts_from_timestamp)
        return PendingReceipt(self, plan, receipt.id.encode())

    def _produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int,
        headers: Headers,
        on_delivery: Callable[[KafkaError | None, Message], None],
        room_within_s: float = inf,
    ) -> None:
        """Queue a record, once there is room.

        Raises:
            ScheduleError: a value or key that is neither bytes nor text that can be written.
            KafkaException: the client refuses the record, or its queue stays full (_QUEUE_FULL).
        """
        deadline = Deadline(self._clients.clock, room_within_s)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery, None, 0, headers)
            except BufferError:
                if deadline.left_s == 0 or self._is_in_callback:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
                self._serve(self._producer.poll, min(_ROOM_WAIT_S, deadline.left_s))
            except KafkaException as exception:
                raise KafkaException(_refused_here(exception.args[0], topic)) from None
            except (TypeError, UnicodeEncodeError) as error:
                for name, given in (("value", value), ("key", key)):
                    if not isinstance(given, bytes | str | None):
                        raise ScheduleError(
                            f"the {name} is of type {type(given).__name__}; give str or bytes"
                        ) from error
                    if isinstance(given, str) and not is_utf8(given):
                        raise ScheduleError(
                            f"the {name} cannot be written as UTF-8; take out its surrogates, or give bytes"
                        ) from error
                raise
            else:
                return

    def _begin(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Headers,
        on_place: OnPlace,
        wait_for_room: bool,
    ) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            tell(on_place, _place(message) if error is None else with_remedy(error, topic))

        self._produce(topic, value, key, partition, headers, on_delivery, inf if wait_for_room else 0)

    def _another_partition(self, topic: str, refused: set[int], timeout_s: float) -> int | None:
        """A partition that has not refused the record."""
        known = self._producer.list_topics(topic, timeout_s).topics[topic].partitions
        return next((partition for partition in sorted(known) if partition not in refused), None)

    def _read(self, receipt: Receipt, deadline: Deadline) -> Message:
        """The record as it was scheduled."""
        consumer = self._clients.consumer(
            {
                **for_consumer(self._config),
                "group.id": "timewheel-reschedule",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,  # told at once that there is no such record
                "isolation.level": "read_uncommitted",
                "client.rack": "",  # of the leader: another replica may not have it yet
            }
        )
        try:
            # Of a topic that is not there, a reader is told nothing for as long as it may still come into being.
            known = consumer.list_topics(receipt.schedule_topic, timeout=deadline.left_s).topics[receipt.schedule_topic]
            if receipt.partition not in known.partitions:
                error = known.error or KafkaError(KafkaError._UNKNOWN_PARTITION)
                raise KafkaException(with_remedy(error, receipt.schedule_topic))
            consumer.assign([TopicPartition(receipt.schedule_topic, receipt.partition, receipt.offset)])
            message: Message | None = consumer.poll(deadline.left_s)
            while message is not None and is_about_group(message.error()):
                message = consumer.poll(deadline.left_s)
        finally:
            consumer.close()
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the scheduled record could not be read in time"))
        error = message.error()
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaException(error)
        if error is not None or message.offset() != receipt.offset:
            raise RecordGoneError("Kafka no longer has the scheduled record; cancel it and send it again")
        return message


def _id_of(record: Message, headers: Headers) -> bytes:
    """The id of the message that a record of a schedule topic asks for."""
    place = f"{record.topic()}-{record.partition()}-{record.offset()}"
    return dict(headers).get(UNIQ_KEY) or place.encode()


def _as_kafka_error(exception: KafkaException | ScheduleError) -> KafkaError:
    """The error that a span ends with."""
    if isinstance(exception, KafkaException):
        error: KafkaError = exception.args[0]
        return error
    return KafkaError(KafkaError._INVALID_ARG, str(exception))


def _tracer(tracing: "TracerProvider | bool") -> "ScheduleTracer | None":
    if tracing is False:
        return None
    try:
        from connectors.tracing import ScheduleTracer
    except ImportError as error:
        raise ImportError(f"tracing needs OpenTelemetry; {how_to_install('otel')}") from error
    return ScheduleTracer(None if tracing is True else tracing)


def _make_room(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= _REMEMBERED_MAX:
        remembered.clear()


def _refused_here(error: KafkaError, topic: str) -> KafkaError:
    """The client's own refusal: a record that it finds too large has not come to where the topic's limit holds."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return KafkaError(error.code(), f"{error.str()}; raise message.max.bytes of the producer")
    return with_remedy(error, topic)


def _place(message: Message | None) -> tuple[int, int]:
    assert message is not None
    return message.partition() or 0, message.offset() or 0


def _check_timeout(timeout_s: float) -> None:
    """Before anything is written: of what is written and not waited for, nobody would know."""
    if timeout_s < 0:
        raise ValueError(f"timeout_s is {timeout_s}; give the seconds to wait, 0 or more")
