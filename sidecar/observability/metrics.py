"""What the sidecar tells Prometheus. Batches are counted as batches: no call per record.

What somebody has to act on is told as it is when it is asked for (`observe_health`), never as it was when the
loop last had the time to say so: a loop that is stuck does not look well.
"""

import math
import platform
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import confluent_kafka
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from connectors.contract import ErrorCode, TopicNames
from sidecar.cancel_outcomes import CancelOutcome
from sidecar.observability.health import Health, Paused
from sidecar.observability.metric_types import BatchHistogram, BoundedLabel

LATENESS_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
LATENESS_FINER_S = tuple(round(10 ** (step / 24)) / 1000 for step in range(158))
"""24 a decade, from 1 ms to an hour: percentiles are true to a tenth."""

TRANSACTION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a time for each series that nobody asks for, and another series with it


def queue_label(names: TopicNames, topic: str) -> str:
    """The label of a schedule topic: a level's number, ``wheel`` or ``sendback``."""
    level = names.level_of(topic)
    return str(level) if level is not None else names.kind(topic).value


class TopicMetrics:
    """What is told of the schedule topics, by whoever looks after them: the sidecar, or the supervisor of workers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.retention = Gauge(
            "timewheel_topic_retention_seconds",
            "How long Kafka keeps the records of a schedule topic (retention.ms); +Inf: for ever.",
            ["queue"],
            registry=registry,
        )
        self.retention_needed = Gauge(
            "timewheel_topic_retention_needed_seconds",
            "How long they have to be kept: until they are acted on, and 7 days for a sidecar that is away.",
            ["queue"],
            registry=registry,
        )
        self.unfit = Gauge(
            "timewheel_unfit_topics",
            "Topics that 'timewheel topics check' finds fault with, but for a retention that is short of the 7 days; "
            "fatal: records get lost or wait for nobody, and a start is refused.",
            ["fatal"],
            registry=registry,
        )


class Metrics:
    """Every metric of one process, in a registry of its own.

    ``queue`` is a level's number, ``wheel`` or ``sendback``; ``topic`` and ``group`` are names that users give, of
    which a bounded number is told.
    """

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._group_label = BoundedLabel()

        # Records
        self.ingested = Counter(
            "timewheel_ingested_records", "Records read from schedule topics.", ["queue"], registry=registry
        )
        self.delivered = Counter(
            "timewheel_delivered_records", "Records published to their destinations.", ["queue"], registry=registry
        )
        self.rejected = Counter(
            "timewheel_rejected_records",
            "Records that cannot be delivered and went to the sidecar's own dead letters, by ERROR_CODE.",
            ["code"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "timewheel_dead_letters",
            "Records written to dead-letter topics by group, rejected ones among them; groups beyond the first 100 "
            "as other.",
            ["group"],
            registry=registry,
        )
        self.lateness = BatchHistogram(
            "timewheel_lateness_seconds",
            "From due to committed on the destination.",
            "queue",
            LATENESS_BUCKETS_S,
            LATENESS_FINER_S,
        )
        registry.register(self.lateness)
        self.behind = Gauge(
            "timewheel_behind_seconds",
            "How long the oldest due record has been due, of partitions that are open; 0: nothing is due.",
            registry=registry,
        )

        # What waits
        self.waiting = Gauge(
            "timewheel_waiting_records",
            "Records accepted and not yet published: on the wheel all, of a level those read ahead.",
            ["queue"],
            registry=registry,
        )
        self.unread = Gauge(
            "timewheel_unread_offsets",
            "Offsets that intake has still to read, as of the last fetch.",
            ["queue"],
            registry=registry,
        )
        self.uncommitted = Gauge(
            "timewheel_uncommitted_offsets",
            "Consumer lag: offsets from the committed one to the log's end; of a level all that waits. Of partitions "
            "that are open: those that are stopped or fail have metrics of their own.",
            ["queue"],
            registry=registry,
        )
        self.pending = Gauge(
            "timewheel_pending_messages",
            "Messages that wait on the wheel; the 50 topics with the most, the rest as other.",
            ["topic"],
            registry=registry,
        )
        self.pending_due = Gauge(
            "timewheel_pending_due_messages",
            "Messages that wait on the wheel by how soon they are acted on, each counted once.",
            ["within"],
            registry=registry,
        )
        self.furthest_due = Gauge(
            "timewheel_furthest_due_timestamp_seconds",
            "When the last of the messages on the wheel is acted on; 0: there is none.",
            registry=registry,
        )
        self.rolls = Counter(
            "timewheel_rolls",
            "Messages written to the end of the wheel topic: due beyond the roll window, or replaced.",
            registry=registry,
        )
        self.postponed = Counter(
            "timewheel_postponed",
            "Records put back onto the wheel topic when they were due, because their destination took nothing.",
            registry=registry,
        )
        self.cancels = Counter(
            "timewheel_cancels", "Cancels and replacements by outcome.", ["outcome"], registry=registry
        )

        # Disk
        self.store_bytes = Gauge("timewheel_store_bytes", "Disk that the timer store takes.", registry=registry)
        self.store_quota_bytes = Gauge(
            "timewheel_store_quota_bytes",
            "Disk that the store of one wheel partition may take (disk_quota_bytes); 0: no limit.",
            registry=registry,
        )
        self.store_quota_ratio = Gauge(
            "timewheel_store_quota_used_ratio",
            "The share of it that the largest store takes; 0: no limit.",
            registry=registry,
        )
        self.data_dir_free = Gauge(
            "timewheel_data_dir_free_bytes", "Free space on the file system of data_dir.", registry=registry
        )
        self.data_dir_size = Gauge(
            "timewheel_data_dir_size_bytes", "Size of the file system of data_dir.", registry=registry
        )

        # Kafka
        self.transactions = Counter(
            "timewheel_transactions", "Transactions by outcome.", ["outcome"], registry=registry
        )
        self.transaction_seconds = Histogram(
            "timewheel_transaction_duration_seconds",
            "From the first record of a transaction to Kafka's answer to its commit.",
            registry=registry,
            buckets=TRANSACTION_BUCKETS_S,
        )
        self.last_transaction = Gauge(
            "timewheel_last_transaction_timestamp_seconds",
            "When the last transaction was committed; 0: none yet. Without anything to do there is none.",
            registry=registry,
        )
        self.broker_silent = Gauge(
            "timewheel_broker_silent_seconds", "How long Kafka has not answered; 0: it does.", registry=registry
        )
        self.throttled = Gauge(
            "timewheel_throttled_seconds",
            "By how much a broker has delayed an answer within a minute, because a quota is used up; 0: none has.",
            registry=registry,
        )
        self.rebalances = Counter(
            "timewheel_rebalances",
            "Partitions assigned, revoked, or lost to others.",
            ["event"],
            registry=registry,
        )
        self.client_restarts = Counter(
            "timewheel_client_restarts", "Kafka clients thrown away and replaced.", registry=registry
        )

        # Partitions
        self.assigned_partitions = Gauge(
            "timewheel_assigned_partitions", "Partitions this sidecar works on.", registry=registry
        )
        self.stopped_partitions = Gauge(
            "timewheel_stopped_partitions", "Partitions that wait for an operator.", registry=registry
        )
        self.failing_partitions = Gauge(
            "timewheel_failing_partitions",
            "Partitions whose store failed, or that no broker leads; they are tried again.",
            registry=registry,
        )
        self.destinations_away = Gauge(
            "timewheel_unavailable_destination_partitions",
            "Destination partitions that take no records just now; theirs are tried again later.",
            registry=registry,
        )
        self.recovering_partitions = Gauge(
            "timewheel_recovering_partitions", "Partitions that are reading committed records again.", registry=registry
        )
        self.held_back_partitions = Gauge(
            "timewheel_held_back_partitions",
            "Partitions that cannot be read on before a producer's transaction ends.",
            registry=registry,
        )
        self.paused_partitions = Gauge(
            "timewheel_paused_partitions",
            "Partitions that take nothing in, by reason: disk, which is full; delivery_stopped, no room beside "
            "what waits for stop_dequeue; or other, such as a damaged batch in Kafka.",
            ["reason"],
            registry=registry,
        )

        # The process
        self.ready = Gauge("timewheel_ready", "1 while /readyz says so.", registry=registry)
        self.since_turn = Gauge(
            "timewheel_loop_since_turn_seconds",
            "How long ago the loop last turned; 30 s and more: it is stuck, and /healthz says so.",
            registry=registry,
        )
        self.enqueue_stopped = Gauge(
            "timewheel_enqueue_stopped", "1 while the switch stop_enqueue holds up intake.", registry=registry
        )
        self.dequeue_stopped = Gauge(
            "timewheel_dequeue_stopped", "1 while the switch stop_dequeue holds up delivery.", registry=registry
        )
        self.clock_steps = Counter(
            "timewheel_clock_steps", "Steps of the host's clock.", ["direction"], registry=registry
        )
        self.clock_ahead = Gauge(
            "timewheel_clock_ahead_seconds",
            "By how much this host's clock is ahead of the brokers' at most, as records say that are read; below 0: "
            "behind by as much at least; NaN: not known.",
            registry=registry,
        )
        self.clock_ahead.set(math.nan)
        self.spans_dropped = Counter(
            "timewheel_spans_dropped", "Deliveries not traced because there were too many (otel).", registry=registry
        )
        self.build_info = Gauge(
            "timewheel_build_info", "The running version.", ["version", "python", "librdkafka"], registry=registry
        )
        self.build_info.labels(version, platform.python_version(), confluent_kafka.libversion()[0]).set(1)
        self._config = Info("timewheel_config", "Settings that tell sidecars apart.", registry=registry)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        for counter, labels in (
            (self.transactions, ("committed", "aborted")),
            (self.cancels, tuple(CancelOutcome)),
            (self.clock_steps, ("back", "forward")),
            (self.rebalances, ("assigned", "revoked", "lost")),
            (self.rejected, tuple(ErrorCode)),
        ):
            for label in labels:
                counter.labels(label)

    def tell_config(self, config: Mapping[str, object]) -> None:
        """Settings as labels of ``timewheel_config_info``; no secrets."""
        self._config.info({name: str(value) for name, value in config.items()})

    def observe_health(self, health: Health) -> None:
        """From now on tell of this health, as it is when asked."""
        told: dict[Gauge, Callable[[], float]] = {
            self.ready: lambda: not health.unready_reasons(),
            self.since_turn: lambda: health.since_turn_ms / 1000,
            self.behind: lambda: health.behind_ms / 1000,
            self.broker_silent: lambda: health.broker_silent_ms / 1000,
            self.failing_partitions: lambda: len(health.failing),
            self.recovering_partitions: lambda: len(health.recovering),
            self.destinations_away: lambda: len(health.destinations_away),
            self.held_back_partitions: lambda: len(health.held_back),
        }
        for gauge, function in told.items():
            gauge.set_function(function)
        for why in Paused:
            self.paused_partitions.labels(why).set_function(partial(health.paused, why))

    def observe_disk(self, directory: Path) -> None:
        """From now on tell of the file system that holds this directory, as it is when asked."""
        self.data_dir_free.set_function(lambda: _disk_usage(directory)[2])
        self.data_dir_size.set_function(lambda: _disk_usage(directory)[0])

    def count_dead_letters(self, group: str, count: int) -> None:
        self.dead_letters.labels(self._group_label(group)).inc(count)


def _disk_usage(directory: Path) -> tuple[float, float, float]:
    """Bytes in all, used and free; not numbers where the directory cannot be read, which others tell of."""
    try:
        return shutil.disk_usage(directory)
    except OSError:
        return math.nan, math.nan, math.nan
