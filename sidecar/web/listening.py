"""Where HTTP is listened on."""

import socket

from sidecar.errors import UsageError

LISTEN_BACKLOG = 1_024


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
            f"http_address {host}:{port} cannot be listened on: {error.strerror}; choose another (--http-address), or "
            "port 0 for any"
        ) from error
    return listener
