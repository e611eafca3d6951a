"""The HTTP interface."""

import asyncio
import socket
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI

from connectors.testing import ManualClock
from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.errors import UsageError
from sidecar.observability.health import LOOP_STUCK_AFTER_MS, Cause, Health
from sidecar.observability.metrics import Metrics
from sidecar.pending import PendingQuery
from sidecar.switches import Switches
from sidecar.web.app import make_app
from sidecar.web.listening import listen


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

    def put(self, path: str, body: object) -> httpx.Response:
        return asyncio.run(self._request("PUT", path, body))

    async def _request(self, method: str, path: str, body: object = None) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return await client.request(method, path, json=body)


@pytest.fixture
def switches() -> Switches:
    return Switches()


@pytest.fixture
def outcomes() -> CancelOutcomes:
    return CancelOutcomes("wheel")


@pytest.fixture
def app(health: Health, switches: Switches, outcomes: CancelOutcomes) -> FastAPI:
    return make_app(health, Metrics("1.2.3"), "1.2.3", switches, outcomes)


@pytest.fixture
def client(app: FastAPI) -> Client:
    return Client(app)


def test_healthz_tells_whether_the_loop_turns(client: Client, clock: ManualClock, health: Health) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\nstarting: checks the schedule topics\n")
    clock.advance(LOOP_STUCK_AFTER_MS)
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (503, "stuck: the loop has not turned for 30 s\n")
    health.turned()
    assert client.get("/healthz").status_code == 200


def test_readyz_tells_why_not(client: Client, health: Health) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    on = {"warnings": [], "action": "", "progress": None, "stop_enqueue": False, "stop_dequeue": False}
    starting = {"state": "starting", "words": "checks the schedule topics"}
    assert answer.json() == {"ready": False, "reasons": ["starting: no partitions assigned yet"], **starting, **on}
    health.assigned, health.places = True, frozenset([("a", 0)])
    answer = client.get("/readyz")
    healthy = {"state": "healthy", "words": "what is due goes out on time"}
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": [], **healthy, **on})
    health.stopped["a-0"] = Cause("retention", "choose")
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
    assert all(name.startswith(("timewheel_", "process_", "python_")) for name in names)
    (build,) = [line for line in answer.text.splitlines() if line.startswith("timewheel_build_info{")]
    assert 'version="1.2.3"' in build


def test_the_interface_describes_itself(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["info"]["version"] == "1.2.3"
    assert set(document["paths"]) >= {"/healthz", "/readyz", "/metrics"}
    assert all(operation["get"]["summary"] for operation in document["paths"].values())


@pytest.mark.parametrize("path", ["/absent", "/healthz/", "/api/v1/absent", "/docs"])
def test_there_is_nothing_at_other_paths(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_state_is_not_to_be_written(client: Client, path: str) -> None:
    assert client.post(path).status_code == 405


def test_switches_are_shown_and_changed_one_by_one(client: Client, health: Health, switches: Switches) -> None:
    health.assigned = True
    assert client.get("/api/v1/switches").json() == {"stop_enqueue": False, "stop_dequeue": False}
    answer = client.put("/api/v1/switches", {"stop_dequeue": True})
    assert (answer.status_code, answer.json()) == (200, {"stop_enqueue": False, "stop_dequeue": True})
    assert client.put("/api/v1/switches", {"stop_enqueue": True}).json()["stop_dequeue"] is True
    assert (switches.stop_enqueue, switches.stop_dequeue) == (True, True)
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["stop_dequeue"]) == (200, True)


@pytest.mark.parametrize("body", [{"stop_all": True}, {"stop_enqueue": "yes"}, [], None])
def test_a_change_that_makes_no_sense_changes_nothing(client: Client, switches: Switches, body: object) -> None:
    assert client.put("/api/v1/switches", body).status_code == 422
    assert switches == Switches()


def test_an_outcome_is_told_where_it_is_known(client: Client, health: Health, outcomes: CancelOutcomes) -> None:
    health.places = frozenset({("wheel", 1), ("wheel", 0), ("level", 3)})
    outcomes.opened(0, 0)
    outcomes.told(0, {7: "too_late"}, 8)
    answer = client.get("/api/v1/cancels/0/7")
    assert answer.status_code == 200
    assert answer.json() == {"topic": "wheel", "partition": 0, "offset": 7, "outcome": "too_late"}


@pytest.mark.parametrize(
    ("place", "reason", "told"),
    [
        ("0/8", "undecided", "is not decided yet"),
        ("0/6", "unknown_offset", "no cancel stands there"),
        ("3/7", "not_assigned", "it has the wheel partitions 0, 1"),
    ],
)
def test_why_there_is_no_outcome_is_told(
    client: Client, health: Health, outcomes: CancelOutcomes, place: str, reason: str, told: str
) -> None:
    health.places = frozenset({("wheel", 1), ("wheel", 0), ("level", 3)})
    outcomes.opened(0, 0)
    outcomes.told(0, {7: "too_late"}, 8)
    answer = client.get(f"/api/v1/cancels/{place}")
    assert answer.status_code == 404
    problem = answer.json()
    assert (problem["reason"], problem["topic"], problem["partitions"]) == (reason, "wheel", [0, 1])
    assert told in problem["detail"]


def test_a_partition_that_was_given_away_is_not_told_of(
    client: Client, health: Health, outcomes: CancelOutcomes
) -> None:
    outcomes.opened(0, 0)
    outcomes.told(0, {7: "too_late"}, 8)
    assert client.get("/api/v1/cancels/0/7").json()["reason"] == "not_assigned"


@pytest.fixture
def asked(health: Health, switches: Switches, outcomes: CancelOutcomes) -> "Asked":
    return Asked(health, switches, outcomes)


class Asked:
    """What the loop is asked about pending messages."""

    def __init__(self, health: Health, switches: Switches, outcomes: CancelOutcomes) -> None:
        self.queries: list[PendingQuery] = []
        self.client = Client(make_app(health, Metrics("1"), "1", switches, outcomes, self._ask))

    async def _ask(self, query: PendingQuery) -> dict[str, object]:
        self.queries.append(query)
        return {"total": 0, "messages": [], "partitions": [], "next": None}

    def between(self, begin: str, end: str) -> httpx.Response:
        return self.client.get(f"/api/v1/pending?{urlencode({'from': begin, 'to': end})}")


@pytest.mark.parametrize(
    ("told", "expected_ms"),
    [
        ("0", 0),
        ("1893488400000", 1_893_488_400_000),
        ("2030-01-01T09:00:00Z", 1_893_488_400_000),
        ("2030-01-01T10:00:00.5+01:00", 1_893_488_400_500),
        ("2030-01-01T10:00:00.5 01:00", 1_893_488_400_500),  # "+" in a query, as `date -Iseconds` writes it
        ("2030-01-01T09:00:00.000001Z", 1_893_488_400_001),
        ("1970-01-01T00:00:00+00:00", 0),
    ],
)
def test_pending_messages_are_asked_for_by_ms_or_by_time(asked: Asked, told: str, expected_ms: int) -> None:
    assert asked.between(told, told).status_code == 200
    (query,) = asked.queries
    assert (query.from_ms, query.until_ms) == (expected_ms, expected_ms)


def test_the_bounds_are_of_either_time(asked: Asked) -> None:
    for by in ("deliver_ms", "act_ms"):
        assert asked.client.get(f"/api/v1/pending?from=1&by={by}").status_code == 200
    assert [query.by_act for query in asked.queries] == [False, True]
    assert asked.client.get("/api/v1/pending?from=1&by=time").status_code == 422


@pytest.mark.parametrize(
    ("asked_for", "less"),
    [
        ("to=9", "an id, an earlier `to`, or `by=act_ms`"),
        ("to=9&by=act_ms", "an id, or an earlier `to`"),
        ("topic=orders", "an id, or an earlier `to`"),
    ],
)
def test_a_loop_that_has_no_time_is_told_with_what_asks_for_less(
    health: Health,
    switches: Switches,
    outcomes: CancelOutcomes,
    monkeypatch: pytest.MonkeyPatch,
    asked_for: str,
    less: str,
) -> None:
    async def never(_query: PendingQuery) -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr("sidecar.web.app.ANSWER_TIMEOUT_S", 0.01)
    answer = Client(make_app(health, Metrics("1"), "1", switches, outcomes, never)).get(f"/api/v1/pending?{asked_for}")
    assert (answer.status_code, answer.json()["type"]) == (503, "/api/v1/problems/unavailable")
    assert answer.json()["detail"] == f"the loop is busy, or Kafka is away; ask again, or for less: {less}"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("2030-01-01T09:00:00", "has no time zone"),
        ("2030-01-01", "has no time zone"),
        ("2030-01-01 09:00", "has no time zone"),
        ("2030-01-01T09:00:00 01", "is not a time"),
        ("1.5", "is not a time"),
        ("-1", "greater than or equal to 0"),
        ("1969-12-31T23:59:59Z", "greater than or equal to 0"),
        ("0001-01-01T00:00:00+23:59", "greater than or equal to 0"),
        ("1000000000000001", "less than or equal to"),
        ("9" * 5_000, "integer"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused_with_its_remedy(asked: Asked, told: str, reason: str) -> None:
    answer = asked.between("0", told)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    (fault,) = answer.json()["errors"]
    assert fault["field"] == "to"
    assert reason in fault["message"]
    assert not asked.queries


@pytest.mark.parametrize(("sent", "meant"), [("%FF%FE", b"\xff\xfe"), ("%C3%A9", b"\xc3\xa9"), ("a%2Bb+c", b"a+b c")])
def test_an_id_that_is_no_text_is_asked_for_as_it_is(asked: Asked, sent: str, meant: bytes) -> None:
    assert asked.client.get(f"/api/v1/pending?id=x&topic=%FF&id={sent}").status_code == 200
    (query,) = asked.queries
    assert query.id == meant.decode(errors="surrogateescape")


def test_parameters_that_are_empty_are_as_if_they_were_not_there(asked: Asked) -> None:
    assert asked.client.get("/api/v1/pending?id=&topic=&from=&to=&by=&limit=&after=").status_code == 200
    assert asked.client.get("/api/v1/pending").status_code == 200
    empty, absent = asked.queries
    assert empty == absent


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("pending?topics=orders", "the parameters are id, topic, from, to, by, limit, after"),
        ("cancels/0/0?wait=1&wait_ms=0", "the parameters are wait_ms"),
        ("switches?stop=1", "there is none here"),
    ],
)
def test_a_parameter_that_there_is_not_is_refused(asked: Asked, path: str, known: str) -> None:
    answer = asked.client.get(f"/api/v1/{path}")
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["message"]) == (422, f"there is no such parameter; {known}")
    assert not asked.queries


def test_probes_may_be_asked_with_anything(client: Client) -> None:
    assert [client.get(f"/{path}?x=1").status_code for path in ("healthz", "metrics")] == [200, 200]


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UsageError, match=f"http_address 127.0.0.1:{port} cannot be listened on: Address already"):
            listen("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(UsageError, match=r"http_address 192\.0\.2\.1:0 cannot be listened on"):
        listen("192.0.2.1", 0)
