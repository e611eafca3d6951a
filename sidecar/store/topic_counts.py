"""How many messages are pending per topic, by the topic's hash, in bounded memory.

A topic gets a count of its own while there are fewer than `_TOPICS_MAX`. From then on records of further topics are
counted together, and no topic gets a count before none of those is pending: otherwise it would not be known of a record
that leaves where it was counted.
"""

from collections.abc import Iterable

import numpy as np

from sidecar.store.layout import Int32Array

_TOPICS_MAX = 10_000


class TopicCounts:
    """Counts of pending messages; `total` is that of all of them."""

    def __init__(self, topics_max: int = _TOPICS_MAX) -> None:
        self.total = 0
        self.of_other_topics = 0
        """Messages of topics that have no count of their own."""
        self._topics_max = topics_max
        self._by_hash: dict[int, int] = {}

    def add(self, topic_hashes: Int32Array) -> None:
        """Messages have come."""
        for topic_hash, count in _counted(topic_hashes):
            self._change(topic_hash, count)

    def remove(self, topic_hashes: Int32Array) -> None:
        """Messages that had come have left."""
        for topic_hash, count in _counted(topic_hashes):
            self._change(topic_hash, -count)

    def of(self, topic_hash: int) -> int | None:
        """How many of a topic; None where it is not counted for itself."""
        return self._by_hash.get(topic_hash, None if self.of_other_topics else 0)

    def highest(self, most: int) -> list[tuple[int, int]]:
        """(hash, count) of the topics with the most messages, descending; at most so many."""
        return sorted(self._by_hash.items(), key=lambda item: -item[1])[:most]

    def _change(self, topic_hash: int, by: int) -> None:
        self.total += by
        held = self._by_hash.get(topic_hash)
        if held is None and (self.of_other_topics or len(self._by_hash) >= self._topics_max):
            self.of_other_topics += by
        elif (held or 0) + by:
            self._by_hash[topic_hash] = (held or 0) + by
        else:
            del self._by_hash[topic_hash]


def _counted(topic_hashes: Int32Array) -> Iterable[tuple[int, int]]:
    hashes, counts = np.unique(topic_hashes, return_counts=True)
    return zip(hashes.tolist(), counts.tolist(), strict=True)
