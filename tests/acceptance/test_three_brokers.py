"""One of three brokers is lost, each of them once: the others lead on, and nothing is lost, repeated or held up."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sidecar.kafka.clients import admin_client
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.settings import Settings
from tests.acceptance.test_levels import scheduled
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.three_brokers import BROKERS, three_brokers
from tests.support.waiting import wait_until
from tests.support.wheel import is_drained, now_ms, timed, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 15_000
"""On the wheel, and as many on the levels."""
DUE_FOR_MS = 120_000
"""For so long records of the wheel fall due."""


def test_questions_about_topics_are_answered_whichever_broker_a_client_takes_for_the_controller(
    tmp_path: Path,
) -> None:
    """Kafka names any of them as that; librdkafka waits for the one that it was named, though it is gone."""
    with three_brokers(tmp_path / "brokers") as cluster:
        Kafka(cluster.bootstrap_servers).create_topic("orders", replicas=3)
        settings = Settings(bootstrap_servers=cluster.bootstrap_servers)
        clients = [TopicAdmin(admin_client(settings), settings) for _ in range(20)]
        for client in clients:
            assert client.count_partitions(["orders"]) == {"orders": 1}
        cluster.kill(1)
        wait_until(lambda: 1 not in cluster.leaders("orders"), "others lead", 60)

        def answers(client: TopicAdmin) -> bool:
            try:
                return set(client.look(["orders"], 2).ids) == {"orders"}
            except KafkaException:
                return False

        again = [client for client in clients if not answers(client)]
        assert again, "one in three was named the one that is gone"
        for client in again:  # a broker that has not heard of the loss may name it once more
            wait_until(lambda: answers(client), "a client hears of another", 10)  # noqa: B023


@pytest.mark.parametrize("is_epoch_told", [True, False])
def test_a_consumer_that_is_told_the_epoch_notices_that_the_log_lost_its_end_and_grew_again(
    tmp_path: Path, is_epoch_told: bool
) -> None:
    """One that is told a bare offset does not: what reading in the sidecar rests on."""
    with three_brokers(tmp_path / "brokers") as cluster:
        common = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        admin = AdminClient(common)
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2]], config=configs)])["t"].result(30)

        def produce(count: int) -> None:
            producer = Producer({**common, "acks": "all"})
            for _ in range(count):
                producer.produce("t", b"v")
            assert producer.flush(60) == 0

        def in_sync() -> list[int]:
            isrs: list[int] = admin.list_topics("t", timeout=10).topics["t"].partitions[0].isrs
            return isrs

        produce(10)
        cluster.kill(2)
        wait_until(lambda: in_sync() == [1], "one replica is left", 60)
        produce(10)
        consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "error", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 20, leader_epoch=0) if is_epoch_told else TopicPartition("t", 0, 20)])
        assert consumer.poll(3) is None
        consumer.pause([TopicPartition("t", 0)])
        cluster.kill(1)
        cluster.start_again(2)
        wait_until(lambda: cluster.leaders("t") == [2], "the other one leads, with ten records", 60)
        produce(25)
        consumer.resume([TopicPartition("t", 0)])
        found = consumer.poll(30)
        consumer.close()
        assert found is not None
        error = found.error()
        assert (error.code() if error else found.offset()) == (KafkaError._AUTO_OFFSET_RESET if is_epoch_told else 20)


def test_the_loss_of_any_one_broker_costs_nothing(prefix: str, sidecar: SidecarProcess, tmp_path: Path) -> None:
    chance = random.Random(3)
    with three_brokers(tmp_path / "brokers") as cluster:
        kafka = Kafka(cluster.bootstrap_servers)
        destination = kafka.create_topic(f"{prefix}orders", 3, replicas=3)
        sidecar.settings |= {"bootstrap_servers": cluster.bootstrap_servers, "levels": "1s 45s 90s", "partitions": 3}
        sidecar.settings |= {"slots_total": 3_600, "roll_window": "30s", "batch_records": 100}
        sidecar.start()
        pid = sidecar.process.pid
        assert set(cluster.leaders(wheel_topic(prefix))) == set(BROKERS), "the sidecar's topics are not spread"
        begin_ms = now_ms() + 5_000
        names = [f"w{number}" for number in range(RECORDS)]
        due_ms = {name: begin_ms + chance.randrange(DUE_FOR_MS) for name in names}
        kafka.produce(timed(prefix, destination, name, ("TIMER_DELIVER_MS", due_ms[name])) for name in names)
        kafka.produce(scheduled(prefix, destination, RECORDS))

        def delivered() -> float:
            return sidecar.metric("timewheel_delivered_records_total")

        wait_until(lambda: delivered() > 300, "deliveries begin", 60)
        for broker in BROKERS:
            cluster.kill(broker)
            wait_until(lambda: broker not in cluster.leaders(destination), "others lead", 60)  # noqa: B023
            before = delivered()
            wait_until(lambda: delivered() > before + 300, f"deliveries go on without broker {broker}", 60)  # noqa: B023
            cluster.restart(broker)
        kafka.read([destination], 2 * RECORDS, 240)
        wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 60, poll_s=0.5)
        assert sidecar.process.pid == pid
        assert sidecar.terminate(30)[0] == 0
        delivered_once = kafka.read([destination], 2 * RECORDS)
        judge([*names, *map(str, range(RECORDS))], delivered_once).assert_exactly_once()
        for record in delivered_once:
            name = record.text("UNIQ_KEY")
            assert record.timestamp_ms >= due_ms.get(name, 0), f"{name} arrived early"
