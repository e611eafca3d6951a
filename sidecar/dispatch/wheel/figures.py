"""What a wheel partition tells of itself for metrics (RIP-43's timer metrics, and what operators ask besides)."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

DUE_WITHIN_MS = {
    "1m": 60_000,
    "10m": 600_000,
    "1h": 3_600_000,
    "6h": 6 * 3_600_000,
    "1d": 86_400_000,
    "7d": 7 * 86_400_000,
}
"""RIP-43 counts pending messages by how soon they are due."""

TOPICS_TOLD_MAX = 50
OTHER_TOPICS = "other"


class WheelFigures(NamedTuple):
    """Of one partition; what is counted by slots is some 15 s old at most."""

    pending: int
    by_topic: dict[str, int]
    """Those with the most messages."""
    due_within: dict[str, int]
    """Each of `DUE_WITHIN_MS`, and ``later``; not cumulative. A message that rolls counts at its roll, one that is due
    already within the shortest."""
    furthest_ms: int | None
    """When the slot that is acted on last begins."""
    disk_bytes: int
    quota_bytes: int
    """How much disk its store may take: more than was asked for where its wheel had to be made larger; 0: no limit."""

    @property
    def quota_used(self) -> float:
        """The share of the quota that is taken."""
        return self.disk_bytes / self.quota_bytes if self.quota_bytes else 0.0


def added(figures: Iterable[WheelFigures]) -> WheelFigures:
    """Of all partitions together; topics beyond the first are counted as ``other``, and the quota is the largest."""
    pending = disk_bytes = quota_bytes = 0
    by_topic: Counter[str] = Counter()
    due_within: Counter[str] = Counter()
    furthest: list[int] = []
    for one in figures:
        pending += one.pending
        disk_bytes += one.disk_bytes
        quota_bytes = max(quota_bytes, one.quota_bytes)
        by_topic.update(one.by_topic)
        due_within.update(one.due_within)
        furthest += [one.furthest_ms] if one.furthest_ms is not None else []
    told = dict(by_topic.most_common(TOPICS_TOLD_MAX))
    if pending > sum(told.values()):
        told[OTHER_TOPICS] = told.get(OTHER_TOPICS, 0) + pending - sum(told.values())
    return WheelFigures(pending, told, dict(due_within), max(furthest, default=None), disk_bytes, quota_bytes)
