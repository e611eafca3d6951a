"""Where a partition may go on, as an operator chooses it: what is committed for each choice, and in words.

beginning   all that the log holds comes again
end         all that waits is skipped
an offset   on a level, what lies before it is skipped; on the wheel also what waits there
remaining   as before, with what retention has left: nothing comes again, and nothing more is lost
due after   what was due by then counts as delivered, all else does not
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from typing import NamedTuple

from confluent_kafka import Message, TopicPartition

from connectors.contract import DelayLevels, Place, TopicKind, TopicNames
from connectors.header_names import TIMER_DELIVER_MS
from sidecar.cli.pager import moment
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.errors import UsageError
from sidecar.intake.headers import read_headers
from sidecar.intake.progress import FORMAT, SET_BY_OPERATOR, Mark, ProgressError

_DIGITS_MAX = 18


class Log(NamedTuple):
    """What Kafka holds of a partition."""

    begin_offset: int
    end_offset: int


class Stamp(NamedTuple):
    """When a record was made, and when it asks to be delivered; None where it names no such time."""

    offset: int
    timestamp_ms: int
    deliver_ms: int | None = None


def stamps_of(messages: Sequence[Message]) -> Iterator[Stamp]:
    """Of records as they were read. A time that is none is none here, either: its record is rejected."""
    for message, headers in zip(messages, read_headers(messages), strict=True):
        deliver = dict(headers or []).get(TIMER_DELIVER_MS) or b""
        deliver_ms = int(deliver) if deliver.isdigit() and len(deliver) <= _DIGITS_MAX else None
        yield Stamp(message.offset() or 0, message.timestamp()[1], deliver_ms)


class Chosen(NamedTuple):
    """What is committed."""

    offset: int
    metadata: str
    words: str


def stamped_by_ms(names: TopicNames, levels: DelayLevels, topic: str, due_by_ms: int) -> int:
    """Of the records that count as delivered, the latest timestamp: of a level its delay before they were due."""
    level = names.level_of(topic)
    return due_by_ms if level is None else due_by_ms - levels.delay_ms(level)


def first_undelivered(names: TopicNames, topic: str, stamps: Iterable[Stamp], by_ms: int, until_ms: int) -> int | None:
    """Where reading goes on, if what was stamped by a time has been read; None: at the end.

    Args:
        stamps: from the first on that is stamped later, be it a record or what ends a transaction: a mirror that lags
            ends one later than its records were stamped.
        until_ms: what is stamped after that has a clock that is wrong.
    """
    if names.kind(topic) is TopicKind.WHEEL:
        return _first_on_the_wheel(stamps, by_ms)
    return _first_in_order(stamps, by_ms, until_ms)


def _first_in_order(stamps: Iterable[Stamp], by_ms: int, until_ms: int) -> int | None:
    """The first record that is stamped later has held up all behind it, unless its stamp is no time that was."""
    first: int | None = None
    for stamp in stamps:
        if first is None and stamp.timestamp_ms > by_ms:
            first = stamp.offset
        if by_ms < stamp.timestamp_ms <= until_ms:
            return stamp.offset
    return first


def _first_on_the_wheel(stamps: Iterable[Stamp], by_ms: int) -> int | None:
    """Nothing waits there: behind the last that was stamped by then nothing has been read, and before it all has.

    One that was due before it was made is read again in any case.
    """
    behind: int | None = None
    made_late: int | None = None
    for stamp in stamps:
        behind = stamp.offset if behind is None else behind
        if stamp.timestamp_ms <= by_ms:
            behind = stamp.offset + 1
        elif made_late is None and stamp.deliver_ms is not None and stamp.deliver_ms <= by_ms:
            made_late = stamp.offset
    return behind if made_late is None else min(made_late, behind or 0)


def of_this_log(metadata: str | None, topic_id: str) -> str:
    """The metadata; nothing where it says that it is of another topic, as a mirror translates that topic's progress."""
    return (metadata or "") if Mark.of(metadata).topic_id in ("", topic_id) else ""


def at_offset(names: TopicNames, place: Place, offset: int) -> Chosen:
    """Beginning, end, or any offset."""
    is_wheel = names.kind(place[0]) is TopicKind.WHEEL
    skipped = "; what waits before it is skipped, what was delivered behind it comes again" if is_wheel else ""
    return Chosen(offset, SET_BY_OPERATOR, f"goes on at offset {offset}{skipped}")


def due_after(
    names: TopicNames,
    place: Place,
    log: Log,
    undelivered: int | None,
    committed: str,
    due_by_ms: int,
    now_ms: int,
    *,
    is_copied: bool = False,
) -> Chosen:
    """Everything due by a time counts as delivered, and nothing else; the wheel is read again from the log's beginning.

    Args:
        undelivered: the `first_undelivered`.
        committed: the metadata; where it can be read, what it says of how records were timed goes on to hold.
        is_copied: whether the log is, or may be, a copy of another cluster's.
    """
    offset = log.end_offset if undelivered is None else undelivered
    metadata = SET_BY_OPERATOR
    if names.kind(place[0]) is TopicKind.WHEEL:
        copied_below = offset if is_copied else 0
        progress = WheelProgress.due_after(due_by_ms, log.begin_offset, committed, now_ms, copied_below=copied_below)
        metadata = progress.encode()
    at = moment(due_by_ms, UTC)
    return Chosen(offset, metadata, f"goes on at offset {offset}; of what lies before, what was due after {at} waits")


def remaining(names: TopicNames, place: Place, log: Log, committed: TopicPartition | None) -> Chosen:
    """As it is committed, with what the log still holds.

    Raises:
        UsageError: what is committed does not tell.
    """
    name = f"{place[0]}-{place[1]}"
    if committed is None or committed.offset > log.end_offset:
        told = "has no committed progress" if committed is None else "has progress beyond its log"
        raise UsageError(f"{name} {told}: choose beginning, end, an offset or --due-after")
    offset = max(committed.offset, log.begin_offset)
    words = f"goes on at offset {offset} with what the log still holds"
    metadata = committed.metadata or ""
    if Mark.of(metadata).format > FORMAT:
        raise UsageError(f"{name}: what is committed is of a newer version of Timewheel; choose with that one")
    if names.kind(place[0]) is not TopicKind.WHEEL:  # up to where rejected records have been dealt with holds on
        return Chosen(offset, metadata or SET_BY_OPERATOR, words)
    if metadata == SET_BY_OPERATOR or committed.offset < log.begin_offset:
        return Chosen(offset, SET_BY_OPERATOR, words)
    try:
        kept = WheelProgress.read(metadata, offset).kept_from(log.begin_offset)
    except ProgressError as error:
        raise UsageError(f"{name}: {error}; choose beginning, end, an offset or --due-after") from error
    return Chosen(offset, Mark.of(metadata).put_on(kept.encode()), words)
