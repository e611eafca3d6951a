"""What stands beside a committed offset and looks like ours, but is what no Timewheel writes. Found by fuzzing."""

import pytest

from sidecar.dispatch.levels import LevelProgress
from sidecar.dispatch.wheel_progress import WheelProgress
from sidecar.intake.progress import ProgressError
from sidecar.plan import Plan

PLAN = Plan(roll_window_ms=100_000, precision_ms=1_000, max_delay_ms=500_000, levels="1s 5s")
DEEP = '{"x":' + "[" * 3_000


def plan(**changes: object) -> str:
    fields = {"r": 2_000, "s": 1_000, "m": 1, "l": "1s", **changes}
    text = ",".join(f'"{name}":{value!r}' for name, value in fields.items()).replace("'", '"')
    return f'{{"l":0,"p":[[[0,{{{text}}}]]]}}'


def test_a_plan_of_ours_is_read() -> None:
    progress = WheelProgress.decode(plan(), 10, PLAN)
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
        plan(m=-1),
        plan(l="soon"),
        plan().replace("[[0,", "[[5,").replace("]]}", ",[4," + plan()[len('{"l":0,"p":[[[0,') : -4] + "]]]}"),
    ],
)
def test_a_wheel_partition_stops_at_any_other(metadata: str) -> None:
    with pytest.raises(ProgressError, match="not Timewheel's"):
        WheelProgress.decode(metadata, 10, PLAN)


@pytest.mark.parametrize("metadata", [DEEP, '{"r":-1}', '{"r":99999999999999999999}', "[]", ""])
def test_a_level_has_rejected_nothing_by_any_other(metadata: str) -> None:
    assert LevelProgress.decode(metadata) == LevelProgress()
