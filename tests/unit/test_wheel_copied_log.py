"""A wheel topic that a mirror has copied: offsets are others, and what the other cluster's sidecar wrote is strange.

What was due by a time was delivered there; see ``timewheel progress set --due-after``.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.intake.copies import STRANGER_POSTPONED_AT_MOST_MS, Copied, Copies
from sidecar.plan import Plan, Plans
from sidecar.records import HEADERS, OFFSET, TOPIC, VALUE, Outgoing
from tests.support.one_wheel import NOW_MS, PLAN, REAL_TOPIC, WHEEL, due, message, opened, sent

THEIRS = Copies(b"the other cluster's topic")
SOON_MS, STOPPED_MS, LATER_MS = NOW_MS + 1_000, NOW_MS + 5_000, NOW_MS + 60_000
Committed = tuple[int, str]


def replacement(offset: int, due_ms: int, value: bytes = b"new") -> Message:
    names = ("UNIQ_KEY", b"m"), ("TIMER_REPLACE_UNIQKEY", b"m"), ("TIMER_DELIVER_MS", b"%d" % due_ms)
    return message(offset, REAL_TOPIC, *names, value=value)


def their_copy(
    offset: int, due_ms: int, copied: Copied, value: bytes = b"new", *, timestamp_ms: int = NOW_MS
) -> Message:
    headers = THEIRS.headers(b"m", due_ms, copied)
    return message(offset, REAL_TOPIC, *headers, value=value, timestamp_ms=timestamp_ms)


def cancel(offset: int) -> Message:
    return message(offset, ("TIMER_DEL_UNIQKEY", b"m"))


def committed_after(log: Sequence[Message]) -> Committed:
    """What the operator's choice commits, with all of the log read by the time that it names."""
    return len(log), WheelProgress.due_after(STOPPED_MS, 0, "", STOPPED_MS, copied_below=len(log)).encode()


def begun(directory: Path, log: Sequence[Message], committed: Committed, plan: Plan = PLAN) -> WheelPartition:
    wheel = opened(directory, *committed, len(log), now_ms=STOPPED_MS, plan=plan)
    wheel.offer(log, STOPPED_MS)
    assert not wheel.is_recovering
    return wheel


def delivered(wheel: WheelPartition, now_ms: int = LATER_MS) -> list[Outgoing]:
    """All that is due by then; copies that the wheel writes to itself left out."""
    wheel.tick(now_ms)
    return [record for _ in range(3) for record in sent(wheel, now_ms)[0] if record[TOPIC] != WHEEL]


# By the offset that the other log knows it under, which may be any.
BROUGHT = [Copied(0), Copied(1), Copied(40)]


@pytest.mark.parametrize("brought", BROUGHT)
@pytest.mark.parametrize(("due_ms", "values"), [(SOON_MS, []), (LATER_MS, [b"new"])])
def test_a_replacement_that_was_carried_out_there_is_not_carried_out_again(
    tmp_path: Path, brought: Copied, due_ms: int, values: list[bytes]
) -> None:
    """Its message was delivered there, or waits as the copy that it has brought."""
    log = [due(0, LATER_MS, uniq_key=b"m"), replacement(1, due_ms), their_copy(2, due_ms, brought)]
    wheel = begun(tmp_path, log, committed_after(log))
    assert [record[VALUE] for record in delivered(wheel)] == values


def test_nor_is_it_after_the_next_start_without_a_disk(tmp_path: Path) -> None:
    log = [due(0, LATER_MS, uniq_key=b"m"), replacement(1, LATER_MS), their_copy(2, LATER_MS, Copied(7))]
    wheel = begun(tmp_path / "first", log, committed_after(log))
    log.append(due(3, STOPPED_MS + 1))
    wheel.offer(log[-1:], STOPPED_MS)
    records, committed = sent(wheel, STOPPED_MS + 1)
    assert [record[OFFSET] for record in records] == [3]
    wheel = begun(tmp_path / "second", log, committed)
    assert [record[VALUE] for record in delivered(wheel)] == [b"new"]


def test_a_replacement_whose_copy_was_not_mirrored_is_carried_out_here(tmp_path: Path) -> None:
    log = [due(0, LATER_MS, uniq_key=b"m"), replacement(1, LATER_MS)]
    wheel = begun(tmp_path, log, committed_after(log))
    assert [(record[TOPIC], record[VALUE]) for record in sent(wheel, STOPPED_MS)[0]] == [(WHEEL, b"new")]


def test_what_such_a_replacement_brings_is_not_lost_with_the_session_that_has_it_in_hand(tmp_path: Path) -> None:
    """The log ends where it was committed, so that nothing would be read again: what was replaced is off the disk."""
    log = [due(0, LATER_MS, uniq_key=b"m"), replacement(1, LATER_MS)]
    committed = committed_after(log)
    wheel = begun(tmp_path, log, committed)
    assert len(wheel.take(STOPPED_MS, 5_000, 2**24)) == 1
    wheel.close()
    wheel = opened(tmp_path, *committed, len(log), now_ms=STOPPED_MS)
    wheel.offer(log, STOPPED_MS)
    assert [record[VALUE] for record in sent(wheel, STOPPED_MS)[0]] == [b"new"]


def test_what_it_brings_goes_out_before_anything_else_and_the_committed_offset_does_not_go_back(tmp_path: Path) -> None:
    """Beyond what was replaced the watermark would hide it, and what stands before a lower offset would come twice."""
    now_ms = STOPPED_MS + 10
    log = [due(0, STOPPED_MS + 5, uniq_key=b"m"), replacement(1, LATER_MS), due(2, STOPPED_MS + 6, value=b"overdue")]
    committed = committed_after(log)
    log.append(due(3, STOPPED_MS + 7, value=b"arrived due"))
    wheel = opened(tmp_path / "first", *committed, len(log), now_ms=now_ms)
    wheel.offer(log[:3], now_ms)
    assert (wheel.next_due_ms, wheel.has_progress, wheel.take(now_ms, 5_000, 2**24)) == (None, False, [])
    assert "to see which replacements have been carried out" in wheel.trouble
    wheel.offer(log[3:], now_ms)
    (copy,), (offset, metadata) = sent(wheel, now_ms, most=1)
    assert (copy[TOPIC], copy[VALUE], offset) == (WHEEL, b"new", committed[0])
    log.append(message(4, *copy[HEADERS], value=b"new"))
    wheel = opened(tmp_path / "second", offset, metadata, len(log), now_ms=now_ms)
    wheel.offer(log, now_ms)
    assert [record[VALUE] for record in delivered(wheel)] == [b"overdue", b"arrived due", b"new"]


def test_each_of_two_replacements_has_its_copy(tmp_path: Path) -> None:
    log = [
        due(0, LATER_MS, uniq_key=b"m"),
        *(replacement(1, LATER_MS, b"first"), their_copy(2, LATER_MS, Copied(5), b"first")),
        *(replacement(3, LATER_MS, b"second"), their_copy(4, LATER_MS, Copied(8), b"second")),
    ]
    wheel = begun(tmp_path, log, committed_after(log))
    assert [record[VALUE] for record in delivered(wheel)] == [b"second"]


def test_a_cancel_between_a_replacement_and_its_copy_takes_the_copy_out(tmp_path: Path) -> None:
    log = [due(0, LATER_MS, uniq_key=b"m"), replacement(1, LATER_MS), cancel(2), their_copy(3, LATER_MS, Copied(0))]
    wheel = begun(tmp_path, log, committed_after(log))
    assert delivered(wheel) == []


def test_a_copy_whose_replacement_retention_has_taken_is_a_message(tmp_path: Path) -> None:
    log = [their_copy(0, LATER_MS, Copied(3))]
    wheel = begun(tmp_path, log, committed_after(log))
    assert [record[VALUE] for record in delivered(wheel)] == [b"new"]


def test_what_was_postponed_there_is_not_lost_with_the_time_at_which_it_was_due(tmp_path: Path) -> None:
    """Of a level, or of the wheel: whose destination had no leader when the other cluster was lost."""
    postponed = [Copied(None, 0, STOPPED_MS + 1_000), Copied(0, 0, STOPPED_MS + 2_000)]
    log = [due(0, SOON_MS, uniq_key=b"m"), *(their_copy(1 + n, SOON_MS, told) for n, told in enumerate(postponed))]
    wheel = begun(tmp_path, log, committed_after(log))
    assert delivered(wheel, STOPPED_MS + 999) == []
    assert [record[OFFSET] for record in delivered(wheel, STOPPED_MS + 2_000)] == [1, 2]


def test_a_copy_postpones_for_two_minutes_after_it_was_written_at_most(tmp_path: Path) -> None:
    log = [their_copy(0, SOON_MS, Copied(None, 0, 10**14))]
    wheel = begun(tmp_path, log, committed_after(log))
    assert delivered(wheel, NOW_MS + STRANGER_POSTPONED_AT_MOST_MS - 1) == []
    assert [record[OFFSET] for record in delivered(wheel, NOW_MS + STRANGER_POSTPONED_AT_MOST_MS)] == [0]


def test_what_comes_behind_the_copies_tells_nothing_by_its_word_alone(tmp_path: Path) -> None:
    """Whoever may write to the topic can write it."""
    log = [due(0, LATER_MS, uniq_key=b"m"), replacement(1, LATER_MS)]
    wheel = begun(tmp_path, log, committed_after(log))
    wheel.offer([their_copy(2, STOPPED_MS, Copied(None, 0, 10**14), b"at once")], STOPPED_MS)
    assert b"at once" in [record[VALUE] for record in sent(wheel, STOPPED_MS)[0]]


SPREAD = msgspec.structs.replace(PLAN, spread_ms=PLAN.roll_window_ms // 4)


def test_what_has_not_rolled_there_is_not_lost_where_its_offset_here_would_have_it_roll_sooner(tmp_path: Path) -> None:
    """The 256 offsets after the first 256 roll sooner by more than half of the spread."""
    written_ms = STOPPED_MS + SPREAD.spread_ms // 2 - SPREAD.roll_window_ms
    due_ms = written_ms + 3 * SPREAD.roll_window_ms
    log = [message(offset, timestamp_ms=written_ms) for offset in range(256)]
    log.append(due(256, due_ms, timestamp_ms=written_ms, uniq_key=b"m"))
    assert (
        SPREAD.act_at(written_ms, due_ms, offset=256)[0] < STOPPED_MS < SPREAD.act_at(written_ms, due_ms, offset=0)[0]
    )
    wheel = begun(tmp_path / "first", log, committed_after(log), SPREAD)
    records, committed = sent(wheel, STOPPED_MS)
    assert records == []
    wheel = begun(tmp_path / "second", log, committed, SPREAD)
    wheel.tick(STOPPED_MS + SPREAD.spread_ms)
    records, _ = sent(wheel, STOPPED_MS + SPREAD.spread_ms)
    assert [(record[TOPIC], record[OFFSET]) for record in records] == [(WHEEL, 256)]


@pytest.mark.parametrize(("crosses", "count"), [(False, 0), (True, 1)])
def test_a_cancel_takes_out_what_has_rolled_there_unless_the_two_have_crossed(
    tmp_path: Path, crosses: bool, count: int
) -> None:
    """Where they have, the page on another cluster says so."""
    written_ms, far_ms = STOPPED_MS - PLAN.roll_window_ms - 10_000, STOPPED_MS + PLAN.roll_window_ms // 2
    rolled = due(0, far_ms, timestamp_ms=written_ms, uniq_key=b"m")
    copied_ms = written_ms + PLAN.roll_window_ms
    offsets = (2, 1) if crosses else (1, 2)
    copy = their_copy(offsets[0], far_ms, Copied(40, 1), timestamp_ms=copied_ms)
    log = [rolled, *sorted([copy, cancel(offsets[1])], key=lambda record: record.offset() or 0)]
    wheel = begun(tmp_path, log, committed_after(log))
    assert len(delivered(wheel, far_ms)) == count


def test_what_a_start_that_did_not_know_has_committed_of_rolls_does_not_hold() -> None:
    committed = WheelProgress(lowest_needed=0, plans=Plans(((0, SPREAD),))).encode()
    chosen = WheelProgress.due_after(STOPPED_MS, 0, committed, STOPPED_MS, copied_below=9)
    assert (chosen.plans, chosen.copied_below) == (Plans(()), 9)
    begun = WheelProgress.decode(chosen.encode(), 9, SPREAD, STOPPED_MS)
    assert [(since, plan.spread_ms) for since, plan in begun.plans.since] == [(0, 0), (9, SPREAD.spread_ms)]
    assert (begun.is_set, begun.copied_below) == (False, 9)
    again = WheelProgress.due_after(STOPPED_MS, 0, begun.encode(), STOPPED_MS, copied_below=12)
    assert (again.plans, again.copied_below) == (begun.plans, 9)
