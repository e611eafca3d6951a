"""Takes out what cancels and replacements name, of all that is pending on a wheel partition: all of it, or nothing."""

from collections.abc import Callable, Sequence

import numpy as np

from connectors.contract import Header
from sidecar.dispatch.cancels import Pending, speaks_of
from sidecar.dispatch.late import Late
from sidecar.dispatch.ready import Ready
from sidecar.records import Outgoing, Rejection, decode_record
from sidecar.store.errors import StoreError
from sidecar.store.id_hash import hash_ids
from sidecar.store.timer_store import Loaded, TimerStore

_UNIQ_KEY = str(Header.UNIQ_KEY)


class TakingOut:
    """From what waits in memory, from the loaded slots and from the store.

    Args:
        real_topic: the destination of a record, which a copy names in a header.
    """

    def __init__(self, store: TimerStore, ready: Ready, late: Late, real_topic: Callable[[Outgoing], str]) -> None:
        self._store = store
        self._ready = ready
        self._late = late
        self._real_topic = real_topic

    def take_out(self, cancels: Sequence[Pending], watermark: tuple[int, int]) -> dict[int, int]:
        """Apply cancels in one pass over what is pending.

        Returns:
            By the offset of each cancel that has taken something out, the lowest offset of what it has.

        Raises:
            OSError, StoreError: nothing is taken out; once there is room the same cancels find it then.
        """
        hits: dict[int, int] = {}
        by_id: dict[bytes, list[Pending]] = {}
        for pending in cancels:
            by_id.setdefault(pending.uniq_key, []).append(pending)

        def matches(record: Outgoing) -> bool:
            for name, value in record[4]:
                if name == _UNIQ_KEY and value in by_id:
                    topic = self._real_topic(record)
                    for pending in by_id[value]:
                        if record[6] < pending.offset and speaks_of(pending.request, topic):
                            hits[pending.offset] = min(record[6], hits.get(pending.offset, record[6]))
                            return True
            return False

        late, loaded = self._late.snapshot(), self._ready.snapshot()
        try:
            self._remove(matches, hash_ids([pending.uniq_key for pending in cancels]), watermark)
        except (OSError, StoreError):
            self._late.restore(late)
            self._ready.restore(loaded)
            raise
        return hits

    def _remove(self, matches: Callable[[Outgoing], bool], id_hashes: np.ndarray, watermark: tuple[int, int]) -> None:
        # 1. What waits for the next transaction, then what is loaded: both are in memory.
        self._late.drop(lambda record: not isinstance(record[0], Rejection) and matches(record))
        removed = [self._ready.drop(matches, id_hashes)]
        # 2. What is on disk only. Also where something was found: a message with the same id that is left now would be
        #    taken out after a restart, when all of them are on disk.
        found = self._store.find(id_hashes, max(self._ready.loaded_until_ms, watermark[0]))
        records = map(decode_record, self._store.read(found.payload_pos, found.payload_size))
        # Before the first slot is loaded, the store also tells of what is done.
        kept = [(record[5], record[6]) > watermark and matches(record) for record in records]
        removed.append(found.where(np.array(kept, np.bool_)))
        # 3. All of them in one write: all or none.
        self._store.delete(Loaded.joined(removed))
