"""One of three brokers is lost, each of them once: the others lead on, and nothing is lost, repeated or held up."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from sidecar.kafka.clients import admin_client
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.settings import Settings
from tests.acceptance.test_levels import scheduled
from tests.acceptance.test_switches import switch
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
        cluster.create_fragile("t")

        def produce(count: int) -> None:
            producer = Producer({**common, "acks": "all"})
            for _ in range(count):
                producer.produce("t", b"v")
            assert producer.flush(60) == 0

        produce(10)
        cluster.leave_first_alone("t")
        produce(10)
        consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "error", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 20, leader_epoch=0) if is_epoch_told else TopicPartition("t", 0, 20)])
        assert consumer.poll(3) is None
        consumer.pause([TopicPartition("t", 0)])
        cluster.lose_end("t")
        produce(25)
        consumer.resume([TopicPartition("t", 0)])
        found = consumer.poll(30)
        consumer.close()
        assert found is not None
        error = found.error()
        assert (error.code() if error else found.offset()) == (KafkaError._AUTO_OFFSET_RESET if is_epoch_told else 20)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_sidecar_stops_where_the_wheel_topic_has_lost_its_end_and_grown_again(
    tmp_path: Path, is_running: bool
) -> None:
    """Also one that runs on: its intake is held up until others stand in the place of what it has read."""
    topic = wheel_topic("")
    with three_brokers(tmp_path / "brokers") as cluster:
        cluster.create_fragile(topic, message_timestamp_type="LogAppendTime")
        kafka = Kafka(cluster.bootstrap_servers)
        destination = kafka.create_topic("orders", replicas=3)

        def schedule(count: int) -> None:
            kafka.produce(timed("", destination, f"m{number}", ("TIMER_DELAY_MS", 1)) for number in range(count))

        with SidecarProcess(cluster.bootstrap_servers, tmp_path, group_id="g", levels="1s") as sidecar:
            schedule(10)
            kafka.read([destination], 10, 60)
            cluster.leave_first_alone(topic)
            schedule(10)
            kafka.read([destination], 20, 60)
            wait_until(lambda: is_drained(kafka, "", sidecar), "all is committed", 60)
            if is_running:
                switch(sidecar, "--stop-enqueue")
            else:
                assert sidecar.terminate(30)[0] == 0
            cluster.lose_end(topic)
            schedule(25)
            if is_running:
                switch(sidecar, "--start-enqueue")
            else:
                sidecar.start(wait_ready=False)
            wait_until(lambda: f"{topic}-0 is stopped" in sidecar.get("/readyz")[1], "the partition is stopped", 90)
            # One whose clients a slow election has cost begins at its progress, as one that starts.
            has_run_on = is_running and "kafka clients lost" not in sidecar.log_text()
            why = "out of the log's range" if has_run_on else "lost its end in an unclean election"
            assert why in sidecar.get("/readyz")[1]
        assert len(kafka.read([destination], 20)) == 20, "others than those that were read have gone out"


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
