"""One more broker for an embedded Kafka, with topics of its own: what it takes with it when it dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from connectors.embedded import EmbeddedKafka
from connectors.embedded.ports import any_free
from tests.support.own_broker import OwnBroker
from tests.support.waiting import wait_until

FIRST, SECOND = 1, 2
"""The brokers' ids."""


class SecondBroker:
    """A broker without a controller, in an empty directory. Its log stays between `kill` and `start`."""

    def __init__(self, first: EmbeddedKafka, controller_port: int, directory: Path) -> None:
        self._admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        address = f"PLAINTEXT://127.0.0.1:{any_free()}"
        properties = {
            "process.roles": "broker",
            "node.id": str(SECOND),
            "controller.quorum.voters": f"{FIRST}@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": address,
            "advertised.listeners": address,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "broker.session.timeout.ms": "3000",
        }
        self._broker = OwnBroker(directory, str(self._admin.list_topics(timeout=10).cluster_id), properties)

    def start(self) -> None:
        """Returns when the cluster knows it."""
        self._broker.start()

        def has_joined() -> bool:
            self._broker.assert_runs()
            return SECOND in self._admin.list_topics(timeout=5).brokers

        wait_until(has_joined, "the second broker has joined", 60, poll_s=0.1)

    def kill(self) -> None:
        """SIGKILL."""
        self._broker.kill()

    def create_topic(self, name: str, *replicas: int) -> str:
        """A topic with a partition for each of these brokers, on it alone."""
        topic = NewTopic(name, len(replicas), replica_assignment=[[broker] for broker in replicas])
        self._admin.create_topics([topic])[name].result(30)
        return name


@contextmanager
def two_brokers(directory: Path) -> Iterator[tuple[EmbeddedKafka, SecondBroker]]:
    """The first runs; the second, once it is started, gets its share of every topic that is made from then on."""
    directory.mkdir()
    controller_port = any_free()
    fast = {"broker.session.timeout.ms": "3000"}  # until a broker that was killed is known to be gone
    with EmbeddedKafka(controller_port=controller_port, server_properties=fast) as first:
        second = SecondBroker(first, controller_port, directory)
        try:
            yield first, second
        finally:
            second.kill()
