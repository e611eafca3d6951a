"""A span for each delivery whose schedule was traced (OpenTelemetry, setting ``otel``).

A record carries its producer's ``traceparent`` through levels, wheel and retries untouched. When it is delivered, a
span in a trace of its own links to that context: the schedule may be days old, and its trace long complete.

    loop's thread      hands over the committed batch: one append a transaction, nothing per record
    this thread        looks for ``traceparent``, makes the spans, with the times told
    SDK's thread       exports them

What the OTEL_* variables say (endpoint, sampler, resource, service name) is the SDK's business. Only schedules that
were sampled are followed; the SDK's sampler has its say after that.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode

from connectors.bounded_call import ends_within
from connectors.contract import Headers, TopicKind, TopicNames
from connectors.header_names import UNIQ_KEY
from connectors.tracing import TRACEPARENT, context_of
from sidecar.dispatch.dequeue_put import Coordinates, coordinates_of
from sidecar.records import DUE_MS, HEADERS, OFFSET, TOPIC, Outgoing, Rejection, source_headers
from sidecar.source import Draft, Source

QUEUE_RECORDS_MAX = 20_000
"""Delivered records that wait to be looked at; what comes beyond them is not traced, and counted."""

STOP_TIMEOUT_S = 2.0

_NS_PER_MS = 1_000_000

log = structlog.get_logger("timewheel.tracing")


class _Batch(NamedTuple):
    """A committed transaction."""

    drafts: Sequence[Draft]
    rejections: dict[Coordinates, Rejection]
    began_ms: int
    committed_ms: int
    size: int


class DeliverySpans:
    """Makes the spans, in a thread of its own.

    Args:
        provider: the SDK's; it is shut down with this.
        on_dropped: told how many records were not looked at.
    """

    def __init__(self, provider: TracerProvider, names: TopicNames, on_dropped: Callable[[int], object]) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("timewheel")
        self._names = names
        self._on_dropped = on_dropped
        self._batches: deque[_Batch] = deque()
        self._taken_in = 0
        self._done = 0
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def delivered(
        self,
        drafts: Sequence[Draft],
        rejections: Mapping[Coordinates, Rejection],
        committed_ms: int,
        took_ms: float,
    ) -> None:
        """A transaction is committed. Called from the loop's thread, which it costs an append."""
        size = sum(len(records) for _, records in drafts)
        if size == 0:
            return
        if self._taken_in - self._done + size > QUEUE_RECORDS_MAX:
            self._on_dropped(size)
            return
        self._taken_in += size
        self._batches.append(_Batch(drafts, dict(rejections), committed_ms - round(took_ms), committed_ms, size))
        self._wake.set()

    def close(self) -> None:
        """Export what there is, within seconds."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(STOP_TIMEOUT_S)
        # The SDK waits for a collector that is away for longer than a stop may take.
        reason = "the collector does not answer"
        try:
            is_exported = ends_within(STOP_TIMEOUT_S, self._provider.shutdown, "last spans")
        except Exception as error:  # noqa: BLE001 - the stop does not depend on it
            is_exported, reason = False, repr(error)
        if not is_exported:
            log.warning(
                "spans not exported",
                reason=reason,
                operator_action="check the collector, and OTEL_EXPORTER_OTLP_ENDPOINT; deliveries are not affected",
            )

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait()
            self._wake.clear()
            while self._batches:
                batch = self._batches.popleft()
                try:
                    for source, record, schedule in _traced(batch.drafts):
                        self._make(batch, source, record, schedule)
                except Exception as error:  # noqa: BLE001 - deliveries do not depend on it
                    log.warning(
                        "delivery not traced", reason=repr(error), operator_action="report it; deliveries go on"
                    )
                self._done += batch.size

    def _make(self, batch: _Batch, source: Source, record: Outgoing, schedule: SpanContext) -> None:
        offset, due_ms = record[OFFSET], record[DUE_MS]
        rejection = batch.rejections.get(coordinates_of(source, record))
        topic = None if rejection is not None else str(record[TOPIC])
        operation = "reject" if topic is None else self._operation(topic)
        headers = dict(_headers_of(record))
        span = self._tracer.start_span(
            operation if topic is None else f"{operation} {topic}",
            context=Context(),
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "send",
                "messaging.operation.name": operation,
                "messaging.message.id": _text(headers.get(UNIQ_KEY)),
                "timewheel.schedule.topic": source.topic,
                "timewheel.schedule.partition": source.partition,
                "timewheel.schedule.offset": offset,
                "timewheel.due_ms": due_ms,
                "timewheel.lateness_ms": batch.committed_ms - due_ms,
                **({"messaging.destination.name": topic} if topic is not None else {}),
                **({"error.type": str(rejection.code)} if rejection is not None else {}),
            },
            links=[Link(schedule)],
            start_time=batch.began_ms * _NS_PER_MS,
        )
        if rejection is not None:
            span.set_status(StatusCode.ERROR, rejection.message)
        span.end(batch.committed_ms * _NS_PER_MS)

    def _operation(self, topic: str) -> str:
        match self._names.kind(topic):
            case TopicKind.LEVEL:
                return "retry"
            case TopicKind.DEAD_LETTER:
                return "dead-letter"
            case _:
                return "deliver"


def _traced(drafts: Sequence[Draft]) -> Iterator[tuple[Source, Outgoing, SpanContext]]:
    """Records whose schedules were sampled, less those that have only been rolled."""
    for source, records in drafts:
        for record in records:
            headers = _headers_of(record)
            if record[TOPIC] != source.topic and any(name == TRACEPARENT for name, _ in headers):
                schedule = context_of(headers)
                if schedule is not None and schedule.trace_flags.sampled:
                    yield source, record, schedule


def _headers_of(record: Outgoing) -> Headers:
    return record[HEADERS] or source_headers(record)  # of a record that intake has rejected only the latter are left


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")


def make_provider(identity: str, version: str) -> TracerProvider:
    """The SDK's provider, which exports by OTLP over HTTP and does what the OTEL_* variables say."""
    resource = Resource({SERVICE_INSTANCE_ID: identity, SERVICE_VERSION: version}).merge(Resource.create())
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "timewheel"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
