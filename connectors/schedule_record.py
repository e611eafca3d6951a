"""What scheduling writes: the headers of a record for the schedule topics, out of a call's arguments.

argument             topic                    header              counts from
deliver_at           …-wheel                  TIMER_DELIVER_MS    the epoch
delay, delay_ms      …-wheel                  TIMER_DELAY_MS      the moment Kafka takes the record
level                …-<level>                none                the moment Kafka takes the record
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from connectors.contract import CANCEL_HEADERS, CONTROL_HEADERS, GENERATED_HEADERS, Headers, partition_named
from connectors.durations import MAX_DURATION_MS, DurationError, format_duration, parse_duration_ms
from connectors.header_names import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_REPLACE_UNIQKEY,
    UNIQ_KEY,
)
from connectors.receipt import Receipt
from connectors.times import epoch_ms

HeaderPairs = Iterable[tuple[str, bytes | str | None]]
HeadersArgument = HeaderPairs | Mapping[str, bytes | str | None]
"""Headers as confluent-kafka takes them: pairs, in which names may repeat, or a map."""

_MS = timedelta(milliseconds=1)


_SOME_PARTITION: bytes | None = b"0"
"""A legal one, which stands for ``REAL_QID`` where there is none."""

_INSTRUCTIONS = (CONTROL_HEADERS - {REAL_QID}) | CANCEL_HEADERS
"""What the arguments say; a header that says otherwise would win over them."""

_NOT_KEPT = _INSTRUCTIONS | GENERATED_HEADERS | {UNIQ_KEY}
"""What a replacement does not take over: a copy's proof would make one of it, too, and that of any delay."""


class ScheduleError(ValueError):
    """The record cannot be scheduled as asked."""


class RecordGoneError(ScheduleError):
    """Kafka has the scheduled record no more, or another in its place, or it cannot be read."""


When = tuple[tuple[str, bytes], int]
"""The time header, and its number of milliseconds."""


def when(deliver_at: datetime | None, delay: timedelta | str | None, delay_ms: int | None) -> When:
    """The header for exactly one of the three.

    Raises:
        ScheduleError: none or several, no time zone, no duration, a negative one.
    """
    if delay is not None and deliver_at is None and delay_ms is None:
        if not isinstance(delay, timedelta | str):
            raise ScheduleError(f"the delay {delay!r} is neither a timedelta nor a text such as '90s' or '1h30m'")
        return _after(delay)
    if deliver_at is not None and delay is None and delay_ms is None:
        return _at(deliver_at)
    if delay_ms is not None and deliver_at is None and delay is None:
        return _after_ms(delay_ms)
    raise ScheduleError("give one of deliver_at, delay and level")


def _at(deliver_at: datetime) -> When:
    if not isinstance(deliver_at, datetime):
        raise ScheduleError(
            f"deliver_at is {deliver_at!r}; give a datetime with a zone, such as "
            "datetime.fromisoformat('2030-01-31T09:00:00+01:00')"
        )
    if deliver_at.utcoffset() is None:
        raise ScheduleError(f"{deliver_at.isoformat()} has no time zone; add one, such as +00:00")
    deliver_ms = epoch_ms(deliver_at)
    return (TIMER_DELIVER_MS, b"%d" % deliver_ms), deliver_ms


@lru_cache(maxsize=1024)
def _after(delay: timedelta | str) -> When:
    if isinstance(delay, str):
        try:
            return _after_ms(parse_duration_ms(delay))
        except DurationError as error:
            raise ScheduleError(str(error)) from None
    return _after_ms(-(delay // -_MS))  # rounded up: never early


def _after_ms(delay_ms: int) -> When:
    if not is_whole(delay_ms):
        raise ScheduleError(f"delay_ms is {delay_ms!r}; give a whole number of milliseconds")
    if delay_ms < 0:
        raise ScheduleError(f"a delay of {delay_ms} ms is negative")
    if delay_ms > MAX_DURATION_MS:
        raise ScheduleError(f"a delay of {delay_ms} ms is too long; the longest is {format_duration(MAX_DURATION_MS)}")
    return (TIMER_DELAY_MS, b"%d" % delay_ms), delay_ms


def is_whole(number: object) -> bool:
    """Whether it is a whole number; True and 2.0, which equal one, are none."""
    return isinstance(number, int) and not isinstance(number, bool)


def is_utf8(text: str) -> bool:
    """Whether it can be written so: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def carried(headers: HeadersArgument) -> tuple[Headers, bytes]:
    """The user's headers as they are written, and the message's id among them; b"" where there is none.

    Raises:
        ScheduleError: one of them is an instruction to the sidecar, or neither text nor bytes; a name, a text or the
            message's id is not UTF-8; ``REAL_QID`` is not a partition number.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    written: Headers = []
    uniq_key, qid = b"", _SOME_PARTITION
    for name, given in pairs:
        if name not in _good_names:
            _check_name(name)
        if isinstance(given, str):
            try:
                text: bytes | None = given.encode()
            except UnicodeEncodeError:
                raise ScheduleError(f"the header {name} cannot be written as UTF-8; take out its surrogates") from None
        elif given is None or isinstance(given, bytes):
            text = given
        else:
            raise ScheduleError(f"the header {name} is of type {type(given).__name__}; give str, bytes or None")
        if name == UNIQ_KEY:  # of several, the last
            uniq_key = text or b""
        elif name == REAL_QID:
            qid = text
        written.append((name, text))
    if not uniq_key.isascii():
        _check_id(uniq_key)
    if qid != _SOME_PARTITION:
        _check_partition(qid)
    return written, uniq_key


_GOOD_NAMES_MAX = 10_000
_good_names: set[str] = set()
"""Header names that have been checked: an application has few, and each comes with every record."""


def _check_name(name: object) -> None:
    """Bytes would be written as their repr; a lone surrogate ends the process, within confluent-kafka."""
    if not isinstance(name, str):
        raise ScheduleError(f"the header name {name!r} is not text; give a str")
    if not is_utf8(name):
        raise ScheduleError(f"the header name {name!r} cannot be written as UTF-8; take out its surrogates")
    if "\0" in name:  # librdkafka's names end there: another header would be written
        raise ScheduleError(
            f"the header name {name!r} has a NUL in it, where Kafka's clients in C end a name; take it out"
        )
    if name in _INSTRUCTIONS:
        raise ScheduleError(f"the header {name} is an instruction to the sidecar; say it with an argument instead")
    if len(_good_names) >= _GOOD_NAMES_MAX:
        _good_names.clear()
    _good_names.add(name)


def _check_id(uniq_key: bytes) -> None:
    """A receipt, a cancel and a question for the message name it as text."""
    try:
        uniq_key.decode()
    except UnicodeDecodeError:
        raise ScheduleError(
            f"the header UNIQ_KEY is {uniq_key[:40]!r}, which is not UTF-8 text; a message's id is text"
        ) from None


def _check_partition(qid: bytes | None) -> None:
    """The sidecar would make a dead letter of the record."""
    if partition_named(qid) is None:
        told = "null" if qid is None else f"'{qid[:40].decode(errors='backslashreplace')}'"
        raise ScheduleError(
            f"the header REAL_QID is {told}, which is not a partition number; leave it out and the key decides"
        )


def cancel_headers(receipt: Receipt) -> Headers:
    """The headers of a record that takes a message back; its time says where to look first.

    Raises:
        ScheduleError: the message stands on a level topic.
    """
    check_cancellable(receipt)
    return [
        (TIMER_DEL_UNIQKEY, receipt.id.encode()),
        (TIMER_DELIVER_MS, b"%d" % receipt.deliver_ms),
        (REAL_TOPIC, receipt.topic.encode()),
    ]


def replacement_headers(receipt: Receipt, given: Headers, time: tuple[str, bytes]) -> Headers:
    """The headers of a record that takes a pending message's place, with another time."""
    kept: Headers = [header for header in given if header[0] not in _NOT_KEPT]
    return [
        *kept,
        (UNIQ_KEY, receipt.id.encode()),
        (REAL_TOPIC, receipt.topic.encode()),
        (TIMER_REPLACE_UNIQKEY, receipt.id.encode()),
        time,
    ]


def check_cancellable(receipt: Receipt) -> None:
    """Raises ScheduleError where the message stands on a level topic."""
    if not receipt.cancellable:
        raise ScheduleError(
            "the message waits on a level topic, where it cannot be cancelled or replaced; "
            "schedule with a delay or a time for that"
        )
