"""``python -m sidecar.workers NUMBER``: a worker, started by a supervisor; no command for people."""

import os
import pickle
import socket
import sys
import threading

import structlog

from sidecar.daemon import Daemon
from sidecar.errors import TimewheelError
from sidecar.observability.logs import configure_logging
from sidecar.workers.process import Orders


def main() -> None:
    """Run the worker that the orders on standard input describe; errors of ours become their exit code."""
    orders: Orders = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_supervisor, name="lifeline", daemon=True).start()
    settings = orders.settings
    configure_logging(settings.log_format, settings.log_level, settings.secrets(), worker=int(sys.argv[1]))
    try:
        Daemon(settings, socket.socket(fileno=orders.listener_fd)).run()
    except TimewheelError as error:
        structlog.get_logger("timewheel.workers").error(
            "worker cannot go on",
            reason=str(error),
            operator_action="fix what the reason names, then start the sidecar again",
        )
        sys.exit(error.exit_code)


def _end_with_the_supervisor() -> None:
    """Wait for the end of standard input, and end at once: a supervisor that stops in order has stopped us before.

    A worker that finished its transaction first could meet its successor, whose identity and directory are the same.
    What this leaves behind is what ``kill -9`` leaves behind. Nothing is logged: who reads the log may be gone, too.
    """
    # Not through sys.stdin, whose lock must be free when the interpreter ends.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


main()
