"""What there is more to read after a restart than before."""

import pytest

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
