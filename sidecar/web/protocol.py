"""uvicorn's HTTP/1.1 protocol, with limits for those who are slow on purpose.

    what a client owes                                     within             or
    the head of a request                                  HEAD_WITHIN_S      the connection is closed
    the rest of a body, when it has been answered          LINGER_S           the connection is closed
    to read what it is sent, before it is closed, too      READ_WITHIN_S      the connection is ended

When all `CONNECTIONS_MAX` are taken, the one that has owed us something for longest is ended, so that whoever holds
connections open keeps nobody else out, least of all the probes. Those that owe nothing are in the hands of `guard`.
"""

import asyncio
import resource
import sys
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sidecar.web.problems import Kind, ProblemError

HEAD_WITHIN_S = 10.0
READ_WITHIN_S = 30.0
"""For all of an answer, or for 48 KiB of one that goes on."""
CONNECTIONS_MAX = 1_024
LINGER_S = 5.0
LINGER_MAX_BYTES = 16 * 2**20
"""A client that is still sending when it has been answered is read from for so long, and so much, and thrown off then.
Closing at once would reset the connection, and our answer with it: most HTTP libraries read nothing before they have
sent all, so that a body just beyond the limit, too, has to go through. What is read is thrown away at once."""


class _Debt:
    """What a client owes.

    Attributes:
        since_s: since when, in the event loop's time; None: nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.since_s: float | None = None

    def begin(self, within_s: float, end: Callable[[], object]) -> None:
        """The client owes something from now on; call ``end`` where it is not settled in time."""
        self.settle()
        self.since_s = self._loop.time()
        self._timer = self._loop.call_later(within_s, end)

    def settle(self) -> None:
        self.since_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _WayOut:
    """A connection as those see it who answer a request: closing it does not take the answer from the client."""

    def __init__(self, protocol: "GuardedProtocol") -> None:
        self._protocol = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        self._protocol.close_answered()


class GuardedProtocol(H11Protocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._debts = tuple(_Debt(self.loop) for _ in range(4))
        self._head, self._reading, self._rest, self._leaving = self._debts
        self._lingering_bytes = 0
        self._is_leaving = False
        """Whether there is no other request to come, and all that comes is thrown away."""

    @property
    def owes_since_s(self) -> float | None:
        """Since when the client has kept us waiting; None: it does not."""
        return min((debt.since_s for debt in self._debts if debt.since_s is not None), default=None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) > connections_max():
            others = [one for one in self.connections if isinstance(one, GuardedProtocol)]
            owing = [(since_s, one) for one in others if (since_s := one.owes_since_s) is not None]
            _, longest = min(owing, key=lambda owed: owed[0])
            self.connections.discard(longest)  # it hears of its end later, and is not to be chosen again till then
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for debt in self._debts:
            debt.settle()
        super().connection_lost(exc)
        if self.cycle is not None:  # nothing more is written; else they would hold each other until a collection
            self.cycle.transport = self.transport

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading.begin(READ_WITHIN_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading.settle()

    def data_received(self, data: bytes) -> None:
        if not self._is_leaving:
            super().data_received(data)
        if self._rest.since_s is None:
            return
        self._lingering_bytes += len(data)
        if self.conn.their_state is not h11.SEND_BODY:
            self._rest.settle()
            if self._head.since_s is None and self.conn.their_state is h11.IDLE:
                self._wait_for_head()
        elif self._lingering_bytes > LINGER_MAX_BYTES:
            self.transport.pause_reading()

    def handle_events(self) -> None:
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:  # another request
            self.cycle.transport = _WayOut(self)  # type: ignore[assignment]
            self._head.settle()
            self._rest.settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_end()
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._lingering_bytes = 0
            self._rest.begin(LINGER_S, self._close)
        elif self.conn.their_state is h11.IDLE:
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read is a problem, too; called while the error is handled."""
        self._head.settle()
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
        self._close()

    def close_answered(self) -> None:
        """The client wants no other request (``Connection: close``)."""
        if self.conn.their_state is h11.SEND_BODY:
            self._is_leaving = True
            self.transport.write_eof()
        else:
            self.transport.close()

    def _wait_for_head(self) -> None:
        self._head.begin(HEAD_WITHIN_S, self._close)

    def _wait_for_end(self) -> None:
        self._leaving.begin(READ_WITHIN_S, self.transport.abort)

    def _close(self) -> None:
        """As soon as the client has read what it was sent."""
        self.transport.close()
        self._wait_for_end()


def connections_max() -> int:
    """`CONNECTIONS_MAX`, or half of the files that this process may have open: it needs some for other things."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if files_max == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, files_max // 2)
