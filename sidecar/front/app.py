"""The application that the world talks to: the API, and around it what only the delivering processes can tell."""

from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.clock import SystemClock
from sidecar.front.dead_letters import dead_letters_router
from sidecar.front.kafka import FrontKafka
from sidecar.front.messages import messages_router
from sidecar.front.redrives import Jobs, redrives_router
from sidecar.front.send_back import send_back_router
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.settings import Settings
from sidecar.switches import Switches
from sidecar.version import installed_version
from sidecar.web.app import make_app
from sidecar.web.events import Events, events_router
from sidecar.web.guard import PROBES, STREAM, Guard, Limits
from sidecar.web.live import Live, live_router
from sidecar.web.page import page_router
from sidecar.web.problems import PATH, Kind, ProblemError, add_problems, check_parameters, described

_OWN = (
    "/api/v1/status",
    "/api/v1/history",
    "/api/v1/wheel",
    STREAM,
    "/api/v1/messages",
    "/api/v1/send-back",
    "/api/v1/dead-letters",
    "/api/v1/redrives",
    PATH,
    "/api/v1/openapi.json",
)
"""Paths that are answered here, with all that is below them, as is what lies outside /api/: where there is no token,
nothing but a probe gets to the processes that deliver."""


def make_front(
    settings: Settings,
    relay: ASGIApp,
    kafka: FrontKafka | None = None,
    live: Live | None = None,
    events: Events | None = None,
    redrives: Jobs | None = None,
) -> ASGIApp:
    """Everything behind one address.

    Args:
        relay: answers what is not the API's own.
        kafka: in tests, another than the settings name.
        live, events: what the page shows; without them there is none.
        redrives: for whoever is going to end them.
    """
    api = make_api(settings, kafka or FrontKafka(settings), live, events, redrives)

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        is_own = any(_is_below(scope["path"], own) for own in _OWN)
        is_told_by_others = scope["path"] in PROBES or (scope["path"].startswith("/api/") and not is_own)
        await (relay if is_told_by_others else api)(scope, receive, send)

    token = settings.http_token.get_secret_value() if settings.http_token else None
    return Guard(by_path, token, Limits(body_max_bytes=settings.http_max_body_bytes))


def make_api(
    settings: Settings,
    kafka: FrontKafka,
    live: Live | None = None,
    events: Events | None = None,
    redrives: Jobs | None = None,
) -> FastAPI:
    """What is done here, with Kafka."""
    app = FastAPI(
        title="Timewheel",
        version=installed_version(),
        openapi_url=None,
        redirect_slashes=False,  # to a scheme and host that a proxy may have changed
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(check_parameters)],
    )
    add_problems(app)
    for router in (
        messages_router(settings, kafka),
        send_back_router(settings, kafka),
        dead_letters_router(kafka),
        redrives_router(kafka, redrives or Jobs()),
        _problems_router(),
    ):
        app.include_router(router)
    if live is not None and events is not None:
        for router in (page_router(), live_router(live), events_router(events)):
            app.include_router(router)
    document: dict[str, Any] = {}

    @app.get("/api/v1/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        if not document:
            document.update(_describe(app, has_token=settings.http_token is not None))
        return JSONResponse(document)

    return app


def _is_below(path: str, own: str) -> bool:
    return path == own or path.startswith(f"{own}/")


def _problems_router() -> APIRouter:
    router = APIRouter()

    @router.get(f"{PATH}/{{name}}", summary="What a kind of problem means", responses=described(Kind.NOT_FOUND))
    async def problem(name: str) -> dict[str, Any]:
        for kind in Kind:
            if kind.slug == name:
                return {"type": f"{PATH}/{kind.slug}", "status": kind.status, "title": kind.title}
        raise ProblemError(Kind.NOT_FOUND, "there is no such kind of problem; docs/http-api.md lists them")

    return router


def _describe(app: FastAPI, *, has_token: bool) -> dict[str, Any]:
    """One document of what is answered here and of what the delivering processes answer."""
    document = app.openapi()
    parts = Health(SystemClock()), Metrics(app.version), app.version, Switches(), CancelOutcomes("")
    behind = make_app(*parts).openapi()
    for section in ("schemas", "securitySchemes"):
        told = behind.get("components", {}).get(section, {})
        document.setdefault("components", {}).setdefault(section, {}).update(told)
    document["paths"].update(behind["paths"])
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _describe_refusals(operation, is_open=not path.startswith("/api/"), has_token=has_token)
    if has_token:
        document["components"]["securitySchemes"]["token"] = {"type": "http", "scheme": "bearer"}
    return document


def _describe_refusals(operation: dict[str, Any], *, is_open: bool, has_token: bool) -> None:
    """What any operation may be answered before it is looked at."""
    responses = operation["responses"]
    kinds = [Kind.BAD_REQUEST, Kind.HEADERS_TOO_LARGE, Kind.PATH_TOO_LONG]
    if not is_open:
        kinds += [Kind.UNAVAILABLE, Kind.INVALID]
        kinds += [Kind.UNAUTHORISED] if has_token else [Kind.FOREIGN_ORIGIN, Kind.MISDIRECTED]
    if "requestBody" in operation:
        kinds += [Kind.TOO_SLOW, Kind.TOO_LARGE, Kind.UNSUPPORTED_MEDIA_TYPE]
    if "HTTPValidationError" in str(responses.get("422")):  # FastAPI's own words for it are not what is answered
        del responses["422"]
    for status, response in described(*kinds).items():
        responses.setdefault(str(status), response)
    if has_token and not is_open:
        operation["security"] = [{"token": []}]
