"""What the loop has done, told: counters, log lines and spans after each transaction, gauges once a second."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import structlog
from confluent_kafka import TopicPartition

from connectors.contract import Place, TopicKind
from sidecar.cancel_outcomes import CancelOutcome
from sidecar.clock import HighWaterClock
from sidecar.dispatch.dequeue_put import DequeuePut
from sidecar.dispatch.outages import is_postponed
from sidecar.dispatch.wheel.figures import added
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.observability.metric_types import set_labels
from sidecar.observability.metrics import Metrics
from sidecar.records import TOPIC, Rejection, due_ms_of, topic_of
from sidecar.rejections import RejectionLog
from sidecar.settings import Settings
from sidecar.source import Draft, Source
from sidecar.store.timer_store import quota_of
from sidecar.told import PlaceTold, Told

if TYPE_CHECKING:
    from sidecar.tracing import DeliverySpans

log = structlog.get_logger("timewheel.loop")


class Accounts:
    """What one loop has done, counted and told: to metrics, to the log, to spans, to whoever shows it.

    Args:
        queue_of: a schedule topic's queue, the metrics' label.
        told: where those look who show it.
        spans: of deliveries, where they are traced.
    """

    def __init__(
        self,
        settings: Settings,
        clock: HighWaterClock,
        metrics: Metrics,
        queue_of: Callable[[str], str],
        told: Told,
        spans: "DeliverySpans | None",
    ) -> None:
        self._group_id = settings.group_id
        self._quota_bytes = quota_of(settings.disk_quota_bytes or None, settings.slots_total) or 0
        self._names = settings.topic_names
        self._queues = [queue_of(topic) for topic in self._names.schedule_topics(settings.levels)]
        self._clock = clock
        self._metrics = metrics
        self._queue_of = queue_of
        self._told = told
        self._spans = spans
        self._rejection_log = RejectionLog(clock, settings.group_id, with_records=settings.log_records)
        self._committed: dict[Place, int] = {}
        self._steps_told = clock.steps_back, clock.steps_forward

    def close(self) -> None:
        """Tell what was kept back."""
        self._rejection_log.close()

    # --- after each transaction ---------------------------------------------------------------------------------------

    def opened(self, place: Place, committed: int) -> None:
        """A partition is read from its committed progress on."""
        self._committed[place] = committed

    def aborted(self) -> None:
        """A transaction has come to nothing."""
        self._metrics.transactions.labels("aborted").inc()

    def committed(
        self, drafts: Sequence[Draft], offsets: Iterable[TopicPartition], put: DequeuePut, took_ms: float
    ) -> None:
        """A transaction is final.

        Args:
            offsets: the progress that it has committed.
            put: knows which of the records went to the dead letters.
            took_ms: from its first record to the end of its commit.
        """
        self._committed.update(((place.topic, place.partition), place.offset) for place in offsets)
        now_ms = self._clock.now_ms()
        metrics, rejections = self._metrics, put.rejections
        metrics.transactions.labels("committed").inc()
        metrics.last_transaction.set(now_ms / 1000)
        metrics.transaction_seconds.observe(took_ms / 1000)
        if rejections:
            for code, count in Counter(rejection.code for rejection in rejections.values()).items():
                metrics.rejected.labels(code).inc(count)
            metrics.count_dead_letters(self._group_id, len(rejections))
            self._rejection_log.tell(rejections, drafts)
        if self._spans is not None:
            self._spans.delivered(drafts, rejections, now_ms, took_ms)
        wheel = self._names.wheel
        for source, records in drafts:
            if not records:
                continue
            queue = self._queue_of(source.topic)
            if rejections:
                records = [record for record in records if not put.is_buried(source, record)]
            if wheel in map(topic_of, records):
                onward = [record for record in records if record[TOPIC] == wheel]
                postponed = sum(map(is_postponed, onward))
                metrics.postponed.inc(postponed)
                metrics.rolls.inc(len(onward) - postponed)
                records = [record for record in records if record[TOPIC] != wheel]
            metrics.delivered.labels(queue).inc(len(records))
            metrics.lateness.observe_ms(queue, now_ms - np.fromiter(map(due_ms_of, records), np.int64, len(records)))
            if source.topic == self._names.send_back:
                self._count_dead_letters(record[TOPIC] for record in records)

    def cancels_decided(self, outcomes: Mapping[int, CancelOutcome]) -> None:
        """By the offset of the cancel."""
        for outcome, count in Counter(outcomes.values()).items():
            self._metrics.cancels.labels(outcome).inc(count)

    def _count_dead_letters(self, topics: Iterable[str | Rejection]) -> None:
        for topic, count in Counter(map(str, topics)).items():
            if self._names.kind(topic) is TopicKind.DEAD_LETTER:
                self._metrics.count_dead_letters(self._names.group_of(topic) or "", count)

    # --- once a second ------------------------------------------------------------------------------------------------

    def tell(self, sources: Sequence[Source], known_end: Callable[[Place], int | None]) -> None:
        """How things stand.

        Args:
            known_end: the end of a partition's log, None where it is not known.
        """
        self._rejection_log.tick()
        self._tell_figures(sources)
        self._tell_waiting()
        self._tell_lag(sources, known_end)
        self._tell_clock_steps()

    def _tell_figures(self, sources: Sequence[Source]) -> None:
        wheels = {source: source.figures for source in sources if isinstance(source, WheelPartition)}
        of_each = list(wheels.values())
        figures = added(of_each)
        self._told.wheel = figures
        self._told.places = tuple(
            PlaceTold(
                source.topic,
                source.partition,
                self._queue_of(source.topic),
                wheels[source].pending if isinstance(source, WheelPartition) else source.waiting,
                source.next_due_ms,
                source.trouble,
            )
            for source in sources
        )
        metrics = self._metrics
        set_labels(metrics.pending, figures.by_topic)
        set_labels(metrics.pending_due, figures.due_within)
        metrics.furthest_due.set((figures.furthest_ms or 0) / 1000)
        metrics.store_bytes.set(figures.disk_bytes)
        metrics.store_quota_bytes.set(max(self._quota_bytes, figures.quota_bytes))
        metrics.store_quota_ratio.set(max((one.quota_used for one in of_each), default=0))

    def _tell_waiting(self) -> None:
        waiting: Counter[str] = Counter()
        for place in self._told.places:
            waiting[place.queue] += place.waiting
        for queue in self._queues:
            self._metrics.waiting.labels(queue).set(waiting[queue])

    def _tell_lag(self, sources: Sequence[Source], known_end: Callable[[Place], int | None]) -> None:
        unread: Counter[str] = Counter()
        uncommitted: Counter[str] = Counter()
        for source in sources:
            place = source.topic, source.partition
            end = known_end(place)
            if end is not None:
                queue = self._queue_of(source.topic)
                unread[queue] += max(0, end - source.position)
                uncommitted[queue] += max(0, end - self._committed.get(place, end))
        for queue in self._queues:
            self._metrics.unread.labels(queue).set(unread[queue])
            self._metrics.uncommitted.labels(queue).set(uncommitted[queue])

    def _tell_clock_steps(self) -> None:
        steps = self._clock.steps_back, self._clock.steps_forward
        if steps == self._steps_told:
            return
        for direction, count, told in zip(("back", "forward"), steps, self._steps_told, strict=True):
            self._metrics.clock_steps.labels(direction).inc(count - told)
        self._steps_told = steps
        log.warning(
            "clock stepped",
            step_ms=self._clock.last_step_ms,
            operator_action="check the host's time synchronisation; what became due by the step goes out at once",
        )
