"""Restarts with other settings while thousands of messages wait on the wheel: each keeps the time that it had first."""

import random
import time
from typing import Any, NamedTuple

import pytest

from connectors.contract import DelayLevels
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import is_drained, now_ms, timed, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(550)]

PENDING = 10_000
"""Before the first change."""
WAVE = 400
"""And with each change."""
LATEST_MS = 170_000
SETTINGS: list[dict[str, Any]] = [
    {"levels": "1s 100s", "roll_window": "40s", "slots_total": 3_600, "precision_ms": 1_000, "max_delay": "1h"},
    {"levels": "3s 70s 5s", "roll_window": "9s", "slots_total": 10, "precision_ms": 1_000, "max_delay": "80s"},
    {"levels": "2s 50s 5s", "roll_window": "15s", "slots_total": 200, "precision_ms": 100, "max_delay": "366d"},
    {"levels": "5s 80s 1s", "roll_window": "30s", "slots_total": 40, "precision_ms": 5_000, "max_delay": "90s"},
    {"levels": "1s 40s 9s", "roll_window": "3s", "slots_total": 7_200, "precision_ms": 17, "max_delay": "85s"},
    {"levels": "4s 60s 2s", "roll_window": "70s", "slots_total": 90_000, "precision_ms": 1_000, "max_delay": "1h"},
]
TOO_LONG_MS = 95_000
"""More than the ``max_delay`` of some of them."""


class Asked(NamedTuple):
    """What a message asks for, and under which settings it is understood."""

    header: str
    number: int
    settings: dict[str, Any]

    def due_ms(self, timestamp_ms: int) -> int:
        if self.header == "DELAY":
            return timestamp_ms + DelayLevels.parse(self.settings["levels"]).delay_ms(self.number)
        return timestamp_ms + self.number if self.header == "TIMER_DELAY_MS" else self.number

    @property
    def is_too_long(self) -> bool:
        limit_ms = DelayLevels.parse(self.settings["max_delay"]).delay_ms(1)
        return self.header == "TIMER_DELAY_MS" and self.number > limit_ms


def test_messages_keep_their_times_while_every_setting_of_the_plan_changes(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    chance = random.Random(9)
    destination = kafka.create_topic(f"{prefix}orders", 3)
    asked: dict[str, Asked] = {}

    def schedule(settings: dict[str, Any], count: int, *kinds: str, longest_ms: int) -> None:
        """Messages whose times are told in these ways; with levels also a few that some settings find too long."""
        begin_ms, first = now_ms(), len(asked)
        for number in range(first, first + count):
            kind = kinds[number % len(kinds)]
            wait_ms = chance.randrange(longest_ms)
            numbers = {"DELAY": 2, "TIMER_DELAY_MS": wait_ms, "TIMER_DELIVER_MS": begin_ms + wait_ms}
            asked[f"m{number}"] = Asked(kind, numbers[kind], settings)
        if "DELAY" in kinds:
            for number in range(first + count, first + count + 20):
                asked[f"m{number}"] = Asked("TIMER_DELAY_MS", TOO_LONG_MS, settings)
        new = list(asked)[first:]
        kafka.produce(timed(prefix, destination, name, asked[name][:2]) for name in new)

    def committed() -> int:
        return kafka.committed(f"{prefix}timewheel", wheel_topic(prefix))[0]

    sidecar.settings |= SETTINGS[0]
    sidecar.start()
    all_kinds = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "DELAY")
    schedule(SETTINGS[0], PENDING, *all_kinds, longest_ms=LATEST_MS)
    for life, settings in enumerate([*SETTINGS[1:], *SETTINGS[:2]]):
        end = kafka.ends(wheel_topic(prefix))[0]
        wait_until(lambda end=end: committed() >= end, "all are read, and committed with their plan", 60)
        if life % 2:
            assert sidecar.terminate(30)[0] == 0
        else:
            sidecar.kill()
        # A life that may be too short for anything: whether it has taken these in or the next, absolute times are safe.
        schedule(settings, WAVE, "TIMER_DELIVER_MS", longest_ms=80_000)
        sidecar.settings |= settings
        sidecar.start(wait_ready=False)
        time.sleep(chance.uniform(0.3, 3))  # at no moment in particular
        sidecar.kill()
        sidecar.start()
        wait_until(lambda: (sidecar.pending() or 0) > 1_000, "thousands still wait")
        schedule(settings, WAVE, *all_kinds, longest_ms=80_000)
    wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 300, poll_s=0.5)
    assert sidecar.terminate(30)[0] == 0

    rejected = {name for name, one in asked.items() if one.is_too_long}
    delivered = kafka.read([destination], len(asked) - len(rejected))
    judge(set(asked) - rejected, delivered).assert_exactly_once()
    written: dict[str, int] = {}
    for record in kafka.read([wheel_topic(prefix)], len(asked)):
        written.setdefault(record.text("UNIQ_KEY"), record.timestamp_ms)  # roll copies come behind
    due_ms = {name: asked[name].due_ms(written[name]) for name in asked}
    moved = [one for one in delivered if int(one.text("TIMER_OUT_MS")) != due_ms[one.text("UNIQ_KEY")]]
    assert not moved, f"{len(moved)} have got another time, such as {moved[0]}, of {asked[moved[0].text('UNIQ_KEY')]}"
    letters = kafka.read([f"{prefix}DLQ-{prefix}timewheel"], len(rejected))
    assert sorted(letter.text("UNIQ_KEY") for letter in letters) == sorted(rejected)
    assert {letter.text("ERROR_CODE") for letter in letters} == {"DELAY_TOO_LONG"}
