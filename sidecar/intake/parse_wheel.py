"""Kafka records of the wheel topic -> what they ask for: schedule, cancel, replace; or why they are rejected.

Like `sidecar.intake.parse` a pure function of the record and the plan.
"""

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Message

from connectors.contract import DelayLevels, ErrorCode, Headers
from connectors.durations import format_duration
from connectors.header_names import (
    DELAY,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_REPLACE_UNIQKEY,
    TIMER_ROLL_PROOF,
    UNIQ_KEY,
)
from sidecar.intake.alike import Alike, AlikeReader
from sidecar.intake.copies import Copies
from sidecar.intake.parse import DIGITS_MAX, INSTRUCTIONS, LATEST_DUE_MS, Parser, show, whole_number
from sidecar.plan import Plan
from sidecar.records import Rejection

_NOTED = INSTRUCTIONS | {UNIQ_KEY}
"""Names that parsing looks at; they are taken off the record."""
_SPECIAL = _NOTED - {REAL_TOPIC, UNIQ_KEY, TIMER_DELIVER_MS, TIMER_DELAY_MS}
"""Names that nearly all records do without."""
_ZERO = ord("0")


Parsed = tuple[str, int, Headers, bytes, int, int, int, int, int]
"""What a record to deliver says: the fields of a `Schedule`. A plain tuple: one is made for every record."""


Plain = tuple[str, Headers, bytes, int]
"""A record with a known destination and a time in milliseconds and nothing else asked of it: the topic, the headers it
is delivered with, its id and its due time the last of them, the id, due_ms."""


class Schedule(NamedTuple):
    """A record to deliver at ``due_ms``: a `Parsed` with names, for where few come by."""

    topic: str
    partition: int
    carried: Headers
    """The headers that the delivered record keeps, in order, in a list of its own to be added to."""
    uniq_key: bytes
    due_ms: int
    roll_times: int
    """How often it has been rolled."""
    origin_offset: int
    """The offset of the record as it was scheduled, or of its replacement; its own where it is that record. `ELSEWHERE`
    where another topic's copy names it."""
    not_before_ms: int
    """Until when it is postponed; 0: it is not."""
    roll_after_ms: int
    """Until when it is not rolled again; 0: its timestamp alone decides."""


class Cancel(NamedTuple):
    """Take back the pending message with this id."""

    uniq_key: bytes
    real_topic: str | None
    """Only a message for this topic; None: whatever its topic."""
    deliver_ms: int | None
    """Where to look first."""


class Replace(NamedTuple):
    """Take back the pending message with this id and schedule another in its stead, or do neither."""

    uniq_key: bytes
    schedule: Schedule


class WheelParser:
    """Parses wheel records of one partition.

    Args:
        copies: tells this group's own copies from records of others that carry their headers.

    Attributes:
        strange_copies: records so far that say they are copies, and are none of this group's.
    """

    def __init__(self, parser: Parser, topic: str, partition: int, copies: Copies) -> None:
        self._parser = parser
        self._topics = parser.known_topics
        self._id_format = f"{topic}-{partition}-%d".encode()  # no topic has a % in its name
        self._alike = AlikeReader(self._topics, self._id_format)
        self._copies = copies
        self._levels: dict[str, DelayLevels] = {}
        self.strange_copies = 0

    def plain(self, headers: Headers, offset: int, timestamp_ms: int, max_delay_ms: int) -> Plain | None:
        """What nearly every record is, for much less than `parse` takes; None: it is none, or may be none.

        Args:
            timestamp_ms: the record's own, from which delays count.
            max_delay_ms: a record due later after that is none.
        """
        # Names are compared one by one: each is a new string, whose hash would cost more.
        delivered: Headers = []
        real_topic = deliver = delay = given_id = None
        for header in headers:
            name, value = header
            if name == REAL_TOPIC:
                real_topic = value
            elif name == TIMER_DELIVER_MS:
                deliver = value
            elif name == UNIQ_KEY:
                given_id = value
            elif name == TIMER_DELAY_MS:
                delay = value or b""
            elif name in _SPECIAL:
                return None
            else:
                delivered.append(header)
        topic = self._topics.get(real_topic)
        if topic is None:
            return None
        if delay is not None:  # before a time
            if not delay.isdigit() or len(delay) > DIGITS_MAX:
                return None
            due_ms = timestamp_ms + int(delay)
            deliver = b"%d" % due_ms
        elif not deliver or not deliver.isdigit() or deliver[0] == _ZERO or len(deliver) > DIGITS_MAX:
            return None
        else:
            due_ms = int(deliver)
        if due_ms - timestamp_ms > max_delay_ms or due_ms > LATEST_DUE_MS:
            return None
        uniq_key = given_id or self._id_format % offset
        delivered.append((UNIQ_KEY, uniq_key))
        delivered.append((TIMER_OUT_MS, deliver))
        return topic, delivered, uniq_key, due_ms

    def alike(self, messages: Sequence[Message], headers: Sequence[Headers | None]) -> Alike | None:
        """What `plain` says of each of a few hundred records, all at once; None: they have to be asked one by one."""
        return self._alike.of_wheel(messages, headers)

    def parse(
        self, headers: Headers, offset: int, timestamp_ms: int, plan: Plan, *, is_copied: bool = False
    ) -> Parsed | Cancel | Replace | Rejection:
        """What the record asks for.

        Args:
            timestamp_ms: the record's own, from which delays count.
            is_copied: whether a mirror has copied it from another cluster; then another topic's copies may be true.
        """
        control = {name: value for name, value in headers if name in _NOTED}
        carried = [header for header in headers if header[0] not in _NOTED]
        if TIMER_DEL_UNIQKEY in control:
            return self._cancel(control)
        topic = self._parser.topic(control.get(REAL_TOPIC))
        if isinstance(topic, Rejection):
            return topic
        partition = self._parser.partition(control)
        if isinstance(partition, Rejection):
            return partition
        uniq_key = control.get(UNIQ_KEY) or self._id_format % offset
        copied = strange = None
        if TIMER_ROLL_PROOF in control:
            copied = self._copies.read(control, offset, uniq_key)
            if copied is None:
                self.strange_copies += 1
                strange = self._copies.read_another(control, timestamp_ms) if is_copied else None
        due_ms = self._due_ms(control, timestamp_ms, plan)
        if isinstance(due_ms, Rejection):
            return due_ms
        if copied is None and due_ms - timestamp_ms > plan.max_delay_ms:  # a copy was accepted once
            return _too_long(due_ms - timestamp_ms, plan)
        if due_ms > LATEST_DUE_MS:
            return Rejection(
                ErrorCode.DELAY_TOO_LONG,
                f"with a timestamp of {timestamp_ms} the record would be due after the year 9999",
            )
        origin_offset, roll_times, not_before_ms, roll_after_ms = copied or strange or (offset, 0, 0, 0)
        if origin_offset is None:
            origin_offset = offset
        waits = not_before_ms, roll_after_ms
        parsed = (topic, partition, carried, uniq_key, due_ms, roll_times, origin_offset, *waits)
        if TIMER_REPLACE_UNIQKEY in control:
            replaced = control[TIMER_REPLACE_UNIQKEY]
            if not replaced:
                return _no_id(TIMER_REPLACE_UNIQKEY)
            return Replace(replaced, Schedule(*parsed))
        return parsed

    def _cancel(self, control: dict[str, bytes | None]) -> Cancel | Rejection:
        uniq_key = control[TIMER_DEL_UNIQKEY]
        if not uniq_key:
            return _no_id(TIMER_DEL_UNIQKEY)
        real_topic = self._parser.topic(control[REAL_TOPIC]) if REAL_TOPIC in control else None
        if isinstance(real_topic, Rejection):
            return real_topic
        return Cancel(uniq_key, real_topic, whole_number(control.get(TIMER_DELIVER_MS)))

    def _due_ms(self, control: dict[str, bytes | None], timestamp_ms: int, plan: Plan) -> int | Rejection:
        """RocketMQ's priority: level, seconds, milliseconds, absolute time (``HookUtils.handleScheduleMessage``)."""
        if DELAY in control:
            level = whole_number(control[DELAY])
            if level is None or level < 1:
                return _no_time(DELAY, control[DELAY], "a level, counted from 1")
            due_ms = timestamp_ms + self._level_delays(plan).delay_ms(level)
        elif TIMER_DELAY_SEC in control or TIMER_DELAY_MS in control:
            name, unit_ms = (TIMER_DELAY_SEC, 1_000) if TIMER_DELAY_SEC in control else (TIMER_DELAY_MS, 1)
            delay = whole_number(control[name])
            if delay is None or delay < 0:
                return _no_time(name, control[name], "a whole number (0 or more)")
            due_ms = timestamp_ms + delay * unit_ms
        elif TIMER_DELIVER_MS in control:
            deliver_ms = whole_number(control[TIMER_DELIVER_MS])
            if deliver_ms is None:
                return _no_time(TIMER_DELIVER_MS, control[TIMER_DELIVER_MS], "a whole number of ms since 1970")
            due_ms = deliver_ms
        else:
            return Rejection(
                ErrorCode.NO_DELIVERY_TIME,
                "the record says no time: set one of TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC, DELAY",
            )
        return due_ms

    def _level_delays(self, plan: Plan) -> DelayLevels:
        levels = self._levels.get(plan.levels)
        if levels is None:
            levels = self._levels[plan.levels] = DelayLevels.parse(plan.levels)
        return levels


def _no_time(name: str, value: bytes | None, wanted: str) -> Rejection:
    return Rejection(ErrorCode.ILLEGAL_DELIVERY_TIME, f"{name} is {show(value)}, which is not {wanted}")


def _too_long(delay_ms: int, plan: Plan) -> Rejection:
    return Rejection(
        ErrorCode.DELAY_TOO_LONG,
        f"the record is due {format_duration(delay_ms)} after it was written; "
        f"max_delay is {format_duration(plan.max_delay_ms)}",
    )


def _no_id(name: str) -> Rejection:
    return Rejection(ErrorCode.MISSING_UNIQ_KEY, f"{name} is empty; it names the UNIQ_KEY of a pending message")
