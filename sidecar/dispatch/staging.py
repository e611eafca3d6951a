"""What of a batch is to be stored: gathered record by record, put on disk as one."""

import numpy as np

from sidecar.dispatch.ready import Joined, Ready
from sidecar.dispatch.wheel_view import WheelView
from sidecar.records import Outgoing, encode_record
from sidecar.store.errors import SlotConflict
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.timer_store import TimerStore

Staged = tuple[Outgoing, int, int, bytes, str, bool]
"""A record to be stored with its batch: the record, act_ms, timestamp_ms, id, destination, whether it rolls."""


class Staging:
    """Of one wheel partition. False while there is nothing."""

    def __init__(self, store: TimerStore, ready: Ready, view: WheelView) -> None:
        self.staged: list[Staged] = []
        """In the order of their offsets."""
        self._store = store
        self._ready = ready
        self._view = view

    def __bool__(self) -> bool:
        return bool(self.staged)

    @property
    def first_offset(self) -> int:
        """The lowest."""
        return self.staged[0][0][6]

    def store(self, *, within_quota: bool) -> None:
        """Put them on disk, as far as the wheel has places for them.

        Raises:
            OSError, SlotConflict: those that are left are not on disk.
        """
        count = len(self.staged)
        while self.staged:
            try:
                self._store_first(count, within_quota=within_quota)
            except SlotConflict:
                if count == 1:
                    raise
                count //= 2
            else:
                del self.staged[:count]

    def _store_first(self, count: int, *, within_quota: bool) -> None:
        """All or none; what falls into a loaded slot also joins what is about to be sent."""
        records, act_ms, timestamp_ms, ids, topics, rolls = zip(*self.staged[:count], strict=True)
        topic_hash = {topic: hash_topic(topic) for topic in set(topics)}
        self._view.remember(topic_hash)
        stored = self._store.put(
            list(map(encode_record, records)),
            np.array(act_ms, np.int64),
            np.array(timestamp_ms, np.int64),
            hash_ids(ids),
            np.fromiter(map(topic_hash.__getitem__, topics), np.int32, len(topics)),
            np.array(rolls, np.bool_),
            within_quota=within_quota,
        )
        for number in np.flatnonzero(stored.act_ms < self._ready.loaded_until_ms).tolist():
            record = records[number]
            self._ready.join(Joined((act_ms[number], record[6]), record, stored.where(np.array([number]))))
