"""What stands beside a committed offset: `LevelProgress`, `WheelProgress`. Whoever commits for the group writes it."""

from connectors.contract import DelayLevels
from sidecar.dispatch.levels import LevelProgress
from sidecar.dispatch.wheel.progress import NOTHING_DONE, WheelProgress
from sidecar.intake.progress import ProgressError
from sidecar.plan import Plan

METADATA_MAX_BYTES = 4_096
"""Kafka's default for ``offset.metadata.max.bytes``."""
COMMITTED = 1_000
NOW_MS = 1_700_000_000_000
PLAN = Plan(roll_window_ms=100_000, precision_ms=1_000, max_delay_ms=500_000, levels="1s 5s")
OLD = Plan(roll_window_ms=90_000, precision_ms=500, max_delay_ms=400_000, levels="2s")
_FRESH = WheelProgress.decode("", COMMITTED, PLAN, NOW_MS)
DICTIONARY = (*(f'"{name}":' for name in "rsmlpwhd"), "[[", "]]", "-1", "9223372036854775808", "1e9")
SEEDS = (
    b"",
    b"{}",
    LevelProgress(17).encode().encode(),
    _FRESH.encode().encode(),
    WheelProgress(
        watermark=(NOW_MS, 900),
        lowest_needed=700,
        plans=_FRESH.plans.changed(800, OLD).changed(900, PLAN),
        hits_ahead=(0, 4),
        in_doubt=(3, 70),
    )
    .encode()
    .encode(),
    WheelProgress.due_after(NOW_MS, 700, "", NOW_MS).encode().encode(),
    b"somebody else's",
    b'{"l":0,"p":[[]]}',
    b'{"x":' + b"[" * 2_000,
)
_INT64 = range(-(2**63), 2**63)


def fuzz_one(data: bytes) -> None:
    metadata = data[:METADATA_MAX_BYTES].decode(errors="ignore")
    level = LevelProgress.decode(metadata)
    assert LevelProgress.decode(level.encode()) == level
    assert level.rejected_below in _INT64
    try:
        progress = WheelProgress.decode(metadata, COMMITTED, PLAN, NOW_MS)
    except ProgressError as error:
        assert 0 < len(str(error)) < 1_000
        return
    assert WheelProgress.decode(progress.encode(), COMMITTED, PLAN, 0) == progress
    assert 0 <= progress.lowest_needed <= COMMITTED
    assert progress.watermark == NOTHING_DONE or all(part in _INT64 for part in progress.watermark)
    assert all(0 <= ahead < 2**62 for ahead in progress.hits_ahead)
    offsets = [since for since, _ in progress.plans.since]
    assert offsets == sorted(offsets)
    assert progress.plans.of(COMMITTED) == PLAN
    for since, plan in progress.plans.since:
        assert since in _INT64
        assert plan.act_at(0, 10**12, COMMITTED)[0] in _INT64
        DelayLevels.parse(plan.levels)
