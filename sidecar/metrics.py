"""What the sidecar tells Prometheus. Batches are counted as batches: no call per record."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

LATENESS_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
LATENESS_FINER_S = tuple(round(10 ** (step / 24)) / 1000 for step in range(158))
"""24 a decade, from 1 ms to an hour: percentiles are true to a tenth."""

_TABLE_MS = 16_384


class BatchHistogram(Collector):
    """A histogram that takes an array at a time, with one label.

    Args:
        buckets: the bounds that Prometheus is told.
        finer: further bounds, for percentiles of our own.
    """

    def __init__(
        self, name: str, documentation: str, label: str, buckets: Sequence[float], finer: Sequence[float] = ()
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds = np.unique([*buckets, *finer])
        self._told = np.searchsorted(self._bounds, buckets)
        self._place_of_ms = np.searchsorted(self._bounds, np.arange(_TABLE_MS) / 1000, side="left")
        self._counts: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, label: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Count an array of values, in the histogram's unit."""
        self._add(label, np.searchsorted(self._bounds, values, side="left"), float(values.sum()))

    def observe_ms(self, label: str, values_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Count whole milliseconds, for a histogram of seconds: by a table, in a fraction of the time."""
        if len(values_ms) == 0:
            return
        if int(values_ms.max()) < len(self._place_of_ms):
            places = self._place_of_ms.take(values_ms, mode="clip")
        else:
            places = np.searchsorted(self._bounds, values_ms / 1000, side="left")
        self._add(label, places, float(values_ms.sum()) / 1000)

    def _add(self, label: str, places: np.ndarray[tuple[int], np.dtype[np.intp]], total: float) -> None:
        counts = np.bincount(places, minlength=len(self._bounds) + 1)
        self._sums[label] = self._sums.get(label, 0.0) + total
        # Last, because `collect`, in another thread, goes by the counts.
        self._counts[label] = self._counts.get(label, np.zeros_like(counts)) + counts

    @property
    def bounds(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Upper bounds of all buckets but the last, which has none."""
        return self._bounds

    def counts(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """By label, how many values each bucket has; arrays that do not change any more."""
        return dict(self._counts)

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        names = [*map(floatToGoString, self._bounds[self._told].tolist()), "+Inf"]
        for label, counts in list(self._counts.items()):
            cumulated = np.cumsum(counts)[[*self._told, -1]]
            buckets = list(zip(names, map(float, cumulated), strict=True))
            family.add_metric([label], buckets=buckets, sum_value=self._sums[label])
        yield family


def set_labels(gauge: Gauge, values: Mapping[str, float]) -> None:
    """Set a gauge with one label; labels that are not among the values any more go."""
    told = {sample.labels[gauge._labelnames[0]] for metric in gauge.collect() for sample in metric.samples}
    for gone in told - set(values):
        gauge.remove(gone)
    for label, value in values.items():
        gauge.labels(label).set(value)


class Metrics:
    """Every metric, in a registry of its own. ``queue`` is a level's number, ``wheel`` or ``sendback``."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.ingested = Counter(
            "timewheel_ingested_records", "Records read from schedule topics.", ["queue"], registry=registry
        )
        self.delivered = Counter(
            "timewheel_delivered_records", "Records published to their destinations.", ["queue"], registry=registry
        )
        self.rejected = Counter(
            "timewheel_rejected_records", "Records sent to the sidecar's dead letters.", ["code"], registry=registry
        )
        self.lateness = BatchHistogram(
            "timewheel_lateness_seconds",
            "From due to committed on the destination.",
            "queue",
            LATENESS_BUCKETS_S,
            LATENESS_FINER_S,
        )
        registry.register(self.lateness)
        self.transactions = Counter(
            "timewheel_transactions", "Transactions by outcome.", ["outcome"], registry=registry
        )
        self.assigned_partitions = Gauge(
            "timewheel_assigned_partitions", "Partitions this sidecar works on.", registry=registry
        )
        self.stopped_partitions = Gauge(
            "timewheel_stopped_partitions", "Partitions that wait for an operator.", registry=registry
        )
        self.waiting = Gauge(
            "timewheel_waiting_records", "Records accepted and not yet due or published.", ["queue"], registry=registry
        )
        self.behind = Gauge(
            "timewheel_behind_seconds", "How long the oldest due record has been due.", registry=registry
        )
        self.enqueue_stopped = Gauge(
            "timewheel_enqueue_stopped", "1 while the switch stop_enqueue holds up intake.", registry=registry
        )
        self.dequeue_stopped = Gauge(
            "timewheel_dequeue_stopped", "1 while the switch stop_dequeue holds up delivery.", registry=registry
        )
        self.pending = Gauge(
            "timewheel_pending_messages",
            "Messages that wait on the wheel; the topics with the most, the rest as other.",
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
        self.store_bytes = Gauge("timewheel_store_bytes", "Disk that the timer store takes.", registry=registry)
        self.store_quota_bytes = Gauge(
            "timewheel_store_quota_bytes", "Disk that it may take (disk_quota_bytes); 0: no limit.", registry=registry
        )
        self.cancels = Counter(
            "timewheel_cancels", "Cancels and replacements by outcome.", ["outcome"], registry=registry
        )
        self.clock_steps = Counter(
            "timewheel_clock_steps", "Steps of the host's clock.", ["direction"], registry=registry
        )
        self.client_restarts = Counter(
            "timewheel_client_restarts", "Kafka clients thrown away and made anew.", registry=registry
        )
        Gauge("timewheel_build_info", "The running version.", ["version"], registry=registry).labels(version).set(1)
        for outcome in ("committed", "aborted"):
            self.transactions.labels(outcome)
        for outcome in ("cancelled", "too_late", "unknown"):
            self.cancels.labels(outcome)
        for direction in ("back", "forward"):
            self.clock_steps.labels(direction)
