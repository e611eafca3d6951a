"""Checkpoints of a wheel partition: which end of its logs goes with which committed offset.

A checkpoint says that the logs up to some place hold all below some offset that is not done, and nothing from there on.
That can be said of the logs' end whenever a transaction begins, and of the offset that is read next, but for what had
arrived already due: that is not on disk, and done once the committed offset has passed it. So each such pair is kept
until the committed offset has reached its own, and then is what the next checkpoint says.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from sidecar.dispatch.wheel.cancels import Cancels, Tombstone
from sidecar.dispatch.wheel.view import WheelView
from sidecar.store.timer_store import Marks, TimerStore

CHECKPOINT_EVERY_MS = 1_000
MARKS_MAX = 100
"""More than there are transactions while what is at hand is sent, with the default settings."""

log = structlog.get_logger("timewheel.wheel")


class Complete(NamedTuple):
    """The logs up to these marks hold all below the offset that is not done, and nothing from there on."""

    offset: int
    marks: Marks


class WheelCheckpoints:
    """The checkpoints of one partition.

    Args:
        position: the offset that is read next, where the logs end now.
        began_ms: by the clock that `tick` is told.
    """

    def __init__(
        self, partition: str, store: TimerStore, cancels: Cancels, view: WheelView, *, position: int, began_ms: float
    ) -> None:
        self._partition = partition
        self._store = store
        self._cancels = cancels
        self._view = view
        self._reached = Complete(position, store.marks())
        """The last whose offset is committed."""
        self._ahead: deque[Complete] = deque()
        """The later ones, in order."""
        self._is_written = True
        self._tried_ms = began_ms
        self.failure = ""
        """Why the last that was tried could not be written, in words; empty when it could."""

    def transaction_begins(self, position: int) -> None:
        """Remember where the logs end.

        Args:
            position: the offset that is read next.
        """
        if self._ahead and self._ahead[-1].offset == position:
            self._ahead.pop()
        if len(self._ahead) < MARKS_MAX:
            self._ahead.append(Complete(position, self._store.marks()))

    def committed(self, offset: int) -> None:
        """The transaction is final, and this offset with it."""
        while self._ahead and self._ahead[0].offset <= offset:
            self._reached = self._ahead.popleft()
        self._is_written = False

    def tick(self, monotonic_ms: float, replacements: Iterable[int], *, is_disk_full: bool = False) -> None:
        """Write a checkpoint now and then, where there is something new to say.

        Args:
            monotonic_ms: of a clock that never steps.
            replacements: offsets of those whose message waits to be sent.
            is_disk_full: whether intake waits for room. Then nothing may be read that a checkpoint would have to wait
                for, nor may there be room for one: what nothing needs is deleted without it.
        """
        if monotonic_ms - self._tried_ms < CHECKPOINT_EVERY_MS:
            return
        makes_room = is_disk_full and self._store.is_any_room_to_make
        if not self._is_written or makes_room:
            self._tried_ms = monotonic_ms
            self._write(replacements)
        if makes_room and self._store.is_any_room_to_make:
            self._make_room()

    def _write(self, replacements: Iterable[int]) -> None:
        # A cancel in force is nowhere but in memory and in Kafka, as what a replacement brings, until that is sent: no
        # checkpoint may lie behind it.
        offset, marks = self._reached
        is_bringing = any(replacement < offset for replacement in replacements)
        if is_bringing or self._cancels.is_any_open or self._cancels.is_any_across(offset):
            return
        try:
            self._store.checkpoint(offset, marks, self.extra)
        except OSError as error:
            self.failure = f"no checkpoint can be written, so that a start takes longer: {error}"
            log.warning(
                "checkpoint failed",
                partition=self._partition,
                reason=str(error),
                operator_action="check the disk under data_dir; the checkpoint before stays, a start takes longer",
            )
        else:
            self._is_written = True
            self.failure = ""

    def _make_room(self) -> None:
        try:
            self._store.make_room()
        except OSError as error:
            log.warning(
                "checkpoint failed",
                partition=self._partition,
                reason=str(error),
                operator_action="check the disk under data_dir; what is not needed any more still takes room there",
            )

    @property
    def extra(self) -> dict[str, object]:
        """What a checkpoint says of the partition, beside its logs; see `tombstones_of` and `topic_names_of`."""
        return {
            "tombstones": [list(tombstone) for tombstone in self._cancels.tombstones],
            "topics": self._view.topics_to_keep,
        }


def tombstones_of(extra: Mapping[str, Any]) -> list[Tombstone]:
    """The tombstones that a checkpoint tells of."""
    return [Tombstone(entry[0], entry[-1]) for entry in extra.get("tombstones", [])]


def topic_names_of(extra: Mapping[str, Any]) -> dict[int, str]:
    """Topics that a checkpoint tells of, by their hash."""
    return {int(number): str(name) for number, name in extra.get("topics", [])}
