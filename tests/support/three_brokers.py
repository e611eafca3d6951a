"""A cluster as in production: three brokers, a controller apart from them, and three replicas of every partition."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.embedded.data_dir import new_cluster_id
from connectors.embedded.ports import any_free
from tests.support.own_broker import OwnBroker
from tests.support.waiting import wait_until

BROKERS = (1, 2, 3)
CONTROLLER = 100
START_S = 120
"""Four Java processes on two cores."""


class ThreeBrokers:
    """All run once `start` has returned; what a broker has on disk stays between `kill` and `restart`."""

    def __init__(self, directory: Path) -> None:
        cluster_id, controller_port = new_cluster_id(), any_free()
        self._ports = {broker: any_free() for broker in BROKERS}
        shared = {
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "default.replication.factor": "3",  # it is the controller that makes topics
            "min.insync.replicas": "2",
        }
        nodes = {
            CONTROLLER: {"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{controller_port}"},
            **{broker: _broker(port) for broker, port in self._ports.items()},
        }
        self._nodes: dict[int, OwnBroker] = {}
        for node, properties in nodes.items():
            (directory / str(node)).mkdir(parents=True)
            named = {**shared, **properties, "node.id": str(node)}
            self._nodes[node] = OwnBroker(directory / str(node), cluster_id, named)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self) -> None:
        for node in self._nodes.values():
            node.start()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        self._wait_for_all()

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        self._nodes[broker].kill()

    def restart(self, broker: int) -> None:
        """Returns when it is an in-sync replica of everything again."""
        self._nodes[broker].start()
        self._wait_for_all()
        wait_until(lambda: not self._out_of_sync(), "all replicas are in sync", START_S, poll_s=0.2)

    def leaders(self, topic: str) -> list[int]:
        """Of the topic's partitions."""
        partitions = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def create_fragile(self, topic: str, **config: str) -> None:
        """One partition on brokers 1 and 2, of which 1 leads: what it alone has is lost when 2 takes over.

        Config names with underscores for dots.
        """
        named = {name.replace("_", "."): value for name, value in config.items()}
        named |= {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        self._admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1, 2]], config=named)])[topic].result(30)

    def leave_first_alone(self, topic: str) -> None:
        """Kill broker 2, and return when 1 is the only replica in sync."""
        self.kill(2)

        def in_sync() -> list[int]:
            isrs: list[int] = self._admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs
            return isrs

        wait_until(lambda: in_sync() == [1], "one replica is left", 60)

    def lose_end(self, topic: str) -> None:
        """Broker 1 dies, and 2 comes back and leads, with what it had when it was killed."""
        self.kill(1)
        self._nodes[2].start()
        wait_until(lambda: self.leaders(topic) == [2], "the other one leads", 60)

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()

    def _wait_for_all(self) -> None:
        def are_there() -> bool:
            for node in self._nodes.values():
                node.assert_runs()
            try:
                return set(BROKERS) <= set(self._admin.list_topics(timeout=5).brokers)
            except KafkaException:  # none of them listens yet
                return False

        wait_until(are_there, "three brokers", START_S, poll_s=0.2)

    def _out_of_sync(self) -> list[str]:
        topics = self._admin.list_topics(timeout=10).topics.values()
        return [
            f"{topic.topic}-{number}"
            for topic in topics
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas)
        ]


def _broker(port: int) -> dict[str, str]:
    address = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "process.roles": "broker",
        "listeners": address,
        "advertised.listeners": address,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "3000",  # until one that was killed is known to be gone
        "log.cleaner.dedupe.buffer.size": "16777216",  # allocated at the start, out of a small heap
    }


@contextmanager
def three_brokers(directory: Path) -> Iterator[ThreeBrokers]:
    """Killed at the end."""
    cluster = ThreeBrokers(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
