"""Takes out what cancels and replacements name, of all that is pending on a wheel partition: all of it, or nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from connectors.header_names import UNIQ_KEY
from sidecar.dispatch.late import Late
from sidecar.dispatch.wheel.cancels import CancelRead, speaks_of
from sidecar.dispatch.wheel.ready import Ready
from sidecar.records import DUE_MS, HEADERS, OFFSET, TOPIC, Outgoing, Rejection, decode_record
from sidecar.store.errors import StoreError
from sidecar.store.id_hash import hash_ids
from sidecar.store.layout import Int64Array
from sidecar.store.timer_store import Loaded, TimerStore


class Named:
    """What some cancels name, and what they have hit of it."""

    def __init__(self, cancels: Sequence[CancelRead]) -> None:
        self.hits: dict[int, int] = {}
        """By the offset of each cancel that has taken something out, the lowest offset of what it has."""
        self._by_id: dict[bytes, list[CancelRead]] = {}
        for pending in cancels:
            self._by_id.setdefault(pending.uniq_key, []).append(pending)

    @property
    def id_hashes(self) -> Int64Array:
        """The hashes of the ids, each id once."""
        return hash_ids(list(self._by_id))

    def __contains__(self, uniq_key: bytes | None) -> bool:
        return uniq_key in self._by_id

    def hit(self, uniq_key: bytes | None, topic: str, offset: int) -> bool:
        """Whether one of the cancels, the first that may, takes out this message."""
        for pending in self._by_id.get(uniq_key or b"", ()):
            if offset < pending.offset and speaks_of(pending.request, topic):
                self.hits[pending.offset] = min(offset, self.hits.get(pending.offset, offset))
                return True
        return False


class TakingOut:
    """Takes messages out of what waits in memory, of the loaded slots and of the store.

    Args:
        real_topic: the destination of a record, which a copy names in a header.
    """

    def __init__(self, store: TimerStore, ready: Ready, late: Late, real_topic: Callable[[Outgoing], str]) -> None:
        self._store = store
        self._ready = ready
        self._late = late
        self._real_topic = real_topic

    @contextmanager
    def of(self, named: Named, watermark: tuple[int, int]) -> Iterator[Loaded]:
        """What is on disk of what cancels name, to be deleted in the block: where that raises, nothing is taken out.

        Raises OSError, StoreError.
        """
        late, loaded = self._late.snapshot(), self._ready.snapshot()
        try:
            yield self._remove(named, watermark)
        except (OSError, StoreError):
            self._late.restore(late)
            self._ready.restore(loaded)
            raise

    def _remove(self, named: Named, watermark: tuple[int, int]) -> Loaded:
        def is_hit(record: Outgoing) -> bool:
            for name, value in record[HEADERS]:
                if name == UNIQ_KEY and value in named and named.hit(value, self._real_topic(record), record[OFFSET]):
                    return True
            return False

        id_hashes = named.id_hashes
        # 1. What waits for the next transaction, then what is loaded: both are in memory.
        self._late.drop(lambda record: not isinstance(record[TOPIC], Rejection) and is_hit(record))
        removed = [self._ready.drop(is_hit, id_hashes)]
        # 2. What is on disk only. Also where something was found: a message with the same id that is left now would be
        #    taken out after a restart, when all of them are on disk.
        found = self._store.find(id_hashes, max(self._ready.loaded_until_ms, watermark[0]))
        records = map(decode_record, self._store.read(found.payload_pos, found.payload_size))
        # Before the first slot is loaded, the store also tells of what is done.
        kept = [(record[DUE_MS], record[OFFSET]) > watermark and is_hit(record) for record in records]
        removed.append(found.where(np.array(kept, np.bool_)))
        return Loaded.joined(removed)
