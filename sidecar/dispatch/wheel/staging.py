"""What of a batch changes the store: gathered record by record, put on disk as one.

Schedules and cancels come in any order, and most have nothing to do with each other: orders that time out are scheduled
and cancelled in turns. A cancel takes out what lies before it and nothing behind it, by offset, so that all of a batch
may be looked up at once, and stored and taken back in one write. What is cancelled before it is stored never is.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from sidecar.dispatch.wheel.cancels import CancelRead
from sidecar.dispatch.wheel.ready import Joined, Ready
from sidecar.dispatch.wheel.taking_out import Named, TakingOut
from sidecar.dispatch.wheel.view import WheelView
from sidecar.intake.parse_wheel import Replace
from sidecar.records import OFFSET, Outgoing, encode_record
from sidecar.store.errors import SlotConflict
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.timer_store import Loaded, TimerStore

Staged = tuple[Outgoing, int, int, bytes, str, bool]
"""What is stored with its batch: a record `for_disk`, act_ms, timestamp_ms, id, destination, whether it rolls."""


class Staging:
    """What one wheel partition has read and not yet put on disk. False while there is nothing."""

    def __init__(self, store: TimerStore, ready: Ready, view: WheelView, taking_out: TakingOut) -> None:
        self.schedules: list[Staged] = []
        """In the order of their offsets. Always this same list: others may keep hold of it and append to it."""
        self.cancels: list[CancelRead] = []
        """In the order of their offsets. Always this same list, but added to with `cancel` alone."""
        self._brought: set[bytes] = set()
        """Ids of the messages that replacements among them bring."""
        self._store = store
        self._ready = ready
        self._view = view
        self._taking_out = taking_out

    def __bool__(self) -> bool:
        return bool(self.schedules or self.cancels)

    @property
    def first_offset(self) -> int:
        """The lowest offset of all that is staged."""
        return min(
            [*(staged[0][OFFSET] for staged in self.schedules[:1]), *(pending.offset for pending in self.cancels[:1])]
        )

    @property
    def is_bringing(self) -> bool:
        """Whether a replacement is among the cancels."""
        return bool(self._brought)

    def brings(self, uniq_key: bytes) -> bool:
        """Whether one of them brings a message with this id: what names that has to be applied after it."""
        return uniq_key in self._brought

    def cancel(self, pending: CancelRead) -> None:
        """Add a cancel or a replacement."""
        self.cancels.append(pending)
        if isinstance(pending.request, Replace):
            self._brought.add(pending.request.schedule.uniq_key)

    def forget_from(self, offset: int) -> None:
        """Forget what is staged from this offset on: it will be read again."""
        del self.schedules[self._schedules_below(offset) :]
        del self.cancels[self._cancels_below(offset) :]
        self._brought = {
            pending.request.schedule.uniq_key for pending in self.cancels if isinstance(pending.request, Replace)
        }

    def take_in(
        self, watermark: tuple[int, int], *, within_quota: bool
    ) -> Iterator[tuple[list[CancelRead], dict[int, int]]]:
        """Put the schedules on disk and take out what the cancels name: in one write, or in as few as the store takes.

        Yields:
            In order, cancels that have been applied, and by the offset of each that has taken something out the lowest
            offset of what.

        Raises:
            OSError, SlotConflict: those that are left are not on disk, and take nothing out.
            StoreError: the store is damaged.
        """
        offsets = self._offsets()
        done, count = 0, len(offsets)
        while done < len(offsets):
            end = offsets[min(done + count, len(offsets)) - 1] + 1
            schedules = self.schedules[: self._schedules_below(end)]
            cancels = self.cancels[: self._cancels_below(end)]
            try:
                hits = self._write(schedules, cancels, watermark, within_quota=within_quota)
            except (OSError, SlotConflict) as error:
                # What lies before the first that finds no room, or no place on the wheel, is taken in ahead of it.
                count = (len(schedules) + len(cancels)) // 2
                if count == 0 or not (cancels or isinstance(error, SlotConflict)):
                    raise
                continue
            done += len(schedules) + len(cancels)
            del self.schedules[: len(schedules)], self.cancels[: len(cancels)]
            if cancels:
                yield cancels, hits
        self._brought.clear()

    # ------------------------------------------------------------------------------------------------------------------

    def _offsets(self) -> list[int]:
        """The offsets of all that is staged, in order."""
        schedules = [staged[0][OFFSET] for staged in self.schedules]
        return sorted([*schedules, *(pending.offset for pending in self.cancels)]) if self.cancels else schedules

    def _schedules_below(self, offset: int) -> int:
        return bisect_left(self.schedules, offset, key=lambda staged: staged[0][OFFSET])

    def _cancels_below(self, offset: int) -> int:
        return bisect_left(self.cancels, offset, key=lambda pending: pending.offset)

    def _write(
        self, schedules: list[Staged], cancels: Sequence[CancelRead], watermark: tuple[int, int], *, within_quota: bool
    ) -> dict[int, int]:
        if not cancels:
            self._store_all(schedules, None, within_quota=within_quota)
            return {}
        named = Named(cancels)
        left = [
            staged
            for staged in schedules
            for record, _, _, uniq_key, topic, _ in (staged,)
            if not (uniq_key in named and named.hit(uniq_key, topic, record[OFFSET]))
        ]
        with self._taking_out.of(named, watermark) as deleted:
            if left:
                self._store_all(left, deleted, within_quota=within_quota)
            else:
                self._store.delete(deleted)
        return named.hits

    def _store_all(self, schedules: list[Staged], deleted: Loaded | None, *, within_quota: bool) -> None:
        """Store all of them or none; those that belong to a loaded slot also join what is about to be sent."""
        records, act_ms, timestamp_ms, ids, topics, rolls = zip(*schedules, strict=True)
        topic_hash = {topic: hash_topic(topic) for topic in set(topics)}
        self._view.remember(topic_hash)
        stored = self._store.put(
            list(map(encode_record, records)),
            np.array(act_ms, np.int64),
            np.array(timestamp_ms, np.int64),
            hash_ids(ids),
            np.fromiter(map(topic_hash.__getitem__, topics), np.int32, len(topics)),
            np.array(rolls, np.bool_),
            deleted=deleted,
            within_quota=within_quota,
        )
        for number in np.flatnonzero(stored.act_ms < self._ready.loaded_until_ms).tolist():
            record = records[number]
            self._ready.join(Joined((act_ms[number], record[OFFSET]), record, stored.where(np.array([number]))))
