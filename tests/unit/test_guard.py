"""What gets in over HTTP and what does not, over real sockets."""

import asyncio
import gc
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.error import HTTPError

import pytest
from starlette.types import Receive, Scope, Send

from sidecar.web import protocol
from sidecar.web.guard import HEADERS_MAX_BYTES, TARGET_MAX_BYTES, Guard, Limits
from sidecar.web.listening import listen
from sidecar.web.server import WebServer
from tests.support.waiting import wait_until

Serve = Callable[..., tuple[str, int]]

POSTED = "/api/v1/messages"
"""Takes a body, as do those below it."""
SLOW, EVENTS, LARGE = f"{POSTED}/slow", "/api/v1/events", "/static/large"
LARGE_BYTES = 8 * 2**20
TOKEN = "secret"


class App:
    """Answers with what it was asked; `SLOW` when it is told to, `EVENTS` for ever, `LARGE` with `LARGE_BYTES`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.methods: list[str] = []
        self.details: list[tuple[bytes, Any]] = []
        """Query and headers."""
        self.may_answer = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        self.methods.append(scope["method"])
        self.details.append((scope["query_string"], scope["headers"]))
        message = await receive()
        is_stream = scope["path"] == EVENTS
        while scope["path"] == SLOW and not self.may_answer:
            await asyncio.sleep(0.005)
        media_type = b"text/event-stream" if is_stream else b"application/json"
        headers = [(b"content-type", media_type)]
        body = b"x" * LARGE_BYTES if scope["path"] == LARGE else message["body"]
        if not is_stream:
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": is_stream})
        if is_stream:
            while (await receive())["type"] != "http.disconnect":
                pass


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def serve(app: App) -> Iterator[Serve]:
    """Starts servers; their addresses."""
    with ExitStack() as stack:

        def start(token: str | None = None, **limits: Any) -> tuple[str, int]:
            guard = Guard(app, token, Limits(**limits))
            address = stack.enter_context(WebServer(lambda: guard, listen("127.0.0.1", 0))).address
            host, _, port = address.rpartition(":")
            return host, int(port)

        yield start


def head(method: str = "GET", path: str = "/api/v1/x", **headers: str) -> bytes:
    told = {"Host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode()


@contextmanager
def connected(place: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(place, timeout=10) as connection:
        yield connection


def read(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65_536)
        assert part, f"closed after {received!r}"
        received += part
    top, _, body = received.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65_536)
    return int(first.split()[1]), headers, body


def read_top(connection: socket.socket) -> bytes:
    """The first line and headers of an answer."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        assert part, f"closed after {received!r}"
        received += part
    return received


def read_one(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of one answer, where others may follow at once."""
    received = read_top(connection)
    length = next(
        (int(line.split(b":")[1]) for line in received.split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    body = b"".join(connection.recv(1) for _ in range(length))
    return int(received.split()[1]), body


def ask(place: tuple[str, int], request: bytes) -> tuple[int, dict[str, Any]]:
    """Status, and the problem; an empty one where there is none."""
    with connected(place) as connection:
        connection.sendall(request)
        status, headers, body = read(connection)
    is_problem = headers.get("content-type") == "application/problem+json"
    assert is_problem == (status >= 400)
    problem: dict[str, Any] = json.loads(body) if is_problem else {}
    assert not problem or problem["status"] == status
    return status, problem


def kind(problem: dict[str, Any]) -> str:
    return str(problem["type"]).removeprefix("/api/v1/problems/")


@pytest.mark.parametrize(
    "given", ["", "Bearer wrong", "Bearer secre", "Basic secret", "secret", "Bearer Secret", "Bearer sécret"]
)
def test_another_token_than_the_api_wants_is_refused(serve: Serve, app: App, given: str) -> None:
    with connected(serve("secret")) as connection:
        connection.sendall(head(Authorization=given).decode().encode("latin-1"))
        status, headers, body = read(connection)
    assert (status, headers["www-authenticate"], kind(json.loads(body))) == (401, "Bearer", "unauthorised")
    assert b"secret" not in body
    assert not app.asked


def test_the_token_opens_the_api_and_probes_want_none(serve: Serve) -> None:
    place = serve("secret")
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert ask(place, head(Authorization=f"{scheme} secret"))[0] == 200
    for path in ("/healthz", "/readyz", "/metrics"):
        assert ask(place, head(path=path, Host="10.0.0.7:8080"))[0] == 200


def test_what_comes_with_a_probe_is_not_read(serve: Serve) -> None:
    place = serve("secret", body_max_bytes=10)
    with connected(place) as connection:
        connection.sendall(head(path="/metrics", Content_Length="1000000000") + b"x" * 10_000)
        assert read(connection)[::2] == (200, b"")
    status, problem = ask(place, head("POST", path="/metrics", Content_Type="application/json", Content_Length="11"))
    assert (status, kind(problem)) == (405, "method-not-allowed")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "[::1]:8080", "LOCALHOST", "127.0.0.5:8080"]
)
def test_loopback_names_are_ours(serve: Serve, host: str) -> None:
    assert ask(serve(), head(Host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::1", "localhost@evil.example", ""]
)
def test_a_name_that_was_bound_to_us_by_dns_is_not(serve: Serve, app: App, host: str) -> None:
    status, problem = ask(serve(), head(Host=host) if host else b"GET /api/v1/x HTTP/1.0\r\n\r\n")
    assert (status, kind(problem)) == (421, "misdirected")
    assert not app.asked


def test_with_a_token_any_name_will_do(serve: Serve) -> None:
    assert ask(serve("secret"), head(Host="sidecar.example", Authorization="Bearer secret"))[0] == 200


@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_page_of_another_site_may_not_ask(serve: Serve, app: App, foreign: dict[str, str], method: str) -> None:
    status, problem = ask(serve(), head(method, Content_Length="0", **foreign))
    assert (status, kind(problem)) == (403, "foreign-origin")
    assert not app.asked


def test_a_page_of_ours_may_and_a_link_to_us_may_be_followed(serve: Serve) -> None:
    place = serve()
    assert (
        ask(place, head(Host="localhost:8080", Origin="http://localhost:8080", Sec_Fetch_Site="same-origin"))[0] == 200
    )
    assert ask(place, head(path="/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate"))[0] == 200


@pytest.mark.parametrize(
    "media_type", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded2", "json"]
)
def test_what_a_form_can_send_is_not_taken(serve: Serve, app: App, media_type: str) -> None:
    request = head("POST", POSTED, Content_Type=media_type, Content_Length="2") + b"{}"
    status, problem = ask(serve(), request)
    assert (status, kind(problem)) == (415, "unsupported-media-type")
    assert not app.asked


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("media_type", [FORM, ""])
def test_json_that_curl_calls_a_form_and_a_library_nothing_is_taken(serve: Serve, app: App, media_type: str) -> None:
    with connected(serve()) as connection:
        connection.sendall(head("POST", POSTED, Content_Type=media_type, Content_Length="2") + b"{}")
        assert read(connection)[::2] == (200, b"{}")
    ((_, headers),) = app.details
    assert [value for name, value in headers if name == b"content-type"] == [b"application/json"], "for who reads it"


@pytest.mark.parametrize(
    ("of_a_browser", "refused"),
    [
        ({"Origin": "http://localhost:8080"}, (415, "unsupported-media-type")),
        ({"Sec_Fetch_Site": "same-origin"}, (415, "unsupported-media-type")),
        ({"Sec_Fetch_Mode": "no-cors"}, (415, "unsupported-media-type")),
        ({"Referer": "http://localhost:8080/"}, (415, "unsupported-media-type")),
        ({"Origin": "null"}, (403, "foreign-origin")),
        ({"Origin": "http://evil.example"}, (403, "foreign-origin")),
        ({"Sec_Fetch_Site": "cross-site"}, (403, "foreign-origin")),
    ],
)
@pytest.mark.parametrize("media_type", [FORM, ""])
def test_json_that_a_page_calls_a_form_or_nothing_is_not_taken(
    serve: Serve, app: App, media_type: str, of_a_browser: dict[str, str], refused: tuple[int, str]
) -> None:
    told = head("POST", POSTED, Host="localhost:8080", Content_Type=media_type, Content_Length="2", **of_a_browser)
    status, problem = ask(serve(), told + b"{}")
    assert (status, kind(problem)) == refused
    assert not app.asked


def test_a_body_arrives_whole_and_the_connection_goes_on(serve: Serve) -> None:
    with connected(serve()) as connection:
        for _ in range(2):
            connection.sendall(
                head("POST", POSTED, Content_Type="application/json; charset=utf-8", Content_Length="6") + b"[1"
            )
            connection.sendall(b", 2]")
            assert read(connection)[2] == b"[1, 2]"
        connection.sendall(head("POST", POSTED, Content_Type="application/json", Transfer_Encoding="chunked"))
        connection.sendall(b"2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n")
        assert read(connection)[2] == b"[1]"
        connection.sendall(head("POST", POSTED, Content_Type="text/plain", Content_Length="2"))
        assert read(connection)[0] == 415
        connection.sendall(b"{}" + head())
        assert read(connection)[0] == 200


def test_requests_that_come_all_at_once_are_answered_in_order(serve: Serve) -> None:
    with connected(serve()) as connection:
        posted = head("POST", POSTED, Content_Type="application/json", Content_Length="2")
        refused = head("POST", POSTED, Content_Type="text/plain", Content_Length="2")
        connection.sendall(posted + b"[]" + refused + b"{}" + head() + posted)
        for status, body in ((200, b"[]"), (415, None), (200, b"")):
            told = read_one(connection)
            assert told[0] == status
            assert body is None or told[1] == body
        connection.sendall(b"{}")
        assert read_one(connection) == (200, b"{}")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(serve: Serve, app: App) -> None:
    place = serve(body_max_bytes=1_000)
    told = head("POST", POSTED, Content_Type="application/json", Content_Length="1001")
    status, problem = ask(place, told)
    assert (status, kind(problem)) == (413, "too-large")
    chunked = (
        head("POST", POSTED, Content_Type="application/json", Transfer_Encoding="chunked") + b"3E9\r\n" + b" " * 1_001
    )
    assert ask(place, chunked)[0] == 413
    assert (
        ask(place, head("POST", POSTED, Content_Type="application/json", Content_Length="1000") + b" " * 1_000)[0]
        == 200
    )
    assert app.asked == [POSTED]


UNFINISHED = [
    head("POST", "/", Content_Type="application/json", Transfer_Encoding="chunked"),
    head("POST", "/nothing", Content_Type="application/json", Transfer_Encoding="chunked", Expect="100-continue"),
    head("PUT", "/healthz", Content_Type="application/json", Transfer_Encoding="chunked"),
    head("POST", POSTED, Content_Type="application/json", Transfer_Encoding="chunked"),
    head("POST", POSTED, Authorization="Bearer wrong", Content_Type="application/json", Content_Length="1000"),
    head("GET", POSTED, Authorization="Bearer secret", Content_Type="application/json", Transfer_Encoding="chunked"),
]


@pytest.mark.parametrize("unfinished", UNFINISHED, ids=lambda told: told.partition(b"\r")[0].decode())
def test_a_body_that_nobody_wants_is_not_waited_for_and_takes_no_room(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, unfinished: bytes
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 5.0)
    place = serve(TOKEN, body_max_bytes=1_000, bodies_max_bytes=4_000, places=2, queue_max=4)
    posted = head("POST", POSTED, Authorization=f"Bearer {TOKEN}", Content_Type="application/json", Content_Length="2")
    with ExitStack() as stack:
        held = [stack.enter_context(connected(place)) for _ in range(20)]
        for connection in held:
            connection.sendall(unfinished + b"384\r\n" + b" " * 900)
        assert ask(place, posted + b"[]")[0] == 200
        expected = 200 if b"Bearer secret" in unfinished else 405 if b"/healthz" in unfinished else None
        for connection in held:
            status = read(connection)[0]
            assert status == (expected or (401 if b"/api/" in unfinished else 200)), "answered at once"


def test_who_sends_on_after_the_answer_can_read_it_and_is_cut_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 0.1)
    with connected(serve()) as connection:
        connection.sendall(
            head("POST", POSTED, Content_Type="application/json", Content_Length="999999999") + b" " * 100_000
        )
        assert read(connection)[0] == 413
        with suppress(ConnectionError):
            while connection.recv(1):
                raise AssertionError("there is no other answer")


@pytest.mark.parametrize(("token", "status"), [(None, 413), (TOKEN, 401)])
def test_who_sends_all_of_a_large_body_before_reading_learns_why_it_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, token: str | None, status: int
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 30.0)
    body = b" " * 12_000_000
    with connected(serve(token)) as connection:
        connection.sendall(head("POST", POSTED, Content_Type="application/json", Content_Length=str(len(body))) + body)
        assert read(connection)[0] == status
        connection.sendall(head(path="/healthz"))
        assert read(connection)[0] == 200, "and the connection goes on"


@pytest.mark.parametrize("length", [1_001, 5_000_000, 12_000_000])
def test_so_does_who_wants_no_other_answer(serve: Serve, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """As Python's own client, which reads nothing before it has sent all, and asks for the connection to be closed."""
    monkeypatch.setattr(protocol, "LINGER_S", 30.0)
    host, port = serve(body_max_bytes=1_000)
    request = urllib.request.Request(
        f"http://{host}:{port}{POSTED}", b" " * length, {"Content-Type": "application/json"}
    )
    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    assert (caught.value.code, kind(json.loads(caught.value.read()))) == (413, "too-large")


def test_who_wants_no_other_answer_and_sends_on_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 0.1)
    with connected(serve()) as connection:
        told = head("POST", POSTED, Content_Type="application/json", Content_Length="999999999", Connection="close")
        connection.sendall(told + b" " * 100_000)
        assert read(connection)[0] == 413
        with pytest.raises(ConnectionError):
            connection.sendall(b" " * 2 * protocol.LINGER_MAX_BYTES)


@pytest.mark.parametrize(
    ("request_", "status", "expected"),
    [
        (head(path="/api/v1/" + "x" * TARGET_MAX_BYTES), 414, "path-too-long"),
        (head(X_Long="x" * HEADERS_MAX_BYTES), 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, 431, "headers-too-large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad-request"),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "bad-request"),
        (head(path="/api/v1/#"), 400, "bad-request"),
        (head(path="/api/v1/x?id=#"), 400, "bad-request"),
        (b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400, "bad-request"),
    ],
)
def test_what_is_too_long_or_no_http_is_told_as_a_problem(
    serve: Serve, app: App, request_: bytes, status: int, expected: str
) -> None:
    told, problem = ask(serve(), request_)
    assert (told, kind(problem)) == (status, expected)
    assert not app.asked


def test_a_body_that_drips_is_given_up(serve: Serve, app: App) -> None:
    with connected(serve(body_within_s=0.2)) as connection:
        connection.sendall(head("POST", POSTED, Content_Type="application/json", Content_Length="100") + b"[")
        status, _, body = read(connection)
    assert (status, kind(json.loads(body))) == (408, "too-slow")
    assert not app.asked


def test_a_head_that_drips_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_S", 0.2)
    place = serve()
    with connected(place) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        with suppress(ConnectionError):
            assert connection.recv(1) == b""
    with connected(place) as idle, suppress(ConnectionError):
        assert idle.recv(1) == b""


def test_whoever_holds_connections_open_keeps_nobody_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", 10)
    place = serve()
    with ExitStack() as stack:
        held = [stack.enter_context(connected(place)) for _ in range(10)]
        for connection in held:
            connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(30):
            assert ask(place, head(path="/healthz"))[0] == 200


def hoarding(place: tuple[str, int]) -> socket.socket:
    """A connection whose client reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.connect(place)
    return connection


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_answer_that_is_not_read_is_given_up(
    serve: Serve, app: App, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    lost = threading.Event()
    let_go = protocol.GuardedProtocol.connection_lost

    def tell(self: protocol.GuardedProtocol, exc: Exception | None) -> None:
        let_go(self, exc)
        lost.set()

    monkeypatch.setattr(protocol.GuardedProtocol, "connection_lost", tell)
    monkeypatch.setattr(protocol, "READ_WITHIN_S", 0.2)
    with hoarding(serve()) as connection:
        connection.sendall(head(path=LARGE).replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
        assert lost.wait(5), "it is not held for ever"
    assert app.asked == [LARGE]


@pytest.mark.parametrize(
    "request_",
    [
        head(path=LARGE),
        head(path=LARGE, Connection="close"),
        head("POST", "/", Content_Type="application/json", Transfer_Encoding="chunked"),
    ],
    ids=["unread", "unread and closed", "unfinished"],
)
def test_whoever_neither_reads_nor_finishes_keeps_nobody_out(
    serve: Serve, app: App, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", 10)
    monkeypatch.setattr(protocol, "LINGER_S", 60.0)
    place = serve(TOKEN, places=1)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(hoarding(place)).sendall(request_)
        wait_until(lambda: len(app.asked) == 10, "they have been answered")
        for _ in range(20):
            assert ask(place, head(path="/healthz"))[0] == 200
            assert ask(place, head(Authorization=f"Bearer {TOKEN}"))[0] == 200


FEW_FILES = """
import resource, sys, threading
from sidecar.web import protocol
from sidecar.web.guard import Guard
from sidecar.web.listening import listen
from sidecar.web.server import WebServer

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})

protocol.HEAD_WITHIN_S = 60.0
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with WebServer(lambda: Guard(app, None), listen("127.0.0.1", 0)) as server:
    print(server.address.rpartition(":")[2], flush=True)
    sys.stdin.read()
"""


def test_connections_take_no_more_than_half_of_the_files_that_may_be_open() -> None:
    command = [sys.executable, "-c", FEW_FILES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        place = "127.0.0.1", int(server.stdout.readline())
        with ExitStack() as stack:
            stack.callback(server.stdin.close)
            for _ in range(300):
                stack.enter_context(connected(place)).sendall(b"GET / HTTP/1.1\r\n")
            assert ask(place, head(path="/healthz"))[0] == 200


def test_a_connection_that_has_ended_waits_for_no_collection(serve: Serve) -> None:
    """Probes make one each, and while Kafka is away nobody may have the time to collect."""
    server = serve()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            assert ask(server, head(path="/healthz"))[0] == 200
        wait_until(lambda: sum(isinstance(one, protocol.GuardedProtocol) for one in gc.get_objects()) <= 2, "the end")
    finally:
        gc.enable()


def test_head_is_answered_as_get_without_its_content(serve: Serve, app: App) -> None:
    with connected(serve()) as connection:
        for path in ("/healthz", LARGE, "/api/v1/x"):
            connection.sendall(head("HEAD", path))
            assert b" 200 " in read_top(connection)
        connection.sendall(head("POST", POSTED, Content_Type="application/json", Content_Length="2") + b"[]")
        assert read_one(connection) == (200, b"[]")
    assert app.methods == ["GET", "GET", "GET", "POST"]


def test_nothing_that_a_stranger_sends_makes_two_probes_differ(serve: Serve, app: App) -> None:
    place = serve(TOKEN)
    for number in range(3):
        assert ask(place, head(path=f"/healthz?{number}", Accept="text/event-stream", Authorization=f"{number}"))
    assert app.details == [(b"", [])] * 3


def test_while_all_places_are_taken_requests_wait_and_beyond_that_are_refused(serve: Serve, app: App) -> None:
    place = serve(places=4, queue_max=3)  # two of them for questions
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(place)) for _ in range(5)]
        for connection in waiting:
            connection.sendall(head(path=SLOW))
        wait_until(lambda: len(app.asked) == 2, "two are under way")

        def refused() -> bool:
            status, problem = ask(place, head(path="/api/v1/refused"))
            return (status, kind(problem)) == (503, "unavailable")

        wait_until(refused, "the queue is full", poll_s=0.1)
        assert ask(place, head(path="/healthz"))[0] == 200
        app.may_answer = True
        assert [read(connection)[0] for connection in waiting] == [200] * 5
    assert ask(place, head())[0] == 200


def test_slow_questions_keep_out_nobody_who_sends(serve: Serve, app: App) -> None:
    place = serve(places=2)
    with ExitStack() as stack:
        asking = [stack.enter_context(connected(place)) for _ in range(4)]
        for connection in asking:
            connection.sendall(head(path=SLOW))
        wait_until(lambda: app.asked == [SLOW], "one is under way")
        body = b'{"a": 1}'
        sent = (
            head("POST", path="/api/v1/messages", Content_Type="application/json", Content_Length=str(len(body))) + body
        )
        for _ in range(3):
            assert ask(place, sent)[0] == 200
        assert app.asked.count(SLOW) == 1
        app.may_answer = True
        assert [read(connection)[0] for connection in asking] == [200] * 4


def test_the_bodies_of_all_requests_together_are_bounded(serve: Serve, app: App) -> None:
    place = serve(bodies_max_bytes=150)
    request = head("PATCH", path=SLOW, Content_Type="application/json", Content_Length="100") + b" " * 100
    with connected(place) as first:
        first.sendall(request)
        wait_until(lambda: app.asked == [SLOW], "it is under way")
        status, problem = ask(place, request)
        assert (status, kind(problem)) == (503, "unavailable")
        app.may_answer = True
        assert read(first)[0] == 200
    assert wait_until(lambda: ask(place, request)[0] == 200, "the room is free again")


def test_a_request_that_takes_too_long_is_given_up(serve: Serve) -> None:
    status, problem = ask(serve(done_within_s=0.2), head(path=SLOW))
    assert (status, kind(problem)) == (503, "unknown-outcome")


def test_a_stop_tells_those_who_wait_that_the_outcome_is_not_known(app: App) -> None:
    with WebServer(lambda: Guard(app, None, Limits()), listen("127.0.0.1", 0)) as server, ExitStack() as stack:
        host, _, port = server.address.rpartition(":")
        waiting = stack.enter_context(connected((host, int(port))))
        waiting.sendall(head(path=SLOW))
        wait_until(lambda: app.asked == [SLOW], "it is under way")
        server.close()
        status, _, body = read(waiting)
    assert (status, kind(json.loads(body))) == (503, "unknown-outcome")


def test_pages_that_watch_take_no_place_and_are_counted(serve: Serve) -> None:
    place = serve(places=1, streams_max=2, done_within_s=5.0)
    with ExitStack() as stack:
        for _ in range(2):
            watching = stack.enter_context(connected(place))
            watching.sendall(head(path=EVENTS))
            assert read(watching)[0] == 200
        assert ask(place, head())[0] == 200
        status, problem = ask(place, head(path=EVENTS))
        assert (status, kind(problem)) == (503, "unavailable")
    assert wait_until(lambda: ask(place, head())[0] == 200, "they have gone")
