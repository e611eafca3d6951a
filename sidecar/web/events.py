"""``/api/v1/events``: the status as server-sent events, once a second, computed once for all who listen.

A listener that reads slowly misses events and holds up nobody: only the newest waits for it. One that does not read at
all is let go, so that its place is free.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from sidecar.web.guard import STREAM
from sidecar.web.problems import Kind, ProblemError, described

LISTENERS_MAX = 32
EVERY_S = 1.0
SEND_TIMEOUT_S = 15.0
HEARTBEAT = b": still here\n\n"
BEGIN = b"retry: 1000\n\n"

log = structlog.get_logger("timewheel.web")

Compute = Callable[[], Awaitable[dict[str, Any]]]


class Events:
    """Tells all listeners of one event loop.

    Args:
        compute: the status.
    """

    def __init__(self, compute: Compute, *, every_s: float = EVERY_S, listeners_max: int = LISTENERS_MAX) -> None:
        self._compute = compute
        self._every_s = every_s
        self._listeners_max = listeners_max
        self._listeners: set[Listener] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def close(self) -> None:
        """End all streams, so that a stop waits for none; may be called from any thread."""
        self._is_closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended already
                self._loop.call_soon_threadsafe(self._tell, None)

    def listen(self) -> "Listener":
        """The events for one more listener, which has to be closed.

        Raises:
            ProblemError: there are too many.
        """
        if self._is_closed or len(self._listeners) >= self._listeners_max:
            raise ProblemError(
                Kind.UNAVAILABLE, f"{self._listeners_max} listeners are the most; close a page, or ask /api/v1/status"
            )
        listener = Listener(self._listeners)
        if self._ticking is None:
            self._loop = asyncio.get_running_loop()
            self._ticking = asyncio.create_task(self._tick())
        return listener

    async def _tick(self) -> None:
        """Compute and tell, as long as anybody listens."""
        try:
            while self._listeners and not self._is_closed:
                began = asyncio.get_running_loop().time()
                try:
                    event = b"event: status\ndata: " + msgspec.json.encode(await self._compute()) + b"\n\n"
                except Exception as error:  # noqa: BLE001 - whatever it is, the next second may know more
                    log.warning(
                        "status not told",
                        reason=str(error),
                        operator_action="nothing, if it passes: the page tries again; else see the lines before",
                    )
                    event = HEARTBEAT
                if not self._is_closed:  # else it would take the place of the end
                    self._tell(event)
                await asyncio.sleep(max(0.0, self._every_s - (asyncio.get_running_loop().time() - began)))
        finally:
            self._ticking = None

    def _tell(self, event: bytes | None) -> None:
        for listener in self._listeners:
            listener.tell(event)


class Listener:
    """The events for one who listens; no generator, for one that never began would not notice its end.

    Args:
        listeners: it is one of them until it is closed.
    """

    def __init__(self, listeners: "set[Listener]") -> None:
        self._listeners = listeners
        self._newest: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._has_begun = False
        listeners.add(self)

    def tell(self, event: bytes | None) -> None:
        """The newest takes the place of one that has not been read; None: the end."""
        if self._newest.full():
            self._newest.get_nowait()
        self._newest.put_nowait(event)

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            return BEGIN
        if (event := await self._newest.get()) is None:
            self.close()
            raise StopAsyncIteration
        return event

    def close(self) -> None:
        self._listeners.discard(self)


class EventStream(StreamingResponse):
    """A response whose client has to read it: where nothing can be sent for `SEND_TIMEOUT_S`, it ends."""

    media_type = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if isinstance(self.body_iterator, Listener):
                self.body_iterator.close()

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Any) -> None:
            await asyncio.wait_for(send(message), SEND_TIMEOUT_S)

        with suppress(TimeoutError):
            await super().stream_response(send_in_time)


def events_router(events: Events) -> APIRouter:
    """The stream."""
    router = APIRouter()

    @router.get(
        STREAM,
        summary="The status, once a second, as server-sent events",
        response_class=EventStream,
        responses=described(Kind.UNAVAILABLE),
    )
    async def listen() -> EventStream:
        return EventStream(events.listen(), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    return router
