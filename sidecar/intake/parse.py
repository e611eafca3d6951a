"""Kafka record headers -> where a scheduled record goes and what it carries, or why it is rejected.

Parsing looks at the record alone, never at the clock, at metadata or at a setting, so that reading a record again gives
the same answer. Change the rules here only together with `PARSER_VERSION`, as progress is committed with it, and with
`sidecar.intake.progress.FORMAT`, so that earlier versions leave it alone.
"""

import re

from connectors.contract import (
    CANCEL_HEADERS,
    CONTROL_HEADERS,
    GENERATED_HEADERS,
    SCHEDULE_KINDS,
    ErrorCode,
    Headers,
    TopicNames,
    is_legal_topic_name,
    partition_named,
)
from connectors.header_names import REAL_QID, REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_REPLACE_UNIQKEY, UNIQ_KEY
from connectors.kafka import BY_KEY
from sidecar.records import Rejection

PARSER_VERSION = 1

LATEST_DUE_MS = 253_402_300_799_999
"""The end of the year 9999. Only a timestamp that a producer has made up leads beyond it."""

_TOPIC_CACHE_ENTRIES = 10_000
DIGITS_MAX = 18
_NUMBER_MAX = 10**DIGITS_MAX - 1
_WHOLE_NUMBER = re.compile(rb"-?[0-9]+")


INSTRUCTIONS = CONTROL_HEADERS | CANCEL_HEADERS | GENERATED_HEADERS
"""Names that no record keeps: what asks something of the sidecar, and what it alone writes."""

_NOTED = INSTRUCTIONS | {UNIQ_KEY}


Parsed = tuple[str, int, Headers, bytes | None]
"""Destination topic; its partition, or BY_KEY; the headers that the delivered record keeps, in order, a list of its own
to be added to; the record's id, None where it has none. A plain tuple: one is made for every record."""


class Parser:
    """Parses headers, remembering the destinations it has seen."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self.known_topics: dict[bytes | None, str] = {}
        """Physical topics by the ``REAL_TOPIC`` that named them; only legal ones."""

    def parse(self, headers: Headers) -> Parsed | Rejection:
        """Where the record goes and what it carries, or why it is rejected.

        Of an instruction that comes twice the last one counts; of a repeated ``UNIQ_KEY`` the last one stays.
        """
        carried: Headers = []
        real_topic: bytes | None = None
        uniq_key: bytes | None = None
        control: dict[str, bytes | None] | None = None
        ids = 0
        for header in headers:
            name = header[0]
            if name not in _NOTED:
                carried.append(header)
            elif name == REAL_TOPIC:
                real_topic = header[1]
            elif name == UNIQ_KEY:
                uniq_key = header[1]
                ids += 1
                carried.append(header)
            else:
                control = control or {}
                control[name] = header[1]
        if ids and (ids > 1 or not uniq_key):
            carried = [header for header in carried if header[0] != UNIQ_KEY]
            if uniq_key:
                carried.append((UNIQ_KEY, uniq_key))
        partition = BY_KEY
        if control is not None:
            judged = cancel_on_a_level(control) or self.partition(control)
            if isinstance(judged, Rejection):
                return judged
            partition = judged
        topic = self.topic(real_topic)
        if isinstance(topic, Rejection):
            return topic
        return topic, partition, carried, uniq_key or None

    def topic(self, real_topic: bytes | None) -> str | Rejection:
        """The physical topic that a ``REAL_TOPIC`` header names."""
        topic = self.known_topics.get(real_topic)
        if topic is None:
            read = self._read_topic(real_topic)
            if isinstance(read, Rejection):
                return read
            if len(self.known_topics) >= _TOPIC_CACHE_ENTRIES:
                self.known_topics.clear()
            self.known_topics[real_topic] = topic = read
        return topic

    def partition(self, control: dict[str, bytes | None]) -> int | Rejection:
        """The partition that ``REAL_QID`` names; BY_KEY where it is absent."""
        if REAL_QID not in control:
            return BY_KEY
        qid = control[REAL_QID]
        partition = partition_named(qid)
        if partition is None:
            return Rejection(
                ErrorCode.ILLEGAL_REAL_QID,
                f"REAL_QID is {show(qid)}, which is not a partition number; leave it out and the key decides",
            )
        return partition

    def _read_topic(self, raw: bytes | None) -> str | Rejection:
        if raw == b"":
            return Rejection(ErrorCode.MISSING_REAL_TOPIC, "REAL_TOPIC is empty; it names the destination")
        if raw is None:
            return Rejection(
                ErrorCode.MISSING_REAL_TOPIC,
                "the record has no REAL_TOPIC header, which names the destination (header names are case-sensitive)",
            )
        try:
            topic = self._names.physical(raw.decode())
        except UnicodeDecodeError:
            return Rejection(ErrorCode.ILLEGAL_REAL_TOPIC, f"REAL_TOPIC is {show(raw)}, which is not UTF-8 text")
        if not is_legal_topic_name(topic):
            return Rejection(
                ErrorCode.ILLEGAL_REAL_TOPIC,
                f"REAL_TOPIC is {show(raw)}, which Kafka never accepts as a topic name "
                "(at most 249 letters, digits, '.', '_' and '-')",
            )
        if self._names.kind(topic) in SCHEDULE_KINDS:
            return Rejection(
                ErrorCode.DESTINATION_NOT_ALLOWED,
                f"'{topic}' is a schedule topic; REAL_TOPIC names the topic to deliver to",
            )
        return topic


def cancel_on_a_level(control: dict[str, bytes | None]) -> Rejection | None:
    """Records of a level topic cannot be cancelled one by one."""
    for name in (TIMER_DEL_UNIQKEY, TIMER_REPLACE_UNIQKEY):
        if name in control:
            return Rejection(
                ErrorCode.NOT_CANCELLABLE,
                f"{name} was sent to a level topic, whose records cannot be cancelled or replaced one by one; "
                "schedule on the wheel topic for that",
            )
    return None


def whole_number(value: bytes | None) -> int | None:
    """The number that a header's value is the text of; None where it is none.

    One of more than 18 digits counts as the largest of 18: all that are so large mean the same, later than anything.
    """
    if value is None:
        return None
    if value.isdigit() and len(value) <= DIGITS_MAX:  # nearly always
        return int(value)
    if not _WHOLE_NUMBER.fullmatch(value):
        return None
    digits = value.lstrip(b"-0")
    number = _NUMBER_MAX if len(digits) > DIGITS_MAX else int(digits or b"0")
    return -number if value[0] == ord("-") else number


def show(value: bytes | None, limit: int = 100) -> str:
    """A header's value for an error message: printable, and short."""
    if value is None:
        return "null"
    try:
        text = repr(value[:limit].decode())
    except UnicodeDecodeError:
        text = repr(value[:limit]).removeprefix("b")
    return f"{text}…" if len(value) > limit else text
