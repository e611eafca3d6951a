"""Neighbouring records of a schedule topic that are alike, read column by column.

An application's records mostly ask for nothing but a destination and a time. What the parsers say of each of them one
by one, this says of all in half the time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from operator import add
from typing import NamedTuple

import numpy as np
from confluent_kafka import Message

from connectors.contract import Headers
from connectors.header_names import (
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from connectors.kafka import BY_KEY
from sidecar.intake.columns import Column, columns_of, rows_of, values_of
from sidecar.intake.parse import DIGITS_MAX, INSTRUCTIONS, LATEST_DUE_MS
from sidecar.records import Outgoing

_PLAIN_ON_LEVELS = frozenset({REAL_TOPIC})
_PLAIN_ON_WHEEL = frozenset({REAL_TOPIC, TIMER_DELIVER_MS, TIMER_DELAY_MS, UNIQ_KEY})

_TENS = 10 ** np.arange(DIGITS_MAX - 1, -1, -1)
"""What a digit counts at its place, in the longest number."""

_Plain = dict[str, list[bytes | None]]
"""Values of the records, by the name of the header."""


class Alike(NamedTuple):
    """What they say, in columns of one length, in the order of the records."""

    topics: list[str]
    delivered: list[Headers]
    """The headers of each as it is delivered, in a list of its own."""
    ids: Sequence[bytes | None]
    """Empty on a level, which asks for none."""
    due_ms: list[int]
    timestamps_ms: list[int]
    offsets: list[int]

    @property
    def longest_delay_ms(self) -> int:
        """From a record's timestamp to its due time, as if all had the first of their timestamps."""
        return max(self.due_ms) - min(self.timestamps_ms)

    def outgoing(
        self, messages: Sequence[Message], due_ms: Sequence[int], source_headers: Sequence[Headers | bytes | None]
    ) -> list[Outgoing]:
        """The records to publish.

        Args:
            messages: those that have been read.
            due_ms: since when each of them counts as due.
            source_headers: theirs, encoded if they go to disk.
        """
        keys, values = map(Message.key, messages), map(Message.value, messages)
        columns = self.delivered, due_ms, self.offsets, source_headers
        return list(zip(self.topics, repeat(BY_KEY), keys, values, *columns))


class AlikeReader:
    """Reads those of one partition.

    Every answer is None where the records are not alike, or one of them is not plain.

    Args:
        topics: physical topics by the ``REAL_TOPIC`` that names them, so far as they are known.
        id_format: of the id of a record that brings none, with a place for its offset.
    """

    def __init__(self, topics: Mapping[bytes | None, str], id_format: bytes) -> None:
        self._topics = topics
        self._id_format = id_format

    def of_wheel(self, messages: Sequence[Message], headers: Sequence[Headers | None]) -> Alike | None:
        """At least one message, and the headers of each, as `sidecar.intake.headers.read_headers` gives them."""
        columns = _columns(headers, _PLAIN_ON_WHEEL)
        if columns is None:
            return None
        carried, plain = columns
        topics = self._destinations(plain)
        timestamps_ms = _timestamps(messages)
        times = _times(plain, timestamps_ms)
        if topics is None or times is None:
            return None
        due_ms, told = times
        if max(due_ms) > LATEST_DUE_MS:
            return None
        offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
        ids: Sequence[bytes | None] = plain.get(UNIQ_KEY, ())
        if not ids:
            ids = list(map(self._id_format.__mod__, offsets))
        elif not all(ids):
            ids = [given or self._id_format % offset for given, offset in zip(ids, offsets, strict=True)]
        added = zip(repeat(UNIQ_KEY), ids), zip(repeat(TIMER_OUT_MS), told)
        return Alike(topics, rows_of(*carried, *added), ids, due_ms, timestamps_ms, offsets)

    def of_level(
        self, messages: Sequence[Message], headers: Sequence[Headers | None], delay_ms: int, latest_due_ms: int
    ) -> Alike | None:
        """As `of_wheel`, for records of a level topic.

        Args:
            delay_ms: the level's.
            latest_due_ms: none is due later.
        """
        columns = _columns(headers, _PLAIN_ON_LEVELS)
        if columns is None:
            return None
        carried, plain = columns
        topics = self._destinations(plain)
        given = [column for column in carried if column[0][0] == UNIQ_KEY]  # ids stay where they are
        if topics is None or len(given) > 1 or not all(value for column in given for _, value in column):
            return None
        timestamps_ms = _timestamps(messages)
        due_ms = [min(at_ms + delay_ms, latest_due_ms) for at_ms in timestamps_ms]
        offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
        added: list[Iterable[tuple[str, bytes | None]]] = []
        if not given:
            added.append([(UNIQ_KEY, self._id_format % offset) for offset in offsets])
        # One append of the broker's gives all its records one time.
        told = {time_ms: (TIMER_OUT_MS, b"%d" % time_ms) for time_ms in set(due_ms)}
        added.append(map(told.__getitem__, due_ms))
        return Alike(topics, rows_of(*carried, *added), (), due_ms, timestamps_ms, offsets)

    def _destinations(self, plain: _Plain) -> list[str] | None:
        topics = list(map(self._topics.get, plain.get(REAL_TOPIC, ())))
        return topics if topics and all(topics) else None  # type: ignore[return-value]


def _columns(headers: Sequence[Headers | None], plain: Collection[str]) -> tuple[list[Column], _Plain] | None:
    """The headers that are carried on, and the values of the ``plain`` ones by name."""
    columns = columns_of(headers)
    if columns is None:
        return None
    carried: list[Column] = []
    found: _Plain = {}
    for name, column in columns:
        if name in plain:
            found[name] = values_of(column)  # of one that comes twice the last counts
        elif name in INSTRUCTIONS:
            return None
        else:
            carried.append(column)
    return carried, found


def _timestamps(messages: Sequence[Message]) -> list[int]:
    return [timestamp_ms for _, timestamp_ms in map(Message.timestamp, messages)]


def _times(plain: _Plain, timestamps_ms: Sequence[int]) -> tuple[list[int], Sequence[bytes]] | None:
    """When the records are due, as numbers and as the text that they are delivered with."""
    is_delay = TIMER_DELAY_MS in plain  # which counts before a time
    texts = plain.get(TIMER_DELAY_MS if is_delay else TIMER_DELIVER_MS)
    if texts is None:
        return None
    if not all(texts):  # null, or empty
        return None
    digits = set(map(len, texts))  # type: ignore[arg-type]
    numbers = _numbers(texts, digits)  # type: ignore[arg-type]
    if numbers is None:
        return None
    if is_delay:
        due_ms = list(map(add, timestamps_ms, numbers))
        return due_ms, [b"%d" % time_ms for time_ms in due_ms]
    if len(digits) > 1 or min(numbers) < 10 ** (digits.pop() - 1):  # with a leading zero it is not told as it is
        return None
    return numbers, texts  # type: ignore[return-value]


def _numbers(texts: Sequence[bytes], digits: Collection[int]) -> list[int] | None:
    """What they say; None: one of them is no number, or too long a one.

    Args:
        digits: how many they have, at least 1.
    """
    if max(digits) > DIGITS_MAX:
        return None
    if len(digits) > 1:
        return list(map(int, texts)) if all(map(bytes.isdigit, texts)) else None
    figures = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1) - ord("0")  # what is below wraps around
    return None if figures.max() > 9 else (figures @ _TENS[-figures.shape[1] :]).tolist()
