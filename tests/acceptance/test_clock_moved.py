"""The sidecar's wall clock set an hour ahead, and back, and further back, while records are delivered."""

import random
import sys
from pathlib import Path

import pytest

from tests.acceptance.test_levels import ids, scheduled
from tests.support.kafka import Kafka, judge
from tests.support.moved_clock import MovedClock
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import is_drained, now_ms, timed

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(sys.platform != "linux", reason="a library is preloaded as Linux does it"),
    pytest.mark.parametrize("tool", ["cc"], indirect=True),
]

HOUR_S = 3_600


def test_a_clock_that_is_moved_repeats_nothing_loses_nothing_and_nothing_is_early_by_the_highest_time_shown(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tmp_path: Path, tool: str
) -> None:
    chance = random.Random(3)
    clock = MovedClock(tool, tmp_path)
    # The broker says when a record came: the sidecar's own timestamps are those of the clock that is moved.
    destination = kafka.create_topic(f"{prefix}orders", 3, message_timestamp_type="LogAppendTime")
    sidecar.settings |= {"levels": "1s 10s 1h", "batch_records": 100, "slots_total": 20_000, "roll_window": "5h"}
    sidecar.start(env=clock.env)
    pid = sidecar.process.pid
    names: list[str] = []

    def schedule(count: int, begin_ms: int, within_ms: int) -> None:
        new = [f"w{len(names) + number}" for number in range(count)]
        names.extend(new)
        kafka.produce(
            timed(prefix, destination, name, ("TIMER_DELIVER_MS", begin_ms + chance.randrange(within_ms)))
            for name in new
        )

    def wait_delivered(more: int) -> None:
        goal = sidecar.metric("timewheel_delivered_records_total") + more
        wait_until(lambda: sidecar.metric("timewheel_delivered_records_total") >= goal, f"{more} more come", 120)

    in_an_hour_ms = now_ms() + HOUR_S * 1_000
    schedule(6_000, now_ms(), 60_000)
    schedule(6_000, in_an_hour_ms, 600_000)  # within the ten minutes after that hour
    kafka.produce(scheduled(prefix, destination, 9_000))  # a third of them wait for an hour
    wait_until(lambda: sidecar.metric("timewheel_waiting_records", queue="3") == 3_000, "the long level is read", 120)
    wait_delivered(500)
    clock.move(HOUR_S)
    wait_delivered(2_000)  # of thousands that are due all at once
    clock.move(0)
    wait_delivered(1_000)
    schedule(2_000, now_ms(), 60_000)
    wait_delivered(1_000)
    clock.move(-HOUR_S)
    schedule(2_000, now_ms(), 60_000)
    wait_delivered(1_000)
    clock.move(HOUR_S + 660)
    names += map(str, range(9_000))
    kafka.read([destination], len(names), 200)
    wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 60, poll_s=0.5)
    steps = [sidecar.metric("timewheel_clock_steps_total", direction=direction) for direction in ("forward", "back")]
    assert steps == [2, 2]
    assert sidecar.process.pid == pid
    assert sidecar.terminate(30)[0] == 0
    delivered = kafka.read([destination], len(names))
    by_its_clock = [record._replace(timestamp_ms=clock.highest_ms(record.timestamp_ms)) for record in delivered]
    judge(names, by_its_clock).assert_exactly_once()
    moved = sum(record.lateness_ms < 0 for record in delivered)
    assert moved > 10_000, f"only {moved} have come before their real time: the clock was not moved while they waited"


def test_nothing_is_early_that_was_read_by_a_clock_which_was_behind_and_is_set_right(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tmp_path: Path, tool: str
) -> None:
    """By that clock all timestamps are from the future."""
    clock = MovedClock(tool, tmp_path)
    destination = kafka.create_topic(f"{prefix}orders", 3, message_timestamp_type="LogAppendTime")
    sidecar.settings |= {"levels": "20s", "read_ahead_records": 1_000}
    clock.move(-600)
    sidecar.start(env=clock.env)
    began_ms = now_ms()
    kafka.produce(scheduled(prefix, destination, 5_000, levels=1))
    wait_until(lambda: sidecar.metric("timewheel_waiting_records", queue="1") >= 1_000, "records are read", 60)
    told = "this host's clock is 10m behind Kafka's"
    wait_until(lambda: told in sidecar.get("/readyz")[1], "it is told", 20)
    assert sidecar.metric("timewheel_clock_ahead_seconds") == pytest.approx(-600, abs=5)
    clock.move(0)
    delivered = kafka.read([destination], 5_000, 60)
    judge(ids(5_000), delivered).assert_exactly_once()
    assert told not in sidecar.get("/readyz")[1]
    assert min(record.timestamp_ms for record in delivered) >= began_ms + 20_000
    assert sidecar.metric("timewheel_clock_steps_total", direction="forward") == 1


def test_what_kafka_refuses_for_its_timestamp_is_among_the_dead_letters_and_holds_up_nobody(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tmp_path: Path, tool: str
) -> None:
    """Brokers take no record from more than an hour ahead where its producer says when it was made."""
    clock = MovedClock(tool, tmp_path)
    by_producer = kafka.create_topic(f"{prefix}orders")
    by_broker = kafka.create_topic(f"{prefix}bills", message_timestamp_type="LogAppendTime")
    sidecar.settings |= {"levels": "1s"}
    sidecar.start(env=clock.env)
    in_an_hour_ms = now_ms() + HOUR_S * 1_000
    kafka.produce(
        timed(prefix, topic, f"{topic}-{number}", ("TIMER_DELIVER_MS", in_an_hour_ms + number))
        for number in range(20)
        for topic in (by_producer, by_broker)
    )
    wait_until(lambda: sidecar.pending() == 40, "all is read", 60)
    clock.move(2 * HOUR_S)
    kafka.read([by_broker], 20, 60)
    letters = kafka.read([f"{prefix}DLQ-{sidecar.settings['group_id']}"], 20, 60)
    assert {letter.text("UNIQ_KEY") for letter in letters} == {f"{by_producer}-{number}" for number in range(20)}
    assert all(letter.value and "timestamp" in letter.text("ERROR_MESSAGE").lower() for letter in letters)
    assert kafka.read([by_producer], 0) == []
