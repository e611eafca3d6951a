"""Cancels whose message may still be on its way: a roll copy that is in Kafka but not yet read.

A message that rolls leaves the wheel, and comes back as a copy at the end of its topic. A cancel that is read in
between finds nothing pending. It stays in force here until the copy has come, and takes it out. After a restart it is
not known which copies are on their way, so every cancel stays in force until the log's end of that moment is read. Of
those below the committed offset, which may be millions, only those that the commit says copies may come for. That goes
for replacements, too: whether one has been carried out is in question only if it finds something when it is read again,
and then it is in doubt until its copy, or that end, is read.

Nor is it known then whether a replacement that finds something had been carried out before. If it was, its message is
in the log as a copy that names it, or among the dead letters, which the progress tells; so it is carried out again only
if no such copy has come up to that end.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from connectors.contract import Headers
from sidecar.intake.parse_wheel import Cancel, Replace, Schedule

BEYOND_ALL_OFFSETS = 2**63


class CancelRead(NamedTuple):
    """A cancel or a replacement as it was read, with its offset; a replacement with the record that it came in, too.

    Small: there may be millions of cancels in force.
    """

    offset: int
    request: Cancel | Replace
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers | None = None

    @property
    def uniq_key(self) -> bytes:
        return self.request.uniq_key


class Tombstone(NamedTuple):
    """A copy that a cancel before it has taken out: a rebuild that reads the copy needs the cancel too."""

    cancel_offset: int
    offset: int


class Cancels:
    """Cancels in force, roll copies on their way, tombstones.

    Args:
        known_from: the log's end when the partition was assigned; below it, copies may be of an earlier process.
        buried: offsets of replacements whose message is among the dead letters.
        open_from: no roll copy can still arrive for a cancel below this offset.
    """

    def __init__(
        self, known_from: int, tombstones: list[Tombstone], buried: Iterable[int] = (), open_from: int = 0
    ) -> None:
        self._known_from = known_from
        self._open_from = open_from
        self._buried = set(buried)
        self._in_force: dict[bytes, list[CancelRead]] = {}
        self._lowest_in_force: int | None = BEYOND_ALL_OFFSETS
        """The lowest offset of them; None: it has to be looked for."""
        self._on_their_way: Counter[bytes] = Counter()
        self._brought: Counter[bytes] = Counter()
        """Ids of the messages that replacements in force may bring."""
        self._tombstones = {tombstone.offset: tombstone for tombstone in tombstones}
        """By the copy's offset: it is read again and again while the intake waits for room."""
        self._in_doubt: dict[int, CancelRead] = {}
        """Replacements that have found something and may have been carried out before, by offset."""
        self._replacing: set[int] = set()
        """Offsets of the replacements in force."""
        self._named: dict[tuple[bytes, int, str], list[int]] = {}
        """Replacements from before ``known_from``, in order, by what their message is."""
        self._carried_out: set[int] = set()
        """Those of them whose message has come."""

    def rolled(self, uniq_key: bytes) -> None:
        """A roll copy is being written."""
        self._on_their_way[uniq_key] += 1

    def not_rolled(self, uniq_key: bytes) -> None:
        """The copy has been read, or was not written."""
        self._count_down(self._on_their_way, uniq_key)

    def is_on_its_way(self, uniq_key: bytes) -> bool:
        """Whether a copy with this id has been written and is not read yet."""
        return uniq_key in self._on_their_way

    def keep(self, pending: CancelRead, position: int) -> bool:
        """Keep a cancel in force where a copy for it may come; whether one may."""
        if isinstance(pending.request, Replace) and pending.offset < self._known_from:
            self._named.setdefault(_message_of(pending.request.schedule), []).append(pending.offset)
        may_come = pending.uniq_key in self._on_their_way or pending.uniq_key in self._brought
        if not may_come and (pending.offset < self._open_from or position >= self._known_from):
            return False
        self._in_force.setdefault(pending.uniq_key, []).append(pending)
        if self._lowest_in_force is not None:
            self._lowest_in_force = min(self._lowest_in_force, pending.offset)
        if isinstance(pending.request, Replace):
            self._brought[pending.request.schedule.uniq_key] += 1
            self._replacing.add(pending.offset)
        return True

    def _out_of_force(self, pending: CancelRead) -> None:
        entries = self._in_force[pending.uniq_key]
        entries.remove(pending)
        if not entries:
            del self._in_force[pending.uniq_key]
        if pending.offset == self._lowest_in_force:
            self._lowest_in_force = None
        if isinstance(pending.request, Replace):
            self._count_down(self._brought, pending.request.schedule.uniq_key)
            self._replacing.discard(pending.offset)
            self._carried_out.discard(pending.offset)

    @staticmethod
    def _count_down(counts: Counter[bytes], uniq_key: bytes) -> None:
        counts[uniq_key] -= 1
        if counts[uniq_key] <= 0:
            del counts[uniq_key]

    def _lowest(self) -> int:
        """The lowest offset of those in force."""
        if self._lowest_in_force is None:
            offsets = (pending.offset for entries in self._in_force.values() for pending in entries)
            self._lowest_in_force = min(offsets, default=BEYOND_ALL_OFFSETS)
        return self._lowest_in_force

    def takes_out(self, replacement: CancelRead) -> CancelRead | None:
        """The first cancel in force that takes the replacement's message out before it has been sent."""
        if not isinstance(replacement.request, Replace):
            return None
        schedule = replacement.request.schedule
        hits = [
            pending
            for pending in self._in_force.get(schedule.uniq_key, [])
            if replacement.offset < pending.offset and speaks_of(pending.request, schedule.topic)
        ]
        return min(hits, key=lambda pending: pending.offset, default=None)

    def no_doubt(self, cancels: Sequence[CancelRead]) -> list[CancelRead]:
        """Which of these cancels take out the message of a replacement in doubt; it is in doubt no longer then."""
        takers = []
        for offset, doubted in list(self._in_doubt.items()):
            assert isinstance(doubted.request, Replace)
            schedule = doubted.request.schedule
            for pending in cancels:
                if (
                    pending.uniq_key == schedule.uniq_key
                    and offset < pending.offset
                    and speaks_of(pending.request, schedule.topic)
                ):
                    del self._in_doubt[offset]
                    takers.append(pending)
                    break
        return takers

    def doubt(self, pending: CancelRead) -> None:
        """A replacement from before the committed offset has found something."""
        if pending.offset not in self._carried_out:
            self._in_doubt[pending.offset] = pending

    def copy_read(self, schedule: Schedule, offset: int) -> CancelRead | None:
        """A roll copy has come: the first cancel that takes it out, if there is one."""
        hit = None
        if offset < self._known_from:
            self._in_doubt.pop(schedule.origin_offset, None)
            if schedule.origin_offset in self._replacing:  # it lies before its copy: what is not here asks nothing
                self._carried_out.add(schedule.origin_offset)
        if schedule.uniq_key in self._in_force:
            hits = [
                pending
                for pending in self._in_force[schedule.uniq_key]
                if schedule.origin_offset < pending.offset < offset and speaks_of(pending.request, schedule.topic)
            ]
            if hits:
                hit = min(hits, key=lambda pending: pending.offset)
                self._tombstones[offset] = Tombstone(hit.offset, offset)
        return hit

    def replaced_by(self, schedule: Schedule, offset: int) -> int:
        """The replacement that another topic's copy brings, which names an offset of that topic's; else its own offset.

        As in `copy_read` it is one of which it is not known whether it was carried out.
        """
        for named in self._named.get(_message_of(schedule), ()) if offset < self._known_from else ():
            is_open = named in self._in_doubt or (named in self._replacing and named not in self._carried_out)
            if named < offset and is_open:
                return named
        return offset

    def is_buried(self, replacement: CancelRead) -> bool:
        """Whether its message is among the dead letters: it is carried out."""
        return replacement.offset in self._buried

    def buried_from(self, lowest_needed: int, now: Iterable[int]) -> list[int]:
        """Offsets of the replacements whose message is among the dead letters, with those that are buried now."""
        return sorted(offset for offset in {*self._buried, *now} if offset >= lowest_needed)

    def bury(self, offsets: Iterable[int], lowest_needed: int) -> None:
        """It is final that the messages of the replacements at these offsets are among the dead letters."""
        self._buried = set(self.buried_from(lowest_needed, offsets))

    def copy_taken_in(self, uniq_key: bytes, offset: int) -> None:
        """A copy that was read is stored, or needs no storing: it is not on its way any more."""
        if offset >= self._known_from and uniq_key in self._on_their_way:  # else an earlier process has written it
            self.not_rolled(uniq_key)

    def expire(self, position: int) -> Iterator[CancelRead]:
        """End the cancels that no copy can come for any more, and yield them."""
        if position < self._known_from:
            return
        self._named = {}
        if not self._in_force:
            return
        brought: set[bytes] = set()
        for pending in sorted(chain.from_iterable(self._in_force.values()), key=lambda pending: pending.offset):
            if pending.uniq_key not in self._on_their_way and pending.uniq_key not in brought:
                self._out_of_force(pending)
                yield pending
            elif isinstance(pending.request, Replace):
                brought.add(pending.request.schedule.uniq_key)

    def resolve(self, position: int) -> list[CancelRead]:
        """Replacements in doubt that turn out not to have been carried out."""
        if position < self._known_from or not self._in_doubt:
            return []
        found = [pending for _, pending in sorted(self._in_doubt.items())]
        self._in_doubt = {}
        self._carried_out = set()
        return found

    def lowest_needed(self, pending_from: int, committed: int) -> int:
        """The offset from which a rebuild has to read.

        Args:
            pending_from: the lowest offset of what is pending.
            committed: up to where all is done or pending.
        """
        lowest = min(pending_from, *self._in_doubt, self._lowest(), committed)
        for tombstone in sorted(self._tombstones.values(), key=lambda tombstone: -tombstone.offset):
            if tombstone.offset >= lowest:  # else the copy is not read again, and its cancel not needed
                lowest = min(lowest, tombstone.cancel_offset)
        return lowest

    def open_from(self, lowest_needed: int, committed: int) -> int:
        """The first offset that a start has to know as ``open_from``, where it reads from ``lowest_needed`` on."""
        needed = [tombstone.cancel_offset for tombstone in self.tombstones if tombstone.offset >= lowest_needed]
        return min(self._lowest(), *needed, committed)

    def passed(self, lowest_needed: int) -> None:
        """It is final that a rebuild reads from this offset on: copies before it need no tombstone."""
        passed = [offset for offset in self._tombstones if offset < lowest_needed]
        for offset in passed:
            del self._tombstones[offset]

    @property
    def in_doubt(self) -> Collection[int]:
        """The offsets of the replacements that have found something, but may have been carried out before."""
        return self._in_doubt.keys()

    def is_in_force(self, replacement: CancelRead) -> bool:
        """Whether a copy may still come that it takes out."""
        return replacement.offset in self._replacing

    @property
    def is_any_open(self) -> bool:
        """Whether anything is only here and in Kafka."""
        return bool(self._in_force or self._in_doubt)

    def is_any_across(self, offset: int) -> bool:
        """Whether a copy from this offset on has been taken out by a cancel from before it."""
        return any(tombstone.cancel_offset < offset <= tombstone.offset for tombstone in self.tombstones)

    @property
    def tombstones(self) -> list[Tombstone]:
        return list(self._tombstones.values())


def speaks_of(request: Cancel | Replace, topic: str) -> bool:
    """Whether a cancel means a message for this topic; a replacement means whatever topic."""
    return isinstance(request, Replace) or request.real_topic in (None, topic)


def _message_of(schedule: Schedule) -> tuple[bytes, int, str]:
    return schedule.uniq_key, schedule.due_ms, schedule.topic
