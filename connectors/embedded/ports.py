"""Free TCP ports on the loopback address.

Random ports come from below the range that systems take client ports from (32768 and up on Linux, 49152 on macOS). A
client that keeps reconnecting to a dead broker's port within that range can be given the very same port as its own;
then it is connected to itself, and the broker cannot come back.
"""

import random
import socket
import time

from connectors.clock import Deadline
from connectors.embedded.errors import EmbeddedKafkaError

HOST = "127.0.0.1"
_RANDOM_PORTS = range(20_000, 32_000)
_TRIES = 200
_POLL_S = 0.05


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As Java's server sockets do: connections of the last broker that linger in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def any_free(*, but: int = 0) -> int:
    """A port that is free now; somebody else may still be quicker. `but` is left out."""
    for _ in range(_TRIES):
        port = random.choice(_RANDOM_PORTS)
        if port != but and is_free(port):
            return port
    raise EmbeddedKafkaError(f"no free port between {_RANDOM_PORTS.start} and {_RANDOM_PORTS.stop} on {HOST}")


def wait_until_free(port: int, deadline: Deadline) -> bool:
    """Whether the port became free before the deadline."""
    while not is_free(port):
        if deadline.is_over:
            return False
        time.sleep(_POLL_S)
    return True
