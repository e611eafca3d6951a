"""Files that change behind the sidecar's back after it has stopped in good order: noticed, and made anew from Kafka."""

from pathlib import Path

import pytest

from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import now_ms, timed, wheel_topic

pytestmark = pytest.mark.kafka

LOG = "00000000000000000000"


@pytest.mark.long
@pytest.mark.parametrize("name", ["timerwheel", f"timerlog/{LOG}", f"payload/{LOG}", "checkpoint"])
def test_a_file_full_of_zeros_after_a_clean_stop_loses_nothing(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, name: str
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "1s", "slots_total": 3_600, "roll_window": "30m"}
    sidecar.start()
    first_ms = now_ms() + 5_000
    names = [f"m{number}" for number in range(200)]
    kafka.produce(
        timed(prefix, destination, one, ("TIMER_DELIVER_MS", first_ms + 10 * number))
        for number, one in enumerate(names)
    )
    wait_until(lambda: sidecar.pending() == len(names), "all are stored")
    assert sidecar.terminate()[0] == 0
    victim = Path(sidecar.settings["data_dir"]) / "wheel-0" / name
    victim.write_bytes(bytes(victim.stat().st_size))
    sidecar.start()
    judge(names, kafka.read([destination], len(names))).assert_exactly_once()


@pytest.mark.slow
def test_a_partition_that_is_made_anew_goes_on_where_transaction_markers_end_what_was_committed(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"levels": "1s", "slots_total": 3_600, "roll_window": "3s"}
    sidecar.start()
    names = [f"m{number}" for number in range(100)]
    kafka.produce(timed(prefix, destination, one, ("TIMER_DELAY_SEC", 12)) for one in names)
    # The copies that the rolls have written are read, and the marker behind them is the last thing in the log.
    wait_until(lambda: sidecar.metric("timewheel_delivered_records_total", queue="wheel") >= len(names), "all rolled")
    group = str(sidecar.settings["group_id"])
    wait_until(lambda: kafka.lag(group, wheel_topic(prefix)) == 0, "the copies are stored")
    assert sidecar.terminate()[0] == 0
    (log,) = Path(sidecar.settings["data_dir"]).glob("wheel-0/timerlog/*")
    log.write_bytes(bytes(log.stat().st_size))
    later = [f"later{number}" for number in range(10)]
    kafka.produce(timed(prefix, destination, one, ("TIMER_DELAY_SEC", 1)) for one in later)
    sidecar.start()
    names += later
    judge(names, kafka.read([destination], len(names))).assert_exactly_once()
