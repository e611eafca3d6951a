"""Kafka in a container, where that can be had without fetching anything."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from connectors.embedded.ports import any_free
from tests.support.waiting import wait_until

IMAGE = "apache/kafka:4.3.1"


def has_kafka_image() -> bool:
    """Whether a Docker engine answers and has the image already, and the one that cleans up after testcontainers."""
    if shutil.which("docker") is None:
        return False
    images = [IMAGE, *([] if testcontainers_config.ryuk_disabled else [testcontainers_config.ryuk_image])]
    return subprocess.run(["docker", "image", "inspect", *images], capture_output=True, check=False).returncode == 0


@contextmanager
def kafka_container() -> Iterator[str]:
    """Kafka's own image, KRaft, one node; yields the bootstrap address once it answers."""
    port = any_free()
    container = DockerContainer(IMAGE).with_bind_ports(9092, port)
    for name, value in {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "AUTO_CREATE_TOPICS_ENABLE": "false",
    }.items():
        container = container.with_env(f"KAFKA_{name}", value)
    with container:
        bootstrap_servers = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})

        def answers() -> bool:
            try:
                return bool(admin.list_topics(timeout=1).brokers)
            except KafkaException:
                return False

        wait_until(answers, "Kafka answers in its container", 60)
        yield bootstrap_servers
