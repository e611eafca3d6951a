"""The only loop: read what there is, publish what is due, commit both as one.

A turn publishes at most one transaction. Its records are produced, its commit begins, and while Kafka works on that the
next batch is read: parsing costs no waiting, and reading is never far ahead of publishing. Back-pressure is that the
next batch is not read.
"""

from collections.abc import Callable

import numpy as np
import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.contract import ErrorCode, TopicKind
from sidecar.clients import Clients
from sidecar.clock import HighWaterClock
from sidecar.dispatch.dequeue_put import DequeuePut
from sidecar.dispatch.destinations import Destinations
from sidecar.dispatch.levels import LevelPartition, LevelProgress
from sidecar.dispatch.transactions import REFUSALS, TransactionAbortedError
from sidecar.dispatch.wheel import WheelPartition, WheelSettings
from sidecar.health import Health
from sidecar.intake.enqueue_get import EnqueueGet
from sidecar.intake.parse import PARSER_VERSION, Parser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.intake.progress import Start
from sidecar.metrics import Metrics
from sidecar.pending import PendingAnswer, PendingMessage, PendingQuery, Questions
from sidecar.records import Rejection
from sidecar.settings import Settings
from sidecar.source import Draft, Source
from sidecar.store.files import FileSystem, RealFileSystem
from sidecar.store.recovery import Owner

IDLE_WAIT_MS = 500
"""The longest wait for a record: how soon a stop is noticed, and what an idle sidecar costs."""

NEVER_MS = -1
"""A time at which nothing is due."""

IDLE_COMMIT_MS = 1_000
"""How often progress that moved without a record being published (ends of partitions) is committed."""

log = structlog.get_logger("timewheel.loop")


class Loop:
    """Everything between one set of Kafka clients and the next."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        clock: HighWaterClock,
        health: Health,
        metrics: Metrics,
        file_system: FileSystem | None = None,
        questions: Questions | None = None,
    ) -> None:
        self._settings = settings
        self._names = settings.topic_names
        self._clock = clock
        self._health = health
        self._metrics = metrics
        self._publishing = clients.publishing
        self._identify = clients.identify
        self._file_system = file_system or RealFileSystem()
        self._questions = questions or Questions()
        self._parser = Parser(self._names)
        self._destinations = Destinations(self._names, settings, clock, clients.count_partitions, clients.create_topic)
        dead_letter_topic = self._names.dead_letter(settings.group_id)
        self._put = DequeuePut(self._destinations, dead_letter_topic, trace=settings.trace_headers)
        self._limit = settings.batch_records
        self._in_hand: list[Draft] | None = None
        self._committed_ms = clock.monotonic_ms()
        self._intake = EnqueueGet(
            clients.consumer,
            [*map(self._names.level, settings.levels), self._names.wheel],
            clients.starts,
            self._make_source,
            self._settle,
            clock=clock,
            health=health,
            metrics=metrics,
            batch_records=settings.batch_records,
            queue_of=self._queue_of,
        )

    @property
    def sources(self) -> list[Source]:
        return list(self._intake.sources.values())

    def pending(self, query: PendingQuery) -> tuple[PendingAnswer, list[int]]:
        """What waits on this sidecar's wheel partitions, and which those are. For the loop's own thread."""
        total, messages, partitions = 0, list[PendingMessage](), []
        for source in self._intake.sources.values():
            if isinstance(source, WheelPartition):
                answer = source.pending(query)
                total += answer.total
                messages += answer.messages
                partitions.append(source.partition)
        messages.sort(key=lambda message: (message.deliver_ms, message.partition, message.offset))
        return PendingAnswer(total, messages[: query.limit]), sorted(partitions)

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Turn until a stop is asked for; the transaction in hand is finished first."""
        try:
            while not is_stopping():
                self.turn()
            self._finish()
        finally:
            self._intake.close()

    def _finish(self) -> None:
        """Commit what was read and needs no publishing, so that the next start has nothing to read again."""
        moved = self._idle_progress([])
        if moved:
            self._publish(moved, self._clock.now_ms(), read_on=False)

    def turn(self) -> None:
        """One round: publish what is due, or wait for a record or for the next due time."""
        now_ms = self._clock.now_ms()
        self._health.turned()
        # 1. What is due, from every partition its share, so that a backlog in one does not hold up another.
        drafts = self._draft(now_ms)
        if drafts:
            self._publish(drafts, now_ms)
        else:
            self._intake.read(self._wait_s(now_ms))
        for source in self._intake.sources.values():
            source.tick(now_ms)
        self._questions.answer()

    def _publish(self, drafts: list[Draft], now_ms: int, *, read_on: bool = True) -> None:
        # 2. Into a transaction.
        self._in_hand = drafts
        try:
            self._publishing.begin()
            self._put.put(self._publishing, drafts, now_ms)
        except TransactionAbortedError as error:
            self._abort(error)
            return
        except KafkaException as error:  # no verdict on a destination
            self._abort(TransactionAbortedError(error.args[0]))
            return
        # 3. Records and progress become final together.
        self._publishing.commit(_offsets(drafts))
        # 4. While Kafka works on that, the next batch. A revocation in here waits for the outcome itself.
        if read_on:
            self._intake.read(0)
        # 5. The outcome.
        self._settle()

    # --- transactions -------------------------------------------------------------------------------------------------

    def _draft(self, now_ms: int) -> list[Draft]:
        due = [
            source
            for source in self._intake.sources.values()
            if (due_ms := source.next_due_ms) is not None and due_ms <= now_ms
        ]
        if not due:
            self._metrics.behind.set(0)
            return self._now_and_then_idle_progress([])
        oldest_ms = min((source.next_due_ms or now_ms) for source in due)
        self._metrics.behind.set((now_ms - oldest_ms) / 1000 if oldest_ms else 0)
        share = max(1, self._limit // len(due))
        share_bytes = max(1, self._settings.batch_bytes // len(due))
        drafts = []
        room = self._limit
        for source in due:
            if room <= 0:
                break
            records = source.take(now_ms, min(share, room), share_bytes)
            room -= len(records)
            drafts.append(Draft(source, records))
        return drafts + self._now_and_then_idle_progress(drafts)

    def _now_and_then_idle_progress(self, drafts: list[Draft]) -> list[Draft]:
        if self._clock.monotonic_ms() - self._committed_ms < IDLE_COMMIT_MS:
            return []
        self._committed_ms = self._clock.monotonic_ms()
        return self._idle_progress(drafts)

    def _idle_progress(self, drafts: list[Draft]) -> list[Draft]:
        """Progress that moved without anything falling due (records stored, ends reached), so that lag reads true."""
        drafted = [draft.source for draft in drafts]
        return [
            Draft(source, source.take(NEVER_MS, 0, 0))
            for source in self._intake.sources.values()
            if source.has_progress and source not in drafted
        ]

    def _settle(self) -> None:
        """Finish the transaction in hand, if there is one."""
        drafts, self._in_hand = self._in_hand, None
        if drafts is None:
            return
        try:
            self._publishing.settle()
        except TransactionAbortedError as error:
            self._in_hand = drafts
            self._abort(error)
            return
        for draft in drafts:
            draft.source.confirm()
        self._put.committed()
        self._limit = min(self._settings.batch_records, self._limit * 2)
        self._health.broker_answers()
        self._account(drafts)

    def _abort(self, error: TransactionAbortedError) -> None:
        """Take everything back; halve the batch until the record that Kafka refuses stands alone."""
        drafts, self._in_hand = self._in_hand or [], None
        self._publishing.abort()
        self._metrics.transactions.labels("aborted").inc()
        self._destinations.forget()
        refusal = next((failure for failure in error.refusals if failure[2].code() in REFUSALS), None)
        if refusal is not None:
            records = [(draft.source, record) for draft in drafts for record in draft.records]
            if len(records) == 1:
                self._put.refuse(*records[0], _refused(refusal))
            self._limit = max(1, len(records) // 2)
        else:
            self._health.broker_is_silent(str(error))
            log.warning("transaction aborted, trying again", reason=str(error))
        for draft in drafts:
            if self._intake.sources.get((draft.source.topic, draft.source.partition)) is draft.source:
                draft.source.put_back()

    def _account(self, drafts: list[Draft]) -> None:
        now_ms = self._clock.now_ms()
        self._metrics.transactions.labels("committed").inc()
        for coordinates, rejection in self._put.rejections:
            self._metrics.rejected.labels(rejection.code).inc()
            log.warning(
                "record rejected",
                topic=coordinates[0],
                partition=coordinates[1],
                offset=coordinates[2],
                code=str(rejection.code),
                reason=rejection.message,
            )
        buried = {coordinates for coordinates, _ in self._put.rejections}
        for source, records in drafts:
            if not records:
                continue
            queue = self._queue_of(source.topic)
            due = [record[5] for record in records]
            if buried:
                due = [record[5] for record in records if (source.topic, source.partition, record[6]) not in buried]
            self._metrics.delivered.labels(queue).inc(len(due))
            self._metrics.lateness.observe(queue, (now_ms - np.array(due, np.int64)) / 1000)
            self._metrics.waiting.labels(queue).set(source.waiting)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait_s(self, now_ms: int) -> float:
        due = [due_ms for source in self._intake.sources.values() if (due_ms := source.next_due_ms) is not None]
        wait_ms = min(due) - now_ms if due else IDLE_WAIT_MS
        return max(0, min(wait_ms, IDLE_WAIT_MS)) / 1000

    # --- sources ------------------------------------------------------------------------------------------------------

    def _make_source(self, topic: str, partition: int, start: Start) -> Source:
        if self._names.kind(topic) is TopicKind.WHEEL:
            return self._make_wheel(topic, partition, start)
        level = self._names.level_of(topic)
        if level is None:
            raise ValueError(f"{topic} is no schedule topic")
        return LevelPartition(
            topic,
            partition,
            self._settings.levels.delay_ms(level),
            start_offset=start.offset,
            progress=LevelProgress.decode(start.metadata),
            parser=self._parser,
            max_delay_ms=self._settings.max_delay,
            max_clock_skew_ms=self._settings.max_clock_skew,
            max_records=self._settings.read_ahead_records,
            max_bytes=self._settings.read_ahead_bytes,
            trace=self._settings.trace_headers,
        )

    def _make_wheel(self, topic: str, partition: int, start: Start) -> Source:
        settings = self._settings
        cluster_id, topic_id = self._identify(topic)
        layout = f"{settings.slots_total}x{settings.precision_ms}ms,parser{PARSER_VERSION}"
        return WheelPartition(
            topic,
            partition,
            start=start,
            settings=WheelSettings(settings.plan, settings.slots_total, settings.data_dir, settings.trace_headers),
            parser=WheelParser(self._parser, topic, partition, f"{topic_id} {settings.group_id}".encode()),
            owner=Owner(cluster_id, topic_id, settings.group_id, partition, layout),
            fs=self._file_system,
            now_ms=self._clock.now_ms(),
            count_cancel=lambda outcome, count: self._metrics.cancels.labels(outcome).inc(count),
        )

    def _queue_of(self, topic: str) -> str:
        level = self._names.level_of(topic)
        return str(level) if level is not None else self._names.kind(topic).value


def _is_due(source: Source, now_ms: int) -> bool:
    due_ms = source.next_due_ms
    return due_ms is not None and due_ms <= now_ms


def _offsets(drafts: list[Draft]) -> list[TopicPartition]:
    offsets = []
    for draft in drafts:
        offset, metadata = draft.source.progress
        offsets.append(TopicPartition(draft.source.topic, draft.source.partition, offset, metadata))
    return offsets


def _refused(refusal: tuple[str, int, KafkaError]) -> Rejection:
    topic, _, error = refusal
    is_size = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    code = ErrorCode.RECORD_TOO_LARGE if is_size else ErrorCode.DESTINATION_REFUSED
    return Rejection(code, f"'{topic}' refuses the record: {error.str()}")
