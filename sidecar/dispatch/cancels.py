"""Cancels whose message may still be on its way: a roll copy that is in Kafka but not yet read.

A message that rolls leaves the wheel, and comes back as a copy at the end of its topic. A cancel that is read in
between finds nothing pending. It stays in force here until the copy has come, and takes it out. After a restart it is
not known which copies are on their way, so every cancel stays in force until the log's end of that moment is read.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from sidecar.intake.parse_wheel import Cancel, Replace, Schedule


class Pending(NamedTuple):
    """A cancel in force."""

    offset: int
    request: Cancel | Replace
    key: bytes | None
    value: bytes | None
    """The record's own: a replacement's message."""

    @property
    def uniq_key(self) -> bytes:
        return self.request.uniq_key


class Tombstone(NamedTuple):
    """A copy that a cancel before it has taken out; until the watermark has passed it, a rebuild needs that cancel."""

    cancel_offset: int
    act_ms: int
    offset: int


class Cancels:
    """Cancels in force, roll copies on their way, tombstones.

    Args:
        known_from: the log's end when the partition was assigned; below it, copies may be of an earlier process.
    """

    def __init__(self, known_from: int, tombstones: list[Tombstone]) -> None:
        self._known_from = known_from
        self._in_force: dict[bytes, list[Pending]] = {}
        self._on_their_way: Counter[bytes] = Counter()
        self._tombstones = tombstones

    def rolled(self, uniq_key: bytes) -> None:
        """A roll copy is being written."""
        self._on_their_way[uniq_key] += 1

    def not_rolled(self, uniq_key: bytes) -> None:
        """The copy has been read, or was not written."""
        self._on_their_way[uniq_key] -= 1
        if self._on_their_way[uniq_key] <= 0:
            del self._on_their_way[uniq_key]

    def keep(self, pending: Pending, position: int) -> bool:
        """Keep a cancel in force where a copy for it may come; whether one may."""
        if position >= self._known_from and pending.uniq_key not in self._on_their_way:
            return False
        self._in_force.setdefault(pending.uniq_key, []).append(pending)
        return True

    def taken_back(self, uniq_key: bytes) -> list[Pending]:
        """The transaction with a copy was aborted: the cancels that were waiting for it, to be applied again."""
        self.not_rolled(uniq_key)
        return self._in_force.pop(uniq_key, [])

    def copy_read(self, schedule: Schedule, act_ms: int, offset: int) -> Pending | None:
        """A roll copy has come: the first cancel that takes it out, if there is one."""
        hit = None
        if schedule.uniq_key in self._in_force:
            hits = [
                pending
                for pending in self._in_force[schedule.uniq_key]
                if schedule.origin_offset < pending.offset < offset and speaks_of(pending.request, schedule.topic)
            ]
            if hits:
                hit = min(hits, key=lambda pending: pending.offset)
                self._tombstones.append(Tombstone(hit.offset, act_ms, offset))
        return hit

    def copy_taken_in(self, uniq_key: bytes) -> None:
        """A copy that was read is stored, or needs no storing: it is not on its way any more."""
        if uniq_key in self._on_their_way:
            self.not_rolled(uniq_key)

    def expire(self, position: int) -> Iterator[Pending]:
        """Those that no copy can come for any more."""
        if position < self._known_from:
            return
        for uniq_key in [name for name in self._in_force if name not in self._on_their_way]:
            yield from self._in_force.pop(uniq_key)

    def lowest_needed(self, watermark: tuple[int, int]) -> int | None:
        """The lowest offset of a cancel that a rebuild still needs."""
        self._tombstones = [tombstone for tombstone in self._tombstones if tombstone[1:] > watermark]
        offsets = [tombstone.cancel_offset for tombstone in self._tombstones]
        offsets += [pending.offset for entries in self._in_force.values() for pending in entries]
        return min(offsets, default=None)

    @property
    def is_any_in_force(self) -> bool:
        return bool(self._in_force)

    @property
    def tombstones(self) -> list[Tombstone]:
        return self._tombstones


def speaks_of(request: Cancel | Replace, topic: str) -> bool:
    """Whether a cancel means a message for this topic; a replacement means whatever topic."""
    return isinstance(request, Replace) or request.real_topic in (None, topic)
