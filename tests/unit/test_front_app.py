"""What the process that faces the world answers by itself, and what it asks those that deliver."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.clock import SystemClock
from sidecar.dispatch.wheel.time_counts import Window
from sidecar.front.app import make_front
from sidecar.front.kafka import FrontKafka
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.settings import Settings
from sidecar.switches import Switches
from sidecar.web.app import make_app
from sidecar.web.events import Events
from sidecar.web.guard import Guard, takes_body

SETTINGS = Settings(bootstrap_servers="127.0.0.1:1", http_token="secret")  # type: ignore[arg-type]
DELIVERS = Guard(make_app(Health(SystemClock()), Metrics("1"), "1", Switches(), CancelOutcomes("wheel")), "secret")
"""As the process that delivers has it."""


async def deliverer(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("from those that deliver")(scope, receive, send)


class Shown:
    """Nothing to see."""

    async def status(self) -> dict[str, Any]:
        return {}

    async def history(self) -> dict[str, Any]:
        return {}

    async def wheel(self, window: Window) -> dict[str, Any]:
        return {"window": window}


def ask(
    method: str, path: str, token: str = "secret", *, scheme: str = "Bearer", behind: ASGIApp = deliverer
) -> httpx.Response:
    async def run() -> httpx.Response:
        shown = Shown()
        front = make_front(SETTINGS, behind, FrontKafka(SETTINGS), shown, Events(shown.status))
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers={"Authorization": f"{scheme} {token}"})

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/api/v1/pending", "/api/v1/anything"])
def test_what_only_they_know_is_asked_of_those_that_deliver(path: str) -> None:
    assert ask("GET", path).text == "from those that deliver"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("OPTIONS", "*", 404),
        ("GET", "//api/v1/pending", 404),
        ("GET", "/%2561pi/v1/pending", 404),
        ("POST", "/healthz", 405),
        ("GET", "/api/v1/pending", 401),
        ("DELETE", "/api/v1/nothing", 401),
    ],
)
def test_whoever_has_no_token_gets_nothing_but_probes_from_them(method: str, path: str, status: int) -> None:
    answer = ask(method, path, token="wrong")
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["status"]) == (status, status)


@pytest.mark.parametrize(
    ("path", "status"), [("/api/v1/switches", 200), ("/api/v1/cancels/0/0", 404), ("/api/v1/pending", 503)]
)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_token_that_opens_the_front_opens_what_is_behind_it(path: str, status: int, scheme: str) -> None:
    assert ask("GET", path, scheme=scheme, behind=DELIVERS).status_code == status


def test_those_requests_have_their_body_read_that_the_document_says_take_one() -> None:
    paths = ask("GET", "/api/v1/openapi.json").json()["paths"]
    methods = "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"
    described = {
        (method, path)
        for path, operations in paths.items()
        for method in methods
        if "requestBody" in operations.get(method.lower(), {})
    }
    read = {(method, path) for path in paths for method in methods if takes_body(method, re.sub("[{}]", "", path))}
    assert read == described
    assert len(read) == 5
