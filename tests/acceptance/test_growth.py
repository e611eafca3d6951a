"""What there is more to read after a restart than before; destinations whose partitions become more, or fewer."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions

from sidecar.kafka.clients import admin_client
from sidecar.kafka.topics import create_topics
from sidecar.settings import load_settings
from tests.acceptance.test_levels import ids, scheduled
from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("membership", ["static", "dynamic"])
@pytest.mark.long
def test_a_level_that_is_added_at_a_quick_restart_is_read(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, membership: str
) -> None:
    """Kafka gives a static member that comes back what it had, whatever it subscribes to by then."""
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "1s 1s", "membership": membership}
    sidecar.start()
    sidecar.terminate()
    sidecar.settings["levels"] = "1s 1s 1s"
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 30))
    judge(ids(30), kafka.read([destination], 30, 40)).assert_exactly_once()


@pytest.mark.long
def test_partitions_that_are_added_before_a_quick_restart_are_read(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "1s", "membership": "static"}
    sidecar.start()
    sidecar.terminate()
    for topic in (f"{prefix}SCHEDULE_TOPIC_XXXX-1", f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"):
        before = len(kafka.ends(topic))
        for future in kafka.admin.create_partitions([NewPartitions(topic, before + 3)]).values():
            future.result(10)
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 60, levels=1))
    judge(ids(60), kafka.read([destination], 60, 40)).assert_exactly_once()


def test_a_destination_that_grows_while_it_runs_is_delivered_to(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    """Producers know of the partitions that there were when they last asked, minutes ago."""
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "1s"}
    sidecar.start()

    def schedule(name: str, partition: int) -> None:
        headers = [("REAL_TOPIC", destination), ("REAL_QID", str(partition)), ("UNIQ_KEY", name)]
        told = [(header, text.encode()) for header, text in headers]
        kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-1", b"k", b"v", [*told])])

    for number in range(4):  # one transaction after the other: both producers have a turn
        schedule(f"before{number}", 0)
        kafka.read([destination], number + 1)
    for future in kafka.admin.create_partitions([NewPartitions(destination, 4)]).values():
        future.result(10)
    for partition in range(4):
        schedule(f"behind{partition}", partition)
    read = kafka.read([destination], 8)
    assert sorted(record.partition for record in read if record.text("UNIQ_KEY").startswith("behind")) == [0, 1, 2, 3]


@pytest.mark.long
def test_a_destination_that_is_made_anew_with_fewer_partitions_holds_up_nobody(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    """By their keys records would go to partitions that are no more, and wait there for their time-out."""
    shrinking, other = kafka.create_topic(f"{prefix}orders", 3), kafka.create_topic(f"{prefix}bills")
    sidecar.settings |= {"levels": "1s"}
    sidecar.start()

    def schedule(destination: str, name: str) -> None:
        told = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", name.encode())]
        kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-1", name.encode(), b"v", [*told])])

    for number in range(12):  # one transaction after the other: both producers have a turn
        schedule(shrinking, f"before{number}")
        kafka.read([shrinking], number + 1)
    kafka.admin.delete_topics([shrinking], operation_timeout=10)[shrinking].result(10)

    def is_made_anew() -> bool:
        try:
            kafka.create_topic(shrinking)
        except KafkaException:  # the other is still being deleted
            return False
        return True

    wait_until(is_made_anew, "it is made anew with one partition")
    for number in range(12):
        schedule(shrinking, f"behind{number}")
        schedule(other, f"other{number}")
    kafka.read([shrinking], 12, 30)
    kafka.read([other], 12, 1)


@pytest.mark.long
def test_a_schedule_topic_that_is_deleted_is_told_and_read_again_once_it_is_made_anew(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    """Meanwhile the group has been assigned without it, and gives a member that returns under its name no more."""
    destination, wheel = kafka.create_topic(f"{prefix}orders"), f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"
    sidecar.start()
    before = sidecar.metric("timewheel_assigned_partitions")
    kafka.admin.delete_topics([wheel], operation_timeout=10)[wheel].result(10)
    wait_until(lambda: f"{wheel} does not exist" in sidecar.get("/readyz")[1], "it is told", 60)
    wait_until(lambda: sidecar.metric("timewheel_assigned_partitions") < before, "the group goes on without it", 90)
    settings = load_settings({name: str(value) for name, value in sidecar.settings.items()})
    assert create_topics(admin_client(settings), settings) == [wheel]
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("TIMER_DELAY_MS", b"1000")]
    kafka.produce([(wheel, b"k", b"v", headers)])
    kafka.read([destination], 1, 60)
    sidecar.wait_ready()
    assert sidecar.metric("timewheel_assigned_partitions") == before
