"""A producer with the methods of `confluent_kafka.Producer`, transactions included.

A produced record waits in the client until somebody makes the next call, as if the background thread had its turn then.
Its own abort is the exception: it purges what has not been sent.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.contract import Headers
from connectors.kafka import BY_KEY
from connectors.testing.client import Client, Config
from connectors.testing.errors import TIMED_OUT, ProducerFencedError, RefusedOffsetsError, failure, words
from connectors.testing.faults import Fault, Kind
from connectors.testing.log import Span
from connectors.testing.membership import ConsumerGroupMetadata
from connectors.testing.metadata import cluster_metadata
from connectors.testing.outbox import DeliveryCallback, Outbox, Queued
from connectors.testing.sizes import CLIENT_OVERHEAD_BYTES, headers_bytes
from connectors.testing.transaction_state import FENCED, State, TransactionState

if TYPE_CHECKING:
    from connectors.testing.kafka import InMemoryKafka
    from connectors.testing.process import Process

HeadersArgument = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


class InMemoryProducer(Client):
    """Keeps the order; with ``transactional.id`` it takes part in transactions."""

    def __init__(self, kafka: "InMemoryKafka", process: "Process", config: Config) -> None:
        super().__init__(kafka, process, config)
        self._transactional_id: str = config.get("transactional.id") or ""
        self._transaction_timeout_ms = int(config.get("transaction.timeout.ms", 60_000))
        self._message_max_bytes = int(config.get("message.max.bytes", 1_000_000))
        self._queue_max = int(config.get("queue.buffering.max.messages", 100_000))
        self._on_delivery: DeliveryCallback | None = config.get("on_delivery") or config.get("dr_cb")
        self._epoch = -1
        self._state = TransactionState(is_transactional=bool(self._transactional_id))
        self._outbox = Outbox(kafka, process.name, config, self._state, self._span if self._transactional_id else None)
        self._is_registered = False
        """Whether the coordinator knows of the open transaction."""

    # --- producing ----------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = BY_KEY,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersArgument | None = None,
    ) -> None:
        """Queue a record.

        Raises:
            BufferError: the queue is full.
            KafkaException: too large for this client, no such partition, no open transaction, or a fatal error.
        """
        self._alive()
        self._local("produce:before")
        self._state.check_produce()
        value, key = _as_bytes(value), _as_bytes(key)
        pairs = _pairs(headers) if headers else None
        size_of_headers = headers_bytes(pairs)
        size = (len(value) if value else 0) + (len(key) if key else 0) + size_of_headers
        if size + CLIENT_OVERHEAD_BYTES > self._message_max_bytes:
            raise _unable(KafkaError.MSG_SIZE_TOO_LARGE)
        kafka, outbox = self._kafka, self._outbox
        if topic in outbox.known and partition > 0:
            found = kafka.topics.get(topic)
            if found is not None and partition >= len(found.logs):
                raise _unable(KafkaError._UNKNOWN_PARTITION)
        now_ms = kafka.clock.monotonic_ms()
        report_to = on_delivery or callback or self._on_delivery
        timestamp_ms = timestamp or kafka.clock.now_ms()
        with kafka.sending:
            queue = outbox.queue
            if len(queue) >= self._queue_max:
                raise BufferError("Local: Queue full")
            if not queue:
                kafka.senders.append(self)
            queue.append(Queued(topic, partition, key, value, pairs, size_of_headers, timestamp_ms, now_ms, report_to))
        self._local("produce:after")

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; how many there were."""
        self._before("poll", waits=False)
        outbox = self._outbox
        outbox.send()
        if not outbox.has_reports and timeout > 0:
            self._kafka.wait(timeout, lambda: outbox.send() and outbox.has_reports)
        self._state.tell_fatal()
        return outbox.serve()

    def flush(self, timeout: float = -1) -> int:
        """Send what is queued; how many records are still on their way."""
        self._before("flush", waits=False)
        self._flush(timeout)
        self._local("flush:after")
        return len(self._outbox)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Forget what has not been sent; delivery reports say so."""
        self._alive()
        self._outbox.purge()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        if _timed_out(self._before("metadata", timeout)) or _timed_out(self._after("metadata", timeout)):
            raise failure(KafkaError._TRANSPORT, f"Failed to get metadata: {words(KafkaError._TRANSPORT)}")
        return cluster_metadata(self._kafka.topics, topic)

    def close(self) -> bool:
        """Whether everything has been sent."""
        return self.flush(0) == 0

    def __len__(self) -> int:
        return len(self._outbox)

    def __bool__(self) -> bool:
        return True

    # --- transactions -------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Take the transactional id over: older producers are fenced, what they left open is aborted."""
        self._begin_call("init_transactions", State.INIT)
        self._ask("init_transactions", timeout)
        if not self._state.is_done:
            self._epoch = self._kafka.transactions.init(self._transactional_id, self._transaction_timeout_ms)
            self._state.is_done = True
        self._hear("init_transactions", timeout)
        self._state.settle(State.READY)

    def begin_transaction(self) -> None:
        """Local: the broker learns of the transaction with its first record or offset."""
        self._alive()
        self._local("begin_transaction:before")
        self._begin_call("begin_transaction", State.READY)
        self._state.settle(State.IN_TRANSACTION)
        self._is_registered = False
        self._local("begin_transaction:after")

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Make a consumer's progress part of the transaction, under its generation."""
        metadata: ConsumerGroupMetadata = group_metadata
        self._begin_call("send_offsets_to_transaction", State.IN_TRANSACTION)
        self._state.end_call()  # nothing to resume: a repeated call is a new one
        self._ask("send_offsets", timeout)
        if positions:
            span = self._span("Failed to add offsets to transaction")
            offsets = [((p.topic, p.partition), p.offset, p.metadata) for p in positions]
            try:
                self._kafka.groups.commit(
                    metadata.group_id, offsets, metadata.generation, metadata.member_id, metadata.instance_id, span
                )
            except RefusedOffsetsError as refused:
                raise self._state.abortable(
                    refused.code,
                    f"Failed to commit offsets to transaction on broker in-memory:9092/1: {positions[0].topic}"
                    f"((null))[{positions[0].partition}]({words(refused.code)}) (after 0ms)",
                ) from None
        self._hear("send_offsets", timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what is queued, then make all of it visible.

        Raises:
            KafkaException: ``_TIMED_OUT`` is retriable, and the same call has to be repeated: it may be committed.
        """
        began_ms = self._kafka.clock.monotonic_ms()
        self._begin_call("commit_transaction", State.IN_TRANSACTION)
        self._ask("commit_transaction", timeout)
        if self._state.is_done:
            self._check_epoch()
        else:
            is_sent = self._flush(self._left_s(timeout, began_ms))
            self._state.raise_error()
            if not is_sent:
                raise _wait_is_over()
            self._local("commit_transaction:sent")
            self._end(commit=True)
        self._hear("commit_transaction", timeout)
        self._state.settle(State.READY)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Forget what is queued, and make sure that what has been sent never becomes visible."""
        self._begin_call("abort_transaction", State.IN_TRANSACTION, State.ABORTABLE)
        self._alive()
        self._outbox.purge()
        self._ask("abort_transaction", timeout)
        self._outbox.serve()
        if not self._state.is_done:
            self._end(commit=False)
            if self._state.needs_epoch:
                self._epoch = self._kafka.transactions.init(self._transactional_id, self._transaction_timeout_ms)
                self._outbox.mend()
        self._hear("abort_transaction", timeout)
        self._state.settle(State.READY)

    # --- between the client and the broker ----------------------------------------------------------------------------

    def send_queued(self) -> bool:
        """Let the background thread have its turn; whether nothing is left to send."""
        return self._outbox.send() if self.process.is_running else not self._outbox.queue

    def stopped(self, *, was_heard: bool) -> None:
        if self.process.is_dead:
            self._outbox.queue.clear()

    def _begin_call(self, name: str, *allowed: State) -> None:
        if not self._transactional_id:
            reason = "The Transactional API requires transactional.id to be configured"
            raise failure(KafkaError._NOT_CONFIGURED, reason)
        self._state.begin_call(name, *allowed)

    def _ask(self, call: str, timeout_s: float) -> None:
        """The way to the broker, and what may happen on it."""
        fault = self._before(call, timeout_s)
        if fault is None:
            return
        if fault.kind is Kind.TIME_OUT:
            raise _wait_is_over()
        if fault.kind is Kind.NOT_COORDINATOR:
            self._state.end_call()
            raise failure(KafkaError.NOT_COORDINATOR, words(KafkaError.NOT_COORDINATOR), retriable=True)
        if fault.kind is Kind.ABORT and not self._state.is_done:
            code = KafkaError.TRANSACTION_ABORTABLE
            raise self._state.abortable(code, words(code))
        if fault.kind is Kind.FENCE and self._epoch >= 0:
            self._kafka.transactions.fence(self._transactional_id)

    def _hear(self, call: str, timeout_s: float) -> None:
        """The way back: what is done is done, whether or not the client learns of it."""
        if _timed_out(self._after(call, timeout_s)):
            raise _wait_is_over()

    def _span(self, reason: str = "Failed to add partitions to transaction") -> Span:
        try:
            span = self._kafka.transactions.span(self._transactional_id, self._epoch)
        except ProducerFencedError:
            raise self._state.fatal(KafkaError._FENCED, f"{reason}: {FENCED}") from None
        self._is_registered = True
        return span

    def _check_epoch(self) -> None:
        try:
            self._kafka.transactions.check(self._transactional_id, self._epoch)
        except ProducerFencedError:
            raise self._state.fatal(KafkaError._FENCED, f"Failed to end transaction: {FENCED}") from None

    def _end(self, *, commit: bool) -> None:
        """Ask the coordinator, if it knows of the transaction."""
        if self._is_registered:
            self._check_epoch()
            late_ms = 0
            if commit:
                fault = self._kafka.faults.decide("commit_transaction:markers", self.process.name)
                late_ms = fault.ms if fault is not None and fault.kind is Kind.LATE_MARKERS else 0
            self._kafka.transactions.end(self._transactional_id, self._epoch, commit=commit, markers_after_ms=late_ms)
            self._is_registered = False
        self._state.is_done = True

    def _flush(self, timeout_s: float) -> bool:
        """Whether everything is sent or has failed."""
        outbox, state = self._outbox, self._state

        def is_over() -> bool:
            return outbox.send() or state.has_failed()

        done = is_over() or self._kafka.wait(timeout_s, is_over)
        state.tell_fatal()
        outbox.serve()
        return done


def _wait_is_over() -> KafkaException:
    return failure(KafkaError._TIMED_OUT, TIMED_OUT, retriable=True)


def _unable(code: int) -> KafkaException:
    return failure(code, f"Unable to produce message: {words(code)}")


def _as_bytes(data: bytes | str | None) -> bytes | None:
    """Raises TypeError for anything else, a bytearray too, as librdkafka's client does."""
    if data is None or isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        raise TypeError(f"argument must be read-only bytes-like object, not {type(data).__name__}")
    return data.encode()


def _pairs(headers: HeadersArgument) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _timed_out(fault: Fault | None) -> bool:
    return fault is not None and fault.kind is Kind.TIME_OUT
