"""What of a data directory may be used at a start: a table of cases, each with the crash or change that causes it.

Kafka is the truth; the directory is a cache of it. I is the committed offset, L the lowest offset a rebuild needs, F
the offset up to which the checkpoint says the files are complete.

    case      seen                                 how it comes about                                  then
    EMPTY     no checkpoint                        first start; killed before the first checkpoint     rebuild from L
    CORRUPT   checkpoint or files fail a check     torn write, flipped bit, truncated, overwritten     rebuild from L
              or cannot be read, twice in a row    bad sector
    UNKNOWN   another format version               another Timewheel has written it                    rebuild from L
    FOREIGN   other cluster, topic, group, layout  directory copied; topic made anew; setting changed  rebuild from L
    ANEW      progress that began at another time  set by an operator; group deleted; none committed   rebuild from L
    STALE     F < L                                another replica owned it since; an old volume       rebuild from L
    AHEAD     F > I                                progress set back by an operator                    rebuild from L
    REBOOTED  unclean, and another boot            power loss, kernel panic: pages may be lost         rebuild from L
    UNCLEAN   F in [L, I], no CRC of the wheel     SIGKILL                                             cut back to F
              or another than its file has         flipped bit, overwritten, gone, bad sector
    CLEAN     F in [L, I], the wheel's CRC         SIGTERM, rebalance                                  use as it is

UNCLEAN also makes the wheel anew from the timer log. In both of the last cases all of the timer log is read once and
compared with its CRCs.

ANEW: the watermark is gone that told what is delivered from what waits. What an operator wants to have skipped would be
delivered from the files, and what is to be delivered once more would not be. That holds for each replica's directory,
for ever: so what is committed carries the time at which it began, and so does each checkpoint.

In every case Kafka is then read from F (from L where all is rebuilt) up to I, and what the watermark says is done is
skipped. No case needs a repair by hand.
"""

from enum import StrEnum
from typing import NamedTuple

from sidecar.store.checkpoint import Checkpoint


class Case(StrEnum):
    """How a directory was found."""

    EMPTY = "empty"
    CORRUPT = "corrupt"
    UNKNOWN = "unknown-version"
    FOREIGN = "foreign"
    ANEW = "begun-anew"
    STALE = "stale"
    AHEAD = "ahead"
    REBOOTED = "rebooted"
    UNCLEAN = "unclean"
    CLEAN = "clean"

    @property
    def is_usable(self) -> bool:
        """Whether the files hold what they should."""
        return self in (Case.UNCLEAN, Case.CLEAN)


class Owner(NamedTuple):
    """Whose a directory is; another's is of no use."""

    cluster_id: str
    topic_id: str
    group_id: str
    partition: int
    layout: str
    """What the files' arrangement depends on: slots, precision, parser version."""
    begun_ms: int = 0
    """When the group's progress began, by the clock of whoever began it."""


def owner_of(checkpoint: Checkpoint) -> Owner:
    """Whose the files are that it tells of."""
    return Owner(
        checkpoint.cluster_id,
        checkpoint.topic_id,
        checkpoint.group_id,
        checkpoint.partition,
        checkpoint.plan,
        checkpoint.extra.get("begun_ms", 0),
    )


def judge(
    checkpoint: Checkpoint | None,
    owner: Owner,
    boot_id: str,
    committed_offset: int,
    lowest_needed_offset: int,
) -> Case:
    """The case of a checkpoint that could be read; CORRUPT, UNKNOWN and a damaged wheel are for the caller to find.

    Args:
        committed_offset: I.
        lowest_needed_offset: L.
    """
    if checkpoint is None:
        return Case.EMPTY
    found = owner_of(checkpoint)
    if found != owner:
        return Case.ANEW if found._replace(begun_ms=owner.begun_ms) == owner else Case.FOREIGN
    if checkpoint.complete_to_offset < lowest_needed_offset:
        return Case.STALE
    if checkpoint.complete_to_offset > committed_offset:
        return Case.AHEAD
    if checkpoint.wheel_crc is not None:
        return Case.CLEAN
    if checkpoint.extra.get("boot_id") != boot_id:
        return Case.REBOOTED
    return Case.UNCLEAN
