"""What becomes of cancels and replacements: decided once, final with the commit that passes what has decided it.

    cancelled   it has taken a message out; a replacement's message goes out in the deciding record's transaction
    too_late    what it names is sent, as far as it tells; a replacement that finds nothing is always too late
    unknown     nothing by that id has been heard of

A cancel decides itself where it finds its message at once. Otherwise the copy of a roll decides it (`cancels`), or the
end of the log up to which such a copy may come. One of what is in the transaction in hand is not read before that ends.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sidecar.cancel_outcomes import CancelOutcome
from sidecar.dispatch.wheel.cancels import CancelRead, Cancels
from sidecar.intake.parse_wheel import Replace


class Decision(NamedTuple):
    """Final when the committed offset has passed the record that has decided it."""

    outcome: CancelOutcome
    deciding_offset: int


class Decisions:
    """The decisions of one partition.

    Args:
        replay_until: the offset that was committed at the start; what lies below has been decided before.
        hit_before: offsets of cancels from there on that had taken something out before the restart: they count as
            hits, although what is read again may hold nothing for them.
        bring: called with a replacement to be carried out and the offset of the record that has decided it.
    """

    def __init__(
        self, cancels: Cancels, replay_until: int, hit_before: set[int], bring: Callable[[CancelRead, int], None]
    ) -> None:
        self._cancels = cancels
        self._replay_until = replay_until
        self._hit_before = hit_before
        self._bring = bring
        self._decided: dict[int, Decision] = {}
        """By the cancel's offset; told once final."""
        self._has_hit: set[int] = set()
        """Offsets of cancels, in force or undecided still, that have taken something out."""
        self._hits_ahead: dict[int, int] = {}
        """Cancels, not committed, that have taken something out: their offset, and the lowest of what they took."""

    # --- deciding -----------------------------------------------------------------------------------------------------

    def applied(
        self,
        cancels: Sequence[CancelRead],
        hits: Mapping[int, int],
        position: int,
        now_ms: int,
        *,
        is_behind: bool,
    ) -> None:
        """Cancels have been applied to all that is pending.

        Args:
            hits: by the offsets of those that have taken something out, the lowest offset of what.
            position: up to which records have been read.
            is_behind: whether something waits that holds back the committed offset.
        """
        found = dict(hits)
        found.update((pending.offset, 0) for pending in self._cancels.no_doubt(cancels))
        found.update((pending.offset, 0) for pending in cancels if pending.offset in self._hit_before)
        self._note_ahead(cancels, found, is_behind=is_behind)
        for pending in cancels:
            # Where a copy may still come, the cancel stays in force.
            kept = self._cancels.keep(pending, position)
            if pending.offset < self._replay_until:
                if pending.offset in found and self._is_in_doubt(pending):
                    self._decide(CancelOutcome.CANCELLED, pending, pending.offset)
                continue
            if pending.offset in found:
                self._decide(CancelOutcome.CANCELLED, pending, pending.offset)
            elif not kept:
                self._decide(_missed(pending, now_ms), pending, pending.offset)
            if not kept:
                self._has_hit.discard(pending.offset)

    def copy_taken_out(self, pending: CancelRead, offset: int) -> None:
        """A cancel in force has taken out the copy at this offset."""
        if offset >= self._replay_until or self._is_in_doubt(pending):
            self._decide(CancelOutcome.CANCELLED, pending, offset)

    def expire(self, position: int, now_ms: int) -> None:
        """Decide on those that nothing can come for any more."""
        resolved = self._cancels.resolve(position)
        for pending in resolved:
            self._decide(CancelOutcome.CANCELLED, pending, position - 1, is_certain=True)
        for pending in self._cancels.expire(position):
            if pending.offset >= self._replay_until:
                self._decide(_missed(pending, now_ms), pending, pending.offset)
            self._has_hit.discard(pending.offset)
        for pending in resolved:
            if not self._cancels.is_in_force(pending):
                self._has_hit.discard(pending.offset)

    def _decide(
        self, outcome: CancelOutcome, pending: CancelRead, deciding_offset: int, *, is_certain: bool = False
    ) -> None:
        """Once: one that has hit and stays in force may hit again, where ids are reused, and ends in force.

        Args:
            deciding_offset: the committed offset passes it with the transaction that sends a replacement's message.
        """
        if pending.offset in self._has_hit:
            return
        if isinstance(pending.request, Replace) and outcome == CancelOutcome.CANCELLED:
            if self._cancels.is_buried(pending):
                return
            taker = self._cancels.takes_out(pending)
            if taker is not None:
                self._decide(CancelOutcome.CANCELLED, taker, deciding_offset)
            elif not is_certain and self._is_in_doubt(pending):
                self._cancels.doubt(pending)
                return
            else:
                self._bring(pending, deciding_offset)
        if outcome == CancelOutcome.CANCELLED:
            self._has_hit.add(pending.offset)
        if is_certain or deciding_offset >= self._replay_until:  # else it has been told by an earlier process
            self._decided[pending.offset] = Decision(outcome, deciding_offset)

    def _is_in_doubt(self, pending: CancelRead) -> bool:
        """Whether a replacement was read by an earlier process, which may have carried it out."""
        is_old = isinstance(pending.request, Replace) and pending.offset < self._replay_until
        return is_old and pending.offset not in self._has_hit

    # --- transactions -------------------------------------------------------------------------------------------------

    def undo_from(self, position: int) -> None:
        """What is read from there on is read again: what that has decided is open."""
        for offset in [o for o, decision in self._decided.items() if decision.deciding_offset >= position]:
            del self._decided[offset]
            self._has_hit.discard(offset)

    def confirm(self, committed: int) -> dict[int, CancelOutcome]:
        """The transaction in hand is final; which outcomes are final with it."""
        self._hits_ahead = {offset: hit for offset, hit in self._hits_ahead.items() if offset >= committed}
        final = {o: decision.outcome for o, decision in self._decided.items() if decision.deciding_offset < committed}
        for offset in final:
            del self._decided[offset]
        return final

    # --- hits ahead ---------------------------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """How many cancels, not committed, may have to be remembered with the next commit."""
        return len(self._hits_ahead)

    def hits_ahead(self, committed: int) -> tuple[int, ...]:
        """Cancels at or above the offset to be committed that have taken out something from below it.

        The watermark may pass that, and they would find nothing when they are read again. What they took from above is
        read again with them, and decided anew.
        """
        return tuple(sorted(offset for offset, hit in self._hits_ahead.items() if hit < committed <= offset))

    def _note_ahead(self, cancels: Sequence[CancelRead], found: Mapping[int, int], *, is_behind: bool) -> None:
        for pending in cancels:
            is_behind = is_behind or isinstance(pending.request, Replace)  # its message will wait
            # While records are read again nothing is committed: what is below the commit before needs no remembering.
            if is_behind and pending.offset in found and pending.offset >= self._replay_until:
                self._hits_ahead[pending.offset] = found[pending.offset]


def _missed(pending: CancelRead, now_ms: int) -> CancelOutcome:
    """Nothing was pending: sent already, as far as the cancel tells, or never heard of."""
    if isinstance(pending.request, Replace):
        return CancelOutcome.TOO_LATE
    deliver_ms = pending.request.deliver_ms
    return CancelOutcome.TOO_LATE if deliver_ms is not None and deliver_ms <= now_ms else CancelOutcome.UNKNOWN
