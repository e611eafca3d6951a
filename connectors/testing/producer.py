"""A producer with the methods of `confluent_kafka.Producer`, transactions included.

A produced record waits in the client until somebody makes the next call, as if the background thread had its turn then;
what waits together for one partition is one batch. Its own abort is the exception: it purges what has not been sent.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from connectors.testing.client import Client, Config
from connectors.testing.errors import (
    TIMED_OUT,
    ProducerFencedError,
    RefusedOffsetsError,
    error,
    failure,
    words,
)
from connectors.testing.faults import Fault, Kind
from connectors.testing.log import Entry, Headers, PartitionLog, Span
from connectors.testing.membership import Callback, ConsumerGroupMetadata
from connectors.testing.metadata import cluster_metadata
from connectors.testing.partitioner import PARTITIONERS
from connectors.testing.sizes import BATCH_OVERHEAD_BYTES, CLIENT_OVERHEAD_BYTES, headers_bytes, record_bytes
from connectors.testing.topics import CREATE_TIME, LOG_APPEND_TIME, Topic, is_legal_name
from connectors.testing.transaction_state import FENCED, State, TransactionState

if TYPE_CHECKING:
    from connectors.testing.kafka import InMemoryKafka
    from connectors.testing.process import Process

_ANY_PARTITION = -1


class _Queued(NamedTuple):
    """A record on its way."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    headers_bytes: int
    timestamp_ms: int
    queued_ms: float
    on_delivery: Callback | None


class InMemoryProducer(Client):
    """Idempotent or not, it keeps the order; with ``transactional.id`` it takes part in transactions."""

    def __init__(self, kafka: "InMemoryKafka", process: "Process", config: Config) -> None:
        super().__init__(kafka, process, config)
        self._transactional_id: str | None = config.get("transactional.id") or None
        self._transaction_timeout_ms = int(config.get("transaction.timeout.ms", 60_000))
        self._message_timeout_ms = float(config.get("message.timeout.ms", config.get("delivery.timeout.ms", 300_000)))
        self._message_max_bytes = int(config.get("message.max.bytes", 1_000_000))
        self._queue_max = int(config.get("queue.buffering.max.messages", 100_000))
        self._tells_errors_only = str(config.get("delivery.report.only.error", False)).lower() in ("true", "1")
        self._on_delivery: Callback | None = config.get("on_delivery") or config.get("dr_cb")
        self._partition_of = PARTITIONERS[str(config.get("partitioner", "consistent_random"))]
        self._turns = count()
        self._queue: list[_Queued] = []
        self._reports: list[tuple[Callback, KafkaError | None, Message]] = []
        self._known: set[str] = set()
        self._epoch = -1
        self._state = TransactionState(is_transactional=self._transactional_id is not None)
        self._in_coordinator = False
        """Whether the coordinator knows of the open transaction."""
        self._broken_sequences: set[PartitionLog] = set()
        """Where a batch has failed: the next to the same partition needs a new epoch."""

    # --- producing ----------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = _ANY_PARTITION,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] | None = None,
    ) -> None:
        """Queue a record.

        Raises:
            BufferError: the queue is full.
            KafkaException: too large for this client, no such partition, no open transaction, or a fatal error.
        """
        if not self.process.is_running:
            self._wake()
        self._local("produce:before")
        self._state.check_produce()
        value, key = _as_bytes(value), _as_bytes(key)
        pairs = None if not headers else _pairs(headers)
        size_of_headers = headers_bytes(pairs)
        size = (len(value) if value else 0) + (len(key) if key else 0) + size_of_headers
        if size + CLIENT_OVERHEAD_BYTES > self._message_max_bytes:
            raise _unable(KafkaError.MSG_SIZE_TOO_LARGE)
        if topic in self._known:
            found = self._kafka.topics.get(topic)
            if found is not None and partition >= len(found.logs):
                raise _unable(KafkaError._UNKNOWN_PARTITION)
        queue = self._queue
        if len(queue) >= self._queue_max:
            raise BufferError("Local: Queue full")
        if not queue:
            self._kafka.senders.append(self)
        queue.append(
            _Queued(
                topic,
                partition,
                key,
                value,
                pairs,
                size_of_headers,
                timestamp or self._kafka.clock.now_ms(),
                self._kafka.clock.monotonic_ms(),
                on_delivery or callback or self._on_delivery,
            )
        )
        self._local("produce:after")

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; how many there were."""
        if not self.process.is_running:
            self._wake()
        self._kafka.timers.ring()
        self.send_queued()
        if not self._reports and timeout > 0:
            self._kafka.wait(timeout, lambda: self.send_queued() and bool(self._reports))
        return self._serve_reports()

    def flush(self, timeout: float = -1) -> int:
        """Send what is queued; how many records are still on their way."""
        self._before("flush", timeout)
        self._flush(timeout)
        self._local("flush:after")
        return len(self._queue)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Forget what has not been sent; delivery reports say so."""
        if not self.process.is_running:
            self._wake()
        self._fail(self._queue, KafkaError._PURGE_QUEUE)
        self._queue = []

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        fault = self._before("metadata", timeout)
        if _has_timed_out(fault) or _has_timed_out(self._after("metadata", timeout)):
            raise failure(KafkaError._TRANSPORT, f"Failed to get metadata: {words(KafkaError._TRANSPORT)}")
        return cluster_metadata(self._kafka.topics, topic)

    def close(self) -> bool:
        """Flush, and release."""
        return self.flush(0) == 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports)

    def __bool__(self) -> bool:
        return True

    # --- transactions -------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Take the transactional id over: older producers are fenced, what they left open is aborted."""
        self._check_transactional()
        self._state.begin_call("init_transactions", State.INIT)
        fault = self._asked("init_transactions", timeout)
        if self._epoch < 0 or not self._state.is_done:
            self._epoch = self._kafka.transactions.init(self._id, self._transaction_timeout_ms)
        self._state.is_done = True
        del fault
        self._answered("init_transactions", timeout)
        self._state.settle(State.READY)

    def begin_transaction(self) -> None:
        """Local: the broker learns of the transaction with its first record or offset."""
        self._check_transactional()
        if not self.process.is_running:
            self._wake()
        self._local("begin_transaction:before")
        self._state.begin_call("begin_transaction", State.READY)
        self._state.settle(State.IN_TRANSACTION)
        self._in_coordinator = False
        self._local("begin_transaction:after")

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Make a consumer's progress part of the transaction, under its generation."""
        self._check_transactional()
        metadata: ConsumerGroupMetadata = group_metadata
        self._state.begin_call("send_offsets_to_transaction", State.IN_TRANSACTION)
        name = "Failed to add offsets to transaction"
        self._asked("send_offsets", timeout, name, is_resumable=False)
        if positions:
            span = self._span(name)
            offsets = [((p.topic, p.partition), p.offset, p.metadata or "") for p in positions]
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
        self._answered("send_offsets", timeout, is_resumable=False)
        self._state.end_call()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what is queued, then make all of it visible.

        Raises:
            KafkaException: ``_TIMED_OUT`` is retriable, and the same call has to be repeated: it may be committed.
        """
        self._check_transactional()
        self._state.begin_call("commit_transaction", State.IN_TRANSACTION)
        fault = self._asked("commit_transaction", timeout)
        if not self._state.is_done:
            if not self._flush(timeout):
                raise self._timed_out()
            self._state.raise_error()
            self._local("commit_transaction:sent")
            self._end(commit=True, fault=fault)
        else:
            self._check_epoch("Failed to end transaction")
        self._answered("commit_transaction", timeout)
        self._state.settle(State.READY)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Forget what is queued, and make sure that what has been sent never becomes visible."""
        self._check_transactional()
        self._state.begin_call("abort_transaction", State.IN_TRANSACTION, State.ABORTABLE)
        if not self._state.is_done:
            self.purge()
        self._asked("abort_transaction", timeout)
        self._serve_reports()
        if not self._state.is_done:
            self._end(commit=False)
            if self._state.needs_epoch:
                self._bump_epoch()
        self._answered("abort_transaction", timeout)
        self._state.settle(State.READY)

    # --- between the client and the broker ----------------------------------------------------------------------------

    @property
    def _id(self) -> str:
        assert self._transactional_id is not None
        return self._transactional_id

    def _check_transactional(self) -> None:
        if self._transactional_id is None:
            raise failure(
                KafkaError._NOT_CONFIGURED,
                "The Transactional API requires transactional.id to be configured",
            )

    def _asked(
        self, call: str, timeout_s: float, reason: str = "Failed to end transaction", *, is_resumable: bool = True
    ) -> Fault | None:
        """The way to the broker, and what may happen on it."""
        fault = self._before(call, timeout_s)
        if fault is None:
            return None
        if fault.kind is Kind.TIME_OUT:
            raise self._timed_out(is_resumable=is_resumable)
        if fault.kind is Kind.NOT_COORDINATOR:
            if not is_resumable:
                self._state.end_call()
            raise failure(KafkaError.NOT_COORDINATOR, words(KafkaError.NOT_COORDINATOR), retriable=True)
        if fault.kind is Kind.ABORT and not self._state.is_done:
            code = KafkaError.TRANSACTION_ABORTABLE
            raise self._state.abortable(code, words(code))
        if fault.kind is Kind.FENCE and self._epoch >= 0:
            self._kafka.transactions.fence(self._id)
        return fault

    def _answered(self, call: str, timeout_s: float, *, is_resumable: bool = True) -> None:
        """The way back: what is done is done, whether or not the client learns of it."""
        if _has_timed_out(self._after(call, timeout_s)):
            raise self._timed_out(is_resumable=is_resumable)

    def _timed_out(self, *, is_resumable: bool = True) -> KafkaException:
        if not is_resumable:
            self._state.end_call()
        return failure(KafkaError._TIMED_OUT, TIMED_OUT, retriable=True)

    def _span(self, reason: str) -> Span:
        try:
            span = self._kafka.transactions.span(self._id, self._epoch)
        except ProducerFencedError:
            raise self._state.fatal(KafkaError._FENCED, f"{reason}: {FENCED}") from None
        self._in_coordinator = True
        return span

    def _check_epoch(self, reason: str) -> None:
        try:
            self._kafka.transactions.check(self._id, self._epoch)
        except ProducerFencedError:
            raise self._state.fatal(KafkaError._FENCED, f"{reason}: {FENCED}") from None

    def _end(self, *, commit: bool, fault: Fault | None = None) -> None:
        """Ask the coordinator, if it knows of the transaction."""
        if self._in_coordinator:
            self._check_epoch("Failed to end transaction")
            late = self._kafka.faults.decide("end:markers", self.process.name) if commit else None
            late_ms = late.ms if late is not None and late.kind is Kind.LATE_MARKERS else 0
            self._kafka.transactions.end(self._id, self._epoch, commit=commit, markers_after_ms=late_ms)
        self._in_coordinator = False
        self._state.is_done = True
        del fault

    def _bump_epoch(self) -> None:
        try:
            self._kafka.transactions.check(self._id, self._epoch)
        except ProducerFencedError:
            raise self._state.fatal(KafkaError._FENCED, FENCED) from None
        self._epoch = self._kafka.transactions.init(self._id, self._transaction_timeout_ms)
        self._broken_sequences.clear()

    # --- sending ------------------------------------------------------------------------------------------------------

    def send_queued(self) -> bool:
        """Let the background thread have its turn; whether nothing is left to send."""
        if not self._queue:
            return True
        if self._state.has_failed or not self.process.is_running:
            return False
        if not self._kafka.is_available:
            self._expire_queued()
            return not self._queue
        queue, self._queue = self._queue, []
        batches: dict[tuple[str, int], list[_Queued]] = {}
        for record in queue:
            batches.setdefault((record.topic, record.partition), []).append(record)
        keyed = {place: batch for place, batch in batches.items() if place[1] == _ANY_PARTITION}
        for place in keyed:
            self._place(batches, place)
        waiting = iter(list(batches.items()))
        for place, batch in waiting:
            self._send(place, batch)
            if self._state.has_failed:
                self._queue += [record for _, rest in waiting for record in rest]
                break
        return not self._queue

    def _place(self, batches: dict[tuple[str, int], list[_Queued]], place: tuple[str, int]) -> None:
        """Replace a batch of records without a partition by one batch per partition."""
        topic = self._kafka.topics.get(place[0])
        if topic is None:
            return
        partitions = len(topic.logs)
        for record in batches.pop(place):
            partition = self._partition_of(record.key, partitions, next(self._turns))
            batches.setdefault((place[0], partition), []).append(record)

    def _send(self, place: tuple[str, int], batch: list[_Queued]) -> None:
        name, number = place
        topic = self._kafka.topics.get(name)
        if topic is None:
            code = KafkaError.UNKNOWN_TOPIC_OR_PART if is_legal_name(name) else KafkaError.TOPIC_EXCEPTION
            self._refuse_locally(batch, code, partition=None)
            return
        self._known.add(name)
        if number >= len(topic.logs):
            self._refuse_locally(batch, KafkaError._UNKNOWN_PARTITION)
            return
        log = topic.logs[number]
        span = None
        if self._transactional_id is not None:
            if log in self._broken_sequences:
                self._state.needs_epoch = True
                self._state.abortable(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "skipped sequence numbers")
                self._fail(batch, KafkaError._PURGE_QUEUE)
                return
            try:
                span = self._span("Failed to add partitions to transaction")
            except KafkaException:  # told by the next call of the transaction's
                self._queue += batch
                return
        code_of_broker = self._refusal(topic, log, batch)
        if code_of_broker is not None:
            self._refuse_by_broker(log, batch, code_of_broker)
            return
        self._append(topic, log, batch, span)

    def _refusal(self, topic: Topic, log: PartitionLog, batch: list[_Queued]) -> int | None:
        """What the broker has against the batch."""
        size = BATCH_OVERHEAD_BYTES
        for index, record in enumerate(batch):
            headers = record.headers
            size += record_bytes(record.key, record.value, record.headers_bytes, len(headers) if headers else 0, index)
        if size > topic.max_message_bytes:
            return KafkaError.MSG_SIZE_TOO_LARGE
        faults = self._kafka.faults
        fault = faults.decide("send:before", self.process.name)
        if fault is not None and fault.kind is Kind.REFUSE:
            return fault.code
        if faults.refusals:
            for record in batch:
                code = faults.refused(topic.name, log.number, record.value)
                if code is not None:
                    return code
        if topic.timestamp_type == CREATE_TIME:
            latest_ms = self._kafka.clock.now_ms() + topic.timestamp_after_max_ms
            if any(record.timestamp_ms > latest_ms for record in batch):
                return KafkaError.INVALID_TIMESTAMP
        return None

    def _append(self, topic: Topic, log: PartitionLog, batch: list[_Queued], span: Span | None) -> None:
        kind, now_ms = topic.timestamp_type, self._kafka.clock.now_ms()
        is_append_time = kind == LOG_APPEND_TIME
        entries: list[Entry] = [
            (now_ms if is_append_time else record.timestamp_ms, record.key, record.value, record.headers, span)
            for record in batch
        ]
        offset = log.append(entries, span)
        if self._tells_errors_only:
            return
        for record, entry in zip(batch, entries, strict=True):
            if record.on_delivery is not None:
                message = Message(
                    topic=topic.name,
                    partition=log.number,
                    offset=offset,
                    key=record.key,
                    value=record.value,
                    timestamp=(kind, entry[0]),
                )
                self._reports.append((record.on_delivery, None, message))
            offset += 1

    def _refuse_by_broker(self, log: PartitionLog, batch: list[_Queued], code: int) -> None:
        self._fail(batch, code, log.number)
        if self._transactional_id is None:
            return
        self._broken_sequences.add(log)
        self._state.abortable(
            code,
            f"ProduceRequest for {log.topic} [{log.number}] with {len(batch)} message(s) failed: {words(code)} "
            "(broker 1): current transaction must be aborted",
        )

    def _refuse_locally(self, batch: list[_Queued], code: int, partition: int | None = -1) -> None:
        self._fail(batch, code, partition)
        if self._transactional_id is not None:
            self._state.abortable(
                KafkaError._INCONSISTENT,
                f"{len(batch)} message(s) failed delivery (see individual delivery reports)",
            )

    def _expire_queued(self) -> None:
        """Records that the broker has not taken within ``message.timeout.ms``."""
        oldest_ms = self._kafka.clock.monotonic_ms() - self._message_timeout_ms
        if self._message_timeout_ms > 0 and self._queue[0].queued_ms <= oldest_ms:
            expired = [record for record in self._queue if record.queued_ms <= oldest_ms]
            self._queue = self._queue[len(expired) :]
            self._refuse_locally(expired, KafkaError._MSG_TIMED_OUT)

    def _fail(self, batch: Sequence[_Queued], code: int, partition: int | None = -1) -> None:
        """Delivery reports with an error; `partition` -1 is each record's own."""
        if not batch:
            return
        failed = error(code)
        for record in batch:
            if record.on_delivery is not None:
                place = record.partition if partition == -1 else partition
                message = Message(
                    topic=record.topic,
                    partition=None if place == _ANY_PARTITION else place,
                    key=record.key,
                    value=record.value,
                    error=failed,
                    timestamp=(0, -1),
                )
                self._reports.append((record.on_delivery, failed, message))

    def _flush(self, timeout_s: float) -> bool:
        """Whether everything is sent or has failed."""
        done = self.send_queued() or self._state.has_failed or self._kafka.wait(
            timeout_s, lambda: self.send_queued() or self._state.has_failed
        )  # fmt: skip
        self._serve_reports()
        return done

    def _serve_reports(self) -> int:
        reports, self._reports = self._reports, []
        for on_delivery, failed, message in reports:
            on_delivery(failed, message)
        return len(reports)


def _unable(code: int) -> KafkaException:
    return failure(code, f"Unable to produce message: {words(code)}")


def _as_bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _pairs(headers: Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, _as_bytes(value)) for name, value in pairs]


def _has_timed_out(fault: Fault | None) -> bool:
    return fault is not None and fault.kind is Kind.TIME_OUT
