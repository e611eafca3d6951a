"""A record on its way to a schedule topic, and the receipt it will have."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from connectors.event_log import EventLog
from connectors.kafka_errors import with_remedy
from connectors.receipt import Receipt

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from connectors.producer import ScheduledProducer


T = TypeVar("T")

_log = EventLog(logging.getLogger(__name__))


class Plan(NamedTuple):
    """Where records go and when: what those of one destination and one delay have in common."""

    schedule_topic: str
    destination: str
    headers: Sequence[tuple[str, bytes]]
    """REAL_TOPIC, and the time where the schedule topic does not say it."""
    due_ms: int
    counts_from_timestamp: bool
    """Whether ``due_ms`` counts from the record's own timestamp, not from the epoch."""
    is_cancellable: bool = True


OnReceipt = Callable[[Receipt | KafkaError], None]
"""Told the receipt of a record once Kafka has it, or why Kafka has not taken it."""


def tell(callback: Callable[[T], None], answer: T) -> None:
    """Call a user's callback. What it raises is logged: it would come out of somebody else's call."""
    try:
        callback(answer)
    except Exception as error:  # noqa: BLE001
        _log.error(
            "receipt callback failed",
            "a callback that was given to begin_send or begin_cancel has raised",
            operator_action="fix the callback; the record itself is answered, see its receipt",
            exc_info=error,
        )


class PendingReceipt(msgspec.Struct, eq=False, gc=False):
    """What `ScheduledProducer.begin_send` hands out: a receipt to come.

    It is also the record's delivery callback: one object a record, made without Python code and unknown to the garbage
    collector, is what a fast path can afford. (The one cycle it could be part of, through ``on_receipt``, ends with
    Kafka's answer.)
    """

    _producer: "ScheduledProducer"
    _plan: Plan
    _uniq_key: bytes
    _on_receipt: OnReceipt | None = None
    error: KafkaError | None = None
    message: Message | None = None
    """As the delivery report tells it; None until Kafka has answered."""
    span: "Span | None" = None
    """To be ended with Kafka's answer, where scheduling is traced."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """The delivery report."""
        if error is not None:
            error = with_remedy(error, self._plan.schedule_topic)
        self.error = error
        self.message = message
        if self.span is not None:
            self.end_span(error)
        on_receipt = self._on_receipt
        if on_receipt is not None:
            self._on_receipt = None
            tell(on_receipt, self.receipt() if error is None else error)

    def end_span(self, error: KafkaError | None) -> None:
        """For good: a second answer does not end it again."""
        span, self.span = self.span, None
        if span is not None:
            from connectors.tracing import end  # loaded already, by whoever began it

            end(span, error)

    @property
    def id(self) -> str:
        """The message's, known before Kafka has answered."""
        return self._uniq_key.decode(errors="backslashreplace")

    @property
    def schedule_topic(self) -> str:
        """Where the record is written to."""
        return self._plan.schedule_topic

    @property
    def is_answered(self) -> bool:
        """Whether Kafka has taken the record, or refused it: `error` tells which."""
        return self.message is not None

    def result(self, timeout_s: float = 30.0) -> Receipt:
        """The receipt; waits for Kafka's answer.

        Raises:
            KafkaException: Kafka refused the record, or did not answer in time; then it is not known whether it waits.
        """
        self._producer.serve_until_answered(self, timeout_s)
        if self.error is not None:
            raise KafkaException(self.error)
        return self.receipt()

    def receipt(self) -> Receipt:
        """The receipt of a record that Kafka has taken.

        Raises:
            KafkaException: it has not, or has not answered yet.
        """
        message, plan = self.message, self._plan
        if message is None or self.error is not None:
            raise KafkaException(self.error or KafkaError(KafkaError._TIMED_OUT, "Kafka has not answered yet"))
        since_ms = message.timestamp()[1] if plan.counts_from_timestamp else 0
        return Receipt(
            schedule_topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            id=self.id,
            topic=plan.destination,
            deliver_ms=since_ms + plan.due_ms,
            key=message.key() if plan.is_cancellable else None,
            cancellable=plan.is_cancellable,
        )
