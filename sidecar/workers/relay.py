"""Hands on to the processes that deliver what they alone can tell: one of them, or several that answer as one.

What each of several knows a part of is asked of all of them, and one answer made of theirs (`merge`); anything else is
the same whoever does it, and they take turns. What costs them time is asked at a pace (`Pace`). Tokens are checked by
them as well, who see the request's headers.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry

from sidecar.web.live import ANSWER_TIMEOUT_S
from sidecar.web.problems import MEDIA_TYPE, Kind, ProblemError, add_problems
from sidecar.workers.merge import (
    SILENT,
    Answer,
    Merge,
    WorkerAddress,
    merge_cancel,
    merge_healthz,
    merge_metrics,
    merge_pending,
    merge_readyz,
    merge_switched,
    merge_switches,
    name_of,
)
from sidecar.workers.pace import Pace

PROBE_TIMEOUT_S = 2.0
"""For what a worker tells without asking its loop."""

PROBE_OF_ONE_TIMEOUT_S = 10.0
"""The same, where nobody else is there to be told of: a process that is merely slow is waited for, one that hangs is
not."""

STORE_TIMEOUT_S = ANSWER_TIMEOUT_S + 1
"""For what its loop tells: the worker itself does not wait for that any longer."""

PROBE_REST = 4.0
"""Probes and metrics, which take no token, get a fifth of a process's time at most."""
STORE_REST = 1.0

_PENDING = "/api/v1/pending"
_METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
_SAFE = ("GET", "HEAD", "OPTIONS")
"""What asks for nothing to be done (RFC 9110)."""
_OF_THE_CONNECTION = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", "upgrade"}
)
"""Headers of an answer that are not handed on: each connection has its own."""
_ASKED_WITH = frozenset({b"host", b"authorization", b"content-type"})
"""Headers of a request that are handed on; what else a client sends is none of a worker's business."""

NOT_BEGUN = "ok\nstarting: checks the schedule topics\n"
"""What ``/healthz`` answers before there are workers."""

Endpoint = Callable[[Request], Awaitable[Response]]


def make_relay(
    workers: Sequence[WorkerAddress],
    own_metrics: CollectorRegistry,
    switched: dict[str, Any],
    have_begun: Callable[[], bool] = lambda: True,
) -> FastAPI:
    """The ASGI application for several processes.

    Args:
        workers: their addresses change as they are started anew.
        own_metrics: what is told beside the workers' metrics.
        switched: takes the switches that have been changed.
        have_begun: whether the workers have been started; before that, a sidecar without any is alive.
    """
    relay = _Relay(workers)
    app = _app()
    probe, store = PROBE_TIMEOUT_S, STORE_TIMEOUT_S
    healthz = _paced(PROBE_REST, relay.all_of_them(merge_healthz, probe))

    async def healthz_from_the_start(request: Request) -> Response:
        return await healthz(request) if have_begun() else PlainTextResponse(NOT_BEGUN)

    app.get("/healthz")(healthz_from_the_start)
    app.get("/readyz")(_paced(PROBE_REST, relay.all_of_them(merge_readyz, probe)))
    app.get("/metrics")(_paced(PROBE_REST, relay.all_of_them(merge_metrics(own_metrics), probe)))
    app.get(_PENDING)(_paced(STORE_REST, relay.all_of_them(merge_pending, store)))
    app.get("/api/v1/cancels/{partition}/{offset}")(relay.all_of_them(merge_cancel, store))
    app.get("/api/v1/switches")(relay.all_of_them(merge_switches, store))
    app.put("/api/v1/switches")(relay.all_of_them(merge_switched(switched), store))
    app.api_route("/{path:path}", methods=_METHODS)(relay.any_of_them)
    return app


def make_relay_to_one(worker: WorkerAddress) -> FastAPI:
    """The ASGI application for one process: what it says is said."""
    relay = _Relay([worker])

    async def probe(request: Request) -> Response:
        return await relay.one_of_them(request, PROBE_OF_ONE_TIMEOUT_S)

    app = _app()
    for path in ("/healthz", "/readyz", "/metrics"):
        app.get(path)(_paced(PROBE_REST, probe))
    app.get(_PENDING)(_paced(STORE_REST, relay.any_of_them))
    app.api_route("/{path:path}", methods=_METHODS)(relay.any_of_them)
    return app


def _app() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)  # `front.app` describes it all
    add_problems(app)
    return app


def _paced(rest: float, endpoint: Endpoint) -> Endpoint:
    """An endpoint that asks at a pace."""
    pace = Pace[Response](rest)

    async def paced(request: Request) -> Response:
        key = request.url.query, request.headers.get("authorization")
        return await pace.ask(key, lambda: endpoint(request))

    return paced


class _Relay:
    def __init__(self, workers: Sequence[WorkerAddress]) -> None:
        self._workers = workers
        self._turns = itertools.count()
        self._client = httpx.AsyncClient(
            trust_env=False,  # a proxy would not find our loopback address
            limits=httpx.Limits(max_keepalive_connections=0),  # no connection outlives its worker
        )

    def all_of_them(self, merge: Merge, timeout_s: float) -> Endpoint:
        """An endpoint that makes one answer of all."""

        async def endpoint(request: Request) -> Response:
            body = await request.body()
            answers = await asyncio.gather(*(self._ask(worker, request, body, timeout_s) for worker in self._workers))
            return merge(request.query_params, answers)

        return endpoint

    async def any_of_them(self, request: Request) -> Response:
        """An endpoint that any worker serves."""
        return await self.one_of_them(request, STORE_TIMEOUT_S)

    async def one_of_them(self, request: Request, timeout_s: float) -> Response:
        """What one worker answers; one that cannot be reached has done nothing, and the next is asked."""
        body = await request.body()
        first = next(self._turns)
        for turn in range(len(self._workers)):
            worker = self._workers[(first + turn) % len(self._workers)]
            answer = await self._ask(worker, request, body, timeout_s)
            if answer.status:
                return answer.response()
        told = "no worker answers" if len(self._workers) > 1 else f"{self._name(self._workers[0])} {SILENT}"
        raise ProblemError(Kind.UNAVAILABLE, f"{told}; ask again")

    def _name(self, worker: WorkerAddress) -> str:
        return name_of(worker.number, len(self._workers))

    async def _ask(self, worker: WorkerAddress, request: Request, body: bytes, timeout_s: float) -> Answer:
        """Hand a request on. Status 0: the worker has not been reached, or has ended with nothing done; 504: nobody
        knows what became of it."""
        address = worker.address
        if address is None:
            return Answer(worker.number, 0)
        try:
            answer = await self._client.request(
                request.method,
                _url(address, request),
                headers=[(name, value) for name, value in request.headers.raw if name in _ASKED_WITH],
                content=body,
                timeout=timeout_s,
            )
        except httpx.TransportError as error:
            has_hung_up = request.method in _SAFE and not isinstance(error, httpx.TimeoutException)
            if has_hung_up or isinstance(error, httpx.ConnectError):  # there is none, or it has ended meanwhile
                return Answer(worker.number, 0)
            # Also where it is too busy, or hangs for too long, to be connected to.
            detail = f"no answer from {self._name(worker)} ({type(error).__name__}); it may have done what it was asked"
            problem = json.dumps(ProblemError(Kind.NO_ANSWER, detail).content).encode()
            return Answer(worker.number, Kind.NO_ANSWER.status, problem, {"content-type": MEDIA_TYPE})
        return Answer(worker.number, answer.status_code, answer.content, _handed_on(answer.headers))


def _url(address: str, request: Request) -> httpx.URL:
    """What is asked, as it was asked."""
    host, _, port = address.rpartition(":")
    target = request.scope["raw_path"] + b"?" + request.scope["query_string"]
    return httpx.URL(scheme="http", host=host, port=int(port), raw_path=target)


def _handed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
