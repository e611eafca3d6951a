"""Copies of two processes with one id: what the earlier has written says nothing of what the later awaits."""

from pathlib import Path

from confluent_kafka import Message

from tests.support.one_wheel import NOW_MS, PLAN, due, message, opened, sent


def rolling(offset: int) -> Message:
    """One that is written anew as soon as it is read."""
    before_ms = NOW_MS - PLAN.roll_window_ms
    return due(offset, NOW_MS + PLAN.roll_window_ms + 5_000, timestamp_ms=before_ms, uniq_key=b"a")


def test_a_cancel_stays_in_force_for_the_copy_of_this_process(tmp_path: Path) -> None:
    first = opened(tmp_path / "first")
    first.offer([rolling(0)], NOW_MS)
    (earlier_copy,), progress = sent(first, NOW_MS)
    again = opened(tmp_path / "second", *progress, end=4)
    again.offer([rolling(1)], NOW_MS)
    (own_copy,), _ = sent(again, NOW_MS)
    again.offer([message(2, *earlier_copy[4]), message(3, ("TIMER_DEL_UNIQKEY", b"a"))], NOW_MS)
    again.offer([message(4, *own_copy[4])], NOW_MS)
    assert again.position == 5
    assert again.figures.pending == 0
