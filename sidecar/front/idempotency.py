"""The ``Idempotency-Key`` header (draft-ietf-httpapi-idempotency-key-header): read, and one request a key at a time."""

import asyncio
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from sidecar.front.at_once import Key, Work
from sidecar.web.problems import Kind, ProblemError

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
"""Says ``true`` where the answer is that of an earlier request."""

KEY_MAX_CHARACTERS = 255

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])+)"')
_PLAIN = re.compile(r"[!#-~]+")

PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": (
        "Makes a repeated request harmless, also across restarts: it is answered as the first was. A key holds for 24 "
        "hours, unless more keys come than memory holds, about 50,000 of single messages: then the oldest go sooner. "
        "Take a new random one, such as a UUID, for each request."
    ),
    "schema": {"type": "string", "pattern": r"^[!-~]([ -~]*[!-~])?$", "minLength": 1, "maxLength": KEY_MAX_CHARACTERS},
    "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
}


class KeysInProgress:
    """Requests with a key that have not been answered yet."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    @contextmanager
    def hold(self, work: Work) -> Iterator[None]:
        """Hold a request's key until the request is done, which may be after whoever asked has been told otherwise.

        Raises:
            ProblemError: it is held already.
        """
        key = work.key
        if key is None:
            yield
            return
        if key.name in self._names:
            raise ProblemError(
                Kind.IN_PROGRESS, "a request with this Idempotency-Key is under way; ask again for its answer"
            )
        self._names.add(key.name)
        try:
            yield
        except asyncio.CancelledError:  # it goes on
            work.done.add_done_callback(lambda _: self._names.discard(key.name))
            raise
        except BaseException:
            self._names.discard(key.name)
            raise
        self._names.discard(key.name)


def key_of(request: Request, body: bytes) -> Key | None:
    """The key of a request; a structured-field string, or plain text. Raises ProblemError."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    text = given[0].strip()
    if quoted := _QUOTED.fullmatch(text):
        text = re.sub(r"\\(.)", r"\1", quoted[1])
    elif not _PLAIN.fullmatch(text):
        raise _unusable("is neither a quoted string nor a word of printable characters")
    if len(given) > 1 or not text.isascii() or not text.isprintable():
        raise _unusable("has to come once, in printable ASCII")
    if len(text) > KEY_MAX_CHARACTERS:
        raise _unusable(f"has {len(text)} characters; {KEY_MAX_CHARACTERS} are the most")
    name = hashlib.sha256(f"{request.method} {request.url.path}\n{text}".encode()).hexdigest()[:32]
    return Key(name, hashlib.sha256(body).hexdigest()[:32])


def _unusable(why: str) -> ProblemError:
    return ProblemError.of_fields([(HEADER, f"{why}; take a UUID")])
