"""The durable state of a wheel partition: three integers and the plan, in the metadata of its committed offset.

Beside them stands what only a start asks for, see `WheelProgress`.

I  the committed offset: the next one to ingest
W  the watermark (time, offset): everything below I and up to it has been published, rolled or cancelled
L  the lowest offset that a rebuild from Kafka still needs
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated

import msgspec

from connectors.contract import DelayLevels
from sidecar.intake.parse import PARSER_VERSION
from sidecar.intake.progress import SET_BY_OPERATOR, Offset, ProgressError
from sidecar.plan import Plan, Plans

NOTHING_DONE = (-1, -1)

NO_PLANS = Plans(())

PLANS_MAX_BYTES = 2_000
"""Most that all plans together may take: half of what brokers keep of a commit's metadata
(``offset.metadata.max.bytes``). With RocketMQ's levels more than ten plans fit."""

BURIED_MAX = 30
"""Replacements that are remembered as `WheelProgress.buried`: with all else they fit into what brokers keep. Where
Kafka has refused the messages of thirty later ones, a rebuild may bring one again."""

IN_DOUBT_MAX_BYTES = 200
"""What is left for `WheelProgress.in_doubt` where all else takes as much as it may: at least eighteen of them. Of more
than that, a start that cannot wait until it is known may lose the later ones' messages, if it ends before."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class WheelProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is committed beside I."""

    watermark: tuple[Int64, Int64] = msgspec.field(name="w", default=NOTHING_DONE)
    lowest_needed: Offset = msgspec.field(name="l")
    plans: Plans = msgspec.field(name="p", default=NO_PLANS)
    is_set: bool = msgspec.field(name="set", default=False)
    """Whether an operator has set it, who need not know the plan: the sidecar that begins there does."""
    copied_below: Offset = msgspec.field(name="copied", default=0)
    """Records below this offset are copies of another cluster's, where they had other offsets: so they have rolled at
    other times within the spread, and among them what that cluster's sidecars wrote is known by its word alone."""
    hits_ahead: tuple[Offset, ...] = msgspec.field(name="h", default=())
    """Cancels and replacements at or above I, counted from there, that have taken out something from below I: W may be
    beyond that, so that they would find nothing when they are read again."""
    buried: tuple[Offset, ...] = msgspec.field(name="b", default=())
    """Replacements from L on, counted from there, whose message Kafka has refused: it is among the dead letters, so
    that no copy on the wheel topic tells that they were carried out."""
    in_doubt: tuple[Offset, ...] = msgspec.field(name="d", default=())
    """Replacements from L on and below I, counted from L, that have taken something out, and either it is not known
    whether they had been carried out before, or their message is not sent yet: as of `hits_ahead`, W may be beyond
    what they took."""
    open_below: Offset | None = msgspec.field(name="c", default=None)
    """How far below I the first cancel stands that a copy may still come for, or that has taken out one from L on; 0:
    there is none. None: an earlier version has not told."""
    begun_ms: Int64 = msgspec.field(name="s", default=0)
    """When it began: for a new group, or at an offset that an operator has set. Files of another beginning know
    nothing of this one."""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, metadata: str, committed_offset: int, plan: Plan, now_ms: int) -> "WheelProgress":
        """Progress from a commit's metadata; one that begins now for a new partition, or one that an operator has
        set.

        The plan holds from the committed offset on; where there is no room for one more, the last that is committed
        does, and a start after older messages are done takes the plan over.

        Raises:
            ProgressError: the metadata is not ours; guessing would lose messages.
        """
        if metadata in ("", SET_BY_OPERATOR):
            return cls(lowest_needed=committed_offset, plans=Plans(((committed_offset, plan),)), begun_ms=now_ms)
        progress = cls.read(metadata, committed_offset)
        # What the latest time of all that it may have rolled at has not passed is taken for not rolled, so is not lost.
        first = msgspec.structs.replace(plan, spread_ms=0) if progress.copied_below else plan
        plans = progress.plans if progress.plans.since else Plans(((progress.lowest_needed, first),))
        changed = plans.changed(committed_offset, plan)
        if len(changed.since) > 1 and len(msgspec.json.encode(changed)) > PLANS_MAX_BYTES:
            changed = plans
        return msgspec.structs.replace(progress, plans=changed, is_set=False)

    @classmethod
    def read(cls, metadata: str, committed_offset: int) -> "WheelProgress":
        """What was committed, as it stands there.

        Raises:
            ProgressError: the metadata is not ours.
        """
        try:
            progress = msgspec.json.decode(metadata, type=cls)
            _check(progress, committed_offset)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ProgressError(f"committed metadata is not Timewheel's, or a newer one's: {metadata[:200]}") from error
        return progress

    @classmethod
    def due_after(
        cls, due_by_ms: int, begin_offset: int, committed: str, now_ms: int, *, copied_below: int = 0
    ) -> "WheelProgress":
        """Progress that begins now, for an operator who knows by when what was due has been delivered.

        Args:
            begin_offset: the log's beginning.
            committed: the metadata before; if it can be read, records are timed as it says, and what it calls
                ``buried`` is not brought again, and what it calls ``in_doubt`` stays so.
            copied_below: what lies below this offset is, or may be, a copy of another cluster's log; 0: nothing is.
        """
        try:
            before = msgspec.json.decode(committed, type=cls)
        except (msgspec.MsgspecError, RecursionError):
            before = cls(lowest_needed=begin_offset)
        is_news = copied_below and not before.copied_below  # then what is committed is of a start that did not know
        known = before._counted_from(begin_offset)
        return cls(
            watermark=(due_by_ms + 1, -1),
            lowest_needed=begin_offset,
            plans=NO_PLANS if is_news else before.plans,
            is_set=True,
            copied_below=before.copied_below or copied_below,
            buried=known.buried,
            in_doubt=known.in_doubt,
            begun_ms=now_ms,
        )

    def kept_from(self, begin_offset: int) -> "WheelProgress":
        """With what a log that begins there still holds."""
        return self._counted_from(max(self.lowest_needed, begin_offset))

    def _counted_from(self, lowest_needed: int) -> "WheelProgress":
        """With another L, and of what is counted from there all that does not lie before it."""
        ahead = self.lowest_needed - lowest_needed
        buried, in_doubt = (
            tuple(offset + ahead for offset in offsets if offset + ahead >= 0)
            for offsets in (self.buried, self.in_doubt)
        )
        return msgspec.structs.replace(self, lowest_needed=lowest_needed, buried=buried, in_doubt=in_doubt)


def fitting(in_doubt: Iterable[int]) -> tuple[int, ...]:
    """The first of them, as many as there is room for."""
    numbers = tuple(in_doubt)
    ends = accumulate(len(f"{number},") for number in numbers)
    return tuple(number for number, end in zip(numbers, ends, strict=True) if end <= IN_DOUBT_MAX_BYTES)


def needed_from(metadata: str, committed_offset: int) -> int | None:
    """L of what is committed; None where that is not ours."""
    if metadata == SET_BY_OPERATOR:
        return committed_offset
    try:
        return msgspec.json.decode(metadata, type=WheelProgress).lowest_needed
    except (msgspec.MsgspecError, RecursionError):
        return None


def _check(progress: WheelProgress, committed_offset: int) -> None:
    """Raises ValueError for what this or no Timewheel has committed, though it looks like that."""
    if progress.lowest_needed > committed_offset:
        raise ValueError("a rebuild would begin behind the committed offset")
    offsets = [since for since, _ in progress.plans.since]
    if not (offsets or progress.is_set) or offsets != sorted(offsets):
        raise ValueError("the plans are in no order")
    for _, plan in progress.plans.since:
        if plan.parser > PARSER_VERSION:
            raise ValueError("its records are read by rules that are not known here")
        if plan.precision_ms < 1 or plan.roll_window_ms < 2 * plan.precision_ms:
            raise ValueError("a record would roll for ever")
        if plan.spread_ms > plan.roll_window_ms // 4:
            raise ValueError("a record would roll as soon as it is written")
        DelayLevels.parse(plan.levels)
