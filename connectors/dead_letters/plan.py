"""What becomes of a dead letter that is redriven: where it goes and what it carries, or why it stays.

    kind        to           headers
    consumer's  RETRY_TOPIC  as they are, less RECONSUME_TIME: its retries begin anew
    rejected    REAL_TOPIC   as if it had been delivered: less ERROR_* and the instructions, with a UNIQ_KEY
    any         --to T       the same
    any         --to a schedule topic, or a record rejected on the send-back topic:
                             instructions stay, for the sidecar reads them again

All of them carry ``REDRIVE_COUNT``, one more than before; a message that is redriven too often is parked instead.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from connectors.contract import (
    CANCEL_HEADERS,
    CONTROL_HEADERS,
    ERROR_HEADERS,
    GENERATED_HEADERS,
    SCHEDULE_KINDS,
    Headers,
    TopicKind,
    TopicNames,
    is_legal_topic_name,
    partition_named,
)
from connectors.dead_letters.letter import Told, count_of, id_of, is_rejected
from connectors.header_names import (
    ERROR_CODE,
    ERROR_OMITTED,
    ERROR_TOPIC,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    REDRIVE_COUNT,
    RETRY_TOPIC,
    UNIQ_KEY,
)
from connectors.kafka import BY_KEY

_FIRST = (REDRIVE_COUNT, b"1")
_SPECIAL = frozenset({REDRIVE_COUNT, ERROR_CODE})
"""What has been redriven before, and what was rejected."""

# What does not go along; of a rejected message that is more.
_SPENT = GENERATED_HEADERS | {RECONSUME_TIME, REDRIVE_COUNT}
_SPENT_IF_REJECTED = (GENERATED_HEADERS | ERROR_HEADERS) | {REDRIVE_COUNT}
_SPENT_ON_DELIVERY = _SPENT | CONTROL_HEADERS
_SPENT_ON_DELIVERY_IF_REJECTED = _SPENT_IF_REJECTED | CONTROL_HEADERS


class Move(msgspec.Struct, frozen=True, gc=False):
    """A dead letter's way out. A struct: a named tuple takes twice as long to make."""

    topic: str
    partition: int
    headers: Headers
    is_parked: bool = False


class Planner:
    """Plans redrives of one dead-letter topic.

    Args:
        to: the destination of all of them; None: where each of them belongs.
        parked: the topic for those that have been redriven ``max_redrives`` times; None: they stay where they are.
        look_up: how many partitions a topic has, or, in words, why nothing may go there.
    """

    def __init__(
        self,
        names: TopicNames,
        dead_letter_topic: str,
        *,
        to: str | None,
        parked: str | None,
        max_redrives: int,
        look_up: Callable[[str], int | str],
    ) -> None:
        self._names = names
        self._dead_letter_topic = dead_letter_topic
        self._to = to
        self._parked = parked
        self._max_redrives = max_redrives
        self._look_up = look_up
        self._plain: dict[bytes | None, str] = {}
        """Where failed messages go, by their RETRY_TOPIC, as far as that is no schedule topic."""
        self._homes: dict[bytes | None, str | None] = {}
        self._destinations: dict[str, _Destination | str] = {}

    def plan(self, headers: Headers) -> Move | str:
        """The way out, or, in words, why there is none."""
        # One of a consumer's that has not been redriven yet, as nearly all are, in one pass.
        carried: Headers = []
        retry_topic = uniq_key = None
        for header in headers:
            name, value = header
            if name == RETRY_TOPIC:
                retry_topic = value
            elif name == UNIQ_KEY:
                uniq_key = value
            elif name in _SPECIAL:
                break
            elif name in _SPENT_ON_DELIVERY:
                continue
            carried.append(header)
        else:
            topic = self._plain.get(retry_topic)
            if topic is not None and uniq_key:
                carried.append(_FIRST)
                return Move(topic, BY_KEY, carried)
        return self._plan(headers, dict(headers))

    def _plan(self, headers: Headers, told: Told) -> Move | str:
        redrives = redrives_of(told)
        if redrives >= self._max_redrives:
            if self._parked is None:
                return f"it has been redriven {redrives} times; raise max_redrives to redrive it once more"
            return Move(self._parked, BY_KEY, headers, is_parked=True)
        was_rejected = is_rejected(told)
        if was_rejected and ERROR_OMITTED in told:
            return "its value was too large for the dead letters; read it at ERROR_TOPIC, ERROR_OFFSET"
        topic = self._to or self._home(told, was_rejected=was_rejected)
        if topic is None:
            return "it does not say where it belongs; name a destination with 'to'"
        destination = self._destination(topic)
        if isinstance(destination, str):
            return destination
        if destination.kind is TopicKind.WHEEL and not was_rejected:
            return "it has no delivery time; name a level topic"
        if destination.is_schedule:
            dropped = _SPENT_IF_REJECTED if was_rejected else _SPENT
        elif was_rejected and not CANCEL_HEADERS.isdisjoint(told):
            return "it is a cancel or a replacement, and no message"
        else:
            dropped = _SPENT_ON_DELIVERY_IF_REJECTED if was_rejected else _SPENT_ON_DELIVERY
            if not was_rejected:
                self._plain[told.get(RETRY_TOPIC)] = topic
        partition = BY_KEY
        if was_rejected and self._to is None and REAL_QID in told and not destination.is_schedule:
            named = partition_named(told[REAL_QID])
            if named is None or named >= destination.partitions:
                return "its REAL_QID is not a partition of its topic; name a destination with 'to', and the key decides"
            partition = named
        carried = [header for header in headers if header[0] not in dropped]
        if destination.kind is TopicKind.LEVEL and not was_rejected and (home := self._home(told, was_rejected=False)):
            carried = [*(header for header in carried if header[0] != REAL_TOPIC), (REAL_TOPIC, home.encode())]
        if not told.get(UNIQ_KEY) and (uniq_key := id_of(told)):
            carried.append((UNIQ_KEY, uniq_key))
        carried.append((REDRIVE_COUNT, b"%d" % (redrives + 1)))
        return Move(topic, partition, carried)

    def _home(self, told: Told, *, was_rejected: bool) -> str | None:
        """The topic that it belongs to; a record rejected on the send-back topic belongs there."""
        name = told.get(REAL_TOPIC if was_rejected else RETRY_TOPIC)
        if not name and was_rejected and told.get(ERROR_TOPIC) == self._names.send_back.encode():
            return self._names.send_back
        if name not in self._homes:
            topic = self._names.physical((name or b"").decode(errors="replace"))
            self._homes[name] = topic if is_legal_topic_name(topic) else None
        return self._homes[name]

    def _destination(self, topic: str) -> "_Destination | str":
        """What a topic is, or why nothing goes there."""
        if topic not in self._destinations:
            self._destinations[topic] = self._look_at(topic)
        return self._destinations[topic]

    def _look_at(self, topic: str) -> "_Destination | str":
        if topic == self._dead_letter_topic:
            return "it belongs to the very dead letters it is among; name another destination"
        partitions = self._look_up(topic)
        if isinstance(partitions, str):
            return partitions
        kind = self._names.kind(topic)
        return _Destination(partitions, kind, kind in SCHEDULE_KINDS)


class _Destination(NamedTuple):
    partitions: int
    kind: TopicKind
    is_schedule: bool


def redrives_of(told: Told) -> int:
    """How often a message has been redriven."""
    return count_of(told.get(REDRIVE_COUNT)) or 0
