"""W3C trace context in record headers, and the span of a scheduling (OpenTelemetry, the extra ``otel``).

``traceparent`` and ``tracestate`` are headers like any other: the sidecar carries them to the destination untouched,
whoever wrote them. What is here is imported by those alone who trace.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from opentelemetry.trace import Span, TracerProvider

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

_PROPAGATOR = TraceContextTextMapPropagator()

Headers = Iterable[tuple[str, bytes | None]]


def context_of(headers: Headers) -> SpanContext | None:
    """The context that a record's headers name; None where there is none, or none that can be read."""
    carrier = {
        name: value.decode("ascii", "replace") for name, value in headers if name in (TRACEPARENT, TRACESTATE) and value
    }
    context = trace.get_current_span(_PROPAGATOR.extract(carrier)).get_span_context()
    return context if context.is_valid else None


class ScheduleTracer:
    """Makes a span for each scheduled record, and writes its context into the record's headers.

    A record that has a ``traceparent`` already keeps it, and gets no span: whoever wrote it traces it.
    """

    def __init__(self, provider: "TracerProvider | None") -> None:
        self._tracer = trace.get_tracer("timewheel.connectors", tracer_provider=provider)

    def start(
        self, headers: list[tuple[str, bytes | None]], schedule_topic: str, destination: str, uniq_key: bytes
    ) -> "Span | None":
        """Begin the span, as a child of what is going on here; adds to ``headers``."""
        if any(name == TRACEPARENT for name, _ in headers):
            return None
        span = self._tracer.start_span(
            f"schedule {destination}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "send",
                "messaging.operation.name": "schedule",
                "messaging.destination.name": schedule_topic,
                "messaging.message.id": uniq_key.decode(errors="backslashreplace"),
                "timewheel.destination": destination,
            },
        )
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        headers += [(name, value.encode()) for name, value in carrier.items()]
        return span


def end(span: "Span", error: "KafkaError | None") -> None:
    """Kafka has answered."""
    if error is not None:
        span.set_attribute("error.type", error.name())
        span.set_status(StatusCode.ERROR, error.str())
    span.end()
