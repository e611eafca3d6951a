"""The wheel partition's log, read the way its users mean it: messages, cancels, replacements, and what is bad.

Written from the contract, and on its own: none of the sidecar's parsing is used.
"""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from connectors.testing.log import Entry

WHEEL = "SCHEDULE_TOPIC_XXXX-wheel"
TOPICS = ("orders", "bills")
MAX_DELAY_MS = 600_000
POSTPONED_MAX_MS = 70_000
"""A minute by the sidecar's clock, which may be some seconds ahead, or have stepped back by some since."""
BIG_BYTES = 50
"""Values larger than this do not fit where an operator has made a topic too small."""

Headers = list[tuple[str, bytes | None]]
LevelTable = tuple[int, ...]
"""Delays in ms."""

INSTRUCTIONS = frozenset({"REAL_TOPIC", "REAL_QID", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
INTERNAL = frozenset(
    {
        "UNIQ_KEY",
        "TIMER_DEL_UNIQKEY",
        "TIMER_REPLACE_UNIQKEY",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_ORIGIN_OFFSET",
        "TIMER_ROLL_PROOF",
        "TIMER_NOT_BEFORE_MS",
        "TIMER_ROLL_AFTER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
    }
)


class Violation(AssertionError):  # noqa: N818
    """The promise is broken."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


@contextmanager
def errors_as_violations() -> Iterator[None]:
    """Whatever is raised and is none becomes one, that says where."""
    try:
        yield
    except Violation:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise Violation(f"{error!r} at {where.filename}:{where.lineno}") from error


class Record(NamedTuple):
    """One that a read_committed reader of the wheel topic sees."""

    offset: int
    entry: Entry


class Message(NamedTuple):
    """One instance that has to be delivered or cancelled."""

    value: bytes
    key: bytes | None
    uniq_key: bytes
    topic: str
    qid: int | None
    carried: Headers
    partition: int
    offset: int
    origin: int
    """Its own offset; of a replacement's message, the replacement's: orders behind that speak of it."""
    due_times: frozenset[int]
    """When it is due, in ms; several where it names a level and the level table was changed."""
    copies: list[int]
    """Offsets of its copies."""
    rolls: list[int]
    """Offsets of those that have rolled; the others were postponed."""


class Order(NamedTuple):
    """A cancel or a replacement."""

    value: bytes
    uniq_key: bytes
    topic: str | None
    offset: int
    timestamp_ms: int
    brings: Message | None
    """A replacement's own message, as it waits to be written to the log."""

    def speaks_of(self, message: Message) -> bool:
        return (
            self.uniq_key == message.uniq_key and self.offset > message.origin and self.topic in (None, message.topic)
        )


class Ledger:
    """Messages, orders and offsets of bad records of one partition. Raises Violation for a copy that is not right."""

    def __init__(self, partition: int, records: Sequence[Record], level_tables: Sequence[LevelTable]) -> None:
        self.partition = partition
        self.messages: list[Message] = []
        self.orders: list[Order] = []
        self.rejected: list[int] = []
        self._level_tables = level_tables
        self._by_value: dict[bytes, Message | Order | None] = {}
        for offset, entry in records:
            value = entry[2] or b""
            if value in self._by_value:  # each value is written once by users: the sidecar has written this one
                self._copy(offset, entry, self._by_value[value])
            else:
                self._by_value[value] = self._read(offset, entry)

    def _read(self, offset: int, entry: Entry) -> Message | Order | None:
        timestamp_ms, _, value, pairs, _ = entry
        headers = dict(pairs or [])
        if "TIMER_DEL_UNIQKEY" in headers:
            topic = headers.get("REAL_TOPIC")
            return self._order(value or b"", headers["TIMER_DEL_UNIQKEY"], topic, offset, timestamp_ms, None)
        due = due_times(headers, timestamp_ms, self._level_tables)
        if not headers.get("REAL_TOPIC") or not due or max(due) - timestamp_ms > MAX_DELAY_MS:
            self.rejected.append(offset)
            return None
        message = self._message(offset, entry, due)
        if "TIMER_REPLACE_UNIQKEY" in headers:
            return self._order(message.value, headers["TIMER_REPLACE_UNIQKEY"], None, offset, timestamp_ms, message)
        self.messages.append(message)
        return message

    def _order(
        self,
        value: bytes,
        uniq_key: bytes | None,
        topic: bytes | None,
        offset: int,
        timestamp_ms: int,
        brings: Message | None,
    ) -> Order | None:
        if not uniq_key:
            self.rejected.append(offset)
            return None
        order = Order(value, uniq_key, topic.decode() if topic else None, offset, timestamp_ms, brings)
        self.orders.append(order)
        return order

    def _message(self, offset: int, entry: Entry, due: frozenset[int]) -> Message:
        _, key, value, pairs, _ = entry
        headers = dict(pairs or [])
        qid = headers.get("REAL_QID")
        return Message(
            value=value or b"",
            key=key,
            uniq_key=headers.get("UNIQ_KEY") or b"%s-%d-%d" % (WHEEL.encode(), self.partition, offset),
            topic=(headers["REAL_TOPIC"] or b"").decode(),
            qid=int(qid) if qid is not None else None,
            carried=carried(pairs or []),
            partition=self.partition,
            offset=offset,
            origin=offset,
            due_times=due,
            copies=[],
            rolls=[],
        )

    def _copy(self, offset: int, entry: Entry, of: Message | Order | None) -> None:
        """A message that has rolled or was postponed, or one that takes the place of another."""
        expect(of is not None, f"bad record {entry} is copied")
        if isinstance(of, Order):
            expect(of.brings is not None, f"{of} is copied")
            assert of.brings is not None
            message = of.brings._replace(offset=offset)
            self.messages.append(message)
            self._by_value[message.value] = message
        else:
            assert of is not None
            message = of
        headers = dict(entry[3] or [])
        origin = message.origin
        if message is of:
            if "TIMER_NOT_BEFORE_MS" in headers:
                origin = max([message.offset, *message.copies])
                later = int(headers["TIMER_NOT_BEFORE_MS"] or 0) - entry[0]
                expect(later <= POSTPONED_MAX_MS, f"{message} is postponed by {later} ms")
            else:
                message.rolls.append(offset)
            message.copies.append(offset)
        told = (headers.get("UNIQ_KEY"), headers.get("REAL_TOPIC"), entry[1], carried(entry[3] or []))
        meant = (message.uniq_key, message.topic.encode(), message.key, message.carried)
        expect(told == meant, f"{message} is copied as {entry}")
        numbers = [headers.get(name) for name in ("TIMER_ORIGIN_OFFSET", "TIMER_ROLL_TIMES")]
        expect(numbers == [b"%d" % origin, b"%d" % len(message.rolls)], f"{message} is copied as {entry}")
        times = [value for name, value in entry[3] or [] if name in INSTRUCTIONS - {"REAL_TOPIC", "REAL_QID"}]
        in_time = len(times) == 1 and int(times[0] or 0) in message.due_times
        expect(in_time and "TIMER_DELIVER_MS" in headers, f"{message} is copied as {entry}")

    def bury(self, offset: int) -> None:
        """The record there was buried: where it is a replacement, in place of the message that it was to bring."""
        for order in self.orders:
            if order.offset == offset and order.brings is not None and not self._is_born(order):
                self.messages.append(order.brings)
                self._by_value[order.value] = order.brings

    # --- questions ----------------------------------------------------------------------------------------------------

    def orders_of(self, message: Message) -> list[Order]:
        """Those that speak of it."""
        return [order for order in self.orders if order.speaks_of(message)]

    @property
    def unborn(self) -> list[Message]:
        """Messages of replacements that have left no trace, but may have been made and taken out by a later order
        before they were written."""
        unborn: list[Message] = []
        for order in reversed(self.orders):  # what takes a replacement's message out comes behind it
            if order.brings is not None and not self._is_born(order):
                later = [other for other in self.orders_of(order.brings) if self._may_be_done(other, unborn)]
                if later:
                    unborn.append(order.brings)
        return unborn

    def _is_born(self, order: Order) -> bool:
        return isinstance(self._by_value[order.value], Message)

    def _may_be_done(self, order: Order, unborn: list[Message]) -> bool:
        return order.brings is None or self._is_born(order) or order.brings in unborn

    def check_replacements(self, undelivered: list[Message]) -> None:
        """A replacement's message is there if and only if it took one out, and each takes out one of its own."""
        unborn = self.unborn
        gone = undelivered + unborn
        done = [order for order in self.orders if self._may_be_done(order, unborn)]
        for message in undelivered:
            expect(any(order.speaks_of(message) for order in done), f"{message} is gone, and so is what replaces it")
        count: Counter[bytes] = Counter()
        for order in self.orders:
            if order.brings is not None and self._is_born(order):
                expect(
                    any(order.speaks_of(message) for message in gone),
                    f"{order} is carried out, and what it replaces was delivered",
                )
                count[order.uniq_key] += 1
        lost = Counter(message.uniq_key for message in gone)
        for uniq_key in count:
            expect(
                count[uniq_key] <= lost[uniq_key],
                f"{count[uniq_key]} replacements of {uniq_key!r} for {lost[uniq_key]} messages",
            )


def carried(headers: Headers) -> Headers:
    """What goes to the destination, in order."""
    return [header for header in headers if header[0] not in INSTRUCTIONS and header[0] not in INTERNAL]


def due_times(
    headers: dict[str, bytes | None], timestamp_ms: int, level_tables: Sequence[LevelTable]
) -> frozenset[int]:
    """When a record is due, by RocketMQ's priority; none where it does not say."""
    if "DELAY" in headers:
        level = int(headers["DELAY"] or 0)
        return frozenset(timestamp_ms + table[min(level, len(table)) - 1] for table in level_tables if level >= 1)
    for name, unit_ms in (("TIMER_DELAY_SEC", 1_000), ("TIMER_DELAY_MS", 1)):
        if name in headers:
            text = headers[name] or b""
            return frozenset([timestamp_ms + int(text) * unit_ms] if text.isdigit() else [])
    text = headers.get("TIMER_DELIVER_MS") or b""
    return frozenset([int(text)] if text else [])
