"""Where reading a partition begins: at the committed progress, and nowhere else by itself.

Progress that is missing or out of range is not an empty log. A guess would lose records or send them twice, so such a
partition stops with a reason, and an operator chooses (``timewheel progress``). The one exception is a partition whose
progress cannot have been forgotten, because nothing in it is older than what the brokers remember.

    committed  log                                  verdict                      how it comes about
    in range   any                                  START at committed           every ordinary restart
    none       empty                                START at the log's end       a new topic or group
    none       first record younger than retention  START at the log's beginning a new group on a topic in use
    none       first record older, or age unknown   STOP                         offsets expired while we were away
               (none told, or far in the future)
    < begin    any                                  STOP                         retention removed what was not read
    > end      any                                  STOP                         the topic was made anew, or truncated
    another    any                                  STOP                         the topic was made anew while a sidecar
    topic's                                                                      read it, which committed once more; or
                                                                                 a mirror has translated offsets
    in range   of other records than were read      STOP                         an unclean election has cost the log
                                                                                 its end, and it has grown again
    any        any                                  STOP                         a newer version has committed it, by
                                                                                 rules that this one does not know

Kafka forgets the progress with the topic. But it knows progress by the topic's name, and a sidecar that is reading goes
on to commit what it knows until it has noticed: so each commit says by its id which topic it is of. It also holds the
offset, timestamp and leader epoch of the last record that was read. Epochs only grow along a log: where the first later
record stands before that offset and is of a later epoch, the end that was read is gone.

A wheel partition's progress is more than an offset: what waits lies before it. And a level's offset is moved by whoever
reads the topic in the sidecar's group. So one that stands alone stops, unless there is nothing before it: another tool
has set it, or another application has committed it, and neither knows what it drops. ``timewheel progress set`` says so
beforehand, and marks what it commits. (Of a send-back topic an offset always stood alone, with earlier versions.)
"""

from typing import Annotated, NamedTuple

import msgspec

from connectors.kafka import NO_TOPIC_IDS
from sidecar.observability.health import CHOOSE_PROGRESS

Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What stands in a commit's metadata is no offset otherwise."""


SET_BY_OPERATOR = '{"set":true}'
"""The metadata of an offset that ``timewheel progress set`` has committed."""


FORMAT = 1
"""Of all that is committed. A version that adds to it what decides, or reads records by another rule, counts on: those
before it would commit without that, and lose messages or send them twice."""

_START_THE_NEWER = "start the newer version in place of this one; nothing is lost"


class ProgressError(ValueError):
    """What is committed beside the offset is not ours; guessing would lose messages."""


class LastRead(NamedTuple):
    """The last record that was read of a partition."""

    offset: Offset
    timestamp_ms: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    leader_epoch: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every commit of a sidecar's holds, whatever else stands beside its offset: of which log it is."""

    topic_id: str = msgspec.field(name="t", default="")
    """Empty where it is not known."""
    last_read: LastRead | None = msgspec.field(name="e", default=None)
    format: int = msgspec.field(name="f", default=1)
    """By which it was committed: the first, where it does not say."""

    @classmethod
    def of(cls, metadata: str | None) -> "Mark":
        """An empty one where there is none."""
        try:
            return msgspec.json.decode(metadata or "{}", type=cls)
        except (msgspec.MsgspecError, RecursionError):
            return cls()

    def put_on(self, metadata: str) -> str:
        """The metadata, which is empty or a JSON object, with the mark, to be committed by this version."""
        told = msgspec.json.decode(metadata or "{}") | msgspec.to_builtins(msgspec.structs.replace(self, format=FORMAT))
        return msgspec.json.encode(told).decode() if told else metadata


class NoLeaderError(Exception):
    """No broker leads the partition: it can be neither read nor written until one does."""

    def __init__(self) -> None:
        super().__init__("no broker leads the partition")


class LogRange(NamedTuple):
    """What Kafka holds of a partition."""

    begin_offset: int
    end_offset: int
    first_timestamp_ms: int | None
    """The timestamp of the first record; None where it was not asked for, or could not be had."""
    later_offset: int = -1
    """The first record that is later than the last that was read; -1: there is none, or it was not asked for."""
    later_epoch: int = -1
    """Its leader epoch."""


class Start(NamedTuple):
    """Read from here."""

    offset: int
    metadata: str
    end_offset: int = 0
    """The log's end at that moment."""
    begin_offset: int = 0
    """And its beginning."""
    mark: Mark = Mark()
    """For what is committed before anything is read."""
    last_read: LastRead | None = None
    """What was read last of this topic; the log may have lost it since."""

    @property
    def is_offset_alone(self) -> bool:
        """Whether nothing that a sidecar commits stands beside it: nothing was committed, or not by a sidecar."""
        return self.metadata in ("", SET_BY_OPERATOR)

    @property
    def is_set_unawares(self) -> bool:
        """Whether it passes over records, and nobody has said that this is meant."""
        return not self.metadata and self.offset > self.begin_offset


class Stop(NamedTuple):
    """Do not read; tell why."""

    reason: str
    remedy: str = CHOOSE_PROGRESS


class NoLeader(NamedTuple):
    """Nobody can tell just now: no broker leads the partition. Ask again."""

    offset: int
    """What is committed, or 0; not compared with the log."""


Verdict = Start | Stop | NoLeader


def decide_start(
    committed_offset: int | None,
    metadata: str | None,
    log: LogRange,
    now_ms: int,
    offsets_retention_ms: int,
    topic_id: str = "",
) -> Start | Stop:
    """The row of the table above that applies.

    Args:
        committed_offset: None when the group has none for the partition.
        offsets_retention_ms: the brokers' ``offsets.retention.minutes``.
        topic_id: empty where it is not known.
    """
    if topic_id == NO_TOPIC_IDS:
        topic_id = ""
    begins = Start(log.begin_offset, "", log.end_offset, log.begin_offset, Mark(topic_id))
    if committed_offset is None:
        if log.begin_offset == log.end_offset:
            return begins
        age_ms = None if log.first_timestamp_ms is None else now_ms - log.first_timestamp_ms
        if age_ms is not None and abs(age_ms) < offsets_retention_ms:  # far in the future, it tells nothing of its age
            return begins
        return Stop(
            "the group has no committed progress here, and the first record is, or may be, older than the brokers keep "
            "progress (offsets.retention.minutes): it may have been delivered already"
        )
    mark = Mark.of(metadata)
    if mark.format > FORMAT:
        return Stop(
            f"progress at offset {committed_offset} is of a newer version of Timewheel (format {mark.format}; this one "
            f"knows {FORMAT})",
            _START_THE_NEWER,
        )
    if topic_id and mark.topic_id not in ("", topic_id):
        if committed_offset == log.begin_offset:  # nothing of this one is passed over, and nothing was delivered
            return begins
        return Stop(
            f"progress is at offset {committed_offset} of another topic of this name: this one was created anew, while "
            "a sidecar read the other, or is a mirror's copy, which has translated the other's offsets; which of its "
            "records have been delivered is not known"
        )
    if committed_offset < log.begin_offset:
        return Stop(
            f"progress is at offset {committed_offset}, but the log begins at {log.begin_offset}: retention has "
            "removed records that were not delivered"
        )
    if committed_offset > log.end_offset:
        return Stop(
            f"progress is at offset {committed_offset}, but the log ends at {log.end_offset}: the topic was "
            "created anew or has lost its end"
        )
    last = mark.last_read
    if last is not None and last.leader_epoch < log.later_epoch and log.later_offset <= last.offset:
        if log.later_offset < committed_offset:
            return Stop(lost_end(committed_offset, log.later_offset))
        last = None
    kept = Mark(topic_id, last)
    return Start(committed_offset, metadata or "", log.end_offset, log.begin_offset, kept, mark.last_read)


def lost_end(committed_offset: int, other_from: int) -> str:
    """Why a partition stops whose log holds others than the records that were read, from an offset on."""
    return (
        f"progress is at offset {committed_offset}, but from offset {other_from} on the log holds other records than "
        "those that were read: it has lost its end in an unclean election, and which of the others have been delivered "
        "is not known"
    )
