"""The HTTP interface of a running sidecar, as the commands ask it."""

import http.client
import json
from types import TracebackType
from typing import Any, NamedTuple

from sidecar.errors import TimewheelError
from sidecar.settings import Settings

SETTINGS = ("http_address", "http_token")

_TIMEOUT_S = 10.0
"""How long a request may take, connecting and answering each."""


class NoAnswerError(TimewheelError):
    """Nobody answers at the address."""


class Answer(NamedTuple):
    """HTTP status and body."""

    status: int
    body: str

    def json(self, *, but_for: int | None = None) -> Any:
        """The body as JSON.

        Args:
            but_for: an error's status that is an answer like any other.

        Raises:
            TimewheelError: the sidecar refuses the request, or it is none that answers.
        """
        try:
            told = json.loads(self.body)
        except ValueError as error:
            raise TimewheelError(
                f"that is not a sidecar: it answers {self.status}: {' '.join(self.body.split())[:200]}"
            ) from error
        if self.status >= 400 and self.status != but_for:
            detail = told.get("detail", self.body) if isinstance(told, dict) else told
            raise TimewheelError(f"the sidecar answers {self.status}: {detail}")
        return told


class SidecarApi:
    """One connection to a sidecar, as a context manager; it is made again where it has been lost."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.http_address
        self._headers = {}
        if settings.http_token is not None:
            self._headers["Authorization"] = f"Bearer {settings.http_token.get_secret_value()}"
        self._connection = http.client.HTTPConnection(settings.http_host, settings.http_port, timeout=_TIMEOUT_S)

    def __enter__(self) -> "SidecarApi":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str, within_s: float = _TIMEOUT_S) -> Answer:
        """Raises NoAnswerError, at the latest when a request may take no longer."""
        return self._ask("GET", path, None, {}, min(within_s, _TIMEOUT_S))

    def put(self, path: str, body: object) -> Answer:
        """Raises NoAnswerError."""
        return self._ask("PUT", path, json.dumps(body), {"Content-Type": "application/json"})

    def _ask(
        self, method: str, path: str, body: str | None, headers: dict[str, str], within_s: float = _TIMEOUT_S
    ) -> Answer:
        self._connection.timeout = within_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(within_s)
        try:
            self._connection.request(method, path, body, {**self._headers, **headers})
            response = self._connection.getresponse()
            return Answer(response.status, response.read().decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next request makes another
            raise NoAnswerError(
                f"no sidecar answers at http://{self._address} ({error or type(error).__name__}); check http_address"
            ) from error
