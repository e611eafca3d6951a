"""The process that serves HTTP, as a sidecar of one worker sees it: started, and anew when it ends.

The first is forked before the sidecar has a thread, a lock or a client, and shares the memory of what is imported by
then; what it alone needs it imports itself, while the sidecar connects. Those that come after it are new interpreters.
"""

import multiprocessing
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import structlog

from sidecar.settings import Settings
from sidecar.web.listening import address_of

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 10.0

_STOP_TIMEOUT_S = 2.0
_FORK, _SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")

log = structlog.get_logger("timewheel.web")


class FrontProcess:
    """A running process: `start` it, and keep it running as a context manager.

    Args:
        listener: the public socket, listened on, so that who asks meanwhile waits; closed at the end.
        own: where the process that delivers answers, which is none of the other's business but for its address.
        ends: whether all of it is to end: whoever stops a service may tell each of its processes.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        own: socket.socket,
        ends: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._ends = ends
        self._listener = listener
        self._own = own
        self._is_stopping = threading.Event()
        self._process: BaseProcess | None = None
        self._thread = threading.Thread(target=self._keep, name="front", daemon=True)

    def start(self) -> None:
        """Start it; without the `with` that should follow it ends with this interpreter."""
        is_alone = threading.active_count() == 1  # a thread's locks would stay locked in the child
        listening, self._go = Pipe(duplex=False)
        arguments = (self._settings, self._listener, address_of(self._own), listening)
        if is_alone and sys.platform == "linux":
            process: BaseProcess = _FORK.Process(target=self._serve_forked, args=arguments, name="front", daemon=True)
            # A SIGTERM that finds the child with our handler would be lost in it, and who sent it waits for its end.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        else:
            process = _SPAWN.Process(target=_serve, args=arguments, name="front", daemon=True)
            process.start()
        listening.close()
        self._process = process

    def __enter__(self) -> "FrontProcess":
        """The sidecar's identity is its own now."""
        self._let_go()
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

    def _let_go(self) -> None:
        with suppress(ConnectionError):  # it ended at once; its exit code will say so
            self._go.send(True)

    def _serve_forked(self, *arguments: Any) -> None:
        self._own.close()
        _serve(*arguments)

    def _keep(self) -> None:
        """Start it as often as it ends, ever later while it ends soon."""
        pause_s = BACKOFF_MIN_S
        while True:
            process = self._process
            assert process is not None
            process.join(BACKOFF_MAX_S)
            if process.is_alive():
                pause_s = BACKOFF_MIN_S
                continue
            if self._is_stopping.is_set() or self._ends():
                return
            log.warning(
                "http process ended",
                exit_code=process.exitcode,
                delay_s=pause_s,
                operator_action="nothing, if it was killed: delivery goes on. Otherwise see its last line in the log",
            )
            while not self._is_stopping.wait(pause_s):
                pause_s = min(BACKOFF_MAX_S, 2 * pause_s)
                try:
                    self.start()
                except OSError as error:  # no memory, or as many processes or files as there may be
                    log.warning(
                        "http process not started",
                        reason=str(error),
                        delay_s=pause_s,
                        operator_action="give the sidecar more of it; delivery goes on, and this is tried again",
                    )
                else:
                    break
            else:
                return
            self._let_go()
            if self._is_stopping.is_set() and self._process is not None:
                self._process.terminate()


def _serve(*arguments: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the sidecar's handler, which a fork brings along, would not end it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    from sidecar.front.serve import serve  # most of what the sidecar would import, and has no use for

    serve(*arguments)
