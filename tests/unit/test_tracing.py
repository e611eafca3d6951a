"""Spans of schedules and deliveries, into the SDK's in-memory exporter."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from connectors import ScheduledProducer, ScheduleError
from connectors.contract import ErrorCode, Headers, TopicNames
from connectors.kafka import BY_KEY
from connectors.testing import InMemoryKafka
from connectors.tracing import context_of
from sidecar import tracing
from sidecar.dispatch.levels import LevelPartition, LevelProgress
from sidecar.intake.parse import Parser
from sidecar.records import Outgoing, Rejection
from sidecar.source import Draft
from sidecar.tracing import DeliverySpans
from tests.support.outages import no_outages
from tests.support.waiting import wait_until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01".encode()
UNSAMPLED = f"00-{TRACE}-{PARENT}-00".encode()
NAMES = TopicNames()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in (NAMES.wheel, NAMES.level(1)):
        kafka.create_topic(topic)
    return kafka


def headers_of(kafka: InMemoryKafka, topic: str = NAMES.wheel) -> list[Headers]:
    """Of every record of a topic's first partition."""
    consumer = kafka.consumer({"group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = []
    while (message := consumer.poll(1)) is not None:
        read.append(message.headers() or [])
    consumer.close()
    return read


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_scheduling_is_a_span_and_the_record_carries_its_context(
    kafka: InMemoryKafka, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    producer = ScheduledProducer({}, clients=kafka, tracing=provider)
    with provider.get_tracer("app").start_as_current_span("checkout") as checkout:
        receipt = producer.send("orders", "v", delay="1m", headers=[("x", "1")])
    schedule, _ = exporter.get_finished_spans()
    (headers,) = headers_of(kafka)
    assert headers[0] == ("x", b"1")
    carried = context_of(headers)
    assert carried is not None
    assert schedule.context is not None
    assert (carried.trace_id, carried.span_id) == (schedule.context.trace_id, schedule.context.span_id)
    assert schedule.parent == checkout.get_span_context()
    assert (schedule.name, schedule.kind, schedule.status.status_code) == (
        "schedule orders",
        SpanKind.PRODUCER,
        StatusCode.UNSET,
    )
    assert dict(schedule.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "schedule",
        "messaging.destination.name": NAMES.wheel,
        "messaging.message.id": receipt.id,
        "timewheel.destination": "orders",
    }


def test_a_span_ends_with_kafkas_answer_and_says_its_error(
    kafka: InMemoryKafka, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    producer = ScheduledProducer({}, clients=kafka, tracing=provider)
    producer.begin_send("orders", "v", level=1)
    assert not exporter.get_finished_spans(), "Kafka has not answered"
    producer.flush()
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET
    exporter.clear()
    with pytest.raises(KafkaException):
        producer.send("orders", "v", level=2, timeout_s=1)
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"]
    exporter.clear()
    with pytest.raises(KafkaException):
        producer.begin_send("orders", b"v" * 2_000_000, level=1)
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR


def test_a_context_that_the_application_wrote_stays_and_gets_no_span(
    kafka: InMemoryKafka, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    producer = ScheduledProducer({}, clients=kafka, tracing=provider)
    producer.send("orders", "v", delay="1m", headers=[("traceparent", SAMPLED), ("tracestate", b"a=1")])
    (headers,) = headers_of(kafka)
    assert [value for name, value in headers if name in ("traceparent", "tracestate")] == [SAMPLED, b"a=1"]
    assert not exporter.get_finished_spans()


def test_what_is_not_sampled_says_so_to_those_behind(kafka: InMemoryKafka) -> None:
    producer = ScheduledProducer({}, clients=kafka, tracing=TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    producer.send("orders", "v", delay="1m")
    context = context_of(headers_of(kafka)[0])
    assert context is not None
    assert not context.trace_flags.sampled


@pytest.mark.parametrize("schedule", ["send", "begin_send"])
def test_what_cannot_be_written_ends_its_span_as_an_error(
    kafka: InMemoryKafka, provider: TracerProvider, exporter: InMemorySpanExporter, schedule: str
) -> None:
    producer = ScheduledProducer({}, clients=kafka, tracing=provider)
    with pytest.raises(ScheduleError):
        getattr(producer, schedule)("orders", 17, delay="1m")
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR


def test_a_rescheduled_message_keeps_its_context(kafka: InMemoryKafka, provider: TracerProvider) -> None:
    producer = ScheduledProducer({}, clients=kafka, tracing=provider)
    producer.reschedule(producer.send("orders", "v", key="k", delay="1m"), delay="2m")
    first, second = headers_of(kafka)
    assert context_of(first) == context_of(second) is not None


def test_without_tracing_nothing_is_added_and_nothing_imported(kafka: InMemoryKafka) -> None:
    ScheduledProducer({}, clients=kafka).send("orders", "v", delay="1m")
    assert {name for name, _ in headers_of(kafka)[0]} == {"UNIQ_KEY", "REAL_TOPIC", "TIMER_DELAY_MS"}
    program = (
        "import sys, connectors.producer, connectors.async_producer, sidecar.daemon\n"
        "loaded = [name for name in sys.modules if name.startswith('opentelemetry.sdk') or name.endswith('.tracing')]\n"
        "assert not [name for name in loaded if name.startswith(('opentelemetry', 'sidecar', 'connectors'))], loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- deliveries -------------------------------------------------------------------------------------------------------


class Deliveries:
    """Delivery spans of one level partition, and what was dropped."""

    def __init__(self, provider: TracerProvider) -> None:
        self.dropped: list[int] = []
        self.spans = DeliverySpans(provider, NAMES, self.dropped.append)
        self.source = LevelPartition(
            NAMES.level(1),
            0,
            1_000,
            start_offset=0,
            progress=LevelProgress(),
            parser=Parser(NAMES),
            outages=no_outages(),
            max_delay_ms=10_000,
            max_clock_skew_ms=0,
            max_records=10,
            max_bytes=1_000,
        )

    def committed(self, *records: Outgoing, rejection: Rejection | None = None) -> None:
        """Of the records due at 1,000, committed at 1,030 by a transaction of 20 ms; the first may be rejected."""
        rejections = {(self.source.topic, 0, records[0][6]): rejection} if rejection else {}
        self.spans.delivered([Draft(self.source, list(records))], rejections, 1_030, 20.4)


@pytest.fixture
def deliveries(provider: TracerProvider) -> Iterator[Deliveries]:
    deliveries = Deliveries(provider)
    yield deliveries
    deliveries.spans.close()


def record(topic: str | Rejection, offset: int, *headers: tuple[str, bytes | None]) -> Outgoing:
    carried = [*headers, ("UNIQ_KEY", b"id-%d" % offset)] if isinstance(topic, str) else []
    return topic, BY_KEY, b"k", b"v", carried, 1_000, offset, [*headers, ("REAL_TOPIC", b"orders")]


def finished(exporter: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    def spans() -> list[ReadableSpan] | None:
        found = list(exporter.get_finished_spans())
        return found if len(found) >= count else None

    found = wait_until(spans, f"{count} spans")
    assert found is not None
    assert len(found) == count
    return sorted(found, key=lambda span: int(str((span.attributes or {})["timewheel.schedule.offset"])))


def test_a_delivery_links_to_its_schedule_and_tells_its_times(
    deliveries: Deliveries, exporter: InMemorySpanExporter
) -> None:
    deliveries.committed(record("orders", 7, ("traceparent", SAMPLED), ("tracestate", b"vendor=1")))
    (span,) = finished(exporter, 1)
    assert (span.name, span.kind, span.parent) == ("deliver orders", SpanKind.PRODUCER, None)
    (link,) = span.links
    assert (link.context.trace_id, link.context.span_id) == (int(TRACE, 16), int(PARENT, 16))
    assert link.context.trace_state.get("vendor") == "1"
    assert link.context.is_remote
    assert span.context is not None
    assert span.context.trace_id != int(TRACE, 16), "the schedule's trace may be days old"
    assert (span.start_time, span.end_time) == (1_010_000_000, 1_030_000_000)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "deliver",
        "messaging.message.id": "id-7",
        "messaging.destination.name": "orders",
        "timewheel.schedule.topic": NAMES.level(1),
        "timewheel.schedule.partition": 0,
        "timewheel.schedule.offset": 7,
        "timewheel.due_ms": 1_000,
        "timewheel.lateness_ms": 30,
    }


def test_only_schedules_that_were_sampled_are_followed(deliveries: Deliveries, exporter: InMemorySpanExporter) -> None:
    deliveries.committed(
        record("orders", 0),
        record("orders", 1, ("traceparent", UNSAMPLED)),
        record("orders", 2, ("traceparent", b"nonsense\xff")),
        record("orders", 3, ("traceparent", None)),
        record(deliveries.source.topic, 4, ("traceparent", SAMPLED)),  # a roll
        record("orders", 5, ("traceparent", SAMPLED)),
    )
    (span,) = finished(exporter, 1)
    assert (span.attributes or {})["timewheel.schedule.offset"] == 5


def test_what_becomes_of_a_record_is_in_the_spans_name(deliveries: Deliveries, exporter: InMemorySpanExporter) -> None:
    traced = ("traceparent", SAMPLED)
    deliveries.committed(
        record("orders", 1, traced),
        record(NAMES.level(3), 2, traced),
        record("DLQ-billing", 3, traced),
        rejection=Rejection(ErrorCode.UNKNOWN_DESTINATION, "there is no topic 'orders'"),
    )
    illegal = Rejection(ErrorCode.ILLEGAL_REAL_TOPIC, "no topic name")
    deliveries.committed(record(illegal, 4, traced), rejection=illegal)
    spans = finished(exporter, 4)
    assert [span.name for span in spans] == [
        "reject",
        f"retry {NAMES.level(3)}",
        "dead-letter DLQ-billing",
        "reject",
    ]
    assert [span.status.status_code is StatusCode.ERROR for span in spans] == [True, False, False, True]
    assert spans[0].status.description == "there is no topic 'orders'"
    assert [(span.attributes or {}).get("error.type") for span in spans] == [
        "UNKNOWN_DESTINATION",
        None,
        None,
        "ILLEGAL_REAL_TOPIC",
    ]


def test_more_than_can_be_looked_at_is_dropped_and_counted(
    deliveries: Deliveries, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "QUEUE_RECORDS_MAX", 10)
    deliveries.committed(*(record("orders", number, ("traceparent", SAMPLED)) for number in range(11)))
    assert deliveries.dropped == [11]
    deliveries.committed(*(record("orders", number, ("traceparent", SAMPLED)) for number in range(10)))
    assert len(finished(exporter, 10)) == 10
    assert deliveries.dropped == [11]


def test_a_span_that_cannot_be_made_stops_nothing(
    deliveries: Deliveries, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = record("orders", 1, ("traceparent", SAMPLED))
    deliveries.committed((*broken[:5], "no time", *broken[6:]))  # type: ignore[arg-type]
    deliveries.committed(record("orders", 2, ("traceparent", SAMPLED)))
    assert [(span.attributes or {})["timewheel.schedule.offset"] for span in finished(exporter, 1)] == [2]


def test_closing_exports_what_waits(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    deliveries = Deliveries(provider)
    for number in range(100):
        deliveries.committed(record("orders", number, ("traceparent", SAMPLED)))
    deliveries.spans.close()
    assert len(exporter.get_finished_spans()) == 100
    assert trace.get_current_span() is trace.INVALID_SPAN
