"""What a wheel partition says that a rebuild needs: a retention may take all that lies before, so it is told soon."""

from pathlib import Path

import msgspec
import pytest

from sidecar.dispatch.wheel.partition import LOOK_EVERY_MS, WheelPartition
from sidecar.plan import Plan
from tests.support.one_wheel import NOW_MS, REAL_TOPIC, due, message, opened, sent, ticks

ROLLING = Plan(roll_window_ms=10_000, precision_ms=1_000, max_delay_ms=10**10, levels="1s")
BY_DAY_MS = 86_400_000


def lowest_needed(wheel: WheelPartition, now_ms: int) -> int:
    """As it is committed when nothing has come for a while."""
    while True:
        ticks(wheel, now_ms)
        _, (_, metadata) = sent(wheel, now_ms)
        now_ms += LOOK_EVERY_MS
        ticks(wheel, now_ms)
        if not wheel.has_progress:
            return int(msgspec.json.decode(metadata)["l"])


def test_what_is_sent_is_not_needed_though_nothing_more_comes(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 5_000)], NOW_MS)
    ticks(wheel, NOW_MS)
    assert len(sent(wheel, NOW_MS + 5_000)[0]) == 1
    assert not wheel.has_progress
    ticks(wheel, NOW_MS + 5_000 + LOOK_EVERY_MS)
    assert wheel.has_progress
    assert lowest_needed(wheel, NOW_MS + 5_000 + LOOK_EVERY_MS) == 1


def test_what_was_sent_of_a_slot_is_not_needed_for_what_is_pending_beyond(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 5_000), due(1, NOW_MS + BY_DAY_MS), due(2, NOW_MS + 5_001)], NOW_MS)
    ticks(wheel, NOW_MS)
    sent(wheel, NOW_MS + 5_500)
    assert lowest_needed(wheel, NOW_MS + 6_000 + LOOK_EVERY_MS) == 1


def rolled(wheel: WheelPartition, now_ms: int) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of the one copy that is due."""
    records = wheel.take(now_ms, 10, 2**20)
    assert [record[0] for record in records] == [wheel.topic]
    wheel.confirm()
    return tuple(records[0][4])


def test_a_cancel_is_needed_as_long_as_the_copy_that_it_took_out_would_be_read(tmp_path: Path) -> None:
    wheel = opened(tmp_path, plan=ROLLING, slots=30)
    wheel.offer([message(0, REAL_TOPIC, ("UNIQ_KEY", b"m"), ("TIMER_DELAY_MS", b"25000"))], NOW_MS)
    ticks(wheel, NOW_MS)
    rolls_ms = NOW_MS + 10_000
    copy = rolled(wheel, rolls_ms)
    wheel.offer([message(1, ("TIMER_DEL_UNIQKEY", b"m"), REAL_TOPIC, timestamp_ms=rolls_ms)], rolls_ms)
    wheel.offer([due(2, rolls_ms + 14_000, timestamp_ms=rolls_ms + 5_000)], rolls_ms)
    wheel.offer([message(3, *copy, timestamp_ms=rolls_ms)], rolls_ms)
    ticks(wheel, rolls_ms + LOOK_EVERY_MS)
    _, (_, metadata) = sent(wheel, rolls_ms)
    assert msgspec.json.decode(metadata)["l"] == 1
    # What was pending between the two is sent: nothing reads the copy again.
    assert lowest_needed(wheel, rolls_ms + 2 * LOOK_EVERY_MS) == 4


def test_an_aborted_transaction_forgets_no_cancel(tmp_path: Path) -> None:
    """What it would have passed it has not passed: a rebuild reads the copy, and needs what took it out."""
    wheel = opened(tmp_path / "first", plan=ROLLING, slots=30)
    roll = message(0, REAL_TOPIC, ("UNIQ_KEY", b"m"), ("TIMER_DELAY_MS", b"12000"))
    wheel.offer([roll], NOW_MS)
    ticks(wheel, NOW_MS)
    rolls_ms = NOW_MS + 5_000
    copy = rolled(wheel, rolls_ms)
    log = [roll, message(1, ("TIMER_DEL_UNIQKEY", b"m"), REAL_TOPIC, timestamp_ms=rolls_ms)]
    log += [due(2, NOW_MS + 7_000, timestamp_ms=rolls_ms), message(3, *copy, timestamp_ms=rolls_ms)]
    log += [due(offset, NOW_MS + after_ms, timestamp_ms=rolls_ms) for offset, after_ms in ((4, 9_000), (5, 14_500))]
    wheel.offer(log[1:], rolls_ms)
    assert [record[6] for record in sent(wheel, NOW_MS + 7_000)[0]] == [2]
    late_ms = NOW_MS + 15_000
    ticks(wheel, late_ms)
    assert [record[6] for record in wheel.take(late_ms, 10, 2**20)] == [4, 5]
    assert wheel.progress
    wheel.put_back()
    records, progress = sent(wheel, late_ms, most=1)
    assert [record[6] for record in records] == [4]
    again = opened(tmp_path / "second", *progress, len(log), now_ms=late_ms, plan=ROLLING, slots=30)
    again.offer(log[again.position :], late_ms)
    ticks(again, late_ms)
    assert [record[6] for record in sent(again, late_ms)[0]] == [5]


def test_nothing_waits_for_a_copy_that_went_to_the_dead_letters(tmp_path: Path) -> None:
    wheel = opened(tmp_path, plan=ROLLING, slots=30)
    wheel.offer([message(0, REAL_TOPIC, ("UNIQ_KEY", b"m"), ("TIMER_DELAY_MS", b"25000"))], NOW_MS)
    ticks(wheel, NOW_MS)
    rolls_ms = NOW_MS + 10_000
    records = wheel.take(rolls_ms, 10, 2**20)
    wheel.bury(records)
    wheel.confirm()
    wheel.offer([message(1, ("TIMER_DEL_UNIQKEY", b"m"), REAL_TOPIC, timestamp_ms=rolls_ms)], rolls_ms)
    assert lowest_needed(wheel, rolls_ms + LOOK_EVERY_MS) == 2


def test_what_was_told_as_not_needed_is_never_needed_again(tmp_path: Path) -> None:
    """After a start the slot of the watermark holds again what was sent of it."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 5_000), due(1, NOW_MS + BY_DAY_MS)], NOW_MS)
    ticks(wheel, NOW_MS)
    sent(wheel, NOW_MS + 5_500)
    now_ms = NOW_MS + 6_000 + LOOK_EVERY_MS
    ticks(wheel, now_ms)
    _, progress = sent(wheel, now_ms)
    assert msgspec.json.decode(progress[1])["l"] == 1
    wheel.close()
    again = opened(tmp_path, *progress, 2, now_ms=now_ms)
    ticks(again, now_ms)
    again.offer([due(2, now_ms + 500, timestamp_ms=now_ms)], now_ms)
    ticks(again, now_ms + LOOK_EVERY_MS)
    _, (_, metadata) = sent(again, now_ms)
    assert msgspec.json.decode(metadata)["l"] == 1


@pytest.mark.parametrize(
    ("cancel", "named", "left"),
    [
        ([("TIMER_DEL_UNIQKEY", b"m")], b"m", [0]),
        ([("TIMER_REPLACE_UNIQKEY", b"m"), REAL_TOPIC, ("TIMER_DELAY_MS", b"90000")], b"other", [0, 1]),
    ],
    ids=["cancel", "replacement that came too late"],
)
def test_cancels_that_no_copy_can_come_for_are_not_held_by_a_start(
    tmp_path: Path, cancel: list[tuple[str, bytes]], named: bytes, left: list[int]
) -> None:
    """There may be millions of them between what it reads first and what is committed."""
    wheel = opened(tmp_path / "first")
    log = [due(0, NOW_MS + BY_DAY_MS), due(1, NOW_MS + BY_DAY_MS, uniq_key=named), message(2, *cancel)]
    wheel.offer(log, NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    again = opened(tmp_path / "second", *progress, end=100)
    again.offer(log, NOW_MS)
    assert (again.position, again._cancels.is_any_open) == (3, False)
    # What comes after the commit may have been written while a copy was on its way.
    again.offer([message(3, *cancel)], NOW_MS)
    assert again._cancels.is_any_open
    assert [record[6] for record in sent(again, NOW_MS + BY_DAY_MS)[0]] == left


def test_replacements_that_were_carried_out_are_held_by_a_start_until_their_copies_are_read(tmp_path: Path) -> None:
    wheel = opened(tmp_path / "first")
    replaced = message(
        2, REAL_TOPIC, ("UNIQ_KEY", b"m"), ("TIMER_REPLACE_UNIQKEY", b"m"), ("TIMER_DELIVER_MS", b"%d" % (NOW_MS + 1))
    )
    log = [due(0, NOW_MS + BY_DAY_MS), due(1, NOW_MS + BY_DAY_MS, uniq_key=b"m"), replaced]
    wheel.offer(log, NOW_MS)
    (copy,), _ = sent(wheel, NOW_MS)
    log.append(message(3, *copy[4]))
    wheel.offer(log[3:], NOW_MS)
    delivered, progress = sent(wheel, NOW_MS + 1)
    assert len(delivered) == 1
    again = opened(tmp_path / "second", *progress, end=100, now_ms=NOW_MS + 1)
    again.offer(log[:3], NOW_MS + 1)
    assert again._cancels.is_any_open
    again.offer(log[3:], NOW_MS + 1)
    assert not again._cancels.is_any_open
    assert [record[6] for record in sent(again, NOW_MS + BY_DAY_MS)[0]] == [0]


def test_a_cancel_that_a_copy_may_still_come_for_is_held_by_a_start(tmp_path: Path) -> None:
    wheel = opened(tmp_path / "first", plan=ROLLING, slots=30)
    roll = message(0, REAL_TOPIC, ("UNIQ_KEY", b"m"), ("TIMER_DELAY_MS", b"12000"))
    wheel.offer([roll], NOW_MS)
    ticks(wheel, NOW_MS)
    rolls_ms = NOW_MS + 5_000
    copy = rolled(wheel, rolls_ms)
    log = [roll, message(1, ("TIMER_DEL_UNIQKEY", b"m"), timestamp_ms=rolls_ms)]
    wheel.offer(log[1:], rolls_ms)
    _, progress = sent(wheel, rolls_ms)
    again = opened(tmp_path / "second", *progress, 3, now_ms=rolls_ms, plan=ROLLING, slots=30)
    log.append(message(2, *copy, timestamp_ms=rolls_ms))
    again.offer(log[again.position :], rolls_ms)
    ticks(again, rolls_ms)
    assert sent(again, NOW_MS + 12_000)[0] == []
    assert again.figures.pending == 0
