"""Errors as HTTP tells them: RFC 9457 problem details, of a kind that has an address, with a remedy.

    {"type": "/api/v1/problems/not-cancellable", "title": "…", "status": 409, "detail": "what, and what to do", …}

``type`` is a reference that the sidecar itself answers; `Kind` is the list that docs/http-api.md shows.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, get_args

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from sidecar.schedule_request import field_faults

MEDIA_TYPE = "application/problem+json"
PATH = "/api/v1/problems"

_FAULTS_MAX = 20
_FAULT_MAX_CHARACTERS = 500

log = structlog.get_logger("timewheel.web")


class Kind(Enum):
    """Name, HTTP status, and what it means to whoever asked."""

    BAD_REQUEST = "bad-request", 400, "The request is not valid HTTP, or one of its headers cannot be read."
    UNAUTHORISED = "unauthorised", 401, "The API requires the value of the setting http_token as a bearer token."
    FOREIGN_ORIGIN = "foreign-origin", 403, "A page of another site sent the request; without a token none may."
    NOT_FOUND = "not-found", 404, "There is nothing at this path."
    NO_OUTCOME = "no-outcome", 404, "The outcome of this cancel is not known; `reason` says why."
    NO_SUCH_GROUP = "no-such-group", 404, "The consumer group has no dead-letter topic."
    NO_SUCH_REDRIVE = "no-such-redrive", 404, "The redrive is not known: it was before this start, or long ago."
    METHOD_NOT_ALLOWED = "method-not-allowed", 405, "The path takes other methods; see Allow."
    TOO_SLOW = "too-slow", 408, "The request did not arrive in time."
    NOT_CANCELLABLE = "not-cancellable", 409, "A message on a level topic can neither be cancelled nor rescheduled."
    IN_PROGRESS = "in-progress", 409, "The same is being done right now; ask again."
    GONE = "gone", 410, "Kafka no longer has the scheduled record."
    TOO_LARGE = "too-large", 413, "The body, or a record in it, is larger than the sidecar or Kafka takes."
    PATH_TOO_LONG = "path-too-long", 414, "The path and query are longer than the sidecar reads."
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", 415, "Bodies are JSON, with Content-Type: application/json."
    MISDIRECTED = "misdirected", 421, "Without a token, the Host has to be this machine's own loopback name."
    INVALID = "invalid", 422, "A field cannot be used; `errors` names each, with what to write."
    KEY_REUSED = "key-reused", 422, "The Idempotency-Key came with another request before; use a new one."
    TOO_MANY = "too-many", 429, "Too many of these are running; try again later."
    HEADERS_TOO_LARGE = "headers-too-large", 431, "The header is larger than the sidecar reads."
    INTERNAL = "internal", 500, "An internal error of the sidecar; its log has the details."
    NOT_OFFERED = "not-offered", 501, "The sidecar's settings do not allow this."
    REFUSED = "refused", 502, "Kafka refuses what the sidecar asks; `detail` has its words."
    UNAVAILABLE = (
        "unavailable",
        503,
        "Nothing was done: Kafka, or the part of the sidecar that is asked, does not answer.",
    )
    UNKNOWN_OUTCOME = "unknown-outcome", 503, "Kafka has not answered in time, so it is not known whether it was done."
    NO_ANSWER = "no-answer", 504, "A worker has been asked and has not answered; it may have done it."

    @property
    def slug(self) -> str:
        return str(self.value[0])

    @property
    def status(self) -> int:
        return int(self.value[1])

    @property
    def title(self) -> str:
        return str(self.value[2])


_RETRY_AFTER_S = {
    Kind.IN_PROGRESS: 1,
    Kind.TOO_MANY: 5,
    Kind.UNAVAILABLE: 2,
    Kind.UNKNOWN_OUTCOME: 2,
    Kind.NO_ANSWER: 2,
}

_OF_STATUS = {
    kind.status: kind
    for kind in (
        Kind.BAD_REQUEST,
        Kind.UNAUTHORISED,
        Kind.FOREIGN_ORIGIN,
        Kind.NOT_FOUND,
        Kind.METHOD_NOT_ALLOWED,
        Kind.TOO_LARGE,
        Kind.INVALID,
        Kind.UNAVAILABLE,
    )
}


class FieldFault(BaseModel):
    """One field that cannot be used."""

    field: str = Field(description="Where it stands: its name, with the number of the item before it in a list.")
    message: str = Field(description="What is wrong, and what to write.")


class Problem(BaseModel):
    """Problem details (RFC 9457). Some kinds carry more members."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind, as a reference that this sidecar answers.", examples=[f"{PATH}/invalid"])
    title: str
    status: int
    detail: str = Field(description="What has happened, and what to do.")
    errors: list[FieldFault] | None = Field(None, description="Of kind `invalid`: every field that cannot be used.")


class ProblemError(Exception):
    """Ends a request with a problem.

    Args:
        more: extension members.
    """

    def __init__(self, kind: Kind, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more

    @classmethod
    def of_fields(cls, faults: Iterable[tuple[str, str]]) -> "ProblemError":
        """Fields that cannot be used, each with its remedy."""
        told = [
            {"field": field[:_FAULT_MAX_CHARACTERS], "message": message[:_FAULT_MAX_CHARACTERS]}
            for field, message in faults
        ]
        detail = "; ".join(": ".join(filter(None, fault.values())) for fault in told[:3])
        if len(told) > 3:
            detail += f"; and {len(told) - 3} more"
        return cls(Kind.INVALID, detail, errors=told[:_FAULTS_MAX])

    @property
    def content(self) -> dict[str, Any]:
        return {
            "type": f"{PATH}/{self.kind.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.more,
        }

    def response(self) -> JSONResponse:
        headers = dict(self.headers)
        if self.kind in _RETRY_AFTER_S:
            headers.setdefault("Retry-After", str(_RETRY_AFTER_S[self.kind]))
        return JSONResponse(self.content, self.kind.status, headers, MEDIA_TYPE)


def described(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route, for the OpenAPI document: what its errors look like."""
    told: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        content = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
        response = told.setdefault(kind.status, {"description": "", "content": {MEDIA_TYPE: content}})
        response["description"] = " ".join(filter(None, (response["description"], kind.title)))
        value = ProblemError(kind, kind.title).content
        response["content"][MEDIA_TYPE]["examples"][kind.slug] = {"value": value}
    return told


def add_problems(app: FastAPI) -> None:
    """Errors of the application are told, and described, as problems from now on."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update({**schema.pop("$defs"), "Problem": schema})
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_fault)


async def _on_problem(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)
    return error.response()


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """What Starlette and FastAPI raise by themselves."""
    assert isinstance(error, HTTPException)
    kind = _OF_STATUS.get(error.status_code)
    if kind is Kind.METHOD_NOT_ALLOWED and (methods := _methods_at(request)):
        error.headers = {"Allow": ", ".join(methods)}
    if kind is None:
        title = HTTPStatus(error.status_code).phrase
        content = {"type": "about:blank", "title": title, "status": error.status_code, "detail": error.detail}
        return JSONResponse(content, error.status_code, dict(error.headers or {}), MEDIA_TYPE)
    detail = kind.title if error.detail == HTTPStatus(error.status_code).phrase else str(error.detail)
    return ProblemError(kind, detail, headers=error.headers).response()


def _methods_at(request: Request) -> list[str]:
    """Of everything at a path; Starlette tells those of the first route alone."""
    methods: set[str] = set()
    for template, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), request.scope["path"]):
            methods |= operations.keys()
    return sorted(method.upper() for method in methods)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    of_body = [
        {**fault, "loc": () if fault["type"] == "json_invalid" else fault["loc"][1:]}
        for fault in error.errors()
        if fault["loc"][0] == "body"
    ]
    faults = [
        (".".join(map(str, fault["loc"][1:])), fault["msg"].removeprefix("Value error, "))
        for fault in error.errors()
        if fault["loc"][0] != "body"
    ]
    if of_body:
        annotation = request.scope["route"].body_field.field_info.annotation
        faults += field_faults(of_body, (*get_args(annotation), annotation)[0])
    return ProblemError.of_fields(faults).response()


async def check_parameters(request: Request) -> None:
    """For every operation of the API: a parameter that is mistyped is not left out. Raises ProblemError."""
    if not request.scope["path"].startswith("/api/"):
        return
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    there_are = f"the parameters are {', '.join(known)}" if known else "there is none here"
    if unknown := sorted(set(request.query_params) - set(known)):
        raise ProblemError.of_fields((name, f"there is no such parameter; {there_are}") for name in unknown)


async def _on_fault(request: Request, error: Exception) -> JSONResponse:
    log.error(
        "request failed",
        method=request.method,
        path=request.url.path,
        exc_info=error,
        operator_action="report it with this traceback; delivery goes on",
    )
    return ProblemError(Kind.INTERNAL, "the sidecar has failed at this request; its log says how").response()
