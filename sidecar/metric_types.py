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


class BatchHistogram(Collector):
    """A histogram that takes an array at a time, with one label."""

    def __init__(self, name: str, documentation: str, label: str, buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds = np.asarray(buckets)
        self._counts: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, label: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Count an array of values, in the histogram's unit."""
        places = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(places, minlength=len(self._bounds) + 1)
        self._sums[label] = self._sums.get(label, 0.0) + float(values.sum())
        # Last, because `collect`, in another thread, goes by the counts.
        self._counts[label] = self._counts.get(label, np.zeros_like(counts)) + counts

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        names = [*map(floatToGoString, self._bounds.tolist()), "+Inf"]
        for label, counts in list(self._counts.items()):
            cumulated = np.cumsum(counts)
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
