"""``python -m sidecar.front``: serves HTTP for a sidecar; started by it, no command for people."""

import os
import pickle
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn
from prometheus_client import CollectorRegistry

from sidecar.backlog import Backlog
from sidecar.clock import SystemClock
from sidecar.front.app import make_front
from sidecar.front.kafka import FrontKafka
from sidecar.front.process import Orders
from sidecar.logs import configure_logging
from sidecar.web.events import Events
from sidecar.web.server import NICENESS, server_config
from sidecar.workers.live import SeveralProcesses
from sidecar.workers.relay import make_relay_to_one


class Sidecar:
    """Where the process that delivers is found."""

    number = 1

    def __init__(self, address: str) -> None:
        self.address: str | None = address


class Server(uvicorn.Server):
    """One that ends the streams when it is told to stop, and so waits for none."""

    def __init__(self, config: uvicorn.Config, events: Events) -> None:
        super().__init__(config)
        self._events = events

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._events.close()
        super().handle_exit(sig, frame)


def main() -> None:
    """Serve until told to stop, or until the sidecar is gone."""
    orders: Orders = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_sidecar, name="lifeline", daemon=True).start()
    os.nice(NICENESS)
    settings = orders.resolved()
    configure_logging(settings.log_format, settings.log_level)
    kafka = FrontKafka(settings)
    kafka.settle_earlier_life()
    sidecar = Sidecar(orders.address)
    clock = SystemClock()
    live = SeveralProcesses(settings, [sidecar], clock, Backlog(settings, clock))
    events = Events(live.status)
    app = make_front(settings, make_relay_to_one(sidecar, CollectorRegistry()), kafka, live, events)
    server = Server(server_config(app), events)
    server.run(sockets=[socket.socket(fileno=orders.listener_fd)])


def _end_with_the_sidecar() -> None:
    """Wait for the end of standard input, and end at once: whoever comes next wants the address."""
    # Not through sys.stdin, whose lock must be free when the interpreter ends.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until uvicorn handles it
main()
