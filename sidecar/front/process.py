"""The process that serves HTTP, as a sidecar of one worker sees it: started, and anew when it ends.

Its standard input is its lifeline, as a worker's is (`sidecar.workers`).
"""

import pickle
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

import structlog

from sidecar.settings import Settings

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 10.0

_STOP_TIMEOUT_S = 2.0

log = structlog.get_logger("timewheel.web")


class Orders(NamedTuple):
    """What the process is told."""

    settings: dict[str, Any]
    listener_fd: int
    """The public socket, inherited."""
    address: str
    """``host:port`` where the process that delivers answers."""

    def resolved(self) -> Settings:
        return Settings.model_construct(**self.settings)


class FrontProcess:
    """A running process, as a context manager.

    Args:
        listener: the public socket, listened on, so that who asks meanwhile waits; closed at the end.
        address: where the process that delivers answers.
    """

    def __init__(self, settings: Settings, listener: socket.socket, address: str) -> None:
        self._listener = listener
        self._orders = pickle.dumps(Orders(dict(settings), listener.fileno(), address))
        self._is_stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="front", daemon=True)

    def __enter__(self) -> "FrontProcess":
        self._start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
        self._listener.close()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            (sys.executable, "-m", "sidecar.front"),
            stdin=subprocess.PIPE,
            pass_fds=[self._listener.fileno()],
            process_group=0,  # a terminal's Ctrl-C is for the sidecar, which tells it
        )
        self._process = process
        assert process.stdin is not None
        with suppress(ConnectionError):  # it ended at once; its exit code will say so
            process.stdin.write(self._orders)
            process.stdin.flush()
        return process

    def _keep(self) -> None:
        """Start it as often as it ends, ever later while it ends soon."""
        pause_s = BACKOFF_MIN_S
        while True:
            process = self._process
            assert process is not None
            try:
                process.wait(BACKOFF_MAX_S)
            except subprocess.TimeoutExpired:
                pause_s = BACKOFF_MIN_S
                continue
            if self._is_stopping.is_set():
                return
            log.warning(
                "http process ended",
                exit_code=process.returncode,
                delay_s=pause_s,
                operator_action="none where it was killed; delivery goes on. Else see its last line in the log",
            )
            if self._is_stopping.wait(pause_s):
                return
            pause_s = min(BACKOFF_MAX_S, 2 * pause_s)
            process = self._start()
            if self._is_stopping.is_set():
                process.terminate()
