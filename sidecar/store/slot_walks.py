"""The records of the slots that come next, followed through the timer log side by side.

Where delays are long, a slot's records are strewn over the log, and where the next one lies only the last one tells. On
a disk that is one wait after the other; but slots do not depend on each other, and wait together:

    slot 1   o──►o──►o
    slot 2   o──►o──►o──►o        a column is one wait
    slot 3   o──►o

A walk is of the slot as it was when it began. What comes or is taken back later stands before its first step, and is
for whoever loads the slot to read. And a walk that finds more than the slot has told (what was taken back is not in its
num) is given up when it has taken as long as to filter the slot out of the log: that is then done with the rest.
"""

import numpy as np

from sidecar.store.layout import TIMER_LOG_RECORD, Int64Array, RecordArray, Slot
from sidecar.store.timer_log import TimerLog, is_strewn
from sidecar.store.timer_wheel import TimerWheel

SIDE_BY_SIDE = 16
"""Slots that are looked ahead."""
STEPS_AT_A_TIME = 200
"""Some 0.4 ms where the system has the pages in memory; some 3 ms where an SSD has to be asked."""
STEPS_AT_ITS_SIDE = 100
"""Of all others together, while one that is needed now takes its own."""
RECORDS_AHEAD = 100_000
"""Records of slots ahead, some 150 bytes each while a walk goes on: beyond it only what is asked for goes on."""


class Walk:
    """One slot's, newest record first."""

    __slots__ = ("_pieces", "_positions", "next_pos", "slot", "span")

    def __init__(self, slot: Slot, span: int) -> None:
        self.slot = slot
        """As it was at the beginning."""
        self.span = span
        """Records of the log among which its own lie."""
        self.next_pos = slot.last_pos
        self._positions: list[int] = []
        self._pieces: list[bytes] = []

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, piece: bytes, prev_pos: int) -> None:
        self._positions.append(self.next_pos)
        self._pieces.append(piece)
        self.next_pos = prev_pos

    def found(self) -> tuple[Int64Array, RecordArray]:
        """(positions, records), oldest first."""
        records = np.frombuffer(b"".join(reversed(self._pieces)), TIMER_LOG_RECORD)
        return np.array(self._positions[::-1], np.int64), records

    @property
    def rest(self) -> Slot:
        """What it has given up, as a slot; none where it is at its end.

        How much that holds is not known: num is of what has been found, which tells how strewn the slot is.
        """
        return self.slot._replace(last_pos=self.next_pos, num=len(self))


class SlotWalks:
    """Those of one wheel; what lies together in the log is not walked but read through, by whoever loads it."""

    def __init__(self, timer_log: TimerLog, wheel: TimerWheel) -> None:
        self._timer_log = timer_log
        self._wheel = wheel
        self._walks: dict[int, Walk] = {}
        """By the time of their slot."""
        self._looked_until_ms = 0

    def of(self, slot_ms: int) -> Walk | None:
        """The walk of a slot, begun now if it was not; None where its records lie together."""
        walk = self._walks.get(slot_ms)
        if walk is None:
            slot = self._wheel.slot(slot_ms)
            span = self._timer_log.span(slot)
            if is_strewn(slot.num, span):
                walk = self._walks[slot_ms] = Walk(slot, span)
        return walk

    def look_ahead(self, from_ms: int) -> None:
        """A step of those from this time on; those before are forgotten. Raises CorruptRecord, OSError."""
        for slot_ms in [slot_ms for slot_ms in self._walks if slot_ms < from_ms]:
            self.forget(slot_ms)
        until_ms = from_ms + SIDE_BY_SIDE * self._wheel.precision_ms
        for slot_ms in range(max(self._looked_until_ms, from_ms), until_ms, self._wheel.precision_ms):
            self.of(slot_ms)
        self._looked_until_ms = max(self._looked_until_ms, until_ms)
        walks, taken = self._ahead(), 0
        while taken < STEPS_AT_A_TIME and (walks := list(filter(self._goes_on, walks))):
            self._follow(walks)
            taken += len(walks)

    def step(self, walk: Walk) -> bool:
        """A step of this one, with others at its side; whether it was the last. Raises CorruptRecord, OSError."""
        others, taken = [other for other in self._ahead() if other is not walk], 0
        for _ in range(STEPS_AT_A_TIME):
            if not self._goes_on(walk):
                break
            others = list(filter(self._goes_on, others)) if taken < STEPS_AT_ITS_SIDE else []
            self._follow([walk, *others])
            taken += len(others)
        return not self._goes_on(walk)

    def forget(self, slot_ms: int) -> None:
        """A slot is loaded."""
        self._walks.pop(slot_ms, None)

    def _ahead(self) -> list[Walk]:
        """Those that may go on without being asked for."""
        walks = list(self._walks.values())
        return walks[:SIDE_BY_SIDE] if sum(map(len, walks)) < RECORDS_AHEAD else []

    def _goes_on(self, walk: Walk) -> bool:
        is_at_end = walk.next_pos < max(walk.slot.first_pos, self._timer_log.start_position)
        return not is_at_end and is_strewn(len(walk), walk.span)

    def _follow(self, walks: list[Walk]) -> None:
        """A record of each."""
        for walk, link in zip(walks, self._timer_log.links([walk.next_pos for walk in walks]), strict=True):
            walk.add(*link)
