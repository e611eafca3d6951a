"""One partition of the send-back topic: messages that their consumers failed, on their way to the next attempt.

Each goes straight through: to the level topic on which it waits for its retry, or to its group's dead letters. So the
whole state is the committed offset, and what waits here is only what the next transaction has no room for.

The retry topic is judged, and made where it is missing, before its messages wait for it: consumers have the delay's
time to find it, and a group that may have none is told at once.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat

from confluent_kafka import Message

from connectors.contract import Headers
from connectors.header_names import REAL_TOPIC, TIMER_ENQUEUE_MS, TIMER_OUT_MS
from connectors.kafka import BY_KEY
from sidecar.dispatch.late import Late
from sidecar.dispatch.read_ahead import ReadAhead
from sidecar.intake.columns import FEW, stretches
from sidecar.intake.headers import read_headers, told_of
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.records import HEADERS, Outgoing, Rejection


class SendBackPartition(ReadAhead):
    """What has been read of one partition of the send-back topic and not yet been sent on.

    Args:
        start_offset: the committed offset, where reading begins.
        judge_all: how many partitions each retry topic has, or why the group may have none; creates what is missing,
            and leaves out what is not created in time: that is asked again when a retry is due.
        max_records, max_bytes: the read-ahead; a partition beyond either asks to be paused.
        trace: whether what is given up says when it was read; the others say so on their level.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        start_offset: int,
        parser: SendBackParser,
        judge_all: Callable[[Collection[str]], Mapping[str, int | Rejection]],
        max_records: int,
        max_bytes: int,
        trace: bool = False,
    ) -> None:
        super().__init__(topic, partition, start_offset, max_records, max_bytes)
        self._trace = trace
        self._committed = self._taken_below = start_offset
        self._parser = parser
        self._judge_all = judge_all
        self._waiting = Late()
        self._retry_topics: deque[tuple[int, set[str]]] = deque()
        """Where what waits, and what has been taken, is to go: a batch's topics, and the offset behind it."""
        self._id_prefix = f"{topic}-{partition}-".encode()

    # --- intake -------------------------------------------------------------------------------------------------------

    def offer(self, messages: Sequence[Message], now_ms: int) -> None:
        """Append records in offset order; each has been due since its own timestamp."""
        if (messages[0].offset() or 0) < self.position:
            messages = [message for message in messages if (message.offset() or 0) >= self.position]
        records: list[Outgoing] = []
        retry_topics: set[str] = set()
        for some in stretches(messages, read_headers(messages)):
            records += self._read_alike(*some, now_ms, retry_topics) or self._read_each(*some, now_ms, retry_topics)
            self.position = (some[0][-1].offset() or 0) + 1
        self._waiting.add(now_ms, records)
        self._retry_topics.append((self.position, retry_topics))

    def _read_alike(
        self,
        messages: Sequence[Message],
        source_headers: Sequence[Headers | None],
        now_ms: int,
        retry_topics_read: set[str],
    ) -> list[Outgoing] | None:
        """Records that are alike; None: they are not."""
        if len(messages) <= FEW:
            return None
        offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
        parsed = self._parser.parse_alike(source_headers, self._id_prefix, offsets)
        if parsed is None:
            return None
        routes, carried = parsed
        due_ms = [at_ms if at_ms < now_ms else now_ms for _, at_ms in map(Message.timestamp, messages)]
        topics, retry_topics, _ = zip(*routes, strict=True)
        asked_for = set(retry_topics)
        if None in asked_for:
            for headers, retry_topic, at_ms in zip(carried, retry_topics, due_ms, strict=True):
                if retry_topic is None:
                    headers += self._given_up(at_ms, now_ms)
        retry_topics_read |= asked_for - {None}
        told = map(Message.key, messages), map(Message.value, messages), carried, due_ms, offsets, source_headers
        return list(zip(topics, repeat(BY_KEY), *told))

    def _read_each(
        self,
        messages: Sequence[Message],
        source_headers: Sequence[Headers | None],
        now_ms: int,
        retry_topics_read: set[str],
    ) -> list[Outgoing]:
        """Any records."""
        parse, id_prefix = self._parser.parse, self._id_prefix
        records: list[Outgoing] = []
        for message, read in zip(messages, source_headers, strict=True):
            offset: int = message.offset()  # type: ignore[assignment]
            due_ms = message.timestamp()[1]
            if due_ms > now_ms:
                due_ms = now_ms
            headers = read or []
            parsed = parse(headers, id_prefix, offset)
            if isinstance(parsed, Rejection):
                rejection, headers = told_of(parsed, headers)
                records.append((rejection, BY_KEY, message.key(), message.value(), [], due_ms, offset, headers))
                continue
            topic, retry_topic, carried = parsed
            if retry_topic is None:
                carried += self._given_up(due_ms, now_ms)
            else:
                retry_topics_read.add(retry_topic)
            records.append((topic, BY_KEY, message.key(), message.value(), carried, due_ms, offset, headers))
        return records

    def _given_up(self, due_ms: int, now_ms: int) -> Headers:
        """What a dead letter says of its way."""
        told: Headers = [(TIMER_OUT_MS, b"%d" % due_ms)]
        return [*told, (TIMER_ENQUEUE_MS, b"%d" % now_ms)] if self._trace else told

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the head arrived; None while nothing waits."""
        return self._waiting.first_arrived_ms

    @property
    def waiting(self) -> int:
        return self._waiting.count

    @property
    def waiting_bytes(self) -> int:
        return self._waiting.size_bytes

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """The first of what waits, for one transaction; `confirm` or `put_back` must follow.

        Raises:
            KafkaException: Kafka does not tell whether the retry topics are there; nothing has been taken.
        """
        taken: list[Outgoing] = []
        refused: dict[bytes | None, Rejection] = {}
        if self._waiting and max_records > 0:
            refused = self._refused()
        while self._waiting and max_records > 0 and max_bytes > 0:
            _, records, size_bytes = self._waiting.take(max_records, max_bytes)
            taken = taken + records if taken else records
            max_records -= len(records)
            max_bytes -= size_bytes
        self._taken_below = self._done_below
        return [_unless_refused(record, refused) for record in taken] if refused else taken

    def _refused(self) -> dict[bytes | None, Rejection]:
        """The retry topics that cannot be had, and why."""
        verdicts = self._judge_all(set().union(*(topics for _, topics in self._retry_topics)))
        return {topic.encode(): verdict for topic, verdict in verdicts.items() if isinstance(verdict, Rejection)}

    @property
    def progress(self) -> tuple[int, str]:
        """The offset to commit with what has been taken."""
        return self._done_below, ""

    @property
    def has_progress(self) -> bool:
        """Whether the committed offset lags behind what is known to be done."""
        return self._done_below > self._committed

    @property
    def _done_below(self) -> int:
        """The first offset that has not been sent on."""
        first = self._waiting.first_offset
        return self.position if first is None else first

    def confirm(self) -> None:
        """What was taken is sent on and the progress committed."""
        self._committed = self._taken_below
        self._waiting.confirm()
        while self._retry_topics and self._retry_topics[0][0] <= self._committed:
            self._retry_topics.popleft()

    def put_back(self) -> None:
        """The transaction was aborted: what was taken waits again, in its place."""
        self._waiting.put_back()


def _unless_refused(record: Outgoing, refused: dict[bytes | None, Rejection]) -> Outgoing:
    for name, topic in record[HEADERS]:
        if name == REAL_TOPIC and topic in refused:
            return (refused[topic], *record[1:])
    return record
