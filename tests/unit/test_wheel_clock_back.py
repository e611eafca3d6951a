"""The host's clock was set back: until it has caught up the time that is told stands still, and all else goes on."""

import errno
from pathlib import Path

import pytest

from sidecar.dispatch.wheel.checkpoints import CHECKPOINT_EVERY_MS
from sidecar.dispatch.wheel.intake_pause import TRY_AGAIN_MS
from sidecar.dispatch.wheel.partition import LOOK_EVERY_MS
from sidecar.store.timer_log import TimerLog
from tests.support.one_wheel import NOW_MS, due, opened, sent, ticks

LATER_MS = NOW_MS + 60_000


class Stopwatch:
    """A clock that never steps."""

    def __init__(self) -> None:
        self.ms = 5_000.0

    def __call__(self) -> float:
        return self.ms


def test_intake_that_was_paused_goes_on(tmp_path: Path) -> None:
    passed = Stopwatch()
    wheel = opened(tmp_path, monotonic_ms=passed)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimerLog, "append", full)
        wheel.offer([due(0, LATER_MS)], NOW_MS)
    assert wheel.is_disk_full
    passed.ms += TRY_AGAIN_MS
    wheel.tick(NOW_MS)
    wheel.offer([due(0, LATER_MS)], NOW_MS)
    assert (wheel.position, wheel.is_disk_full) == (1, False)


def test_checkpoints_are_written(tmp_path: Path) -> None:
    passed = Stopwatch()
    wheel = opened(tmp_path, monotonic_ms=passed)
    wheel.offer([due(0, LATER_MS)], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    passed.ms += CHECKPOINT_EVERY_MS
    wheel.tick(NOW_MS)
    assert opened(tmp_path, *progress, 1).position == 1


def test_what_is_needed_no_more_is_told(tmp_path: Path) -> None:
    passed = Stopwatch()
    wheel = opened(tmp_path, monotonic_ms=passed)
    wheel.offer([due(0, LATER_MS)], NOW_MS)
    ticks(wheel, LATER_MS)
    assert len(sent(wheel, LATER_MS)[0]) == 1
    assert not wheel.has_progress
    passed.ms += LOOK_EVERY_MS
    ticks(wheel, LATER_MS)
    assert wheel.has_progress


def test_what_is_due_by_the_clock_of_the_replica_before_is_sent_and_not_taken_for_done(tmp_path: Path) -> None:
    """That clock is ahead, and the committed progress says of all up to its time that it is done."""
    ahead_ms = NOW_MS + 5_000
    one = opened(tmp_path / "one", now_ms=ahead_ms)
    one.offer([due(0, ahead_ms)], ahead_ms)
    records, progress = sent(one, ahead_ms)
    assert len(records) == 1
    two = opened(tmp_path / "two", *progress, 1)
    two.offer([due(1, ahead_ms - 2_000)], NOW_MS)
    assert [record[6] for record in sent(two, NOW_MS)[0]] == [1]
