"""The HTTP interface of a sidecar with workers, over the sockets of real ones."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse
from prometheus_client import CollectorRegistry

from sidecar.web.listening import listen
from sidecar.web.server import WebServer
from sidecar.workers import relay
from sidecar.workers.merge import SILENT
from sidecar.workers.relay import NOT_BEGUN, make_relay, make_relay_to_one


@dataclass
class Somewhere:
    """A worker's place."""

    number: int
    address: str | None


def echo_app(number: int) -> FastAPI:
    """What a worker might serve, telling who it is."""
    app = FastAPI(openapi_url=None)

    @app.api_route("/echo/{path:path}", methods=["GET", "POST", "PATCH"], status_code=202)
    async def echo(request: Request) -> dict[str, object]:
        return {
            "worker": number,
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.url.query,
            "body": (await request.body()).decode(),
            "authorization": request.headers.get("authorization"),
        }

    @app.get("/redirect")
    async def redirect(request: Request) -> RedirectResponse:
        return RedirectResponse(request.url_for("refusal"), headers={"x-of-the-worker": str(number)})

    @app.get("/refusal")
    async def refusal() -> None:
        raise HTTPException(401, "no", {"WWW-Authenticate": "Bearer"})

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    return app


@pytest.fixture
def places() -> Iterator[list[Somewhere]]:
    """Two workers that answer."""
    with ExitStack() as stack:
        yield [
            Somewhere(number, stack.enter_context(WebServer(partial(echo_app, number), listen("127.0.0.1", 0))).address)
            for number in (1, 2)
        ]


def ask(places: list[Somewhere], *requests: tuple[str, str], **options: object) -> list[httpx.Response]:
    """Requests to one relay, one after another; redirects are not followed."""

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_relay(places, CollectorRegistry(), {}))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.example") as client:
            return [await client.request(method, path, **options) for method, path in requests]  # type: ignore[arg-type]

    return asyncio.run(all_of_them())


def nobody() -> str:
    """An address that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_request_is_handed_on_whole(places: list[Somewhere]) -> None:
    (answer,) = ask(
        places, ("PATCH", "/echo/a%2Fb%20c?x=1&x=%26"), content="body", headers={"Authorization": "Bearer t"}
    )
    assert answer.status_code == 202
    assert answer.json() == {
        "worker": 1,
        "method": "PATCH",
        "path": "/echo/a%2Fb%20c",
        "query": "x=1&x=%26",
        "body": "body",
        "authorization": "Bearer t",
    }


def test_workers_take_turns(places: list[Somewhere]) -> None:
    answers = ask(places, *[("GET", "/echo/")] * 4)
    assert [answer.json()["worker"] for answer in answers] == [1, 2, 1, 2]


@pytest.mark.parametrize("address", [None, nobody()], ids=["none", "nobody there"])
def test_one_that_cannot_be_reached_is_passed_over(places: list[Somewhere], address: str | None) -> None:
    places[0].address = address
    answers = ask(places, *[("POST", "/echo/")] * 3)
    assert [answer.json()["worker"] for answer in answers] == [2, 2, 2]


def test_nobody_to_be_reached_is_503(places: list[Somewhere]) -> None:
    for place in places:
        place.address = None
    (answer,) = ask(places, ("POST", "/echo/"))
    assert (answer.status_code, answer.json()["detail"]) == (503, "no worker answers; ask again")


def ask_one_that_hangs_up(places: list[Somewhere], method: str, path: str) -> httpx.Response:
    """The first of the workers ends when it has the request."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        places[0].address = f"127.0.0.1:{listener.getsockname()[1]}"

        async def hang_up() -> None:
            loop = asyncio.get_running_loop()
            listener.setblocking(False)
            connection, _ = await loop.sock_accept(listener)
            stack.enter_context(connection)
            await loop.sock_recv(connection, 65_536)
            connection.close()

        async def ask_and_hang_up() -> httpx.Response:
            app = make_relay(places, CollectorRegistry(), {}) if len(places) > 1 else make_relay_to_one(places[0])
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.example") as client:
                answer, _ = await asyncio.gather(client.request(method, path), hang_up())
                return answer

        return asyncio.run(ask_and_hang_up())


def test_what_a_worker_may_have_done_is_not_asked_of_another(places: list[Somewhere]) -> None:
    answer = ask_one_that_hangs_up(places, "POST", "/echo/")
    assert answer.status_code == 504
    assert "it may have done what it was asked" in answer.json()["detail"]


def test_what_asks_for_nothing_to_be_done_is_asked_of_another(places: list[Somewhere]) -> None:
    answer = ask_one_that_hangs_up(places, "GET", "/echo/")
    assert (answer.status_code, answer.json()["worker"]) == (202, 2)


def test_a_worker_that_ends_while_it_is_asked_does_not_hang(places: list[Somewhere]) -> None:
    answer = ask_one_that_hangs_up(places, "GET", "/healthz")
    assert answer.status_code == 200
    assert "worker 1 does not answer: it hangs, starts, or has ended" in answer.text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_one_process_that_ends_while_it_is_asked_is_not_ready(places: list[Somewhere], path: str) -> None:
    answer = ask_one_that_hangs_up(places[:1], "GET", path)
    assert (answer.status_code, answer.json()["type"]) == (503, "/api/v1/problems/unavailable")


def test_an_answer_is_handed_on_whole_and_names_the_address_that_was_asked(places: list[Somewhere]) -> None:
    redirect, refusal = ask(places, ("GET", "/redirect"), ("GET", "/refusal"))
    assert (redirect.status_code, redirect.headers["location"]) == (307, "http://sidecar.example/refusal")
    assert redirect.headers["x-of-the-worker"] == "1"
    assert (refusal.status_code, refusal.headers["www-authenticate"]) == (401, "Bearer")
    assert refusal.json() == {"detail": "no"}


def test_before_there_are_workers_a_sidecar_is_alive() -> None:
    """It waits for Kafka, and what asks whether it has started is to be told so."""
    transport = httpx.ASGITransport(make_relay([Somewhere(1, None)], CollectorRegistry(), {}, lambda: False))

    async def ask_both() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.example") as client:
            return [await client.get(path) for path in ("/healthz", "/readyz")]

    healthz, readyz = asyncio.run(ask_both())
    assert (healthz.status_code, healthz.text) == (200, NOT_BEGUN)
    assert readyz.status_code == 503


def test_what_all_of_them_know_is_asked_of_all(places: list[Somewhere]) -> None:
    places[1].address = nobody()
    healthz, metrics = ask(places, ("GET", "/healthz"), ("GET", "/metrics"))
    assert healthz.status_code == 200
    assert "worker 2 does not answer" in healthz.text
    assert 'timewheel_worker_up{worker="2"} 0.0' in metrics.text


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS"])
def test_state_is_not_to_be_written(places: list[Somewhere], method: str) -> None:
    (answer,) = ask(places, (method, "/healthz"))
    assert answer.status_code == 405


def ask_one(place: Somewhere, *requests: tuple[str, str], **headers: str) -> list[httpx.Response]:
    """Requests to the relay of a sidecar that is one process."""

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_relay_to_one(place))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [await client.request(method, path, headers=headers) for method, path in requests]

    return asyncio.run(all_of_them())


def test_one_process_is_told_of_as_it_is(places: list[Somewhere]) -> None:
    healthz, echo, metrics = ask_one(places[0], ("GET", "/healthz"), ("POST", "/echo/x?y=1"), ("GET", "/metrics"))
    assert (healthz.status_code, healthz.text) == (200, '"ok"')
    assert (echo.json()["worker"], echo.json()["query"]) == (1, "y=1")
    assert metrics.status_code == 404
    places[0].address = nobody()
    (gone,) = ask_one(places[0], ("GET", "/healthz"))
    assert (gone.status_code, gone.json()["type"]) == (503, "/api/v1/problems/unavailable")
    assert gone.json()["detail"].startswith("the process that delivers does not answer")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/api/v1/pending", "/api/v1/switches"])
def test_a_process_that_hangs_is_told_of_soon(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """And holds no request's place for long."""
    monkeypatch.setattr(relay, "PROBE_OF_ONE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(relay, "STORE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        (answer,) = ask_one(Somewhere(1, f"127.0.0.1:{hanging.getsockname()[1]}"), ("GET", path))
    assert (answer.status_code, answer.json()["type"]) == (504, "/api/v1/problems/no-answer")
    assert "no answer from the process that delivers" in answer.json()["detail"]


def test_one_that_hangs_for_so_long_that_nobody_can_connect_has_not_ended(
    places: list[Somewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PROBE_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hanging, ExitStack() as stack:
        places[1].address = f"127.0.0.1:{hanging.getsockname()[1]}"
        for _ in range(4):  # more than it keeps waiting
            asking = stack.enter_context(socket.socket())
            asking.setblocking(False)
            asking.connect_ex(hanging.getsockname())
        (answer,) = ask(places, ("GET", "/healthz"))
    assert (answer.status_code, answer.text.splitlines()) == (503, [f"worker 2 {SILENT}"])


def test_a_header_that_no_worker_needs_does_not_reach_it(places: list[Somewhere]) -> None:
    transport = httpx.ASGITransport(make_relay_to_one(places[0]))

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            headers = [(b"x", b"\xff"), (b"authorization", b"\xe9"), (b"accept", b"text/event-stream")]
            return await client.patch("/echo/x", headers=headers, content=b"{}")

    answer = asyncio.run(run())
    assert (answer.status_code, answer.json()["method"], answer.json()["authorization"]) == (202, "PATCH", "\xe9")
