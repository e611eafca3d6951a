"""A request: h11 reads it as it does for uvicorn, the guard and both applications answer.

An input is method and target, header lines, an empty line, the body. What HTTP itself wants (a Host, how long the body
is, that it is JSON) is added where it does not say so, so that most mutations are of what we make something of.

Nobody waits: Kafka is a stand-in that makes the records and tells where they would be.
"""

import asyncio
import json
import re
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Message, Scope

from connectors.dead_letters import DeadLetters
from connectors.dead_letters.errors import NotAnsweredError
from connectors.receipt import Receipt
from connectors.schedule_record import cancel_headers, carried, when
from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.clock import SystemClock
from sidecar.dispatch.wheel.time_counts import Window
from sidecar.front.app import make_front
from sidecar.front.at_once import Done, Work
from sidecar.front.kafka import FrontKafka
from sidecar.front.key_ledger import Written
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.pending import PendingQuery
from sidecar.settings import Settings
from sidecar.switches import Switches
from sidecar.web import guard
from sidecar.web.app import make_app
from sidecar.web.events import Events

TOKEN = "the-token-of-this-api"
ANSWER_BYTES_PER_BYTE, ANSWER_BYTES = 40, 2**20
_RECEIPT = Receipt(
    schedule_topic="SCHEDULE_TOPIC_XXXX-wheel", partition=1, offset=2, id="a", topic="orders", deliver_ms=3, key=b"k"
).encode()
DICTIONARY = (
    *("GET ", "POST ", "PATCH ", "PUT ", "DELETE ", "HEAD ", "OPTIONS ", "%00", "%2F", "%ff"),
    *("/api/v1/messages", "/api/v1/pending", "/api/v1/send-back", "/api/v1/dead-letters/billing", "/redrive"),
    *("/api/v1/switches", "/api/v1/cancels/0/1", "/api/v1/wheel?from=0&to=9&bucket=3", "/api/v1/status", "/metrics"),
    *("Host: 127.0.0.1", "Origin: ", "Sec-Fetch-Site: ", "Idempotency-Key: ", "Content-Type: application/json"),
    *(f"Authorization: Bearer {TOKEN}", "Content-Length: ", "Transfer-Encoding: chunked", "Expect: 100-continue"),
    *("&limit=", "&after=", "&filter=", "from=", "to=", "id=", "topic=", "wait_ms=", "preview_bytes="),
)


SEEDS = (
    b"GET /healthz",
    b"GET /metrics?a=b",
    b"GET /api/v1/status",
    b"GET /api/v1/openapi.json",
    b"GET /api/v1/pending?topic=orders&from=2030-01-31T09:00:00Z&limit=3&after=1-2-3",
    b"GET /api/v1/wheel?from=0&to=1000&bucket=10",
    b"GET /api/v1/cancels/0/17",
    b"GET /api/v1/dead-letters/billing?filter=reason%3DGIVEN_UP&after=1-2&preview_bytes=9",
    b"GET /api/v1/dead-letters?limit=0",
    b"GET /api/v1/problems/invalid",
    b"GET /api/v1/redrives/x",
    b"GET /api/v1/%00#",
    b'POST /api/v1/messages\n\n{"topic":"orders","key":"1","value":"v","delay":"1h30m","headers":{"a":null}}',
    b'POST /api/v1/messages\nIdempotency-Key: k1\n\n[{"topic":"orders","value_base64":"AP8=","level":3}]',
    b'POST /api/v1/messages\n\n{"topic":"orders","value_json":[1],"deliver_at":"2030-01-31T09:00:00Z"}',
    b"POST /api/v1/messages\nContent-Type: text/plain\n\n{}",
    b"PATCH /api/v1/messages/" + _RECEIPT.encode() + b'\n\n{"delay":"2h"}',
    b"DELETE /api/v1/messages/" + _RECEIPT.encode(),
    b'POST /api/v1/send-back\n\n{"group":"billing","topic":"orders","value":"v","delay_level":-1}',
    b'POST /api/v1/dead-letters/billing/redrive\n\n{"dry_run":true}',
    b'PUT /api/v1/switches\n\n{"stop_enqueue":true}',
    b"GET /api/v1/pending\nAuthorization: Bearer " + TOKEN.encode(),
    b"GET /api/v1/pending\nAuthorization: Bearer wrong",
    b"GET /api/v1/pending\nHost: example.org\nOrigin: http://example.org",
)


class _Scheduler:
    """`TransactionalScheduler` as far as requests know it: makes the record, and does not write it."""

    def begin_send(self, topic: str, value: bytes | None, **told: Any) -> None:
        self._check(topic, value, told["key"], carried(told["headers"])[0])
        if told["level"] is None:
            when(told["deliver_at"], None, told["delay_ms"])

    def begin_record(self, topic: str, value: bytes | None, key: bytes | None, headers: Any) -> None:
        self._check(topic, value, key, headers)

    @staticmethod
    def _check(topic: str, value: object, key: object, headers: Any) -> None:
        assert topic.encode()
        assert value is None or type(value) is bytes
        assert key is None or type(key) is bytes
        assert all(type(name) is str and (text is None or type(text) is bytes) for name, text in headers)
        assert all(name.encode() for name, _ in headers)


class _Producer:
    """`AsyncScheduledProducer`, the same way."""

    async def send(self, topic: str, value: bytes | None, **told: Any) -> Receipt:
        delay = told.pop("delay")
        if delay is not None:
            when(None, delay, None)
        delay_ms = 0 if delay is not None else None
        _Scheduler().begin_send(topic, value, **told, delay_ms=delay_ms)
        return Receipt(schedule_topic="SCHEDULE_TOPIC_XXXX-wheel", partition=0, id="a", topic=topic, deliver_ms=0)

    async def cancel(self, receipt: Receipt) -> tuple[int, int]:
        assert all(value for _, value in cancel_headers(receipt))
        return 0, 1

    async def reschedule(self, receipt: Receipt, *, deliver_at: Any, delay: Any, timeout_s: float) -> Receipt:
        when(deliver_at, delay, None)
        return receipt


class _Kafka(FrontKafka):
    async def producer(self) -> Any:
        return _Producer()

    async def at_once(self, work: Work) -> Done:
        for begin in work.records:
            begin(_Scheduler())  # type: ignore[arg-type]
        return Done([Written("SCHEDULE_TOPIC_XXXX-wheel", 0, number, 0) for number in range(len(work.records))], False)

    def dead_letters(self) -> DeadLetters:
        raise NotAnsweredError("Kafka is a stand-in")


class _Shown:
    async def status(self) -> dict[str, Any]:
        return {}

    async def history(self) -> dict[str, Any]:
        return {}

    async def wheel(self, window: Window) -> dict[str, Any]:
        assert 0 < window.buckets <= 1_000
        return {"window": window}


async def _ask(query: PendingQuery) -> dict[str, Any]:
    assert 0 <= query.from_ms < 2**62
    assert 0 <= query.until_ms < 2**62
    return {"total": 0, "messages": [], "partitions": [], "next": None}


def _make(token: str | None) -> ASGIApp:
    settings = Settings(bootstrap_servers="127.0.0.1:1", http_token=token)  # type: ignore[arg-type]
    parts = Health(SystemClock()), Metrics("1"), "1", Switches(), CancelOutcomes("SCHEDULE_TOPIC_XXXX-wheel")
    shown = _Shown()
    return make_front(settings, make_app(*parts, _ask), _Kafka(settings), shown, Events(shown.status))


_LOOP = asyncio.new_event_loop()
_OPEN, _CLOSED = _make(None), _make(TOKEN)


def fuzz_one(data: bytes) -> None:
    read = _read(data)
    if read is None:
        return
    scope, body = read
    given = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    status, headers, answer = _LOOP.run_until_complete(_run(_OPEN if given is None else _CLOSED, scope, body))
    is_stand_in = b"stand-in" in answer
    assert status < 500 or status in (501, 503), answer
    assert status != 503 or is_stand_in or scope["path"] in ("/healthz", "/readyz"), answer
    assert len(answer) <= ANSWER_BYTES + ANSWER_BYTES_PER_BYTE * len(data)
    assert TOKEN.encode() in data or TOKEN.encode() not in answer
    if given is not None and given != f"Bearer {TOKEN}".encode() and scope["path"].startswith("/api/"):
        assert status in (400, 401, 414, 431), status
    if status >= 400 and scope["path"] not in ("/healthz", "/readyz"):
        assert headers[b"content-type"] == b"application/problem+json", (status, answer)
        problem = json.loads(answer)
        assert problem["status"] == status
        assert problem["detail"]
        assert len(problem["detail"]) < 4_000
        assert re.fullmatch(r"/api/v1/problems/[a-z-]+|about:blank", problem["type"])


def _read(data: bytes) -> tuple[Scope, bytes] | None:
    """The request that h11 finds, as uvicorn tells of it; None: it finds none, and the connection is closed."""
    head, _, body = data.partition(b"\n\n")
    target, *lines = head.split(b"\n")
    told = head.lower()
    for name, value in (
        (b"host", b"127.0.0.1"),
        (b"content-length", b"%d" % len(body)),
        (b"content-type", b"application/json"),
    ):
        if b"\n" + name + b":" not in told:
            lines.append(name + b": " + value)
    connection = h11.Connection(h11.SERVER)
    try:
        connection.receive_data(b"\r\n".join((target + b" HTTP/1.1", *lines, b"", body)))
        event = connection.next_event()
        if not isinstance(event, h11.Request):
            return None
        body = b""
        while isinstance(more := connection.next_event(), h11.Data):
            body += bytes(more.data)
        if not isinstance(more, h11.EndOfMessage):
            return None
    except h11.RemoteProtocolError:
        return None
    raw_path, _, query = event.target.partition(b"?")
    return {
        "type": "http",
        "http_version": event.http_version.decode(),
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "method": event.method.decode("ascii"),
        "root_path": "",
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "headers": [(bytes(name).lower(), bytes(value)) for name, value in event.headers],
        "state": {},
    }, body


async def _run(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    told = asyncio.Event()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    answered: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        if scope["path"] == guard.STREAM:  # goes on until the client has gone
            return {"type": "http.disconnect"}
        await told.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answered.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            told.set()

    with patch.object(guard, "WRONG_TOKEN_AFTER_S", 0):
        async with asyncio.timeout(20):
            await app(scope, receive, send)
    start = answered[0]
    content = b"".join(message.get("body", b"") for message in answered[1:])
    return start["status"], {name.lower(): value for name, value in start["headers"]}, content
