"""Serves the HTTP interface from a thread of its own, so that the loop has the main one."""

import os
import socket
import sys
import threading
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp

from sidecar.errors import UsageError
from sidecar.web.guard import HEADERS_MAX_BYTES, TARGET_MAX_BYTES
from sidecar.web.protocol import GuardedProtocol

LISTEN_BACKLOG = 1_024

NICENESS = 15
"""Of what serves the world: where processors are scarce, deliveries go first. Probes still get their few ms."""

_STOP_TIMEOUT_S = 1.0


class WebServer:
    """A running HTTP server, as a context manager.

    Attributes:
        address: ``host:port`` as bound; the port is the real one where 0 was asked for.

    Args:
        listener: a bound socket; it is closed at the end.
        niceness: of the thread, on Linux; 0: that of the process.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket, niceness: int = 0) -> None:
        self._socket = listener
        self.address = address_of(listener)
        self._server = uvicorn.Server(server_config(app))
        self._niceness = niceness
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def __enter__(self) -> "WebServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_TIMEOUT_S)
        self._socket.close()

    def _run(self) -> None:
        if self._niceness and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        self._server.run(sockets=[self._socket])


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How every HTTP server of ours is run."""
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        log_config=None,
        log_level="error",  # what strangers send is no event of ours
        access_log=False,
        lifespan="off",
        h11_max_incomplete_event_size=HEADERS_MAX_BYTES + TARGET_MAX_BYTES,
        timeout_graceful_shutdown=1,
        server_header=False,
    )


def address_of(listener: socket.socket) -> str:
    """``host:port`` as bound."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that is listened on: who asks before there is a server waits for it.

    Raises:
        UsageError: the address cannot be listened on.
    """
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise UsageError(
            f"http_address {host}:{port} cannot be listened on: {error.strerror}; choose another, or port 0 for any"
        ) from error
    return listener
