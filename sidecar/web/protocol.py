"""uvicorn's HTTP/1.1 protocol, with limits for those who are slow on purpose.

A connection has to bring the head of a request within `HEAD_WITHIN_S`. When all `CONNECTIONS_MAX` are taken, the one
that has kept us waiting longest for a head is closed, so that whoever holds connections open keeps nobody else out,
least of all the probes.
"""

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sidecar.web.problems import Kind, ProblemError

HEAD_WITHIN_S = 10.0
CONNECTIONS_MAX = 1_024
LINGER_S = 1.0
LINGER_MAX_BYTES = 256 * 2**10
"""A client that is still sending when it has been answered is read from for so long, and so much, and thrown off then.
Closing at once would reset the connection, and our answer with it."""


class GuardedProtocol(H11Protocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._waits_since_s: float | None = None
        """Since when the head of a request is waited for; None: it has come."""
        self._linger_timer: asyncio.TimerHandle | None = None
        self._lingering_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) > CONNECTIONS_MAX:
            waiting = [one for one in self.connections if isinstance(one, GuardedProtocol) and one._is_waiting]
            min(waiting, key=lambda one: one._waits_since_s or 0.0, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        self._stop_lingering()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._linger_timer is None:
            return
        self._lingering_bytes += len(data)
        if self.conn.their_state is not h11.SEND_BODY:
            self._stop_lingering()
            if self._head_timer is None and self.conn.their_state is h11.IDLE:
                self._wait_for_head()
        elif self._lingering_bytes > LINGER_MAX_BYTES:
            self.transport.pause_reading()

    def handle_events(self) -> None:
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:  # another request
            self._head_has_come()
            self._stop_lingering()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._lingering_bytes = 0
            self._linger_timer = self.loop.call_later(LINGER_S, self.transport.close)
        elif self.conn.their_state is h11.IDLE:
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read is a problem, too; called while the error is handled."""
        self._head_has_come()
        error = sys.exception()
        too_large = isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431
        kind = Kind.HEADERS_TOO_LARGE if too_large else Kind.BAD_REQUEST
        response = ProblemError(kind, msg).response()
        headers = [*response.raw_headers, (b"connection", b"close")]
        body = bytes(response.body)
        try:
            output = self.conn.send(h11.Response(status_code=kind.status, headers=headers))
            self.transport.write((output or b"") + (self.conn.send(h11.Data(data=body)) or b""))
        except h11.LocalProtocolError:  # an answer is under way
            pass
        self.transport.close()

    @property
    def _is_waiting(self) -> bool:
        return self._waits_since_s is not None

    def _wait_for_head(self) -> None:
        self._head_has_come()
        self._waits_since_s = self.loop.time()
        self._head_timer = self.loop.call_later(HEAD_WITHIN_S, self.transport.abort)

    def _stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _head_has_come(self) -> None:
        self._waits_since_s = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
