"""Neighbouring records of the wheel topic that are alike, read column by column.

An application's records carry the same headers in the same order, and mostly ask for nothing but a destination and a
time. What `WheelParser.plain` says of each of them one by one, this says of all in half the time: the loops over a
column run in C.
"""

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import add, sub
from typing import NamedTuple

from confluent_kafka import Message

from connectors.contract import CONTROL_HEADERS, GENERATED_HEADERS, Header
from connectors.kafka import BY_KEY
from sidecar.intake.parse import DIGITS_MAX
from sidecar.records import Headers, Outgoing

_REAL_TOPIC = str(Header.REAL_TOPIC)
_UNIQ_KEY = str(Header.UNIQ_KEY)
_TIMER_DELAY_MS = str(Header.TIMER_DELAY_MS)
_TIMER_DELIVER_MS = str(Header.TIMER_DELIVER_MS)
_TIMER_OUT_MS = str(Header.TIMER_OUT_MS)

_PLAIN = (_REAL_TOPIC, _TIMER_DELIVER_MS, _TIMER_DELAY_MS, _UNIQ_KEY)
_SPECIAL = CONTROL_HEADERS | GENERATED_HEADERS | {str(Header.TIMER_DEL_UNIQKEY), str(Header.TIMER_REPLACE_UNIQKEY)}

_Values = tuple[bytes | None, ...]


class Alike(NamedTuple):
    """What they say, in columns of one length, in the order of the records."""

    topics: list[str]
    delivered: list[Headers]
    """The headers of each as it is delivered, in a list of its own."""
    ids: Sequence[bytes]
    due_ms: list[int]
    timestamps_ms: list[int]
    offsets: list[int]
    source_headers: Sequence[Headers]

    @property
    def longest_delay_ms(self) -> int:
        """From a record's timestamp to its due time."""
        return int(max(map(sub, self.due_ms, self.timestamps_ms)))

    def outgoing(self, messages: Sequence[Message], due_ms: Sequence[int]) -> list[Outgoing]:
        """The records to publish.

        Args:
            messages: those that have been read.
            due_ms: since when each of them counts as due.
        """
        keys, values = map(Message.key, messages), map(Message.value, messages)
        columns = self.delivered, due_ms, self.offsets, self.source_headers
        return list(zip(self.topics, repeat(BY_KEY), keys, values, *columns))


def read_alike(
    messages: Sequence[Message],
    headers: Sequence[Headers | None],
    topics: Mapping[bytes | None, str],
    id_format: bytes,
) -> Alike | None:
    """What the messages say; None: they are not alike, or one of them is not plain.

    Args:
        messages: at least one, of one partition.
        headers: theirs.
        topics: physical topics by the ``REAL_TOPIC`` that names them, so far as they are known.
        id_format: of the id of a record that brings none, with a place for its offset.
    """
    try:
        columns = list(zip(*headers, strict=True))
    except (TypeError, ValueError):  # none at all, or not so many as the others
        return None
    carried: list[tuple[tuple[str, bytes | None], ...]] = []
    plain: dict[str, _Values] = {}
    for column in columns:
        names, values = zip(*column, strict=True)
        name = names[0]
        if names.count(name) < len(names):
            return None
        if name in _PLAIN:
            plain[name] = values  # of one that comes twice the last counts
        elif name in _SPECIAL:
            return None
        else:
            carried.append(column)
    real_topics = list(map(topics.get, plain.get(_REAL_TOPIC, ())))
    timestamps_ms = [timestamp_ms for _, timestamp_ms in map(Message.timestamp, messages)]
    times = _times(plain, timestamps_ms)
    if not real_topics or not all(real_topics) or times is None:
        return None
    due_ms, told = times
    offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
    ids = plain.get(_UNIQ_KEY, ())
    if not ids or not all(ids):
        ids = tuple(given or id_format % offset for given, offset in zip(ids or repeat(None), offsets, strict=False))
    delivered = map(list, zip(*carried, zip(repeat(_UNIQ_KEY), ids), zip(repeat(_TIMER_OUT_MS), told), strict=False))
    return Alike(real_topics, list(delivered), ids, due_ms, timestamps_ms, offsets, headers)  # type: ignore[arg-type]


def _times(plain: Mapping[str, _Values], timestamps_ms: Sequence[int]) -> tuple[list[int], Sequence[bytes]] | None:
    """When the records are due, as numbers and as the text that they are delivered with."""
    is_delay = _TIMER_DELAY_MS in plain  # which counts before a time
    texts = plain.get(_TIMER_DELAY_MS if is_delay else _TIMER_DELIVER_MS)
    if texts is None:
        return None
    try:
        digits = set(map(len, texts))  # type: ignore[arg-type]
        if max(digits) > DIGITS_MAX or not all(map(bytes.isdigit, texts)):  # type: ignore[arg-type]
            return None
    except TypeError:  # null
        return None
    numbers = list(map(int, texts))  # type: ignore[arg-type]
    if is_delay:
        due_ms = list(map(add, timestamps_ms, numbers))
        return due_ms, [b"%d" % time_ms for time_ms in due_ms]
    if len(digits) > 1 or min(numbers) < 10 ** (digits.pop() - 1):  # with a leading zero it is not told as it is
        return None
    return numbers, texts  # type: ignore[return-value]
