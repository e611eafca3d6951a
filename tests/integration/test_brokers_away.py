"""Brokers that are away for long, and brokers that come back elsewhere."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from connectors.clients import KafkaClients
from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.errors import NotAnsweredError
from connectors.embedded import EmbeddedKafka
from connectors.embedded.ports import any_free
from connectors.kafka import UNPOLLED, common_config
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import timed


class Door:
    """An address that leads to a broker, and may be made to lead to another; to none: what comes is closed at once."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.leads_to: str | None = None
        self.visits = 0
        self._is_open = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._is_open:
            visitor, _ = self._listener.accept()
            self.visits += 1
            if self.leads_to is None:
                visitor.close()
                continue
            host, _, port = self.leads_to.rpartition(":")
            with suppress(OSError):
                inner = socket.create_connection((host, int(port)))
                for source, sink in ((visitor, inner), (inner, visitor)):
                    threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        self._is_open, self.leads_to = False, None
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join(10)
        self._listener.close()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with source, sink, suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def a_door() -> Iterator[Door]:
    door = Door()
    try:
        yield door
    finally:
        door.close()


def test_a_client_that_is_not_polled_is_told_once_that_all_brokers_are_down() -> None:
    told: list[KafkaError] = []
    with a_door() as door:
        client = Producer({**common_config(door.address, UNPOLLED, "test"), "error_cb": told.append, "log_level": 0})
        wait_until(lambda: door.visits >= 8, "it has tried again and again", 30)
        while not told or client.poll(0):
            client.poll(0.1)
        del client
    assert [error.code() for error in told].count(KafkaError._ALL_BROKERS_DOWN) == 1


class Watched(KafkaClients):
    """Clients, and what has become of them."""

    def __init__(self) -> None:
        self.admins: list[AdminClient] = []

    def admin(self, config: Mapping[str, Any], /) -> AdminClient:
        self.admins.append(super().admin(config))
        return self.admins[-1]


@pytest.mark.long
def test_what_asks_for_dead_letters_and_keys_keeps_no_events_while_brokers_are_away() -> None:
    clients = Watched()
    with a_door() as door:
        cluster = Cluster({"bootstrap.servers": door.address}, clients)
        (admin,) = clients.admins
        wait_until(lambda: door.visits >= 20, "it has tried again and again", 60)
        assert len(admin) < 6, "events wait for somebody to poll"
        del cluster
        clients.admins.clear()


@pytest.mark.long
def test_what_asks_for_dead_letters_finds_brokers_that_are_elsewhere_by_now(kafka: Kafka) -> None:
    clients = Watched()
    with a_door() as door:
        cluster = Cluster({"bootstrap.servers": door.address, "socket.connection.setup.timeout.ms": "1000"}, clients)
        with pytest.raises(NotAnsweredError):
            cluster.topics()
        door.leads_to = kafka.bootstrap_servers
        topic = kafka.create_topic("there")
        assert topic in cluster.topics()
        assert len(clients.admins) == 2
        clients.admins.clear()


@pytest.mark.long
def test_brokers_that_come_back_with_other_addresses_are_found_again(tmp_path: Path) -> None:
    first, second = any_free(), any_free()
    (tmp_path / "kafka").mkdir()
    with a_door() as door:
        with EmbeddedKafka(port=first, data_dir=tmp_path / "kafka") as broker:
            door.leads_to = broker.bootstrap_servers
            kafka = Kafka(broker.bootstrap_servers)
            destination = kafka.create_topic("orders")
            sidecar = SidecarProcess(door.address, tmp_path)
            sidecar.start()
        try:
            door.leads_to = None
            wait_until(lambda: "no broker answers" in sidecar.log_text(), "it misses them", 60)
            with EmbeddedKafka(port=second, data_dir=tmp_path / "kafka") as broker:
                door.leads_to = broker.bootstrap_servers
                kafka = Kafka(broker.bootstrap_servers)
                producer = kafka.producer()
                topic, key, value, headers = timed("", destination, "late", ("TIMER_DELAY_MS", 100))
                producer.produce(topic, value, key, headers=headers)
                assert producer.flush(30) == 0
                (record,) = kafka.read([destination], 1, 90)
                assert record.text("UNIQ_KEY") == "late"
        finally:
            sidecar.kill()
