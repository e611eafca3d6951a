"""What stands beside a committed offset and looks like ours, but is what no Timewheel writes. Found by fuzzing."""

from pathlib import Path

import msgspec
import pytest

from sidecar.dispatch.levels import LevelProgress
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.intake.parse import PARSER_VERSION
from sidecar.intake.progress import ProgressError
from sidecar.plan import Plan
from tests.support.logged import logged
from tests.support.one_wheel import NOW_MS, due, opened, sent, ticks

PLAN = Plan(roll_window_ms=100_000, precision_ms=1_000, max_delay_ms=500_000, levels="1s 5s")
DEEP = '{"x":' + "[" * 3_000


def plan(**changes: object) -> str:
    fields = {"r": 2_000, "s": 1_000, "m": 1, "l": "1s", **changes}
    text = ",".join(f'"{name}":{value!r}' for name, value in fields.items()).replace("'", '"')
    return f'{{"l":0,"p":[[[0,{{{text}}}]]]}}'


def test_a_plan_of_ours_is_read() -> None:
    progress = WheelProgress.decode(plan(d=500), 10, PLAN, NOW_MS)
    assert [since for since, _ in progress.plans.since] == [0, 10]


@pytest.mark.parametrize(
    "metadata",
    [
        DEEP,
        "somebody else's",
        '{"l":0,"p":[[]]}',
        '{"l":11,"p":[[]]}',
        plan().replace('"l":0', '"l":11', 1),
        plan().replace('"l":0', '"l":-1', 1),
        plan().replace('"l":0', '"w":[99999999999999999999,0],"l":0', 1),
        plan(s=0),
        plan(r=1_999),
        plan(d=501),
        plan(m=-1),
        plan(l="soon"),
        plan(p=PARSER_VERSION + 1),
        plan(x=1),  # a rule that a newer version has added
        plan().replace("[[0,", "[[5,").replace("]]}", ",[4," + plan()[len('{"l":0,"p":[[[0,') : -4] + "]]]}"),
    ],
)
def test_a_wheel_partition_stops_at_any_other(metadata: str) -> None:
    with pytest.raises(ProgressError, match="not Timewheel's"):
        WheelProgress.decode(metadata, 10, PLAN, NOW_MS)


@pytest.mark.parametrize("metadata", [DEEP, '{"r":-1}', '{"r":99999999999999999999}', "[]", ""])
def test_a_level_has_rejected_nothing_by_any_other(metadata: str) -> None:
    assert LevelProgress.decode(metadata) == LevelProgress()


ROCKETMQ_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
BROKERS_KEEP_BYTES = 4_096


def test_a_hundred_changes_of_settings_fit_beside_a_message_that_waits(tmp_path: Path) -> None:
    """Each start with other settings; what was written under the first of them waits all the time."""
    due_ms, committed, told = NOW_MS + 3_600_000, (0, ""), 0
    for number in range(100):
        plan = Plan(
            roll_window_ms=90_000_000 + 1_000 * number, precision_ms=1_000, max_delay_ms=10**10, levels=ROCKETMQ_LEVELS
        )
        with logged() as logs:
            wheel = opened(tmp_path, *committed, number, plan=plan)
        told += any(line["event"] == "settings not taken over" for line in logs)
        assert bool(told) == bool(wheel.note)
        wheel.offer([due(number, due_ms, uniq_key=b"%d" % number)], NOW_MS)
        _, committed = sent(wheel, NOW_MS)
        wheel.close()
        assert len(committed[1]) < BROKERS_KEEP_BYTES // 2
    assert 80 < told < 95
    wheel = opened(tmp_path, *committed, 100, plan=plan)
    wheel.tick(due_ms)
    delivered, committed = sent(wheel, due_ms)
    assert len(delivered) == 100
    ticks(wheel, due_ms + 20_000)
    _, committed = sent(wheel, due_ms + 20_000)
    wheel.close()
    after = opened(tmp_path, *committed, 100, now_ms=due_ms + 20_000, plan=plan)
    assert after.note == ""
    assert after._intake.plans.since[-1] == (100, plan)


def test_the_settings_before_hold_while_there_is_no_room_for_others() -> None:
    progress = WheelProgress.decode("", 0, PLAN, NOW_MS)
    for number in range(1, 100):
        plan = msgspec.structs.replace(PLAN, max_delay_ms=number)
        before, progress = progress, WheelProgress.decode(progress.encode(), number, plan, NOW_MS)
    assert progress.plans == before.plans
    assert [progress.plans.of(number).max_delay_ms for number in range(1, 5)] == [1, 2, 3, 4]
