"""Kinds of metrics that the client library lacks: histograms that count by the batch, labels that are bounded."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from prometheus_client import Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

LABELS_MAX = 100
"""Values of a label that users' own names make: those beyond the first are counted as ``other``."""
OTHER = "other"


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


class BoundedLabel:
    """Values of a label: the first as they are, all others as ``other``. For counters, which must not forget."""

    def __init__(self, most: int = LABELS_MAX) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value


def set_labels(gauge: Gauge, values: Mapping[str, float]) -> None:
    """Set a gauge with one label; labels that are not among the values any more go."""
    told = {sample.labels[gauge._labelnames[0]] for metric in gauge.collect() for sample in metric.samples}
    for gone in told - set(values):
        gauge.remove(gone)
    for label, value in values.items():
        gauge.labels(label).set(value)
