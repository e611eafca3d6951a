"""When a wheel record is acted on: RIP-43's rule, and how rolls are spread."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.plan import NEIGHBOURS, Plan

SLOTS = 172_800
"""RocketMQ's ``timerRollWindowSlot``: two days of seconds."""
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def plan(window_slots: int = SLOTS, precision_ms: int = 1_000, spread_ms: int = 0) -> Plan:
    return Plan(
        roll_window_ms=window_slots * precision_ms,
        precision_ms=precision_ms,
        max_delay_ms=10**12,
        levels="1s",
        spread_ms=spread_ms,
    )


@pytest.mark.parametrize(
    ("slots", "acts_after", "rolls"),
    [
        (172_799, 172_799, False),
        (172_800, 86_400, True),
        (230_399, 86_400, True),
        (230_400, 172_800, True),
        (31_622_400, 172_800, True),
    ],
)
def test_a_record_rolls_after_the_time_that_rocketmq_would_roll_it(slots: int, acts_after: int, rolls: bool) -> None:
    due_ms = NOW_MS + slots * 1_000
    act_ms = due_ms if not rolls else NOW_MS + acts_after * 1_000
    assert plan().act_at(NOW_MS, due_ms, offset=12_345) == (act_ms, rolls)


def test_what_is_scheduled_at_once_rolls_evenly_over_the_spread() -> None:
    spread = plan(spread_ms=3 * HOUR_MS)
    offsets = range(1_000_000, 2_000_000)
    acts_ms = [spread.act_at(NOW_MS, NOW_MS + 90 * HOUR_MS, offset) for offset in offsets]
    assert {rolls for _, rolls in acts_ms} == {True}
    sooner_ms = [NOW_MS + 48 * HOUR_MS - act_ms for act_ms, _ in acts_ms]
    assert min(sooner_ms) >= 0
    assert max(sooner_ms) < 3 * HOUR_MS
    minutes = Counter(sooner // 60_000 for sooner in sooner_ms)
    assert len(minutes) == 180
    assert max(minutes.values()) < 1.2 * len(offsets) / 180


def test_neighbours_roll_together() -> None:
    spread = plan(spread_ms=3 * HOUR_MS)
    acts_ms = [spread.act_at(NOW_MS, NOW_MS + 90 * HOUR_MS, offset)[0] for offset in range(100 * NEIGHBOURS)]
    assert sum(before != after for before, after in pairwise(acts_ms)) == 99


WINDOWS = st.tuples(st.integers(2, 200_000), st.sampled_from([1, 17, 1_000, 3_600_000]))
OFFSETS = st.integers(0, 2**62)


@given(WINDOWS, st.floats(0, 1), st.integers(0, 10**10), OFFSETS)
def test_a_spread_record_rolls_after_it_was_written_and_no_later_than_without(
    window: tuple[int, int], share: float, delay_ms: int, offset: int
) -> None:
    plain = plan(*window)
    spread = plan(*window, spread_ms=int(share * (plain.roll_window_ms // 4)))
    act_ms, rolls = spread.act_at(NOW_MS, NOW_MS + delay_ms, offset)
    plain_ms, plain_rolls = plain.act_at(NOW_MS, NOW_MS + delay_ms, offset)
    assert rolls == plain_rolls
    assert plain_ms - spread.spread_ms <= act_ms <= plain_ms
    if not rolls:
        assert act_ms == NOW_MS + delay_ms
    else:
        assert NOW_MS < act_ms <= NOW_MS + delay_ms


@given(WINDOWS, st.floats(0, 1), st.integers(0, 10**10), OFFSETS)
def test_however_long_it_waits_it_is_delivered_after_few_rolls(
    window: tuple[int, int], share: float, delay_ms: int, offset: int
) -> None:
    spread = plan(*window, spread_ms=int(share * (plan(*window).roll_window_ms // 4)))
    delay_ms = min(delay_ms, 20 * spread.roll_window_ms)
    at_ms, rolls, times = NOW_MS, True, 0
    while rolls:
        at_ms, rolls = spread.act_at(at_ms, NOW_MS + delay_ms, offset + times * 10_000)
        times += rolls
    assert at_ms == NOW_MS + delay_ms
    assert times <= 2 + delay_ms / (spread.roll_window_ms - spread.spread_ms)
