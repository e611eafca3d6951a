"""The HTTP interface."""

import asyncio
import socket
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI

from sidecar.errors import UsageError
from sidecar.health import LOOP_STUCK_AFTER_MS, Health
from sidecar.metrics import Metrics
from sidecar.web.app import make_app
from sidecar.web.server import WebServer


@dataclass
class ManualClock:
    monotonic: float = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.monotonic


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock)


@dataclass
class Client:
    """Calls the application without a socket."""

    app: FastAPI

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self._request("GET", path))

    def post(self, path: str) -> httpx.Response:
        return asyncio.run(self._request("POST", path))

    async def _request(self, method: str, path: str) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return await client.request(method, path)


@pytest.fixture
def client(health: Health) -> Client:
    return Client(make_app(health, Metrics("1.2.3"), "1.2.3"))


def test_healthz_tells_whether_the_loop_turns(client: Client, clock: ManualClock, health: Health) -> None:
    assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok\n")
    clock.monotonic = LOOP_STUCK_AFTER_MS
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (503, "the loop does not turn\n")
    health.turned()
    assert client.get("/healthz").status_code == 200


def test_readyz_tells_why_not(client: Client, health: Health) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "reasons": ["starting: no partitions assigned yet"]}
    health.assigned = True
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": []})
    health.stopped["a-0"] = "retention"
    health.stopping = True
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["stopping", "a-0 is stopped: retention"])


def test_an_unready_sidecar_is_alive(client: Client) -> None:
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200


def test_metrics_are_prometheus_text_under_our_name(client: Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["content-type"].count("charset=utf-8") == 1
    names = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert names
    assert all(name.startswith("timewheel_") for name in names)
    assert 'timewheel_build_info{version="1.2.3"} 1.0' in answer.text


def test_the_interface_describes_itself(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["info"]["version"] == "1.2.3"
    assert set(document["paths"]) >= {"/healthz", "/readyz", "/metrics"}
    assert all(operation["get"]["summary"] for operation in document["paths"].values())


@pytest.mark.parametrize("path", ["/absent", "/healthz/", "/api/v1/absent", "/docs"])
def test_there_is_nothing_at_other_paths(client: Client, path: str) -> None:
    assert client.get(path).status_code in (307, 404)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_state_is_not_to_be_written(client: Client, path: str) -> None:
    assert client.post(path).status_code == 405


def test_an_address_in_use_is_named(health: Health) -> None:
    app = make_app(health, Metrics("1"), "1")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UsageError, match=f"http_address 127.0.0.1:{port} cannot be listened on: Address already"):
            WebServer(app, "127.0.0.1", port)


def test_an_address_that_is_not_ours_is_named(health: Health) -> None:
    with pytest.raises(UsageError, match=r"http_address 192\.0\.2\.1:0 cannot be listened on"):
        WebServer(make_app(health, Metrics("1"), "1"), "192.0.2.1", 0)
