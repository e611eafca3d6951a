"""What the benchmarks say of a run: the reader's judgement, and the comparison with the floor."""

import numpy as np
import pytest

from benchmarks.endurance import Looked, Minute, quarters
from benchmarks.figures import Figure, Held, Pair
from benchmarks.generator import HEAD
from benchmarks.reader import RAMP_MS, Batch, judge


def received(*records: tuple[int, int], late_ms: float = 0.0, appended_after_ms: int = 0) -> Batch:
    """One batch of (due, number) records, by the last one's due time."""
    return Batch(
        int((records[-1][0] + late_ms) * 1_000_000),
        b"".join(HEAD.pack(due_ms, number) for due_ms, number in records),
        np.array([due_ms + appended_after_ms for due_ms, _ in records]),
    )


def test_lateness_is_told_of_the_steady_part_alone() -> None:
    ramps = [received((0, 0), late_ms=900), received((3 * RAMP_MS, 1), late_ms=900)]
    steady = [received((RAMP_MS + number, number), late_ms=number) for number in range(2, 103)]
    verdict = judge([*ramps, *steady], 103)
    assert verdict["p50_ms"] == pytest.approx(52)
    assert verdict["p99_ms"] == pytest.approx(101)
    assert verdict["highest_ms"] == pytest.approx(102)
    assert [verdict[fault] for fault in ("lost", "twice", "early")] == [0, 0, 0]


def test_faults_are_told_of_every_record() -> None:
    batches = [
        received((0, 0), appended_after_ms=-1),
        received((RAMP_MS, 1), (RAMP_MS, 1), (RAMP_MS, 2)),
        received((2 * RAMP_MS, 3)),
    ]
    verdict = judge(batches, 5)
    assert [verdict[fault] for fault in ("lost", "twice", "early")] == [1, 1, 1]


def test_lateness_is_told_of_each_window_of_due_times() -> None:
    first = [received((RAMP_MS + number * 10, number), late_ms=number) for number in range(101)]
    second = [received((RAMP_MS + 2_000 + number * 10, 101 + number), late_ms=200) for number in range(10)]
    ramps = [received((0, 200), late_ms=900), received((2 * RAMP_MS + 2_090, 201), late_ms=900)]
    verdict = judge([*ramps, *first, *second], 113, window_s=2)
    assert [verdict[f"{name}.0"] for name in ("p50_ms", "p99_ms", "highest_ms")] == pytest.approx([50, 99, 100])
    assert [verdict[f"{name}.1"] for name in ("p50_ms", "p99_ms", "highest_ms")] == pytest.approx([200, 200, 200])
    assert "p50_ms.2" not in verdict
    assert verdict["highest_ms"] == pytest.approx(200)


def test_what_grows_shows_in_the_last_quarter_beside_the_first() -> None:
    minutes = [Minute(5.0, float(number), 9.0) for number in range(8)]
    looks = [Looked(100 + number, 50, 1.5) for number in range(3)]
    found = quarters(minutes, looks)
    assert found["p99_ms"] == [0.5, 6.5]
    assert (found["p50_ms"], found["disk_bytes"]) == ([5.0, 5.0], [50.0, 50.0])
    assert found["rss_bytes"] == [100.0, 102.0]


@pytest.mark.parametrize(
    ("held", "goal", "reached"),
    [
        (Held.RATIO, 0.8, True),
        (Held.RATIO, 0.81, False),
        (Held.EXTRA, -20.0, True),
        (Held.EXTRA, -21.0, False),
        (Held.ALONE, 80.0, True),
        (Held.ALONE, 79.0, False),
        (Held.ALONE, None, None),
    ],
)
def test_the_median_of_the_pairs_meets_the_goal_or_not(held: Held, goal: float | None, reached: bool | None) -> None:
    pairs = [Pair({"x": product}, {"x": 100.0}) for product in (10.0, 80.0, 200.0)]
    assert Figure("x", held, goal).is_reached(pairs) is reached
