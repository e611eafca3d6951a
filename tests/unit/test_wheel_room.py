"""A wheel whose disk is full of what it has delivered: intake waits for that room, and nothing else makes it."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.intake_pause import TRY_AGAIN_MS
from sidecar.dispatch.wheel.partition import LONG_FULL_MS, LOOK_EVERY_MS, WheelPartition
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.plan import Plan
from sidecar.records import Outgoing
from sidecar.store import checkpoint, opening, timer_store
from sidecar.store.timer_log import TimerLog
from tests.support.one_wheel import AT_HAND_BYTES, NOW_MS, due, message, opened, sent

PLAN = Plan(roll_window_ms=9_000, precision_ms=1_000, max_delay_ms=10**10, levels="1s")
SLOTS = 20
DUE_MS = NOW_MS + 5_000
END = 10_000
"""Of the log: so far a cancel that is read now stays in force, for a copy may come."""


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (opening, timer_store):
        monkeypatch.setattr(module, "PAYLOAD_LOG_SEGMENT_BYTES", 20_000)
        monkeypatch.setattr(module, "TIMER_LOG_SEGMENT_BYTES", 2_000)


def some(offset: int, due_ms: int = DUE_MS) -> Message:
    return due(offset, due_ms, timestamp_ms=due_ms - 5_000, value=b"x" * 1_000, uniq_key=b"%d" % offset)


def filled(directory: Path, *first: Message, slots: int = SLOTS) -> WheelPartition:
    """What is read first, and after it what comes until there is no more room."""
    wheel = opened(directory, end=END, plan=PLAN, slots=slots, quota_bytes=1)
    wheel.tick(NOW_MS)
    wheel.offer(first, NOW_MS)
    while not wheel.trouble:
        wheel.offer([some(wheel.position)], NOW_MS)
    assert wheel.is_disk_full
    return wheel


def failing(code: int) -> Callable[..., None]:
    """What a disk does."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def sent_in_time(wheel: WheelPartition, now_ms: int) -> tuple[list[Outgoing], tuple[int, str]]:
    """One transaction, as `sent`; what comes after it is not due before its time."""
    records, progress = sent(wheel, now_ms)
    assert WheelProgress.read(progress[1], progress[0]).watermark <= (now_ms, END)
    return records, progress


def idle(wheel: WheelPartition, from_ms: int, for_ms: int) -> tuple[int, str]:
    """What is due is sent; then nothing comes. The progress that is committed last."""
    while sent_in_time(wheel, from_ms)[0]:
        pass
    progress = wheel.progress
    for now_ms in range(from_ms, from_ms + for_ms, 1_000):
        wheel.tick(now_ms)
        if wheel.has_progress:
            _, progress = sent_in_time(wheel, now_ms)
    return progress


@pytest.mark.parametrize(
    "first",
    [(), (message(0, ("TIMER_DEL_UNIQKEY", b"of none")),)],
    ids=["nothing else", "a cancel that stays in force until more is read"],
)
def test_what_is_delivered_makes_room(tmp_path: Path, first: tuple[Message, ...]) -> None:
    wheel = filled(tmp_path, *first)
    position = wheel.position
    progress = idle(wheel, DUE_MS, 4 * LOOK_EVERY_MS)
    now_ms = DUE_MS + 4 * LOOK_EVERY_MS
    wheel.offer([some(position, now_ms + 5_000)], now_ms)
    assert (wheel.position, wheel.trouble) == (position + 1, "")
    # A start reads again what it needs, and sends none of it twice.
    again = opened(tmp_path, *progress, END, now_ms=now_ms, plan=PLAN, slots=SLOTS)
    log = [*first, *(some(number) for number in range(len(first), position)), some(position, now_ms + 5_000)]
    again.offer(log[again.position :], now_ms)
    again.tick(now_ms)
    assert sent(again, now_ms)[0] == []
    assert [record[6] for record in sent(again, now_ms + 5_000)[0]] == [position]


def test_room_is_not_waited_for_until_half_a_lap_has_passed(tmp_path: Path) -> None:
    """Of days, where the wheel spans weeks; and there are no commits that move nothing."""
    slots = 1_000
    wheel = filled(tmp_path, slots=slots)
    position = wheel.position
    now_ms = DUE_MS + 4 * LOOK_EVERY_MS
    assert 2 * (now_ms - NOW_MS) < slots * PLAN.precision_ms
    idle(wheel, DUE_MS, 4 * LOOK_EVERY_MS)
    assert not wheel.has_progress
    wheel.offer([some(position, now_ms + 5_000)], now_ms)
    assert (wheel.position, wheel.trouble) == (position + 1, "")


def test_what_finds_no_room_is_not_passed_over_at_the_end_of_the_log(tmp_path: Path) -> None:
    wheel = filled(tmp_path)
    position = wheel.position
    wheel.reached_end(position + 1)
    assert wheel.position == position


def test_a_start_on_a_full_disk_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing is sent before the end of the recovery: somebody may make it."""
    wheel = opened(tmp_path / "one", plan=PLAN, slots=SLOTS)
    wheel.offer([some(0)], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    again = opened(tmp_path / "two", *progress, 1, plan=PLAN, slots=SLOTS)
    with monkeypatch.context() as patch:
        patch.setattr(TimerLog, "append", failing(errno.ENOSPC))
        again.offer([some(0)], NOW_MS)
    assert (again.is_recovering, again.is_disk_full, again.position) == (True, True, 0)
    assert "No space left" in again.trouble
    again.tick(NOW_MS + TRY_AGAIN_MS)
    again.offer([some(0)], NOW_MS + TRY_AGAIN_MS)
    assert [record[6] for record in sent(again, DUE_MS)[0]] == [0]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "make room on the disk"),
        (errno.EROFS, "let this user write to all that is under data_dir"),
        (errno.EIO, "check the disk under data_dir"),
    ],
)
def test_a_disk_that_takes_nothing_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    wheel = opened(tmp_path, plan=PLAN, slots=SLOTS)
    wheel.offer([some(0)], NOW_MS)
    with monkeypatch.context() as patch:
        patch.setattr(TimerLog, "append", failing(code))
        wheel.offer([some(1)], NOW_MS)
    assert (wheel.position, wheel.trouble) == (1, f"intake is paused: {os.strerror(code)}")
    assert wheel.remedy.startswith(remedy)
    assert wheel.is_disk_full == (code == errno.ENOSPC)
    wheel.tick(NOW_MS + TRY_AGAIN_MS)
    wheel.offer([some(1)], NOW_MS + TRY_AGAIN_MS)
    assert (wheel.position, wheel.trouble, wheel.remedy) == (2, "", "")


def test_a_start_on_a_disk_that_fails_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried anew, and told as a partition that cannot be opened: while it waits, nothing is sent."""
    wheel = opened(tmp_path / "one", plan=PLAN, slots=SLOTS)
    wheel.offer([some(0)], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    again = opened(tmp_path / "two", *progress, 1, plan=PLAN, slots=SLOTS)
    monkeypatch.setattr(TimerLog, "append", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        again.offer([some(0)], NOW_MS)


def test_it_makes_room_where_there_is_none_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = filled(tmp_path)
    position = wheel.position
    monkeypatch.setattr(checkpoint, "save", failing(errno.ENOSPC))
    idle(wheel, DUE_MS, 4 * LOOK_EVERY_MS)
    now_ms = DUE_MS + 4 * LOOK_EVERY_MS
    wheel.offer([some(position, now_ms + 5_000)], now_ms)
    assert (wheel.position, wheel.trouble) == (position + 1, "")


def test_what_waits_keeps_its_place(tmp_path: Path) -> None:
    wheel = filled(tmp_path, some(0, DUE_MS + 3_000))
    position = wheel.position
    progress = idle(wheel, DUE_MS, 2_000)
    assert wheel.position == position
    again = opened(tmp_path, *progress, END, now_ms=DUE_MS + 2_000, plan=PLAN, slots=SLOTS)
    log = [some(0, DUE_MS + 3_000), *(some(number) for number in range(1, position))]
    again.offer(log[again.position :], DUE_MS + 2_000)
    for one in (wheel, again):
        one.tick(DUE_MS + 3_000)
        assert [record[6] for record in sent(one, DUE_MS + 3_000)[0]] == [0]


def test_memory_that_is_full_of_what_is_due_later_is_told(tmp_path: Path) -> None:
    """With slots of a minute, what comes for the one at hand stays in memory for so long."""
    coarse = msgspec.structs.replace(PLAN, precision_ms=60_000, roll_window_ms=10**9)
    begin_ms = NOW_MS // 60_000 * 60_000
    due_ms = begin_ms + 59_000
    wheel = opened(tmp_path, plan=coarse, now_ms=begin_ms)
    wheel.tick(begin_ms)
    large = b"v" * (AT_HAND_BYTES // 10)
    wheel.offer([due(offset, due_ms, timestamp_ms=begin_ms, value=large) for offset in range(11)], begin_ms)
    wheel.tick(begin_ms)
    assert wheel.is_full
    wheel.tick(begin_ms + LONG_FULL_MS - 1)
    assert not wheel.trouble, "with slots of a second it is no trouble"
    wheel.tick(begin_ms + LONG_FULL_MS)
    assert f"11 messages in memory, which came for slots that are loaded, leave no room until {due_ms}" in wheel.trouble
    assert wheel.remedy.startswith("lower precision_ms")
    wheel.tick(due_ms)
    assert not wheel.trouble, "what is due makes room as it is sent"
    assert len(sent(wheel, due_ms, most=20)[0]) > 0
    assert not wheel.trouble
