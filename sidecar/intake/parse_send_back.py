"""Kafka records of the send-back topic -> where a failed message goes next, or why it is rejected.

A pure function of the record's headers and of the level table. What decides is the same for most records of a group, so
each answer is remembered by the headers that it hangs on.

The message keeps its identity over all its retries. ``UNIQ_KEY``, ``ORIGIN_MESSAGE_ID`` and ``RETRY_TOPIC`` stay what
they were at the first failure; ``RECONSUME_TIME`` tells the retries apart. A message without an id gets one here: its
``ORIGIN_MESSAGE_ID``, or else the coordinates of its first send-back.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from connectors.contract import (
    DEFAULT_MAX_RECONSUME_TIMES,
    DelayLevels,
    ErrorCode,
    Headers,
    TopicKind,
    TopicNames,
    is_legal_topic_name,
    retry_level,
)
from connectors.header_names import (
    CONSUMER_GROUP,
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    UNIQ_KEY,
)
from sidecar.intake.columns import columns_of, rows_of, values_of
from sidecar.intake.parse import INSTRUCTIONS, show, whole_number
from sidecar.records import Rejection
from sidecar.sizes import header_bytes

_ROUTE_CACHE_ENTRIES = 10_000
_ROUTE_CACHE_ENTRY_BYTES = 2_000
_MAX_RECONSUME = 2**31 - 2


_DECIDING = frozenset({CONSUMER_GROUP, RETRY_TOPIC, RECONSUME_TIME, MAX_RECONSUME_TIMES, DELAY})
"""Names that say where a message goes."""
_SPENT = INSTRUCTIONS - {DELAY}
"""Instructions for other topics, and what the sidecar wrote on the way to the failure: no use any more."""
_NOTED = _DECIDING | _SPENT | {UNIQ_KEY, ORIGIN_MESSAGE_ID}


class Route(NamedTuple):
    """Where a failed message goes next."""

    topic: str
    """A level topic, or the group's dead letters."""
    retry_topic: str | None
    """Where it is delivered after that level's delay; None for a dead letter."""
    headers: Headers
    """What all messages on this route carry."""


Parsed = tuple[str, str | None, Headers]
"""The topics of the route, and the headers that the message has on it, in a list of its own to be added to."""


class SendBackParser:
    """Parses headers of the send-back topic.

    Args:
        own_group: the sidecar's, which cannot be retried: its dead letters are those of everybody's rejected records.
    """

    def __init__(self, names: TopicNames, levels: DelayLevels, own_group: str) -> None:
        self._names = names
        self._levels = levels
        self._own_group = own_group
        self._routes: dict[tuple[tuple[str, bytes | None], ...], Route] = {}

    def parse(self, headers: Headers, id_prefix: bytes, offset: int) -> Parsed | Rejection:
        """Where the message goes next and what it carries, or why it is rejected.

        Of a header that comes twice the last one counts. The exception is ``RETRY_TOPIC``: consumers that name the
        topic they have read from add a retry topic to what a retry carries already, and that is no origin.

        Args:
            id_prefix: with the offset, the message's id where it has none.
        """
        carried: Headers = []
        deciding: Headers = []
        uniq_key = origin_id = None
        for header in headers:
            name = header[0]
            if name not in _NOTED:
                carried.append(header)
            elif name in _DECIDING:
                deciding.append(header)
            elif name == UNIQ_KEY:
                uniq_key = header[1]
            elif name == ORIGIN_MESSAGE_ID:
                origin_id = header[1]
        question = tuple(deciding)
        route = self._routes.get(question)
        if route is None:
            found = self._find(deciding)
            if isinstance(found, Rejection):
                return found
            route = found
            if header_bytes(deciding) <= _ROUTE_CACHE_ENTRY_BYTES:
                if len(self._routes) >= _ROUTE_CACHE_ENTRIES:
                    self._routes.clear()
                self._routes[question] = route
        topic, retry_topic, added = route
        carried += added
        uniq_key = uniq_key or origin_id or b"%b%d" % (id_prefix, offset)
        carried.append((UNIQ_KEY, uniq_key))
        carried.append((ORIGIN_MESSAGE_ID, origin_id or uniq_key))
        return topic, retry_topic, carried

    def parse_alike(
        self, headers: Sequence[Headers | None], id_prefix: bytes, offsets: Sequence[int]
    ) -> tuple[list[Route], list[Headers]] | None:
        """What `parse` says of each of a few hundred messages: its route, and the headers that it has on it.

        None: they have to be asked one by one. Each list of headers is its message's own.
        """
        columns = columns_of(headers)
        if columns is None:
            return None
        carried = [column for name, column in columns if name not in _NOTED]
        questions = zip(*[column for name, column in columns if name in _DECIDING], strict=True)
        routes: list[Route] = list(map(self._routes.get, questions))  # type: ignore[arg-type]
        if not routes or not all(routes):
            return None
        try:
            added = list(zip(*[route.headers for route in routes], strict=True))
        except ValueError:  # dead letters among retries
            return None
        noted = {name: values_of(column) for name, column in columns if name in (UNIQ_KEY, ORIGIN_MESSAGE_ID)}
        none: list[bytes | None] = [None] * len(routes)
        origin_ids = noted.get(ORIGIN_MESSAGE_ID, none)
        known = zip(noted.get(UNIQ_KEY, none), origin_ids, offsets, strict=True)
        ids = [uniq_key or origin_id or b"%b%d" % (id_prefix, offset) for uniq_key, origin_id, offset in known]
        origins = [origin_id or uniq_key for origin_id, uniq_key in zip(origin_ids, ids, strict=True)]
        named = zip(repeat(UNIQ_KEY), ids), zip(repeat(ORIGIN_MESSAGE_ID), origins)
        return routes, rows_of(*carried, *added, *named)

    def _find(self, deciding: Headers) -> Route | Rejection:
        noted: dict[str, bytes | None] = {}
        for name, value in deciding:
            if name != RETRY_TOPIC or name not in noted or not self._is_retry_topic(value):
                noted[name] = value
        group = self._group(noted.get(CONSUMER_GROUP))
        if isinstance(group, Rejection):
            return group
        rejection = self._judge_origin(noted.get(RETRY_TOPIC))
        if rejection is not None:
            return rejection
        level = self._level(noted)
        if isinstance(level, Rejection):
            return level
        reconsume = whole_number(noted.get(RECONSUME_TIME)) or 0
        headers: Headers = [(name, noted[name]) for name in (CONSUMER_GROUP, RETRY_TOPIC)]
        headers.append((RECONSUME_TIME, b"%d" % (reconsume + 1)))
        if noted.get(MAX_RECONSUME_TIMES) is not None:
            headers.append((MAX_RECONSUME_TIMES, noted[MAX_RECONSUME_TIMES]))
        if level is None:
            return Route(self._names.dead_letter(group), None, headers)
        retry_topic = self._names.retry(group)
        return Route(self._names.level(level), retry_topic, [(REAL_TOPIC, retry_topic.encode()), *headers])

    def _level(self, noted: dict[str, bytes | None]) -> int | Rejection | None:
        """The level of the next attempt; None: there is none."""
        reconsume = _count(RECONSUME_TIME, noted.get(RECONSUME_TIME), 0)
        if isinstance(reconsume, Rejection):
            return reconsume
        most = _count(MAX_RECONSUME_TIMES, noted.get(MAX_RECONSUME_TIMES), DEFAULT_MAX_RECONSUME_TIMES)
        if isinstance(most, Rejection):
            return most
        raw = noted.get(DELAY)
        delay = 0 if raw is None else whole_number(raw)
        if delay is None:
            return Rejection(
                ErrorCode.ILLEGAL_DELIVERY_TIME,
                f"DELAY is {show(raw)}, which is not a level; leave it out and the retries decide",
            )
        return retry_level(reconsume, most, delay, self._levels)

    def _group(self, raw: bytes | None) -> str | Rejection:
        if not raw:
            return Rejection(
                ErrorCode.MISSING_CONSUMER_GROUP,
                "the record has no CONSUMER_GROUP header, which names the group that is to have the message again",
            )
        try:
            group = raw.decode()
        except UnicodeDecodeError:
            return Rejection(
                ErrorCode.ILLEGAL_CONSUMER_GROUP, f"CONSUMER_GROUP is {show(raw)}, which is not UTF-8 text"
            )
        if group == self._own_group:
            return Rejection(
                ErrorCode.ILLEGAL_CONSUMER_GROUP, f"CONSUMER_GROUP is '{group}', the group of the sidecar itself"
            )
        if not all(map(is_legal_topic_name, (self._names.retry(group), self._names.dead_letter(group)))):
            return Rejection(
                ErrorCode.ILLEGAL_CONSUMER_GROUP,
                f"CONSUMER_GROUP is {show(raw)}, which is too long for the name of a topic",
            )
        return group

    def _judge_origin(self, raw: bytes | None) -> Rejection | None:
        if not raw:
            return Rejection(
                ErrorCode.MISSING_RETRY_TOPIC,
                "the record has no RETRY_TOPIC header, which names the topic that the message first came from",
            )
        topic = self._names.physical(raw.decode(errors="replace"))
        if not is_legal_topic_name(topic):
            return Rejection(
                ErrorCode.ILLEGAL_RETRY_TOPIC, f"RETRY_TOPIC is {show(raw)}, which is not a valid topic name"
            )
        if self._names.is_reserved(topic):
            return Rejection(
                ErrorCode.DESTINATION_NOT_ALLOWED,
                f"RETRY_TOPIC is '{topic}', which is not a topic for messages: Kafka or the sidecar keeps its own "
                "records there",
            )
        return None

    def _is_retry_topic(self, raw: bytes | None) -> bool:
        topic = self._names.physical((raw or b"").decode(errors="replace"))
        return self._names.kind(topic) is TopicKind.RETRY


def _count(name: str, raw: bytes | None, default: int) -> int | Rejection:
    if raw is None:
        return default
    number = whole_number(raw)
    if number is None or not 0 <= number <= _MAX_RECONSUME:
        return Rejection(ErrorCode.ILLEGAL_RECONSUME_TIMES, f"{name} is {show(raw)}, which is not a number of retries")
    return number
