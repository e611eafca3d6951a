"""Which dead letters have been redriven: a topic of ours, written in the transactions that redrive them.

One record a transaction and partition, with the offsets as ranges. Kafka's consumer progress would not do: with a
filter, some letters are redriven and those before them are not, and what a group commits holds no such list. The topic
is small, 100 bytes or so for 5,000 letters, and is kept for ever; an entry names the dead-letter topic by the id that
Kafka has given it, so that a topic that was made anew begins anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from connectors.contract import Place
from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.offsets import Offsets, Range

_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_BATCH = 5_000
_SETTLED_WITHIN_S = 45.0


class Entry(msgspec.Struct):
    """A record of the ledger."""

    topic: str
    topic_id: str
    partition: int
    offsets: list[Range]
    redriven_ms: int

    @property
    def key(self) -> bytes:
        return f"{self.topic_id}-{self.partition}".encode()

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Ledger:
    """What is noted of some dead-letter topics."""

    def __init__(self, cluster: Cluster, ledger_topic: str, topics: Sequence[str]) -> None:
        self.topic = ledger_topic
        self._cluster = cluster
        self._ids = cluster.topic_ids(topics)

    def create(self) -> None:
        """Make the ledger's own topic, where it is missing."""
        self._cluster.create(self.topic, _CONFIGS)

    def read(self, *, is_settled: bool = False) -> dict[Place, Offsets]:
        """What has been redriven by now.

        Args:
            is_settled: wait for the transactions that are open; without it what was noted behind one is not seen yet.
        """
        mine = [self.topic]
        ends = self._cluster.settled_ends(mine, _SETTLED_WITHIN_S) if is_settled else self._cluster.ends(mine)
        topics = set(self._ids.items())  # a broker without ids tells the same of all
        noted: dict[Place, list[Range]] = defaultdict(list)
        decode = msgspec.json.Decoder(Entry).decode
        with self._cluster.scan(ends, lambda: _BATCH) as batches:
            for message in chain.from_iterable(batches):
                try:
                    entry = decode(message.value() or b"")
                except msgspec.MsgspecError:  # not ours
                    continue
                if (entry.topic, entry.topic_id) in topics:
                    noted[entry.topic, entry.partition] += entry.offsets
        return {place: Offsets(ranges) for place, ranges in noted.items()}

    def entry(self, place: Place, offsets: Iterable[Range], now_ms: int) -> Entry:
        topic, partition = place
        return Entry(topic, self._ids[topic], partition, list(offsets), now_ms)
