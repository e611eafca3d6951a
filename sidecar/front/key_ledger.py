"""Which Idempotency-Keys have come, and what became of their requests: a topic of ours.

An entry is written in the transaction that also writes the records of the request: either both are there, or neither.
The topic keeps a day; memory keeps the newest entries of it, up to `CACHE_MAX_BYTES`. Whoever starts reads the end of
the topic, as much as memory keeps and no more than the last day, and from then on what has been written since, by
others (replicas of the sidecar) as well.
"""

from collections import OrderedDict

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.errors import NotAnsweredError

KEPT_MS = 24 * 3_600_000
CACHE_MAX_BYTES = 32 * 2**20

_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(KEPT_MS),
    "retention.bytes": "-1",
    "segment.ms": "3600000",  # Kafka deletes whole segments: with its default of a week, the day would be eight
}
_CLOCKS_DIFFER_MS = 3_600_000
"""How far the clock that stamped an entry may be behind ours, when we look for the last day's."""
_BATCH = 5_000
_MADE_WITHIN_S = 5.0
_SETTLED_WITHIN_S = 5.0
"""How long a transaction of another replica may hold up those who wait for an answer. One that was killed leaves it
open for longer: they are told to ask again."""
_ENTRY_BYTES = 400
"""What an entry costs in memory beside what it says was written, about."""
_WRITTEN_BYTES = 250


class Written(msgspec.Struct, frozen=True, array_like=True):
    """Where a record of the request stands, and when it is due."""

    topic: str
    partition: int
    offset: int
    deliver_ms: int


class Entry(msgspec.Struct, frozen=True):
    """A record of the ledger: a request that has been carried out."""

    key: str
    """Hash of the Idempotency-Key and of what is asked with it."""
    fingerprint: str
    """Hash of the request's body."""
    written: list[Written] = msgspec.field(name="places")
    done_ms: int

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + _WRITTEN_BYTES * len(self.written)


_decode = msgspec.json.Decoder(Entry).decode


class KeyLedger:
    """The topic, and its newest entries in memory. Raises NotAnsweredError where Kafka does not answer."""

    def __init__(self, cluster: Cluster, topic: str, cache_max_bytes: int = CACHE_MAX_BYTES) -> None:
        self.topic = topic
        self._cluster = cluster
        self._cache_max_bytes = cache_max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._size_bytes = 0
        self._read_until: int | None = None
        """The offset that is to be read next; None: it has not been opened."""

    @property
    def _offsets_kept(self) -> int:
        """So far from its end the topic may have entries that memory has room for: each may have a marker behind it."""
        return 2 * (self._cache_max_bytes // (_ENTRY_BYTES + _WRITTEN_BYTES) + 1)

    def reopen(self) -> None:
        """It has not taken an entry: the topic may have been deleted, and is made, and read, anew."""
        self._read_until = None

    def catch_up(self, now_ms: int) -> None:
        """Read what has been committed since, and make the topic if it is missing."""
        if self._read_until is not None:
            self._read_on(now_ms)
            return
        self._cluster.create(self.topic, _CONFIGS)
        # A topic that has just been made has no leader for a moment.
        patience = Retrying(
            retry=retry_if_exception_type(NotAnsweredError),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(_MADE_WITHIN_S),
            reraise=True,
        )
        patience(self._read_on, now_ms)

    def _read_on(self, now_ms: int) -> None:
        for place, (begin, end) in self._cluster.settled_ends([self.topic], _SETTLED_WITHIN_S).items():
            if self._read_until is None or end < self._read_until:  # a topic that has been made anew begins anew
                first = self._cluster.first_since(place, now_ms - KEPT_MS - _CLOCKS_DIFFER_MS)
                self._read_until = end if first is None else max(first, end - self._offsets_kept)
            known = max(begin, self._read_until)
            if known < end:
                with self._cluster.scan({place: (known, end)}, lambda: _BATCH) as batches:
                    for batch in batches:
                        for message in batch:
                            self._add(message.value() or b"")
                        self._read_until = (batch[-1].offset() or 0) + 1
            self._read_until = end

    def committed(self, entries: list[Entry], last_offset: int) -> None:
        """Entries of our own, the last of them at an offset, are committed."""
        for entry in entries:
            self._keep(entry)
        # Where they follow what is known, they need not be read. Next may be the transaction's marker, or what another
        # replica has written before it.
        if self._read_until == last_offset + 1 - len(entries):
            self._read_until = last_offset + 1

    def find(self, key: str, now_ms: int) -> Entry | None:
        """The entry of a key that came within the last day."""
        entry = self._entries.get(key)
        return None if entry is None or entry.done_ms + KEPT_MS < now_ms else entry

    def _add(self, raw: bytes) -> None:
        try:
            self._keep(_decode(raw))
        except msgspec.MsgspecError:  # not ours
            return

    def _keep(self, entry: Entry) -> None:
        known = self._entries.pop(entry.key, None)
        self._size_bytes += entry.size_bytes - (known.size_bytes if known is not None else 0)
        self._entries[entry.key] = entry
        while self._size_bytes > self._cache_max_bytes and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._size_bytes -= oldest.size_bytes
