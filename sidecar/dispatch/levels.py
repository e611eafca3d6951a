"""One partition of a delay level: records held in Kafka until they are due, in order.

A constant delay makes offset order due order, so the whole durable state is the committed offset, which is that of the
first record not yet published. The head of the partition waits here, in a bounded read-ahead; when that is full the
partition is paused, and nothing is stored locally.

A timestamp may be from the future: a producer's clock, or a broker's, was ahead. By the clock that the record was read
by, it is cut, so that it does not hold up what is behind it. If that clock turns out to have been behind, and is set,
what was cut by it is read again (`unsee`).

One thing goes ahead of the order: a record that no setting and no time can make deliverable (no ``REAL_TOPIC``, an
illegal name) is rejected when it is read, not after its delay. The commit's metadata says up to which offset that has
been done, so that a restart does not reject the same record again.
"""

from collections import deque
from collections.abc import Sequence

import msgspec
from confluent_kafka import Message

from connectors.contract import ErrorCode, Headers
from connectors.durations import format_duration
from connectors.header_names import TIMER_ENQUEUE_MS, TIMER_OUT_MS, UNIQ_KEY
from connectors.kafka import BY_KEY
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.read_ahead import ReadAhead
from sidecar.intake.alike import AlikeReader
from sidecar.intake.columns import FEW, stretches
from sidecar.intake.headers import read_headers, told_of
from sidecar.intake.parse import PARSER_VERSION, Parser
from sidecar.intake.progress import Offset
from sidecar.records import DUE_MS, OFFSET, Outgoing, Rejection, due_ms_of
from sidecar.sizes import bytes_of, size_of


class LevelProgress(msgspec.Struct, frozen=True, omit_defaults=True, rename={"rejected_below": "r", "parser": "p"}):
    """What a level partition commits beside its offset."""

    rejected_below: Offset = 0
    """Undeliverable records below this offset have been sent to the dead letters."""
    parser: int = 1
    """By whose rules: those of the first, where it does not say."""

    def encode(self) -> str:
        """To be committed by this version."""
        return msgspec.json.encode(msgspec.structs.replace(self, parser=PARSER_VERSION)).decode()

    @classmethod
    def decode(cls, metadata: str | None) -> "LevelProgress":
        """Progress from a commit's metadata; anything else's metadata reads as none."""
        try:
            progress = msgspec.json.decode(metadata or "{}", type=cls)
        except (msgspec.MsgspecError, RecursionError):
            return cls()
        return progress if progress.parser == PARSER_VERSION else cls()


class Chunk:
    """Neighbouring records of one partition, as they were read; a due chunk goes out whole.

    Args:
        size_bytes: of all the records together, about.
        latest_due_ms: what later due times were cut to.
    """

    __slots__ = ("due_ms_max", "latest_due_ms", "records", "size_bytes")

    def __init__(self, records: list[Outgoing], size_bytes: int, latest_due_ms: int) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.latest_due_ms = latest_due_ms
        self.due_ms_max: int = max(map(due_ms_of, records))

    @property
    def is_cut(self) -> bool:
        """Whether a timestamp is so far in the future that it says another due time than the records do."""
        return self.due_ms_max == self.latest_due_ms

    def split(self, now_ms: int, max_records: int, max_bytes: int) -> "tuple[Chunk | None, Chunk | None]":
        """What may go out now, and the rest."""
        records = self.records
        if self.due_ms_max <= now_ms and len(records) <= max_records and self.size_bytes <= max_bytes:
            return self, None
        count = size_bytes = 0
        for record in records:
            if count == max_records or record[DUE_MS] > now_ms or (count and size_bytes >= max_bytes):
                break
            size_bytes += size_of(record)
            count += 1
        if count == 0:
            return None, self
        if count == len(records):
            return self, None
        # The parts together count as much as the whole did: what was added is taken off again, no more and no less.
        head = Chunk(records[:count], min(size_bytes, self.size_bytes), self.latest_due_ms)
        return head, Chunk(records[count:], self.size_bytes - head.size_bytes, self.latest_due_ms)


class LevelPartition(ReadAhead):
    """The waiting head of one level partition.

    Args:
        start_offset: the committed offset, where reading begins.
        progress: what was committed beside it.
        is_committed: whether anything was. Where nothing is, what waits for longer than the brokers remember progress
            looks at the next start as if it had been delivered and forgotten.
        outages: destinations that take nothing just now.
        max_records, max_bytes: the read-ahead; a partition beyond either asks to be paused.
        trace: whether delivered records say when they were first seen.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        delay_ms: int,
        *,
        start_offset: int,
        progress: LevelProgress,
        parser: Parser,
        outages: Outages,
        max_delay_ms: int,
        max_clock_skew_ms: int,
        max_records: int,
        max_bytes: int,
        is_committed: bool = True,
        trace: bool = False,
    ) -> None:
        super().__init__(topic, partition, start_offset, max_records, max_bytes)
        self.delay_ms = delay_ms
        self._committed = self._taken_below = start_offset
        self._is_committed = is_committed
        self._rejected_below = progress.rejected_below
        self._parse = parser.parse
        self._outages = outages
        self._max_delay_ms = max_delay_ms
        self._max_clock_skew_ms = max_clock_skew_ms
        self._trace = trace
        self._waiting: deque[Chunk] = deque()
        self._waiting_records = 0
        self._waiting_bytes = 0
        self._rejected: list[Outgoing] = []
        self._rejected_bytes = 0
        self._taken: list[Chunk] = []
        self._taken_rejected: list[Outgoing] = []
        self._id_format = f"{topic}-{partition}-%d".encode()  # no topic has a % in its name
        self._alike = AlikeReader(parser.known_topics, self._id_format)

    # --- intake -------------------------------------------------------------------------------------------------------

    def offer(self, messages: Sequence[Message], now_ms: int) -> None:
        """Append records in offset order; the first seen time of all of them is ``now_ms``."""
        if (messages[0].offset() or 0) < self.position:
            messages = [message for message in messages if (message.offset() or 0) >= self.position]
        records: list[Outgoing] = []
        for some in stretches(messages, read_headers(messages)):
            records += self._read_alike(*some, now_ms) or self._read_each(*some, now_ms)
            self.position = (some[0][-1].offset() or 0) + 1
        if records:
            chunk = Chunk(records, bytes_of(records), self._latest_due_ms(now_ms))
            self._waiting.append(chunk)
            self._count(chunk, 1)

    def _read_alike(
        self, messages: Sequence[Message], headers: Sequence[Headers | None], now_ms: int
    ) -> list[Outgoing] | None:
        """Records that are alike; None: they are not."""
        if len(messages) <= FEW or self._trace or self.delay_ms > self._max_delay_ms:
            return None
        alike = self._alike.of_level(messages, headers, self.delay_ms, self._latest_due_ms(now_ms))
        return None if alike is None else alike.outgoing(messages, alike.due_ms, headers)

    def _latest_due_ms(self, now_ms: int) -> int:
        """The latest due time that a record read now may have, whatever timestamp its producer has given it."""
        return now_ms + self.delay_ms + self._max_clock_skew_ms

    def _read_each(
        self, messages: Sequence[Message], source_headers: Sequence[Headers | None], now_ms: int
    ) -> list[Outgoing]:
        """Any records; those that are rejected ahead of their time are left out."""
        parse, delay_ms, id_format = self._parse, self.delay_ms, self._id_format
        latest_due_ms = self._latest_due_ms(now_ms)
        records: list[Outgoing] = []
        last_due_ms = -1
        due_header: tuple[str, bytes | None] = ("", None)
        for message, read in zip(messages, source_headers, strict=True):
            offset: int = message.offset()  # type: ignore[assignment]
            headers = read or []
            parsed = parse(headers)
            if isinstance(parsed, Rejection):
                self._reject(message, offset, *told_of(parsed, headers), now_ms)
                continue
            if delay_ms > self._max_delay_ms:
                # In its turn, not ahead of it: the setting may change, and with it what has been dealt with.
                too_long = Rejection(
                    ErrorCode.DELAY_TOO_LONG,
                    f"this level is {format_duration(delay_ms)}; max_delay is {format_duration(self._max_delay_ms)}",
                )
                records.append((too_long, BY_KEY, message.key(), message.value(), [], now_ms, offset, headers))
                continue
            topic, partition, carried, uniq_key = parsed
            due_ms = message.timestamp()[1] + delay_ms
            if due_ms > latest_due_ms:
                due_ms = latest_due_ms
            if due_ms != last_due_ms:  # one append of the broker's gives all its records one time
                last_due_ms, due_header = due_ms, (TIMER_OUT_MS, b"%d" % due_ms)
            if uniq_key is None:
                carried.append((UNIQ_KEY, id_format % offset))
            carried.append(due_header)
            if self._trace:
                carried.append((TIMER_ENQUEUE_MS, b"%d" % now_ms))
            records.append((topic, partition, message.key(), message.value(), carried, due_ms, offset, headers))
        return records

    def lost_end(self, offset: int) -> None:
        """What was rejected from there on ahead of its turn is gone; others stand in its place."""
        self._rejected_below = min(self._rejected_below, offset)

    def unsee(self) -> bool:
        """The clock was set forward: forget what would go out earlier than its timestamp says, and what is behind it.

        Returns:
            Whether there is any; it has to be read again, from `position` on.
        """
        first_cut = next((number for number, chunk in enumerate(self._waiting) if chunk.is_cut), None)
        if first_cut is None:
            return False
        while len(self._waiting) > first_cut:
            chunk = self._waiting.pop()
            self._count(chunk, -1)
            self.position = chunk.records[0][OFFSET]
        while self._rejected and self._rejected[-1][OFFSET] >= self.position:
            record = self._rejected.pop()
            self._rejected_bytes -= size_of(record)
            self._rejected_below = record[OFFSET]
        return True

    def _reject(self, message: Message, offset: int, rejection: Rejection, headers: Headers, now_ms: int) -> None:
        if offset < self._rejected_below:
            return
        self._rejected_below = offset + 1
        record: Outgoing = (rejection, BY_KEY, message.key(), message.value(), [], now_ms, offset, headers)
        self._rejected.append(record)
        self._rejected_bytes += size_of(record)

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the head is due; None while nothing waits."""
        if self._rejected:
            return 0
        return self._waiting[0].records[0][DUE_MS] if self._waiting else None

    @property
    def waiting(self) -> int:
        return self._waiting_records + len(self._rejected)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes + self._rejected_bytes

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """The rejected and the due records, oldest first, for one transaction; `confirm` or `put_back` must follow."""
        room_bytes = max_bytes
        taken: list[Outgoing] = []
        for record in self._rejected[:max_records]:
            if room_bytes <= 0:
                break
            taken.append(record)
            room_bytes -= size_of(record)
        self._taken_rejected, self._rejected = list(taken), self._rejected[len(taken) :]
        self._rejected_bytes -= max_bytes - room_bytes
        while self._waiting and len(taken) < max_records and room_bytes > 0:
            chunk = self._waiting.popleft()
            head, tail = chunk.split(now_ms, max_records - len(taken), room_bytes)
            if tail is not None:
                self._waiting.appendleft(tail)
            if head is None:
                break
            self._count(head, -1)
            self._taken.append(head)
            taken += head.records
            room_bytes -= head.size_bytes
        self._taken_below = self._done_below
        return self._outages.postponed(taken, now_ms) if self._outages else taken

    def _count(self, chunk: Chunk, sign: int) -> None:
        self._waiting_records += sign * len(chunk.records)
        self._waiting_bytes += sign * chunk.size_bytes

    @property
    def progress(self) -> tuple[int, str]:
        """Offset and metadata to commit with what has been taken."""
        offset = self._done_below
        rejected_below = self._rejected[0][OFFSET] if self._rejected else self._rejected_below
        return offset, LevelProgress(rejected_below if rejected_below > offset else 0).encode()

    @property
    def has_progress(self) -> bool:
        """Whether the committed offset lags behind what is known to be done, or something waits and there is none."""
        return self._done_below > self._committed or (self.waiting > 0 and not self._is_committed)

    @property
    def _done_below(self) -> int:
        """The first offset that is neither published nor, for one that was rejected ahead of its time, buried."""
        waiting = self._waiting[0].records[0][OFFSET] if self._waiting else self.position
        return min(waiting, self._rejected[0][OFFSET]) if self._rejected else waiting

    def confirm(self) -> None:
        """What was taken is published and the progress committed."""
        self._committed, self._is_committed = self._taken_below, True
        self._taken = []
        self._taken_rejected = []

    def put_back(self) -> None:
        """The transaction was aborted: what was taken waits again, in its place."""
        for chunk in reversed(self._taken):
            self._waiting.appendleft(chunk)
            self._count(chunk, 1)
        self._rejected = self._taken_rejected + self._rejected
        self._rejected_bytes += sum(map(size_of, self._taken_rejected))
        self._taken = []
        self._taken_rejected = []
