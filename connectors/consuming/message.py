"""What a listener sees and what it answers (RocketMQ's ``MessageExt``, ``ConsumeConcurrentlyContext``, statuses)."""

import logging
from collections.abc import Sequence
from enum import StrEnum
from operator import index

import msgspec
from confluent_kafka import Message

from connectors.contract import Headers
from connectors.event_log import EventLog
from connectors.header_names import ORIGIN_MESSAGE_ID, RECONSUME_TIME, RETRY_TOPIC, UNIQ_KEY
from connectors.kafka import HEADER_ERRORS

_log = EventLog(logging.getLogger(__name__))


class ConsumeResult(StrEnum):
    """A listener's answer. An exception, a time-out and no answer at all mean RECONSUME_LATER."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    """Done; the offset may be committed."""
    RECONSUME_LATER = "RECONSUME_LATER"
    """Once more: later through the sidecar, or in place in orderly mode."""


class MessageModel(StrEnum):
    """Who gets a record."""

    CLUSTERING = "CLUSTERING"
    """One consumer of the group; what fails comes back."""
    BROADCASTING = "BROADCASTING"
    """Every consumer; what fails is dropped, with a warning."""


class ConsumedMessage(msgspec.Struct, kw_only=True, eq=False):
    """One record."""

    topic: str
    """The topic it was sent to; of a retry, the first one."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """As they were read: in order, names may repeat."""
    reconsume_times: int
    """How often it has failed before: 0 at first."""
    message_id: str
    """The same for every attempt, so that work can be made idempotent: ``UNIQ_KEY``, or where it was first read."""
    timestamp_ms: int
    read_topic: str
    """The topic it was read from: `topic`, or the group's retry topic."""
    partition: int
    """Of `read_topic`."""
    offset: int
    """Of `read_topic`."""
    retry_level: int | None = None
    """To be set by the listener: the delay level of the next attempt; below 0: to the dead letters at once. None: the
    context's."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _NUMBERS:
            value = _whole(name, value, is_optional=name != "reconsume_times")
        super().__setattr__(name, value)

    def header(self, name: str) -> bytes | None:
        """The last header of that name; None where there is none."""
        return next((value for header, value in reversed(self.headers) if header == name), None)

    def __str__(self) -> str:
        return f"{self.message_id} ({self.read_topic}-{self.partition} at {self.offset})"


class ConsumeContext(msgspec.Struct):
    """What a batch listener may set beside its answer: whole numbers, or a TypeError is raised there and then."""

    ack_index: int | None = None
    """With CONSUME_SUCCESS: the index of the last message that is done; those behind it come again. None: all are."""
    retry_level: int | None = None
    """Delay level for messages that set none themselves (RocketMQ's ``delayLevelWhenNextConsume``): 0 or None leave it
    to the number of attempts, below 0 is to the dead letters at once."""
    suspend_ms: int | None = None
    """Orderly mode: how long the partition rests before the next attempt. None: the consumer's setting."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, _whole(name, value))

    def level_of(self, message: ConsumedMessage) -> int | None:
        """What the listener has set for the next attempt of a message; None: nothing."""
        return self.retry_level if message.retry_level is None else message.retry_level

    def failed(self, result: ConsumeResult | None, messages: Sequence[ConsumedMessage]) -> Sequence[ConsumedMessage]:
        """The messages that have to come again (``ConsumeMessageConcurrentlyService.processConsumeResult``)."""
        if result is not ConsumeResult.CONSUME_SUCCESS:
            return messages
        if self.ack_index is None:
            return ()
        return messages[max(0, self.ack_index + 1) :]


_NUMBERS = frozenset({"reconsume_times", "retry_level"})


def as_consumed(message: Message, retry_topic: str) -> ConsumedMessage:
    """A Kafka record as the listener sees it.

    Only the group's own retry topic is believed about attempts and the topic before: elsewhere such headers are
    leftovers, of a redriven dead letter or of another group's retry that an application has copied on.
    """
    read_topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    try:
        headers: Headers = message.headers() or []  # type: ignore[assignment]
    except HEADER_ERRORS:
        headers = []
        _log.error(
            "unreadable headers",
            "%s-%d, offset %d: a header's name is not UTF-8 text, so that the message is shown without any",
            read_topic,
            partition,
            offset,
            operator_action="fix the producer that wrote it",
        )
    told = dict(headers)
    topic, reconsume_times, message_id = read_topic, 0, told.get(UNIQ_KEY)
    if read_topic == retry_topic:
        topic = (told.get(RETRY_TOPIC) or b"").decode(errors="replace") or read_topic
        reconsume_times = _count(told.get(RECONSUME_TIME))
        message_id = told.get(ORIGIN_MESSAGE_ID) or message_id
    return ConsumedMessage(
        topic=topic,
        key=message.key(),
        value=message.value(),
        headers=headers,
        reconsume_times=reconsume_times,
        message_id=message_id.decode(errors="backslashreplace") if message_id else f"{read_topic}-{partition}-{offset}",
        timestamp_ms=message.timestamp()[1],
        read_topic=read_topic,
        partition=partition,
        offset=offset,
    )


def _whole(name: str, value: object, *, is_optional: bool = True) -> int | None:
    """What a listener sets, checked where it does: later nobody could tell who it was."""
    if value is None and is_optional:
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        or_none = ", or None" if is_optional else ""
        raise TypeError(f"{name} is set to {value!r}; it takes a whole number{or_none}") from None


def _count(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else 0
