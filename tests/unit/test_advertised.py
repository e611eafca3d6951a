"""Brokers that say they are where nobody gets to."""

import socket
from typing import cast

import pytest

from sidecar.kafka.advertised import ASKED_MAX, Address, why_out_of_reach

UNKNOWN, REFUSING, HERE = Address("kafka", 9092), Address("10.0.0.1", 9092), Address("10.0.0.2", 9092)
BOOTSTRAP = "localhost:9092, 127.0.0.1:19092"


class Network:
    """On which one address can be reached."""

    def __init__(self) -> None:
        self.tried: list[Address] = []
        self.closed = 0

    def connect(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        self.tried.append(Address(*address))
        assert timeout_s == 0.5
        if address == UNKNOWN:
            raise socket.gaierror(-2, "Name or service not known")
        if address == REFUSING:
            raise TimeoutError("timed out")  # it has no strerror
        return cast(socket.socket, self)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("addresses", "reason", "tried"),
    [
        ([], None, []),
        ([HERE], None, [HERE]),
        ([UNKNOWN, HERE, REFUSING], None, [UNKNOWN, HERE]),
        ([UNKNOWN, Address("127.0.0.1", 19092)], None, []),  # one that has just answered
        ([UNKNOWN], "kafka:9092: Name or service not known", [UNKNOWN]),
        (
            [UNKNOWN, REFUSING],
            "kafka:9092: Name or service not known; 10.0.0.1:9092: timed out",
            [UNKNOWN, REFUSING],
        ),
    ],
)
def test_one_that_can_be_reached_will_do(addresses: list[Address], reason: str | None, tried: list[Address]) -> None:
    network = Network()
    assert why_out_of_reach(addresses, BOOTSTRAP, 0.5, network.connect) == reason
    assert network.tried == tried
    assert network.closed == (HERE in tried)


def test_of_a_large_cluster_few_are_tried() -> None:
    network = Network()
    assert why_out_of_reach([UNKNOWN] * 100, BOOTSTRAP, 0.5, network.connect)
    assert network.tried == [UNKNOWN] * ASKED_MAX
