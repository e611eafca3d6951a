"""Serves the HTTP interface from a thread of its own, so that the loop has the main one."""

import os
import socket
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from sidecar.web.listening import address_of

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

NICENESS = 15
"""Of what serves the world: where processors are scarce, deliveries go first. Probes still get their few ms."""

_STOP_TIMEOUT_S = 1.0


class WebServer:
    """A running HTTP server, as a context manager.

    Attributes:
        address: ``host:port`` as bound; the port is the real one where 0 was asked for.

    Args:
        make_app: called on the server's thread. Half of what a sidecar imports is for HTTP: imported there, it costs a
            start nothing while Kafka is waited for, and who asks meanwhile waits on the socket.
        listener: a bound socket; it is closed at the end.
        niceness: of the thread, on Linux; 0: that of the process.
    """

    def __init__(self, make_app: "Callable[[], ASGIApp]", listener: socket.socket, niceness: int = 0) -> None:
        self._make_app = make_app
        self._socket = listener
        self.address = address_of(listener)
        self._server: uvicorn.Server | None = None
        self._is_stopping = threading.Event()
        self._niceness = niceness
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def __enter__(self) -> "WebServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        self._thread.join(_STOP_TIMEOUT_S)
        self._socket.close()

    def close(self) -> None:
        """Let it end, which takes 0.1 to 0.2 s; leaving the context waits for that."""
        self._is_stopping.set()
        if self._server is not None:
            self._server.should_exit = True

    def _run(self) -> None:
        if self._niceness and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        import uvicorn

        from sidecar.web.server_config import server_config

        self._server = uvicorn.Server(server_config(self._make_app()))
        if not self._is_stopping.is_set():
            self._server.run(sockets=[self._socket])
