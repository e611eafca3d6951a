"""Trace context through everything that happens to a record, and spans at a receiver of OTLP."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from connectors import ScheduledProducer, TopicNames
from tests.support.command import timewheel
from tests.support.kafka import Headers, Kafka, Record
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CONTEXT: Headers = [
    ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
]


def context_of(record: Record) -> Headers:
    return [header for header in record.headers if header[0] in ("traceparent", "tracestate")]


def read_created(kafka: Kafka, topic: str, count: int) -> list[Record]:
    wait_until(lambda: topic in kafka.topics(), f"{topic} is there")
    return kafka.read([topic], count)


def test_context_goes_through_level_wheel_rolls_retry_dead_letter_and_redrive(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    orders = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "20ms 30ms", "precision_ms": 50, "slots_total": 100, "roll_window": "200ms"}
    with sidecar:
        on_wheel = [timed(prefix, orders, "wheel", ("TIMER_DELAY_MS", 60))]
        on_wheel += [timed(prefix, orders, "rolled", ("TIMER_DELAY_MS", 700))]
        on_level = [(f"{prefix}SCHEDULE_TOPIC_XXXX-1", b"k", b"v", [("REAL_TOPIC", orders.encode())])]
        kafka.produce((*record[:3], [*record[3], *CONTEXT]) for record in on_wheel + on_level)
        delivered = kafka.read([orders], 3)
        assert [context_of(record) for record in delivered] == [CONTEXT] * 3
        rolled = next(record for record in delivered if record.text("UNIQ_KEY") == "rolled")
        assert int(rolled.text("TIMER_ROLL_TIMES")) >= 1

        send_back = f"{prefix}SCHEDULE_TOPIC_XXXX-sendback"
        failed: Headers = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", orders.encode())]
        kafka.produce([(send_back, b"k", b"v", [*rolled.headers, *failed, ("DELAY", b"1")])])
        (retry,) = read_created(kafka, f"{prefix}RETRY-billing", 1)
        assert context_of(retry) == CONTEXT
        kafka.produce([(send_back, b"k", b"v", [*retry.headers, ("DELAY", b"-1")])])
        (letter,) = read_created(kafka, f"{prefix}DLQ-billing", 1)
        assert context_of(letter) == CONTEXT
        where = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix)
        ended = timewheel("dlq", "redrive", "billing", "--to", orders, *where)
        assert ended.returncode == 0, ended
        redriven = kafka.read([orders], 4)[-1]
        assert redriven.text("REDRIVE_COUNT") == "1"
        assert context_of(redriven) == CONTEXT


@dataclass
class Receiver:
    """Takes OTLP over HTTP, as a collector does."""

    endpoint: str = ""
    received: list[ResourceSpans] = field(default_factory=list)

    def spans(self) -> list[Span]:
        return [span for resource in self.received for scope in resource.scope_spans for span in scope.spans]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            receiver.received.extend(ExportTraceServiceRequest.FromString(body).resource_spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    yield receiver
    server.shutdown()
    server.server_close()


def attributes(span: Span) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_schedule_and_its_delivery_meet_at_the_collector(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, receiver: Receiver
) -> None:
    orders = kafka.create_topic(f"{prefix}orders")
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sidecar.settings |= {"levels": "20ms", "otel": True}
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    sidecar.start(env=env)
    names = TopicNames(prefix=prefix)
    with ScheduledProducer({"bootstrap.servers": kafka.bootstrap_servers}, names=names, tracing=provider) as producer:
        receipts = [producer.send(orders, "v", delay_ms=50), producer.send(orders, "v", level=1)]
        producer.send(f"{prefix}nowhere", "v", level=1)
    wait_until(lambda: len(receiver.spans()) >= 3, "three spans at the collector")

    schedules = {span.context.span_id: span for span in exporter.get_finished_spans() if span.context is not None}
    assert len(schedules) == 3
    for record in kafka.read([orders], 2):
        assert int(record.text("traceparent").split("-")[2], 16) in schedules, (
            "the consumer sees the schedule's context"
        )
    for span in receiver.spans():
        (link,) = span.links
        schedule = schedules.pop(int.from_bytes(link.span_id, "big"))
        assert schedule.context is not None
        assert int.from_bytes(link.trace_id, "big") == schedule.context.trace_id
        assert span.trace_id != link.trace_id
        assert schedule.end_time is not None
        assert span.end_time_unix_nano >= span.start_time_unix_nano
    assert not schedules
    by_name = {span.name: span for span in receiver.spans() if span.name == "reject"}
    assert attributes(by_name["reject"])["error.type"] == "UNKNOWN_DESTINATION"
    delivered = [span for span in receiver.spans() if span.name == f"deliver {orders}"]
    assert {attributes(span)["messaging.message.id"] for span in delivered} == {receipt.id for receipt in receipts}
    assert all(0 <= int(attributes(span)["timewheel.lateness_ms"]) < 10_000 for span in delivered)
    resource = {one.key: one.value.string_value for one in receiver.received[0].resource.attributes}
    assert resource["service.name"] == "timewheel"
    assert resource["service.instance.id"]


def test_what_waits_for_export_is_exported_before_the_sidecar_ends(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, receiver: Receiver
) -> None:
    orders = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "20ms", "otel": True}
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "60000",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=billing-timers",
    }
    sidecar.start(env=env)
    kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-1", b"k", b"v", [("REAL_TOPIC", orders.encode()), *CONTEXT])])
    kafka.read([orders], 1)
    assert sidecar.terminate()[0] == 0
    (span,) = receiver.spans()
    assert span.links[0].trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert span.links[0].span_id.hex() == "b7ad6b7169203331"
    resource = {one.key: one.value.string_value for one in receiver.received[0].resource.attributes}
    assert resource["service.name"] == "billing-timers"


def test_a_collector_that_is_away_holds_up_nothing(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    orders = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "20ms", "otel": True}
    sidecar.start(env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "10"})
    headers: Headers = [("REAL_TOPIC", orders.encode()), *CONTEXT]
    kafka.produce((f"{prefix}SCHEDULE_TOPIC_XXXX-1", b"k", b"v", headers) for _ in range(1_000))
    assert len(kafka.read([orders], 1_000)) == 1_000
    code, took_s = sidecar.terminate()
    assert code == 0
    assert took_s < 10
