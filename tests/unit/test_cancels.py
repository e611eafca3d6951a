"""Cancels in force while a partition is read again: what they hold of what they have read."""

import errno
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.cancels import CancelRead, Cancels, Tombstone
from sidecar.dispatch.wheel.intake_pause import TRY_AGAIN_MS
from sidecar.intake.parse_wheel import Cancel, Schedule
from sidecar.store.timer_log import TimerLog
from tests.support.one_wheel import NOW_MS, PLAN, REAL_TOPIC, due, message, opened, replaced_while_it_rolls, sent

MANY = 10_000
END = 10 * MANY


def copy_of(origin_offset: int) -> Schedule:
    return Schedule("orders", -1, [], b"m", 0, 1, origin_offset, 0, 0)


def test_the_copies_that_are_read_again_take_no_memory() -> None:
    """Of what waits for long a partition holds little else than copies: millions of them."""
    cancels = Cancels(END, [])
    tracemalloc.start()
    try:
        for number in range(MANY):
            assert cancels.copy_read(copy_of(MANY + number), 2 * MANY + number) is None
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < MANY


def test_of_a_cancel_that_stays_in_force_no_more_is_held_than_it_says(tmp_path: Path) -> None:
    """What else its producer has put into the record is of no use."""

    def record(offset: int) -> Message:
        return message(offset, ("TIMER_DEL_UNIQKEY", b"%d" % offset), ("other", bytes(5_000)), value=bytes(5_000))

    wheel = opened(tmp_path, end=END)
    wheel.offer([record(0)], NOW_MS)
    tracemalloc.start()
    try:
        wheel.offer([record(offset) for offset in range(1, 101)], NOW_MS)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 100 * 5_000


def cancel(offset: int) -> CancelRead:
    return CancelRead(offset, Cancel(b"%d" % offset, None, None))


def test_the_lowest_offset_in_force_is_known_without_a_look_at_all_of_them() -> None:
    """It is asked for with every transaction."""
    cancels = Cancels(END, [])
    for offset in range(MANY, 2 * MANY):
        assert cancels.keep(cancel(offset), offset)
    began_s = time.thread_time()
    for _ in range(1_000):
        assert cancels.lowest_needed(END, END) == MANY
    assert time.thread_time() - began_s < 0.1


def test_what_goes_out_of_force_is_needed_no_more() -> None:
    cancels = Cancels(100, [])
    for offset in (30, 10, 20):
        cancels.keep(cancel(offset), offset)
    assert cancels.lowest_needed(END, END) == 10
    cancels.rolled(b"20")
    assert [pending.offset for pending in cancels.expire(100)] == [10, 30]
    assert cancels.lowest_needed(END, END) == 20
    cancels.not_rolled(b"20")
    assert [pending.offset for pending in cancels.expire(101)] == [20]
    assert cancels.lowest_needed(END, END) == END


def test_a_copy_that_is_read_again_and_again_is_noted_once() -> None:
    """The intake reads on from the first record that finds no room, once a second for as long as the disk is full."""
    cancels = Cancels(END, [Tombstone(1, 3)])
    cancels.keep(CancelRead(1, Cancel(b"m", None, None)), 1)
    for _ in range(10):
        for offset in (3, 4):
            assert cancels.copy_read(copy_of(0), offset) is not None
    assert cancels.tombstones == [(1, 3), (1, 4)]
    cancels.passed(4)
    assert cancels.tombstones == [(1, 4)]


def test_what_a_process_before_has_decided_of_a_replacement_and_its_cancel_is_not_told_again(tmp_path: Path) -> None:
    told: list[Mapping[int, str]] = []
    first = opened(tmp_path / "first", tell_outcomes=lambda outcomes, _: told.append(dict(outcomes)))
    waits = due(0, NOW_MS + 50_000_000, uniq_key=b"waits")
    rolls = due(1, NOW_MS + PLAN.roll_window_ms, timestamp_ms=NOW_MS - PLAN.roll_window_ms, uniq_key=b"m")
    first.offer([waits, rolls], NOW_MS)
    (copy,) = first.take(NOW_MS, 10, 10_000)
    first.confirm()
    by_another = ("UNIQ_KEY", b"n"), ("TIMER_REPLACE_UNIQKEY", b"m"), ("TIMER_DELAY_MS", b"5000")
    replaced = [message(2, REAL_TOPIC, *by_another), message(3, ("TIMER_DEL_UNIQKEY", b"n"))]
    first.offer(replaced, NOW_MS)
    rest = [message(4, *copy[4]), due(5, NOW_MS + 60_000)]
    first.offer(rest, NOW_MS)
    _, committed = sent(first, NOW_MS)
    assert [outcomes for outcomes in told if outcomes] == [{2: "cancelled", 3: "cancelled"}]
    told.clear()
    again = opened(tmp_path / "again", *committed, end=6, tell_outcomes=lambda outcomes, _: told.append(dict(outcomes)))
    again.offer([waits, rolls, *replaced, *rest], NOW_MS)
    assert not again.is_recovering
    assert again.figures.pending == 2
    sent(again, NOW_MS)
    assert [outcomes for outcomes in told if outcomes] == []


@pytest.mark.parametrize(("named", "brought"), [(b"b", []), (b"a", [b"b"]), (b"another", [b"b"])])
def test_only_a_cancel_of_its_own_message_ends_a_replacement_that_is_in_doubt(
    tmp_path: Path, named: bytes, brought: list[bytes]
) -> None:
    """The process before has left no word of whether it was carried out, and its message is nowhere else."""
    log, committed = replaced_while_it_rolls(tmp_path / "first")
    again = opened(tmp_path / "again", *committed, end=5)
    again.offer([*log, message(3, ("TIMER_DEL_UNIQKEY", named))], NOW_MS)
    assert sent(again, NOW_MS)[0] == []
    again.reached_end(5)
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(again, NOW_MS)[0]] == brought


def test_a_replacement_whose_message_has_come_is_not_carried_out_for_another_copy_of_what_it_replaces(
    tmp_path: Path,
) -> None:
    """Progress was set back meanwhile, and what had rolled has rolled once more."""
    log, committed = replaced_while_it_rolls(tmp_path / "first")
    second = opened(tmp_path / "second", *committed, end=3)
    second.offer(log, NOW_MS)
    (brought,), _ = sent(second, NOW_MS)
    log += [message(3, *brought[4]), message(4, *log[2].headers() or [])]
    third = opened(tmp_path / "third", *committed, end=5)
    third.offer(log, NOW_MS)
    assert not third.is_recovering
    assert sent(third, NOW_MS)[0] == []
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(third, NOW_MS + 5_000)[0]] == [b"b"]


@pytest.mark.parametrize(
    ("deliver_ms", "outcome"),
    [(None, "unknown"), (NOW_MS + 1, "unknown"), (NOW_MS, "too_late"), (NOW_MS - 1, "too_late")],
)
def test_a_cancel_that_finds_nothing_is_too_late_where_the_time_that_it_names_has_come(
    tmp_path: Path, deliver_ms: int | None, outcome: str
) -> None:
    told: dict[int, str] = {}
    wheel = opened(tmp_path, tell_outcomes=lambda outcomes, _: told.update(outcomes))
    time = [] if deliver_ms is None else [("TIMER_DELIVER_MS", b"%d" % deliver_ms)]
    wheel.offer([message(0, ("TIMER_DEL_UNIQKEY", b"m"), *time)], NOW_MS)
    sent(wheel, NOW_MS)
    assert told == {0: outcome}


def test_a_replacement_that_a_copy_decides_is_carried_out_once_there_is_room_for_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is read again with it, and so is what it decides."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    told: dict[int, str] = {}
    wheel = opened(tmp_path, tell_outcomes=lambda outcomes, _: told.update(outcomes))
    rolls = due(0, NOW_MS + PLAN.roll_window_ms, timestamp_ms=NOW_MS - PLAN.roll_window_ms, uniq_key=b"a")
    wheel.offer([rolls], NOW_MS)
    (copy,), _ = sent(wheel, NOW_MS)
    by_another = ("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELAY_MS", b"5000")
    wheel.offer([message(1, REAL_TOPIC, *by_another)], NOW_MS)
    rest = [due(2, NOW_MS + 60_000), message(3, *copy[4])]
    with monkeypatch.context() as patch:
        patch.setattr(TimerLog, "append", full)
        wheel.offer(rest, NOW_MS)
    assert (wheel.position, sent(wheel, NOW_MS)[0], told) == (2, [], {})
    wheel.tick(NOW_MS + TRY_AGAIN_MS)
    wheel.offer(rest, NOW_MS + TRY_AGAIN_MS)
    (brought,), _ = sent(wheel, NOW_MS + TRY_AGAIN_MS)
    assert (dict(brought[4])["UNIQ_KEY"], told) == (b"b", {1: "cancelled"})
