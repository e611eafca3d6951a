"""An operator sets the progress of a wheel partition while messages wait in it."""

import pytest

from tests.support.command import timewheel
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import timed, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.long]

COUNT = 100


def test_to_the_end_skips_what_waits_and_repeats_nothing_though_the_directory_is_kept(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    out, waiting, new = ([f"{kind}{number}" for number in range(COUNT)] for kind in ("out", "waiting", "new"))
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 500)) for name in out)
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 25_000)) for name in waiting)
    kafka.read([destination], COUNT)
    wait_until(lambda: sidecar.pending() == COUNT, "the others wait")
    assert sidecar.terminate()[0] == 0
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix]
    options += ["--group-id", str(sidecar.settings["group_id"]), "--topic", wheel_topic(prefix), "--partition", "0"]

    def chosen() -> bool:
        ended = timewheel("progress", "set", *options, "--to", "end")
        return ended.returncode == 0 and "what waits before it is skipped" in ended.stdout

    wait_until(chosen, "progress is set once the member's session has ended", 30)
    sidecar.start()
    assert sidecar.pending() == 0
    assert "wheel begins anew" in {event["event"] for event in sidecar.events()}
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 25_000)) for name in new)
    judge(out + new, kafka.read([destination], 2 * COUNT, 60)).assert_exactly_once()
