"""The HTTP interface: health for the orchestrator, metrics for Prometheus, and what is pending for whoever asks."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import msgspec
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from connectors.times import epoch_ms, parse_time
from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.pending import CURSOR_PATTERN, LIMIT_DEFAULT, LIMIT_MAX, TIME_MAX_MS, Cursor, PendingQuery
from sidecar.switches import Switches
from sidecar.web.cancels import cancels_router
from sidecar.web.live import ANSWER_TIMEOUT_S, OneProcess, part_router
from sidecar.web.problems import Kind, add_problems, check_parameters, described
from sidecar.web.switches import switches_router

Ask = Callable[[PendingQuery], Awaitable[dict[str, Any]]]
"""Asks the loop what is pending."""

_BARE_PLUS = re.compile(r"\A(\S+[Tt]\S+) ([0-9]{2}:?[0-9]{2})\Z")
"""A time as a query tells it where the ``+`` of its zone was not written as %2B: there it is a blank."""


def _time_ms(value: object) -> object:
    """Epoch ms, or an ISO 8601 time with a zone in their place: the first ms that is not before it."""
    if not isinstance(value, str) or re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return value
    remedy = "write epoch ms, or an ISO 8601 time with its zone, such as 2030-01-31T09:00:00Z"
    return epoch_ms(parse_time(_BARE_PLUS.sub(r"\1+\2", value), remedy))


def _or_default(default: object) -> BeforeValidator:
    """A parameter that is there and empty, as forms and templates send those that nobody has filled in."""
    return BeforeValidator(lambda value: default if value == "" else value)


def _as_sent(query: bytes, name: str) -> str:
    """A parameter that is there; bytes that are not UTF-8 text are surrogates, for which others have one sign alike."""
    text = query.decode(errors="surrogateescape")
    return dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))[name]


TimeMs = Annotated[
    int,
    Field(ge=0, le=TIME_MAX_MS),
    BeforeValidator(_time_ms),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": TIME_MAX_MS},
                {"type": "string", "format": "date-time"},
            ]
        }
    ),
]


class PendingEntry(BaseModel):
    """A message that waits."""

    id: str
    topic: str
    deliver_ms: int = Field(description="When it is due, ms since the epoch.")
    partition: int = Field(description="Of its scheduled record, as the offset.")
    offset: int
    receipt: str | None = Field(
        description="To cancel and reschedule it with; null: the id is not UTF-8 text, told with \\xhh for such bytes."
    )
    act_ms: int = Field(description="When it leaves the wheel: at deliver_ms, or earlier, to come back (a roll).")


class PendingPage(BaseModel):
    """The first messages of those that are asked for."""

    total: int = Field(description="How many there are, from this page on.")
    messages: list[PendingEntry]
    partitions: list[int] = Field(description="The wheel partitions that this sidecar knows about.")
    next: str | None = Field(description="`after` of the next page; null: this is the last.")


def make_app(
    health: Health,
    metrics: Metrics,
    version: str,
    switches: Switches,
    outcomes: CancelOutcomes,
    ask: Ask | None = None,
    live: OneProcess | None = None,
) -> FastAPI:
    """The ASGI application, for a guard to stand before; the loop, which is asked about the store, has 5 s to answer.

    Args:
        ask: how to ask what is pending.
        live: what is shown of this process; without it nothing is.
    """
    app = FastAPI(
        title="Timewheel",
        version=version,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,  # to a scheme and host that a proxy may have changed
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(check_parameters)],
    )
    add_problems(app)

    @app.get(
        "/healthz",
        response_class=PlainTextResponse,
        summary="The process is alive and its loop turns",
        responses={503: {"description": "The loop does not turn.", "content": {"text/plain": {}}}},
    )
    async def healthz() -> Response:
        verdict = health.verdict()
        if health.is_alive():
            return PlainTextResponse(f"ok\n{verdict.state}: {verdict.words}\n")
        return PlainTextResponse(f"{verdict.state}: {verdict.words}\n", status_code=503)

    @app.get(
        "/readyz",
        summary="Partitions are assigned and recovered",
        responses={503: {"description": "They are not; `reasons` says why."}},
    )
    async def readyz() -> Response:
        reasons = health.unready_reasons()
        state, words, action, progress = health.verdict()
        answer = {
            "ready": not reasons,
            "state": state,
            "words": words,
            "action": action,
            "progress": progress,
            "reasons": reasons,
            "warnings": health.warnings(),
            **asdict(switches),
        }
        return JSONResponse(answer, status_code=503 if reasons else 200)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get(
        "/api/v1/pending",
        summary="Messages that wait on the wheel, the next to be acted on first",
        response_model=PendingPage,
        responses=described(Kind.INVALID, Kind.UNAVAILABLE),
    )
    async def pending(
        request: Request,
        id: Annotated[  # noqa: A002
            str | None,
            Query(max_length=4_096, description="Only the message with this UNIQ_KEY."),
            _or_default(None),
        ] = None,
        topic: Annotated[
            str | None, Query(max_length=512, description="Only messages for this topic."), _or_default(None)
        ] = None,
        from_ms: Annotated[
            TimeMs,
            Query(
                alias="from",
                description="Due at this time or later; ISO 8601 with a zone, or epoch ms.",
                examples=["2030-01-31T09:00:00Z"],
            ),
            _or_default(0),
        ] = 0,
        until_ms: Annotated[
            TimeMs,
            Query(alias="to", description="Due before this time; ISO 8601 with a zone, or epoch ms."),
            _or_default(TIME_MAX_MS),
        ] = TIME_MAX_MS,
        by: Annotated[
            Literal["deliver_ms", "act_ms"],
            Query(description="Which time `from` and `to` are bounds of; what rolls is acted on before it is due."),
            _or_default("deliver_ms"),
        ] = "deliver_ms",
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX), _or_default(LIMIT_DEFAULT)] = LIMIT_DEFAULT,
        after: Annotated[
            str | None,
            Query(pattern=CURSOR_PATTERN, description="`next` of the page before.", max_length=60),
            _or_default(None),
        ] = None,
    ) -> Response:
        if ask is None:
            raise HTTPException(503, "the sidecar has no session with Kafka yet")
        cursor = None if after is None else Cursor.parse(after)
        exact_id = None if id is None else _as_sent(request.scope["query_string"], "id")
        query = PendingQuery(exact_id, topic, from_ms, until_ms, limit, cursor, by_act=by == "act_ms")
        try:
            told = await asyncio.wait_for(ask(query), ANSWER_TIMEOUT_S)
        except TimeoutError:
            less = "an id, an earlier `to`, or `by=act_ms`" if query.is_by_out else "an id, or an earlier `to`"
            raise HTTPException(503, f"the loop is busy, or Kafka is away; ask again, or for less: {less}") from None
        # The loop waits for the interpreter meanwhile, so without checks of what we have made ourselves.
        return Response(msgspec.json.encode(told), media_type="application/json")

    routers = [cancels_router(outcomes, health), switches_router(switches)]
    if live is not None:
        routers.append(part_router(live))
    for router in routers:
        app.include_router(router)
    return app
