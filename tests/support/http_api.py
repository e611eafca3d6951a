"""The HTTP API as an application in the same pod uses it."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.sidecar import SidecarProcess


class Answer(NamedTuple):
    """What came back; ``body`` is parsed JSON, None where there is none."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def problem(self) -> str:
        """The kind of problem; empty where there is none."""
        is_problem = self.headers.get("content-type") == "application/problem+json"
        return str(self.body["type"]).removeprefix("/api/v1/problems/") if is_problem else ""


class HttpApi:
    """Asks a sidecar, a connection a request."""

    def __init__(self, sidecar: SidecarProcess, token: str | None = None) -> None:
        self._sidecar = sidecar
        self._token = token

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, body: Any = None, key: str | None = None) -> Answer:
        return self.ask("POST", path, body, {} if key is None else {"Idempotency-Key": key})

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One request; ``body`` is sent as JSON, bytes as they are."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = {"Content-Type": "application/json", **(headers or {})}
        if self._token is not None:
            told["Authorization"] = f"Bearer {self._token}"
        url = f"http://{self._sidecar.http_address}/api/v1{path}"
        request = urllib.request.Request(url, data, told, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return _answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.headers, error.read())


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    return Answer(status, {name.lower(): value for name, value in headers.items()}, json.loads(body) if body else None)
