"""The HTTP interface: health for the orchestrator, metrics for Prometheus, and what is pending for whoever asks."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.health import Health
from sidecar.metrics import Metrics
from sidecar.pending import LIMIT_DEFAULT, LIMIT_MAX, PendingQuery
from sidecar.switches import Switches
from sidecar.web.cancels import cancels_router
from sidecar.web.problems import add_problems
from sidecar.web.switches import switches_router

Ask = Callable[[PendingQuery], Awaitable[dict[str, Any]]]
"""Asks the loop what is pending."""

ANSWER_TIMEOUT_S = 5.0


def make_app(
    health: Health,
    metrics: Metrics,
    version: str,
    switches: Switches,
    outcomes: CancelOutcomes,
    ask: Ask | None = None,
    token: str | None = None,
) -> FastAPI:
    """The ASGI application; what concerns the store is asked of the loop, which is never waited for longer than 5 s.

    Args:
        ask: how to ask what is pending.
        token: bearer token that the API wants; health and metrics never do.
    """
    app = FastAPI(title="Timewheel", version=version, openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None)
    add_problems(app)

    def authorised(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "a bearer token is required (setting http_token)", {"WWW-Authenticate": "Bearer"})

    @app.get("/healthz", response_class=PlainTextResponse, summary="The process is alive and its loop turns")
    async def healthz() -> Response:
        if health.is_alive():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the loop does not turn\n", status_code=503)

    @app.get("/readyz", summary="Partitions are assigned and recovered")
    async def readyz() -> Response:
        reasons = health.unready_reasons()
        answer = {"ready": not reasons, "reasons": reasons, "warnings": health.warnings(), **asdict(switches)}
        return JSONResponse(answer, status_code=503 if reasons else 200)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/v1/pending", dependencies=[Depends(authorised)], summary="Messages that wait on the wheel")
    async def pending(
        id: Annotated[str | None, Query(description="Only the message with this UNIQ_KEY.")] = None,  # noqa: A002
        topic: Annotated[str | None, Query(description="Only messages for this topic.")] = None,
        from_ms: Annotated[int, Query(alias="from", ge=0, description="Due at this time or later, epoch ms.")] = 0,
        until_ms: Annotated[int, Query(alias="to", ge=0, description="Due before this time, epoch ms.")] = 2**62,
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    ) -> dict[str, Any]:
        if ask is None:
            raise HTTPException(503, "the sidecar has no session with Kafka yet")
        try:
            return await asyncio.wait_for(ask(PendingQuery(id, topic, from_ms, until_ms, limit)), ANSWER_TIMEOUT_S)
        except TimeoutError:
            raise HTTPException(503, "the loop is busy, or Kafka is away; ask again") from None

    for router in (cancels_router(outcomes, health), switches_router(switches)):
        app.include_router(router, dependencies=[Depends(authorised)])
    return app
