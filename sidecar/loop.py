"""The only loop: read what there is, publish what is due, commit both as one.

A turn publishes at most one transaction. Its records are produced, its commit begins, and while Kafka works on that the
next batch is read: parsing costs no waiting, and reading is never far ahead of publishing. Back-pressure is that the
next batch is not read.
"""

import math
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.contract import Place
from connectors.kafka_errors import remedy
from sidecar.accounts import Accounts
from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.clock import HighWaterClock
from sidecar.dispatch.batch_limit import BatchLimit
from sidecar.dispatch.dequeue_put import DequeuePut
from sidecar.dispatch.destinations import Destinations
from sidecar.dispatch.refusals import Findings, Refusals, stand_alone
from sidecar.dispatch.suspects import Suspects
from sidecar.dispatch.transactions import Refusal, TransactionAbortedError
from sidecar.dispatch.wheel.clock_ahead import told_early
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.time_counts import TimeCounts, Window
from sidecar.errors import ClientsLostError
from sidecar.garbage import IdleCollector
from sidecar.intake.assignment import SOURCE_FAILURES, Assignment
from sidecar.intake.enqueue_get import PAST_DAMAGE, EnqueueGet
from sidecar.kafka.clients import Clients
from sidecar.leftovers import Leftovers
from sidecar.observability.health import WAITS_FOR_DELIVERY, Health
from sidecar.observability.metrics import Metrics, queue_label
from sidecar.pending import PendingAnswer, PendingMessage, PendingQuery, Questions
from sidecar.settings import Settings
from sidecar.source import Draft, Source
from sidecar.source_maker import SourceMaker
from sidecar.store.files import FileSystem, RealFileSystem
from sidecar.switches import Switches
from sidecar.told import Told

T = TypeVar("T")

if TYPE_CHECKING:
    from sidecar.tracing import DeliverySpans

IDLE_WAIT_MS = 200
"""The longest wait for a record: how soon a stop is noticed, and what an idle sidecar costs."""

NEVER_MS = -1
"""A time at which nothing is due."""

PAUSE_S = 0.05
PAUSE_MAX_S = 0.4
"""After what may pass: it would be tried again thousands of times a minute. Twice as long each time it fails again."""

PREPARED_MS = 50
"""What falls due so soon is read from the disk while a transaction commits: the next one begins before that."""

NOW_AND_THEN_MS = 1_000
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
        outcomes: CancelOutcomes | None = None,
        switches: Switches | None = None,
        spans: "DeliverySpans | None" = None,
        told: Told | None = None,
        batch_limit: BatchLimit | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._health = health
        self._publishing = clients.publishing
        self._throttling = throttling = clients.throttling
        metrics.throttled.set_function(lambda: throttling.longest_s)
        self._questions = questions or Questions()
        self._switches = switches or Switches()
        names, topics = settings.topic_names, clients.topics
        queue_of = cache(partial(queue_label, names))
        self._destinations = Destinations(
            names,
            settings,
            clock,
            topics.count_partitions,
            topics.create_topic,
            topics.count_group_topics,
        )
        self._accounts = Accounts(settings, clock, metrics, queue_of, told or Told(), spans)
        fs = file_system or RealFileSystem()
        maker = SourceMaker(
            settings,
            clock,
            topics,
            self._destinations,
            self._accounts,
            outcomes or CancelOutcomes(names.wheel),
            fs,
        )
        self._outages = maker.outages
        onward = {
            names.wheel: [names.wheel],
            names.send_back: map(names.level, settings.levels),
            **{names.level(level): [names.wheel] for level in settings.levels},
        }
        dead_letters = names.dead_letter(settings.group_id)
        self._put = DequeuePut(self._destinations, dead_letters, onward, trace=settings.trace_headers)
        self._refusals = Refusals(
            self._put, self._destinations, dead_letters, skip_unknown_error=settings.skip_unknown_error
        )
        self._suspects = Suspects(settings.batch_records)
        self._batch_limit = batch_limit or BatchLimit(settings.batch_bytes)
        self._in_hand: list[Draft] | None = None
        self._in_hand_offsets: list[TopicPartition] = []
        self._in_hand_since_ms = 0.0
        """By the monotonic clock."""
        self._first_in_turn = 0
        """Of the sources with something due, where there are more than records in a transaction."""
        self._oldest_due_told_ms: int | None = None
        self._pause_s = 0.0
        """How long the next turn does nothing but read."""
        self._next_pause_s = PAUSE_S
        self._steps_forward = clock.steps_forward
        self._is_now_and_then = False
        self._topics_made_anew = health.topics_made_anew
        self._now_and_then_ms = clock.monotonic_ms()
        self._metrics = metrics
        self._collector = IdleCollector(clock)
        self._leftovers = Leftovers(settings.data_dir, settings.plan.roll_window_ms, clock, fs)
        self._assignment = Assignment(
            clients.consumer,
            names.schedule_topics(settings.levels),
            clients.starts,
            maker.make,
            self._settle,
            clock=clock,
            health=health,
            metrics=metrics,
        )
        self._intake = EnqueueGet(
            clients.consumer,
            self._assignment,
            clock=clock,
            health=health,
            metrics=metrics,
            batch_records=settings.batch_records,
            # Not all of a read-ahead: a source that is full is paused, and the size of what comes is a guess.
            batch_bytes=min(settings.batch_bytes, settings.read_ahead_bytes * 7 // 8),
            queue_of=queue_of,
        )

    @property
    def sources(self) -> list[Source]:
        return self._assignment.sources

    def pending(self, query: PendingQuery) -> Generator[None, None, tuple[PendingAnswer, list[int]]]:
        """What waits on this sidecar's wheel partitions, and which those are; a question for the loop's own thread."""
        total, messages, partitions = 0, list[PendingMessage](), []
        for source in self.sources:
            if isinstance(source, WheelPartition):
                answer = yield from self._while_ours(source, source.pending(query))
                if answer is not None:
                    total += answer.total
                    messages += answer.messages
                    partitions.append(source.partition)
        messages.sort(key=lambda message: message.cursor)
        return PendingAnswer(total, messages[: query.limit]), sorted(partitions)

    def count_by_time(self, window: Window) -> Generator[None, None, tuple[TimeCounts, list[int]]]:
        """What waits on the wheel partitions by when it is acted on; a question for the loop's own thread."""
        parts, partitions = list[TimeCounts](), list[int]()
        for source in self.sources:
            if isinstance(source, WheelPartition):
                counts = yield from self._while_ours(source, source.count_by_time(window, self._clock.now_ms()))
                if counts is not None:
                    parts.append(counts)
                    partitions.append(source.partition)
        return TimeCounts.added(parts, window.buckets), sorted(partitions)

    def _while_ours(self, source: WheelPartition, steps: Generator[None, None, T]) -> Generator[None, None, T | None]:
        """The answer of a source; None where it is closed meanwhile, or its store fails, which closes it."""
        while self._assignment.is_open(source):
            try:
                next(steps)
            except StopIteration as end:
                answer: T = end.value
                return answer
            except SOURCE_FAILURES as error:
                self._assignment.fail(source, error)
            yield
        steps.close()
        return None

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Turn until a stop is asked for; the transaction in hand is finished first."""
        try:
            while not is_stopping():
                self.turn()
            self._finish()
        finally:
            self._accounts.close()
            self._assignment.close()

    def _finish(self) -> None:
        """Commit what was read and needs no publishing, so that the next start has nothing to read again."""
        moved = self._idle_progress([])
        if moved:
            self._publish(moved, self._clock.now_ms(), read_on=False)

    def turn(self) -> None:
        """One round: publish what is due, or wait for a record or for the next due time."""
        if self._pause_s:
            pause_s, self._pause_s = self._pause_s, 0.0
            self._intake.read(pause_s)
        now_ms = self._clock.now_ms()
        self._health.turned()
        self._look_at_the_clock()
        if self._clock.steps_forward != self._steps_forward:
            self._steps_forward = self._clock.steps_forward
            self._unsee()
        self._intake.hold(self._held())
        self._intake.go_on()
        # 1. What is due, from every partition its share, so that a backlog in one does not hold up another.
        drafts = self._draft(now_ms)
        wait_s = 0.0 if drafts or self._questions.is_busy else self._wait_s(now_ms)
        self._collector.collect_when_idle(wait_s * 1000)
        if drafts:
            self._publish(drafts, now_ms)
        else:
            self._intake.read(wait_s)
        # 6. Whatever need not be part of a transaction.
        self._tick(now_ms)
        if self._is_now_and_then:
            if self._health.topics_made_anew != self._topics_made_anew:
                raise ClientsLostError("a schedule topic was deleted and created again")
            self._outages.look_again()
            self._intake.tell_held_back()
            self._tell_clocks_apart()
            self._throttling.tell()
            self._accounts.tell(self.sources, self._intake.known_end)
            if self._assignment.places is not None:
                wheel = self._settings.topic_names.wheel
                self._leftovers.look([partition for topic, partition in self._assignment.places if topic == wheel])
        self._questions.answer()

    def _tick(self, now_ms: int) -> None:
        troubled: dict[str, str] = {}
        recovering: dict[str, str] = {}
        remedies: dict[str, str] = {}
        full: set[str] = set()
        for source in self.sources:
            try:
                source.tick(now_ms)
            except SOURCE_FAILURES as error:
                self._assignment.fail(source, error)
            else:
                place = f"{source.topic}-{source.partition}"
                if source.trouble:
                    told = recovering if source.is_recovering else troubled
                    told[place] = source.trouble
                    if source.remedy:
                        remedies[place] = source.remedy
                    if source.is_disk_full:
                        full.add(place)
                elif self._switches.stop_dequeue and source.waits_for_delivery:
                    troubled[place] = WAITS_FOR_DELIVERY
        for place, words in self._intake.damaged.items():
            troubled[place], remedies[place] = words, PAST_DAMAGE
        if recovering:  # those that are through count, too: the share never falls
            replayed = [source.replayed for source in self.sources]
            self._health.recovered = sum(done for done, _ in replayed) / max(1, sum(total for _, total in replayed))
        self._health.troubled, self._health.recovering, self._health.remedies = troubled, recovering, remedies
        self._health.destinations_away = self._outages.in_words if self._outages else {}
        noted = {f"{source.topic}-{source.partition}": source.note for source in self.sources if source.note}
        if words := told_early(self._clock.ahead_ms) or self._intake.clocks_apart.in_words:
            noted["the clock"] = words
        if words := self._throttling.in_words:
            noted["kafka"] = words
        self._health.noted = noted
        self._health.disk_full = frozenset(full | self._assignment.without_disk)

    def _publish(self, drafts: list[Draft], now_ms: int, *, read_on: bool = True) -> None:
        # 2. Into a transaction.
        self._in_hand, self._in_hand_since_ms = drafts, self._clock.monotonic_ms()
        try:
            self._publishing.begin()
            self._put.put(self._publishing, drafts, now_ms)
        except TransactionAbortedError as error:
            self._abort(error)
            return
        except KafkaException as error:  # no verdict on a destination
            self._suspects.refused(drafts)
            self._abort(TransactionAbortedError(error.args[0]))
            self._outages.missing(self._destinations.unanswered)
            return
        if self._put.rejections:
            for source, records in drafts:
                source.bury([record for record in records if self._put.is_buried(source, record)])
        # 3. Records and progress become final together.
        self._in_hand_offsets = self._offsets(drafts)
        self._publishing.commit(self._in_hand_offsets)
        # 4. While Kafka works on that, the next batch. A revocation in here waits for the outcome itself.
        if read_on:
            self._intake.read(0)
            self._prepare(drafts, now_ms)
            self._tell_of_what_was_read(now_ms)
        # 5. The outcome.
        self._settle()

    def _prepare(self, drafts: list[Draft], now_ms: int) -> None:
        share = self._settings.batch_records // len(drafts)
        share_bytes = self._batch_limit.bytes // len(drafts)
        for source, _ in drafts:
            if self._assignment.is_open(source):
                try:
                    source.prepare(now_ms + PREPARED_MS, share, share_bytes)
                except SOURCE_FAILURES as error:
                    self._assignment.fail(source, error)

    # --- transactions -------------------------------------------------------------------------------------------------

    def _draft(self, now_ms: int) -> list[Draft]:
        due = self._suspects.chosen(self._due(now_ms))
        drafts: list[Draft] = []
        if due and not self._switches.stop_dequeue:
            room = self._settings.batch_records
            if room < len(due):  # each in its turn
                self._first_in_turn = (self._first_in_turn + room) % len(due)
                due = due[self._first_in_turn :] + due[: self._first_in_turn]
            share = max(1, room // len(due))
            share_bytes = max(1, self._batch_limit.bytes // len(due))
            for source in due:
                if room <= 0:
                    break
                draft = self._take(source, now_ms, min(share, room, self._suspects.limit(source)), share_bytes)
                room -= sum(len(records) for _, records in draft)
                drafts += draft
        return drafts + self._idle_progress(drafts) if self._is_now_and_then else drafts

    def _due(self, now_ms: int) -> list[Source]:
        self._tell_oldest_due(self._oldest_due_ms(now_ms), now_ms)
        return [source for source in self.sources if (due_ms := source.next_due_ms) is not None and due_ms <= now_ms]

    def _oldest_due_ms(self, now_ms: int) -> int | None:
        """When the oldest of what waits in all partitions falls or fell due; None: nothing waits."""
        moments = (source.next_due_ms for source in self.sources)
        return min((due_ms or now_ms for due_ms in moments if due_ms is not None), default=None)

    def _tell_oldest_due(self, oldest_ms: int | None, now_ms: int) -> None:
        self._oldest_due_told_ms = oldest_ms
        self._health.knows_due(None if oldest_ms is None else oldest_ms - now_ms)

    def _tell_of_what_was_read(self, now_ms: int) -> None:
        """What was just read may fall due while Kafka works on the transaction in hand: tell what is due first anew."""
        moments = (self._oldest_due_told_ms, self._oldest_due_ms(now_ms))  # what is in hand is not out yet
        self._tell_oldest_due(min((due_ms for due_ms in moments if due_ms is not None), default=None), now_ms)

    def _look_at_the_clock(self) -> None:
        """Whether it is time again for what is done now and then."""
        monotonic_ms = self._clock.monotonic_ms()
        self._is_now_and_then = monotonic_ms - self._now_and_then_ms >= NOW_AND_THEN_MS
        if self._is_now_and_then:
            self._now_and_then_ms = monotonic_ms

    def _unsee(self) -> None:
        """The clock was set forward: by the one that it was, timestamps looked as if they were from the future."""
        self._intake.clocks_apart.forget()
        for source in self.sources:
            if source.unsee():
                self._intake.read_again(source)

    def _tell_clocks_apart(self) -> None:
        apart = self._intake.clocks_apart
        apart.tell()
        self._metrics.clock_ahead.set(math.nan if apart.ahead_ms is None else apart.ahead_ms / 1000)

    def _idle_progress(self, drafts: list[Draft]) -> list[Draft]:
        """Progress that moved without anything falling due (records stored, ends reached), so that lag reads true."""
        drafted = [draft.source for draft in drafts]
        return [
            draft
            for source in self.sources
            if source.has_progress and source not in drafted
            for draft in self._take(source, NEVER_MS, 0, 0)
        ]

    def _take(self, source: Source, now_ms: int, max_records: int, max_bytes: int) -> list[Draft]:
        """One source's draft; none where its store fails, or Kafka does not answer."""
        try:
            return [Draft(source, source.take(now_ms, max_records, max_bytes))]
        except SOURCE_FAILURES as error:
            self._assignment.fail(source, error)
        except KafkaException as error:  # no verdict on a destination
            self._pause()
            self._health.broker_is_silent(str(error))
            log.warning(
                "destination unknown",
                topic=source.topic,
                reason=str(error),
                operator_action="check the brokers, and that the sidecar may describe topics; due records wait",
            )
        return []

    def _settle(self, *, in_rebalance: bool = False) -> None:
        """Finish the transaction in hand, if there is one; see `Publishing.settle`."""
        drafts, self._in_hand = self._in_hand, None
        if drafts is None:
            return
        try:
            self._publishing.settle(in_rebalance=in_rebalance)
        except TransactionAbortedError as error:
            self._in_hand = drafts
            self._abort(error)
            return
        for draft in drafts:
            draft.source.confirm()
        self._next_pause_s = PAUSE_S
        self._put.committed()
        for source in self._suspects.committed(drafts):
            self._put.forget(source)
        self._health.broker_answers()
        took_ms = self._clock.monotonic_ms() - self._in_hand_since_ms
        self._batch_limit.committed(took_ms)
        self._accounts.committed(drafts, self._in_hand_offsets, self._put, took_ms)

    def _abort(self, error: TransactionAbortedError) -> None:
        """Take everything back; what Kafka refuses is looked for, or becomes a dead letter."""
        drafts, self._in_hand = self._in_hand or [], None
        refusals = self._publishing.abort()
        self._accounts.aborted()
        self._destinations.forget()
        found = self._refusals.find(error.error, refusals, drafts)
        # Whether it passes or not: whose records are taken does not wait for it.
        is_news = found.is_of_records and self._suspects.refused(drafts)
        if not found.final:
            self._pause()
            self._batch_limit.failed()
            self._outages.suspect(refusals, is_alone=stand_alone(drafts))
            self._tell_of_abort(error.error, found)
        elif stand_alone(drafts):
            for source, refusal in self._refusals.bury(drafts, found.final):
                self._tell_that_dead_letters_wait(source, refusal)
        elif is_news:
            self._tell_of_refusal(next(iter(found.final.values())))
        for draft in drafts:
            if self._assignment.is_open(draft.source):
                self._put_back(draft)

    def _offsets(self, drafts: list[Draft]) -> list[TopicPartition]:
        """The progress that goes with a batch."""
        offsets = []
        for source, _ in drafts:
            offset, metadata = source.progress
            marked = self._assignment.mark_of(source).put_on(metadata)
            offsets.append(TopicPartition(source.topic, source.partition, offset, marked))
        return offsets

    def _tell_of_abort(self, error: KafkaError, found: Findings) -> None:
        reason = found.in_words(error)
        if found.guilty or not self._health.broker_error:  # else it is what a refusal left behind: a gap in sequence
            self._health.broker_is_silent(reason)
        log.warning(
            "transaction aborted",
            reason=reason,
            operator_action="nothing, if rare: its records go out with the next one; else check the brokers",
        )

    def _tell_of_refusal(self, refusal: Refusal) -> None:
        """Once, as it is begun to look for the record; what comes of that is told with its dead letter."""
        topic, partition, error = refusal
        log.warning(
            "records refused",
            topic=topic,
            partition=partition,
            reason=error.str(),
            operator_action="nothing, if one record is to blame: it is looked for, and becomes a dead letter. If none "
            "does, the topic has no room for a batch: raise its max.message.bytes, or lower kafka's batch.size",
        )

    def _tell_that_dead_letters_wait(self, source: Source, refusal: Refusal) -> None:
        """No letter is taken, however small: it is tried again as it is, and its partition waits."""
        topic, _, error = refusal
        self._pause()
        remedy_now = f"{remedy(error, topic)}; until then the partition waits behind a record that is rejected"
        self._health.broker_is_silent(f"'{topic}': {error.str()}", remedy_now)
        log.error(
            "dead letters refused",
            topic=topic,
            partition=f"{source.topic}-{source.partition}",
            reason=error.str(),
            operator_action=remedy_now,
        )

    def _pause(self) -> None:
        self._pause_s = self._next_pause_s
        self._next_pause_s = min(2 * self._next_pause_s, PAUSE_MAX_S)

    def _put_back(self, draft: Draft) -> None:
        try:
            draft.source.put_back()
        except SOURCE_FAILURES as failure:
            self._assignment.fail(draft.source, failure)

    # --- switches -----------------------------------------------------------------------------------------------------

    def _held(self) -> set[Place]:
        """Partitions that are not to be read. What a rebuild needs is read all the same."""
        if not self._switches.stop_enqueue:
            return set()
        return {(source.topic, source.partition) for source in self.sources if not source.is_recovering}

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait_s(self, now_ms: int) -> float:
        if self._switches.stop_dequeue:
            return IDLE_WAIT_MS / 1000
        oldest_ms = self._oldest_due_ms(now_ms)
        wait_ms = IDLE_WAIT_MS if oldest_ms is None else oldest_ms - now_ms
        return max(0, min(wait_ms, IDLE_WAIT_MS)) / 1000
