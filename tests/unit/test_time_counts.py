"""What is acted on when, held against counting one by one."""

import random
from pathlib import Path

import pytest

from sidecar.dispatch.late import Late
from sidecar.dispatch.wheel import time_counts
from sidecar.dispatch.wheel.ready import Ready
from sidecar.dispatch.wheel.time_counts import TimeCounts, Window, count_by_time
from sidecar.store.timer_store import TimerStore
from tests.support.timer_store import PRECISION_MS, a_store, put, record

NOW_MS = 1_000_400


@pytest.fixture
def store(tmp_path: Path) -> TimerStore:
    return a_store(tmp_path, slots_total=2_000)


def put_at(store: TimerStore, times_ms: list[int]) -> None:
    put(store, [record(act_ms, offset) for offset, act_ms in enumerate(times_ms)])


def counted(store: TimerStore, ready: Ready, late: Late, window: Window, now_ms: int) -> tuple[TimeCounts, int]:
    """The answer, and in how many steps."""
    steps, number = count_by_time(store, ready, late, window, now_ms), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, number
        number += 1


def begin(time_ms: int, *, loaded_until_ms: int) -> int:
    """When it counts: by the millisecond where it is at hand, else by its slot."""
    return time_ms if time_ms < loaded_until_ms else time_ms // PRECISION_MS * PRECISION_MS


@pytest.mark.parametrize("step_slots", [1, 7, 8_192])
@pytest.mark.parametrize("window", [Window(990_000, 1_050_000, 1_000), Window(1_000_000, 1_700_000, 70_000)])
@pytest.mark.parametrize("is_behind", [False, True])
def test_it_tells_what_counting_one_by_one_tells(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch, step_slots: int, window: Window, is_behind: bool
) -> None:
    monkeypatch.setattr(time_counts, "STEP_SLOTS", step_slots)
    chosen = random.Random(step_slots)
    times_ms = sorted(chosen.randrange(995_000, 1_900_000) for _ in range(3_000))
    times_ms += [NOW_MS + 50, NOW_MS + 51, NOW_MS - 1]
    put_at(store, times_ms)
    ready, late = Ready(store, (-1, -1)), Late()
    late.add(NOW_MS, [record(NOW_MS - 10, 5_000), record(NOW_MS - 9, 5_001)])
    # Behind: the first slots are at hand, and others that should have gone are not even loaded.
    ready.load(996_500 if is_behind else NOW_MS + PRECISION_MS, 10_000)
    told, steps = counted(store, ready, late, window, NOW_MS)
    loaded_until_ms = ready.loaded_until_ms
    counts = [0] * window.buckets
    overdue = 2
    for time_ms in times_ms:
        at_ms = begin(time_ms, loaded_until_ms=loaded_until_ms)
        if at_ms < NOW_MS:
            overdue += 1
        elif window.from_ms <= at_ms < window.until_ms:
            counts[(at_ms - window.from_ms) // window.bucket_ms] += 1
    assert told == TimeCounts(len(times_ms) + 2, overdue, counts)
    assert sum(counts) > 0
    assert steps >= 8 or step_slots > 1, "it yields between small steps"


def test_nothing_is_counted_twice_where_slots_are_loaded_between_two_steps(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_counts, "STEP_SLOTS", 1)
    put_at(store, list(range(1_001_000, 1_061_000, 500)))
    ready = Ready(store, (-1, -1))
    ready.load(NOW_MS, 10_000)
    steps = count_by_time(store, ready, Late(), Window(1_000_000, 1_060_000, 10_000), NOW_MS)
    now_ms = NOW_MS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: TimeCounts = end.value
            break
        now_ms += 2_000
        ready.load(now_ms, 10_000)
        ready.take(now_ms, 1_000, 2**30)
        ready.confirm()
    assert answer.counts == [18, 20, 20, 20, 20, 20]


def test_partitions_add_up() -> None:
    parts = [TimeCounts(10, 1, [1, 2]), TimeCounts(0, 0, [0, 0]), TimeCounts(5, 0, [0, 3])]
    assert TimeCounts.added(parts, 2) == TimeCounts(15, 1, [1, 5])
    assert TimeCounts.added([], 2) == TimeCounts(0, 0, [0, 0])


@pytest.mark.parametrize(("window", "buckets"), [(Window(0, 10, 3), 4), (Window(0, 9, 3), 3), (Window(5, 5, 1), 0)])
def test_the_last_stretch_may_be_cut_short(window: Window, buckets: int) -> None:
    assert window.buckets == buckets
