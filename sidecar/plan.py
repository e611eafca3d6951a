"""When a record is acted on, as a pure function of the record and of a few parameters: never of the clock.

Reading a topic again must give the same answer, so the parameters are committed with the progress, together with the
offset from which they hold; records before that offset are read under the parameters of their time (`Plans`).

A record that is due beyond the roll window is first *rolled*: acted on at a time within the window by writing a copy of
it to the end of its topic, so that no retention removes it. RIP-43's one-third rule, with d and W counted in slots:

    d < W                as it is
    d - W < W / 3        rolls after W / 2, so that what is left is not a short tail
    otherwise            rolls after W

What has been scheduled within a minute would roll within a minute, all of it, and again at every roll to come, and what
is due then would wait behind it. So each `NEIGHBOURS` offsets of a partition roll sooner by a share of the spread that
is theirs: multiples of the golden ratio, which fill an interval evenly however many they are.

Timestamps are Kafka's, and what is due is due by the sidecar's clock. Where that is ahead by half a window or more, a
copy is due for its next roll as soon as it is written; so what comes back old says of its next copy, in a header, that
it is not rolled again before half a window has passed by the clock that rolls it (`next_roll_ms`).

    >>> plan = Plan(roll_window_ms=2_000, precision_ms=1_000, max_delay_ms=10_000, levels="1s 5s")
    >>> plan.act_at(0, 1_999, offset=7), plan.act_at(0, 3_000, offset=7)
    ((1999, False), (2000, True))
    >>> hour_ms = 3_600_000
    >>> plan = msgspec.structs.replace(plan, roll_window_ms=48 * hour_ms, spread_ms=3 * hour_ms)
    >>> [plan.act_at(0, 90 * hour_ms, offset)[0] // 60_000 for offset in (0, 255, 256, 512)]
    [2880, 2880, 2768, 2837]
"""

from typing import Annotated

import msgspec

from sidecar.intake.parse import PARSER_VERSION
from sidecar.intake.progress import Offset

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

NEIGHBOURS = 256
"""So many offsets roll together: they lie side by side on the disk."""
_GOLDEN = 0x9E3779B1
"""2**32 by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4: Fibonacci hashing)."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides when. One letter a field: it stands in Kafka's commit metadata."""

    roll_window_ms: Milliseconds = msgspec.field(name="r")
    precision_ms: Milliseconds = msgspec.field(name="s")
    max_delay_ms: Milliseconds = msgspec.field(name="m")
    levels: str = msgspec.field(name="l")
    """The level table, for wheel records that name a level."""
    parser: int = msgspec.field(name="p", default=PARSER_VERSION)
    spread_ms: Milliseconds = msgspec.field(name="d", default=0)
    """How much sooner records roll at most; no more than a quarter of the roll window."""

    def act_at(self, timestamp_ms: int, due_ms: int, offset: int, roll_after_ms: int = 0) -> tuple[int, bool]:
        """When a record is acted on, and whether that act is a roll.

        Args:
            roll_after_ms: it is not rolled before.
        """
        if due_ms - timestamp_ms < self.precision_ms:
            return due_ms, False
        ahead = (due_ms - timestamp_ms) // self.precision_ms
        window = self.roll_window_ms // self.precision_ms
        if ahead < window:
            return due_ms, False
        after = window // 2 if ahead - window < window // 3 else window
        sooner_ms = (offset // NEIGHBOURS * _GOLDEN & 0xFFFFFFFF) * self.spread_ms >> 32
        act_ms = timestamp_ms + after * self.precision_ms - sooner_ms
        if roll_after_ms > act_ms:
            return (roll_after_ms, True) if roll_after_ms < due_ms else (due_ms, False)
        return act_ms, True

    def is_old(self, timestamp_ms: int, now_ms: int) -> bool:
        """Whether a copy that has just come has used up a good part of the shortest wait that is between two rolls."""
        return now_ms - timestamp_ms > self.roll_window_ms // 4

    def next_roll_ms(self, act_ms: int, now_ms: int) -> int:
        """When the copy that is written then is rolled at the soonest, whatever timestamp Kafka gives it.

        But for the spread no later than its timestamp would have it, where Kafka's clock and the sidecar's agree.
        """
        return max(act_ms, now_ms) + self.roll_window_ms // 2 // self.precision_ms * self.precision_ms


class Plans(msgspec.Struct, frozen=True, array_like=True):
    """The parameters by the offset from which they hold, oldest first."""

    since: tuple[tuple[Offset, Plan], ...]

    def of(self, offset: int) -> Plan:
        """The plan that holds at an offset; before the first, the first."""
        last_offset, last = self.since[-1]
        if offset >= last_offset:
            return last
        chosen = self.since[0][1]
        for first_offset, plan in self.since:
            if first_offset > offset:
                break
            chosen = plan
        return chosen

    def changed(self, offset: int, plan: Plan) -> "Plans":
        """With ``plan`` from ``offset`` on; itself where that holds already."""
        if self.since and self.since[-1][1] == plan:
            return self
        return Plans((*(entry for entry in self.since if entry[0] < offset), (offset, plan)))

    def without_those_before(self, offset: int) -> "Plans":
        """Less the plans that no record from ``offset`` on is read under."""
        kept = [entry for entry, after in zip(self.since, self.since[1:], strict=False) if after[0] > offset]
        return Plans((*kept, self.since[-1]))
