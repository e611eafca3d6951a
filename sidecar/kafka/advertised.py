"""Whether the addresses that brokers give for themselves (``advertised.listeners``) can be had from here.

``bootstrap_servers`` only tell where the brokers are: everything else goes to the addresses that they answer with.
Where those are names of another network, as a container's outside of it, a client waits for ever without a word.
"""

import socket
from collections.abc import Callable, Collection
from contextlib import closing
from typing import NamedTuple

ASKED_MAX = 3
"""Brokers that are tried; one that can be reached will do."""


class Address(NamedTuple):
    """Of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Connect = Callable[[tuple[str, int], float], socket.socket]


def why_out_of_reach(
    addresses: Collection[Address],
    bootstrap_servers: str,
    timeout_s: float,
    connect: Connect = socket.create_connection,
) -> str | None:
    """Why none of these brokers can be reached; None: one can.

    Nothing is sent. An address that is one of ``bootstrap_servers``, which have answered, is not tried at all.
    """
    if not addresses or {str(address) for address in addresses} & set(bootstrap_servers.replace(" ", "").split(",")):
        return None
    reasons = []
    for address in list(addresses)[:ASKED_MAX]:
        try:
            with closing(connect(address, timeout_s)):
                return None
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    return "; ".join(reasons)
