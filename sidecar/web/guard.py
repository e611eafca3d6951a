"""What a request has to be before anybody looks at it: an ASGI application around another.

    check                                             answer     paths
    path, query, header sizes                         414, 431   all
    path and query without a fragment                 400        all
    Host is a loopback name (no token is set)         421        all but probes
    Origin is our own (no token is set)               403        all but probes
    bearer token                                      401        /api/
    room: requests under way, bytes of bodies         503        /api/
    JSON, of a bounded size, arrived in time          415 413 408  those of `BODIES`

Without a token, a page that the user of this machine has open must not be able to ask us anything: its requests carry
an Origin, and after DNS rebinding a Host, that is not ours; those without either cannot carry JSON. `curl -d` calls
whatever it sends a form, and HTTP libraries that are given bytes call them nothing. Either is taken as JSON where no
browser has asked: of its requests only those of scripts, which have an Origin, can call JSON a form, since a form's own
content is percent-encoded, or leave out what a body is.

Bodies are read here, whole, before the request takes one of the places: slow clients wait outside. What comes with a
request that takes no body nobody reads, and what lies outside /api/, where there is no token, shares nothing with the
API but connections: whoever may not ask it keeps nobody else from asking.
"""

import asyncio
import hmac
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sidecar.loopback import is_loopback
from sidecar.web.problems import Kind, ProblemError

PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Never need a token; kubelet and Prometheus ask under any name. They are told by their path alone."""

STREAM = "/api/v1/events"
"""Answered for ever: server-sent events."""

BODIES = tuple(
    (method, re.compile(path))
    for method, path in (
        ("POST", "/api/v1/messages"),
        ("PATCH", "/api/v1/messages/[^/]+"),
        ("POST", "/api/v1/send-back"),
        ("POST", "/api/v1/dead-letters/[^/]+/redrive"),
        ("PUT", "/api/v1/switches"),
    )
)
"""Which requests take a body."""

TARGET_MAX_BYTES = 16 * 2**10
"""For path and query together: a receipt, whose key and id may have 1,024 bytes each, stands in the path."""
HEADERS_MAX_BYTES = 16 * 2**10
BODIES_MAX_BYTES = 64 * 2**20
"""For the bodies of all requests under way together."""
PLACES = 64
"""Requests under way; questions (GET) have half of them at most, for slow ones must not keep out what sends."""
QUEUE_MAX = 1_024
"""Requests that wait to be admitted."""
STREAMS_MAX = 32
"""Answers that go on for ever: server-sent events."""
BODY_WITHIN_S = 10.0
DONE_WITHIN_S = 90.0
"""A request that takes longer is given up, its connection closed: nobody may keep a place for ever."""

WRONG_TOKEN_AFTER_S = 0.5
"""A wrong token is told late: who tries many, or asks again at once, takes less of the processors."""

_JSON = "application/json"
_UNSAID = ("", "application/x-www-form-urlencoded")
"""What a body is called by clients that have not been told what it is."""
_OF_BROWSERS = (b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode")


class Limits(NamedTuple):
    """What may be set otherwise, by a setting or a test."""

    body_max_bytes: int = 4 * 2**20
    bodies_max_bytes: int = BODIES_MAX_BYTES
    places: int = PLACES
    queue_max: int = QUEUE_MAX
    streams_max: int = STREAMS_MAX
    body_within_s: float = BODY_WITHIN_S
    done_within_s: float = DONE_WITHIN_S


class Guard:
    """See the module.

    Args:
        token: what the API wants; None: nothing, and then only pages of ours may ask.
    """

    def __init__(self, app: ASGIApp, token: str | None, limits: Limits | None = None) -> None:
        self._app = app
        self._authorization = None if token is None else f"bearer {token}".encode()
        self._limits = limits or Limits()
        self._places = asyncio.Semaphore(self._limits.places)
        self._questions = asyncio.Semaphore(max(1, self._limits.places // 2))
        self._queue = 0
        self._streams = 0
        self._bodies_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        if scope["method"] == "HEAD" and scope["path"] != STREAM:
            scope = {**scope, "method": "GET"}  # the server leaves the content out
        try:
            self._check(scope)
            if scope["path"].startswith("/api/"):
                await self._admit(scope, receive, answer)
            else:
                asked = _bare(scope) if scope["path"] in PROBES else scope
                await self._run(asked, _Body(self, receive).receive, answer)
        except ProblemError as problem:
            if answer.has_begun:
                raise
            if problem.kind is Kind.UNAUTHORISED:
                await asyncio.sleep(WRONG_TOKEN_AFTER_S)
            await problem.response()(scope, receive, send)
        except asyncio.CancelledError:  # the server stops, and has waited for as long as it may
            if not answer.has_begun:
                stops = ProblemError(Kind.UNKNOWN_OUTCOME, "the sidecar stops, and cannot wait for the outcome")
                await stops.response()(scope, receive, send)
            raise

    def _check(self, scope: Scope) -> None:
        """What the head of the request tells. Raises ProblemError."""
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_MAX_BYTES:
            raise ProblemError(Kind.PATH_TOO_LONG, f"path and query may have {TARGET_MAX_BYTES} bytes")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADERS_MAX_BYTES:
            raise ProblemError(Kind.HEADERS_TOO_LARGE, f"the header may have {HEADERS_MAX_BYTES} bytes")
        if b"#" in scope["raw_path"] + scope["query_string"]:
            raise ProblemError(Kind.BAD_REQUEST, "a '#' has to be written as %23")
        if scope["path"] in PROBES:
            if scope["method"] != "GET":
                raise ProblemError(Kind.METHOD_NOT_ALLOWED, "ask with GET", headers={"Allow": "GET, HEAD"})
            return
        if self._authorization is None:
            _check_that_no_other_site_asks(scope)
        elif scope["path"].startswith("/api/"):
            scheme, blank, token = (_header(scope, b"authorization") or b"").partition(b" ")
            if not hmac.compare_digest(scheme.lower() + blank + token, self._authorization):
                raise ProblemError(
                    Kind.UNAUTHORISED,
                    "send the header Authorization: Bearer with the value of the setting http_token",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    async def _admit(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        if self._queue >= self._limits.queue_max:
            raise ProblemError(Kind.UNAVAILABLE, f"{self._queue} requests wait already; ask again")
        body, admission = _Body(self, receive), _Admission(self)
        try:
            self._queue += 1
            try:
                if takes_body(scope["method"], scope["path"]):
                    await body.read(scope)
                    scope = _with_json(scope)
                if scope["method"] == "GET":
                    await admission.take(self._questions)
                await admission.take(self._places)
            finally:
                self._queue -= 1
            await self._run(scope, body.receive, answer, admission)
        finally:
            admission.leave()
            body.forget()

    async def _run(
        self, scope: Scope, receive: Receive, answer: "_Answer", admission: "_Admission | None" = None
    ) -> None:
        """Run the application for a bounded time, unless it is admitted and streams."""
        try:
            async with asyncio.timeout(self._limits.done_within_s) as limit:

                def on_stream() -> None:
                    if admission is not None:
                        admission.become_stream()
                        limit.reschedule(None)

                answer.on_stream = on_stream
                await self._app(scope, receive, answer.send)
        except TimeoutError:
            if not answer.has_begun:
                raise ProblemError(
                    Kind.UNKNOWN_OUTCOME, f"not done within {self._limits.done_within_s:.0f} s"
                ) from None

    # What requests share; see `_Body` and `_Admission`.

    def take_bytes(self, count: int) -> None:
        if self._bodies_bytes + count > self._limits.bodies_max_bytes:
            raise ProblemError(Kind.UNAVAILABLE, "the bodies of the requests under way fill the memory for them")
        self._bodies_bytes += count

    def give_bytes(self, count: int) -> None:
        self._bodies_bytes -= count

    @property
    def limits(self) -> Limits:
        return self._limits

    def take_stream(self) -> None:
        if self._streams >= self._limits.streams_max:
            raise ProblemError(Kind.UNAVAILABLE, f"{self._streams} pages are watching already; close one")
        self._streams += 1

    def leave_stream(self) -> None:
        self._streams -= 1


class _Answer:
    """Sends an answer, and knows whether it has begun, and whether it is a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.on_stream: Callable[[], None] = lambda: None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if _is_stream(message["headers"]):
                self.on_stream()
            self.has_begun = True
        await self._send(message)


class _Admission:
    """What a request takes while it is under way: of the places for all, of those for its like, or of the streams."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._taken: list[Callable[[], None]] = []

    async def take(self, places: asyncio.Semaphore) -> None:
        """Wait for one of them."""
        await places.acquire()
        self._taken.append(places.release)

    def become_stream(self) -> None:
        self._guard.take_stream()
        self.leave()
        self._taken.append(self._guard.leave_stream)

    def leave(self) -> None:
        while self._taken:
            self._taken.pop()()


class _Body:
    """A request's body, read whole and given out once; empty where it is not read."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self._guard = guard
        self._chunks: list[bytes] = []
        self._size_bytes = 0
        self._receive = receive
        self._is_told = False

    async def read(self, scope: Scope) -> None:
        """Raises ProblemError."""
        most = self._guard.limits.body_max_bytes
        length = _header(scope, b"content-length")
        if length is None and _header(scope, b"transfer-encoding") is None:
            return
        if length is not None and int(length) > most:
            raise _too_large(most)
        if length != b"0":
            media_type = (_header(scope, b"content-type") or b"").decode("latin-1").partition(";")[0].strip().lower()
            if media_type != _JSON and not (media_type in _UNSAID and _is_of_no_browser(scope)):
                raise ProblemError(
                    Kind.UNSUPPORTED_MEDIA_TYPE,
                    f"the body is '{media_type[:100]}'; send JSON with Content-Type: {_JSON}",
                )
        try:
            async with asyncio.timeout(self._guard.limits.body_within_s):
                await self._read_all(most)
        except TimeoutError:
            detail = f"the body did not arrive within {self._guard.limits.body_within_s:.0f} s"
            raise ProblemError(Kind.TOO_SLOW, detail) from None

    async def _read_all(self, most: int) -> None:
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ProblemError(Kind.BAD_REQUEST, "the client has gone")
            chunk = message.get("body", b"")
            self._guard.take_bytes(len(chunk))
            self._size_bytes += len(chunk)
            self._chunks.append(chunk)
            if self._size_bytes > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return

    async def receive(self) -> Message:
        if not self._is_told:
            self._is_told = True
            body, self._chunks = b"".join(self._chunks), []
            return {"type": "http.request", "body": body, "more_body": False}
        while (message := await self._receive())["type"] == "http.request":
            pass  # of a body that nobody wants
        return message  # the client has gone

    def forget(self) -> None:
        self._guard.give_bytes(self._size_bytes)
        self._size_bytes = 0


def takes_body(method: str, path: str) -> bool:
    """Whether the body of a request is read."""
    return any(method == one and pattern.fullmatch(path) for one, pattern in BODIES)


def _bare(scope: Scope) -> Scope:
    """Nothing that a stranger puts into a query or a header makes two probes differ: they share an answer."""
    return {**scope, "query_string": b"", "headers": []}


def _with_json(scope: Scope) -> Scope:
    """The body is called what it has been taken for, whatever its client calls it."""
    headers = [header for header in scope["headers"] if header[0] != b"content-type"]
    return {**scope, "headers": [*headers, (b"content-type", _JSON.encode())]}


def _check_that_no_other_site_asks(scope: Scope) -> None:
    host = (_header(scope, b"host") or b"").decode("latin-1")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if not is_loopback(name or ""):
        raise ProblemError(
            Kind.MISDIRECTED, f"'{host[:100]}' is not a loopback name; ask 127.0.0.1, or set http_token and send it"
        )
    origin = _header(scope, b"origin")
    is_foreign = origin is not None and origin.decode("latin-1").lower() != f"http://{host.lower()}"
    is_from_elsewhere = _header(scope, b"sec-fetch-site") in (b"cross-site", b"same-site")
    is_link = _header(scope, b"sec-fetch-mode") == b"navigate" and scope["method"] == "GET"
    if is_foreign or (is_from_elsewhere and not is_link):
        raise ProblemError(
            Kind.FOREIGN_ORIGIN, "a page of another site may not ask this sidecar; set http_token and send it"
        )


def _is_of_no_browser(scope: Scope) -> bool:
    return all(_header(scope, name) is None for name in _OF_BROWSERS)


def _header(scope: Scope, name: bytes) -> bytes | None:
    """The first of that name."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return next((value for header, value in headers if header == name), None)


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


def _too_large(most: int) -> ProblemError:
    return ProblemError(Kind.TOO_LARGE, f"a body may have {most} bytes; send fewer messages at a time")
