"""One worker as its supervisor sees it: a process, what it is told at its start, and where it answers.

The worker's standard input is its lifeline. The first thing that comes out of it is the `Orders`; the next is its end,
which comes when the supervisor is gone, whatever has ended it.
"""

import asyncio
import pickle
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import structlog

from sidecar.settings import Settings
from sidecar.web.listening import address_of

log = structlog.get_logger("timewheel.workers")


class Orders(NamedTuple):
    """What a worker is told.

    The settings come as the supervisor has resolved them, and with them which were given, for some defaults follow from
    others: a file that has been edited since does not make workers differ, and secrets show in no process list.
    """

    settings: Settings
    listener_fd: int
    """A bound socket that the worker inherits."""


class WorkerProcess:
    """A worker, started as often as need be, one process at a time.

    Args:
        switched: settings that have been changed while the sidecar runs; the next process starts with them.

    Attributes:
        address: ``host:port`` of the HTTP interface; None while there is no process.
    """

    def __init__(self, number: int, settings: Settings, switched: Mapping[str, Any]) -> None:
        self.number = number
        self.address: str | None = None
        self._settings = settings
        self._switched = switched
        self._is_stopping = False
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Start a process and wait for its end; its exit code, or minus the number of the signal that ended it."""
        # Bound here, so that the address is known at once, and questions wait for the worker instead of failing.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sidecar.workers", str(self.number)),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[listener.fileno()],
                process_group=0,  # a terminal's Ctrl-C is for the supervisor, which tells the workers
            )
            self._process, self.address = process, address_of(listener)
            orders = pickle.dumps(Orders(self._settings.model_copy(update=self._switched), listener.fileno()))
        log.info("worker started", worker=self.number, pid=process.pid)
        assert process.stdin is not None
        with suppress(ConnectionError):  # it ended at once; its exit code will say so
            process.stdin.write(orders)
            await process.stdin.drain()
        if self._is_stopping:
            self.stop()
        code = await process.wait()
        self._process = self.address = None
        return code

    def stop(self) -> None:
        """Ask it to finish the transaction in hand and end; for good."""
        self._is_stopping = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
