"""What the process that serves HTTP does; see `sidecar.front.process`, which starts it."""

import gc
import multiprocessing
import os
import signal
import socket
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType

import uvicorn

from sidecar.clock import SystemClock
from sidecar.front.app import make_front
from sidecar.front.kafka import FrontKafka
from sidecar.front.redrives import Jobs
from sidecar.kafka.backlog import Backlog
from sidecar.observability.logs import configure_logging
from sidecar.settings import Settings
from sidecar.web.events import Events
from sidecar.web.server import NICENESS
from sidecar.web.server_config import server_config
from sidecar.workers.live import SeveralProcesses
from sidecar.workers.relay import make_relay_to_one

PROCESS_NAME = "timewheel-http"
"""As ``ps -o comm`` shows it, on Linux."""


class Sidecar:
    """Where the process that delivers is found."""

    number = 1

    def __init__(self, address: str) -> None:
        self.address: str | None = address


class Server(uvicorn.Server):
    """A server that ends event streams and redrives when it is told to stop: otherwise it would wait for them."""

    def __init__(self, config: uvicorn.Config, events: Events, redrives: Jobs) -> None:
        super().__init__(config)
        self._events = events
        self._redrives = redrives

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._events.close()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._redrives.ask_to_stop()
        await super().shutdown(sockets)


def serve(settings: Settings, listener: socket.socket, address: str, go: Connection) -> None:
    """Serve until told to stop, or until the sidecar is gone.

    Args:
        listener: the public socket.
        address: where the process that delivers answers.
        go: tells when the sidecar's identity is its own: only then may anything be done in its name.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until the server does
    os.setpgid(0, 0)  # a terminal's Ctrl-C is for the sidecar, which tells us
    _be_known()
    threading.Thread(target=_end_with_the_sidecar, name="lifeline", daemon=True).start()
    os.nice(NICENESS)
    gc.enable()  # the sidecar collects between two turns, and a fork of it has none
    configure_logging(settings.log_format, settings.log_level, settings.secrets())
    go.recv()
    kafka = FrontKafka(settings)
    kafka.settle_earlier_life()
    sidecar = Sidecar(address)
    clock = SystemClock()
    live = SeveralProcesses(settings, [sidecar], clock, Backlog(settings, clock))
    events, redrives = Events(live.status), Jobs()
    app = make_front(settings, make_relay_to_one(sidecar), kafka, live, events, redrives)
    server = Server(server_config(app), events, redrives)
    signal.signal(signal.SIGTERM, server.handle_exit)  # uvicorn's own; at its end it raises the signal once more
    server.run(sockets=[listener])
    redrives.close()


def _be_known() -> None:
    with suppress(OSError):  # no Linux, or a /proc that is not ours to write
        Path("/proc/self/comm").write_text(PROCESS_NAME)


def _end_with_the_sidecar() -> None:
    """Wait for its end, and end at once: whoever comes next wants the address."""
    sidecar = multiprocessing.parent_process()
    assert sidecar is not None
    wait([sidecar.sentinel])
    os._exit(1)
