"""The HTTP interface of a sidecar with workers: asks them what it is asked.

What each knows a part of is asked of all of them, and one answer made of theirs (`merge`); anything else is the same
whoever does it, and the workers take turns. Tokens are the workers' business, who see the request's headers.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import httpx
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry

from sidecar.web.app import ANSWER_TIMEOUT_S, wants_token
from sidecar.web.events import Events, events_router
from sidecar.web.live import Live, live_router
from sidecar.web.page import page_router
from sidecar.workers.merge import (
    Answer,
    Merge,
    merge_cancel,
    merge_healthz,
    merge_metrics,
    merge_pending,
    merge_readyz,
    merge_switches,
)

PROBE_TIMEOUT_S = 2.0
"""For what a worker tells without asking its loop."""

STORE_TIMEOUT_S = ANSWER_TIMEOUT_S + 1
"""For what its loop tells: the worker itself does not wait for that any longer."""

KAFKA_TIMEOUT_S = 60.0
"""For what one of them does: it may have to wait for Kafka to acknowledge."""

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_OF_THE_CONNECTION = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", "upgrade"}
)
"""Headers that are not handed on: each connection has its own."""


class Place(Protocol):
    """Where a worker is found."""

    number: int
    address: str | None


def make_relay(
    workers: Sequence[Place],
    own_metrics: CollectorRegistry,
    switched: dict[str, Any],
    live: Live | None = None,
    events: Events | None = None,
    token: str | None = None,
) -> FastAPI:
    """The ASGI application.

    Args:
        workers: their addresses change as they are started anew.
        own_metrics: what is told beside the workers' metrics.
        switched: takes the switches that have been changed.
        live, events: what the page shows; without them there is none.
        token: bearer token for what is not handed on to a worker, who would ask for it.
    """
    relay = _Relay(workers)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)  # a worker's document describes them all
    app.get("/healthz")(relay.all_of_them(merge_healthz, PROBE_TIMEOUT_S))
    app.get("/readyz")(relay.all_of_them(merge_readyz, PROBE_TIMEOUT_S))
    app.get("/metrics")(relay.all_of_them(merge_metrics(own_metrics), PROBE_TIMEOUT_S))
    app.get("/api/v1/pending")(relay.all_of_them(merge_pending, STORE_TIMEOUT_S))
    app.get("/api/v1/cancels/{partition}/{offset}")(relay.all_of_them(merge_cancel, STORE_TIMEOUT_S))
    app.get("/api/v1/switches")(relay.all_of_them(merge_switches({}), STORE_TIMEOUT_S))
    app.put("/api/v1/switches")(relay.all_of_them(merge_switches(switched), STORE_TIMEOUT_S))
    if live is not None and events is not None:
        app.include_router(page_router())
        for router in (live_router(live), events_router(events)):
            app.include_router(router, dependencies=[Depends(wants_token(token))])
    app.api_route("/{path:path}", methods=_METHODS)(relay.one_of_them)
    return app


class _Relay:
    def __init__(self, workers: Sequence[Place]) -> None:
        self._workers = workers
        self._turns = itertools.count()
        self._client = httpx.AsyncClient(
            trust_env=False,  # a proxy would not find our loopback address
            limits=httpx.Limits(max_keepalive_connections=0),  # no connection outlives its worker
        )

    def all_of_them(self, merge: Merge, timeout_s: float) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that makes one answer of all."""

        async def endpoint(request: Request) -> Response:
            body = await request.body()
            answers = await asyncio.gather(*(self._ask(worker, request, body, timeout_s) for worker in self._workers))
            return merge(request.query_params, answers)

        return endpoint

    async def one_of_them(self, request: Request) -> Response:
        """An endpoint that any worker serves; one that cannot be reached has done nothing, and the next is asked."""
        body = await request.body()
        first = next(self._turns)
        for turn in range(len(self._workers)):
            worker = self._workers[(first + turn) % len(self._workers)]
            answer = await self._ask(worker, request, body, KAFKA_TIMEOUT_S)
            if answer.status:
                return answer.response()
        return JSONResponse({"detail": "no worker answers; ask again"}, 503)

    async def _ask(self, worker: Place, request: Request, body: bytes, timeout_s: float) -> Answer:
        """Hand a request on. Status 0: it has not reached the worker; 504: nobody knows what became of it."""
        address = worker.address
        if address is None:
            return Answer(worker.number, 0)
        target = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        host, _, port = address.rpartition(":")
        url = httpx.URL(scheme="http", host=host, port=int(port), raw_path=target)
        try:
            answer = await self._client.request(
                request.method, url, headers=_handed_on(request.headers), content=body, timeout=timeout_s
            )
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return Answer(worker.number, 0)
        except httpx.TransportError as error:
            detail = (
                f"no answer from worker {worker.number} ({type(error).__name__}); it may have done what it was asked"
            )
            return Answer(
                worker.number, 504, json.dumps({"detail": detail}).encode(), {"content-type": "application/json"}
            )
        return Answer(worker.number, answer.status_code, answer.content, _handed_on(answer.headers))


def _handed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
