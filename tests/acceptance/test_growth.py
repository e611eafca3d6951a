"""What there is more to read after a restart than before."""

import pytest
from confluent_kafka.admin import NewPartitions

from tests.acceptance.test_levels import ids, scheduled
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("membership", ["static", "dynamic"])
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
