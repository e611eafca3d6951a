"""A producer's queue: records wait here, are sent a batch a partition, and are reported on.

What waits together for one partition is one batch, because the broker's size limit is the batch's.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from connectors.contract import Headers, Place
from connectors.kafka import BY_KEY
from connectors.testing.errors import error, words
from connectors.testing.faults import Kind
from connectors.testing.log import Entry, PartitionLog, Span
from connectors.testing.partitioner import PARTITIONERS
from connectors.testing.sizes import BATCH_OVERHEAD_BYTES, record_bytes
from connectors.testing.topics import CREATE_TIME, LOG_APPEND_TIME, Topic, is_legal_name
from connectors.testing.transaction_state import TransactionState

if TYPE_CHECKING:
    from connectors.testing.client import Config
    from connectors.testing.kafka import InMemoryKafka

DeliveryCallback = Callable[[Any, Any], object]
"""Error or None, and the message."""


class Queued(NamedTuple):
    """A record on its way."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    headers_bytes: int
    timestamp_ms: int
    queued_ms: float
    on_delivery: DeliveryCallback | None


class Outbox:
    """One producer's.

    Args:
        state: of the transaction; told of failures.
        span: the open transaction at the coordinator; None for a producer without transactions.
    """

    def __init__(
        self,
        kafka: "InMemoryKafka",
        process_name: str,
        config: "Config",
        state: TransactionState,
        span: Callable[[], Span] | None,
    ) -> None:
        self.queue: list[Queued] = []
        self.known: set[str] = set()
        """Topics whose number of partitions the client has learnt."""
        self._kafka = kafka
        self._process_name = process_name
        self._state = state
        self._span = span
        self._message_timeout_ms = float(config.get("message.timeout.ms", config.get("delivery.timeout.ms", 300_000)))
        self._tells_errors_only = str(config.get("delivery.report.only.error", False)).lower() in ("true", "1")
        self._batch_max = int(config.get("batch.num.messages", 10_000))
        self._is_gapless = str(config.get("enable.gapless.guarantee", False)).lower() in ("true", "1")
        self._partition_of = PARTITIONERS[str(config.get("partitioner", "consistent_random"))]
        self._turns = count()
        self._reports: list[tuple[DeliveryCallback, KafkaError | None, Message]] = []
        self._broken: set[PartitionLog] = set()
        """Where a batch has failed: the sequence has a gap there, and the next batch needs a new epoch."""

    @property
    def has_reports(self) -> bool:
        return bool(self._reports)

    def __len__(self) -> int:
        return len(self.queue) + len(self._reports)

    def mend(self) -> None:
        """A new epoch: sequences begin again."""
        self._broken.clear()

    def purge(self) -> None:
        """Forget what has not been sent."""
        with self._kafka.sending:
            queue, self.queue = self.queue, []
            self._fail(queue, KafkaError._PURGE_QUEUE)

    def serve(self) -> int:
        """Call the delivery callbacks; how many. What one raises is raised, and the others are told the next time."""
        with self._kafka.sending:
            reports, self._reports = self._reports, []
        left = deque(reports)
        try:
            while left:
                on_delivery, failed, message = left.popleft()
                on_delivery(failed, message)
        finally:
            with self._kafka.sending:
                self._reports[:0] = left
        return len(reports)

    def send(self) -> bool:
        """Send what is queued, until something fails; whether nothing is left."""
        with self._kafka.sending:
            return self._sent()

    def _sent(self) -> bool:
        if not self.queue:
            return True
        if self._state.has_failed():
            return False
        if not self._kafka.is_available:
            self._expire()
            return not self.queue
        queue, self.queue = self.queue, []
        held: list[Queued] = []
        by_place: dict[Place, list[Queued]] = {}
        for record in queue:
            by_place.setdefault((record.topic, self._place(record)), []).append(record)
        most = self._batch_max
        waiting = iter(
            [
                (place, records[first : first + most])
                for place, records in by_place.items()
                for first in range(0, len(records), most)
            ]
        )
        for (topic, partition), batch in waiting:
            if not self._kafka.has_leader(topic, partition):
                held += [record._replace(partition=partition) for record in batch]
                continue
            self._send(topic, partition, batch)
            if self._state.has_failed():
                self.queue += [record for _, rest in waiting for record in rest]
                if self._span is None:
                    self.purge()
                break
        self.queue = held + self.queue
        if held and not self._state.has_failed():
            self._expire()
        return not self.queue

    def _place(self, record: Queued) -> int:
        topic = self._kafka.topics.get(record.topic)
        if record.partition != BY_KEY or topic is None:
            return record.partition
        return self._partition_of(record.key, len(topic.logs), next(self._turns))

    def _send(self, name: str, partition: int, batch: list[Queued]) -> None:
        topic = self._kafka.topics.get(name)
        if topic is None:
            code = KafkaError.UNKNOWN_TOPIC_OR_PART if is_legal_name(name) else KafkaError.TOPIC_EXCEPTION
            self._give_up(batch, code)
            return
        self.known.add(name)
        if partition >= len(topic.logs):
            self._give_up(batch, KafkaError._UNKNOWN_PARTITION, partition)
            return
        log = topic.logs[partition]
        refusal = self._refusal(topic, log, batch)  # which a broker looks at before the sequence
        span = None
        if self._span is not None:
            if log in self._broken and refusal is None:
                self._state.needs_epoch = True
                self._state.abortable(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "skipped sequence numbers")
                self._fail(batch, KafkaError._PURGE_QUEUE, partition)
                return
            try:
                span = self._span()
            except KafkaException:  # fatal, and what every later call says
                self.queue += batch
                return
        if refusal is None:
            self._append(topic, log, batch, span)
            return
        if span is not None and refusal == KafkaError.TOPIC_AUTHORIZATION_FAILED:  # to AddPartitionsToTxn: none is sent
            self._fail(batch, KafkaError._PURGE_QUEUE, partition)
            self._state.abortable(
                refusal, f"Failed to add partition(s) to transaction on broker TxnCoordinator/1: {words(refusal)}"
            )
            return
        self._fail(batch, refusal, partition)
        if span is not None:
            self._broken.add(log)
            self._state.abortable(
                refusal,
                f"ProduceRequest for {name} [{partition}] with {len(batch)} message(s) failed: {words(refusal)} "
                "(broker 1): current transaction must be aborted",
            )
        elif self._is_gapless:
            self._state.fatal(
                KafkaError._GAPLESS_GUARANTEE,
                f"ProduceRequest for {name} [{partition}] with {len(batch)} message(s) failed: {words(refusal)} "
                "(broker 1): unable to satisfy gap-less guarantee",
            )

    def _refusal(self, topic: Topic, log: PartitionLog, batch: list[Queued]) -> int | None:
        """What the broker has against the batch."""
        size = BATCH_OVERHEAD_BYTES
        for index, (_, _, key, value, headers, size_of_headers, _, _, _) in enumerate(batch):
            size += record_bytes(key, value, size_of_headers, len(headers) if headers else 0, index)
        if size > topic.max_message_bytes:
            return KafkaError.MSG_SIZE_TOO_LARGE
        faults = self._kafka.faults
        fault = faults.decide("send:before", self._process_name)
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

    def _append(self, topic: Topic, log: PartitionLog, batch: list[Queued], span: Span | None) -> None:
        kind, now_ms = topic.timestamp_type, self._kafka.clock.now_ms()
        is_append_time = kind == LOG_APPEND_TIME
        entries: list[Entry] = [
            (now_ms if is_append_time else record.timestamp_ms, record.key, record.value, record.headers, span)
            for record in batch
        ]
        first = log.append(entries, span)
        if self._tells_errors_only:
            return
        for index, record in enumerate(batch):
            if record.on_delivery is not None:
                message = Message(
                    topic=topic.name,
                    partition=log.number,
                    offset=first + index,
                    key=record.key,
                    value=record.value,
                    timestamp=(kind, entries[index][0]),
                )
                self._reports.append((record.on_delivery, None, message))

    def _give_up(self, batch: list[Queued], code: int, partition: int | None = None) -> None:
        """The client itself finds that the records cannot be delivered."""
        self._fail(batch, code, partition)
        reason = f"{len(batch)} message(s) failed delivery (see individual delivery reports)"
        if self._span is not None:
            self._state.abortable(KafkaError._INCONSISTENT, reason)

    def _expire(self) -> None:
        """Records that the broker has not taken within ``message.timeout.ms``."""
        oldest_ms = self._kafka.clock.monotonic_ms() - self._message_timeout_ms
        if self._message_timeout_ms > 0 and self.queue[0].queued_ms <= oldest_ms:
            expired = [record for record in self.queue if record.queued_ms <= oldest_ms]
            self.queue = self.queue[len(expired) :]
            self._give_up(expired, KafkaError._MSG_TIMED_OUT)

    def _fail(self, batch: Sequence[Queued], code: int, partition: int | None = None) -> None:
        """Delivery reports with an error."""
        failed = error(code)
        for record in batch:
            if record.on_delivery is None:
                continue
            place = record.partition if partition is None else partition
            place_known = {} if place == BY_KEY else {"partition": place}
            message = Message(
                topic=record.topic,
                key=record.key,
                value=record.value,
                error=failed,
                timestamp=(0, -1),
                **place_known,  # type: ignore[arg-type]
            )
            self._reports.append((record.on_delivery, failed, message))
