"""A wheel partition at its limits: more bytes than it may hold, slots more than a lap apart, a clock that was ahead."""

import gc
import time
from pathlib import Path

import msgspec
import pytest

from sidecar.dispatch.wheel.intake import HITS_AHEAD_MAX_BYTES, WheelIntake
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.progress import BURIED_MAX, IN_DOUBT_MAX_BYTES, PLANS_MAX_BYTES, WheelProgress
from sidecar.intake.progress import LastRead, Mark
from sidecar.plan import Plan, Plans
from sidecar.records import Outgoing
from tests.support.one_wheel import AT_HAND_BYTES, NOW_MS, PLAN, REAL_TOPIC, due, message, opened, sent

SHORT = Plan(roll_window_ms=9_000, precision_ms=1_000, max_delay_ms=10**10, levels="1s")


def test_the_bytes_of_what_joins_a_loaded_slot_count(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)
    value = b"x" * 100_000
    for batch in range(5):
        wheel.offer([due(batch * 100 + number, NOW_MS + 900, value=value) for number in range(100)], NOW_MS)
        size_bytes = (batch + 1) * 100 * len(value)
        assert wheel.is_full == (size_bytes > AT_HAND_BYTES)
    while len(sent(wheel, NOW_MS + 1_000)[0]):
        pass
    assert wheel.has_room


@pytest.mark.parametrize("stored", [0, 2])
def test_what_arrived_due_batch_by_batch_does_not_make_a_transaction_too_large(tmp_path: Path, stored: int) -> None:
    wheel = opened(tmp_path)
    value = b"x" * 1_000
    wheel.offer([due(number, NOW_MS + 10, value=value) for number in range(stored)], NOW_MS)
    for number in range(stored, 6):
        wheel.offer([due(number, NOW_MS, value=value)], NOW_MS + 20)
    sizes = []
    while records := sent_within(wheel, 2_500):
        sizes.append(len(records))
    assert sizes == [2, 2, 2]


def sent_within(wheel: WheelPartition, max_bytes: int) -> list[Outgoing]:
    records = wheel.take(NOW_MS + 20, 5_000, max_bytes)
    wheel.confirm()
    return records


def test_after_a_start_memory_holds_nothing_that_is_due_before_all_that_waits(tmp_path: Path) -> None:
    """It would fill with what is due in an hour, and intake would stand still until that goes out."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 80_000_000)], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    wheel.close()
    again = opened(tmp_path, *progress, 1)
    again.tick(NOW_MS)
    again.offer([due(1 + number, NOW_MS + 3_600_000) for number in range(10)], NOW_MS)
    assert again.waiting == 0
    again.tick(NOW_MS + 3_600_000)
    assert [record[6] for record in sent(again, NOW_MS + 3_600_000)[0]] == list(range(1, 11))


def test_nothing_is_lost_where_pending_slots_are_more_than_a_lap_apart(tmp_path: Path) -> None:
    """Delivery was stopped for long, and the first transaction after it takes one slot exactly; then a crash."""
    wheel = opened(tmp_path / "first", plan=SHORT, slots=10)
    wheel.tick(NOW_MS)
    first, later_ms = due(0, NOW_MS + 5_000), NOW_MS + 40_000
    wheel.offer([first], NOW_MS)
    wheel.tick(later_ms)
    second = due(1, NOW_MS + 46_500, timestamp_ms=later_ms)
    wheel.offer([second], later_ms)
    wheel.take(-1, 0, 0)
    progress = wheel.progress
    wheel.confirm()
    wheel.close()
    late_ms = NOW_MS + 120_000
    wheel = opened(tmp_path / "first", *progress, 2, now_ms=late_ms, plan=SHORT, slots=10)
    records, progress = sent(wheel, late_ms, most=1)
    assert [record[6] for record in records] == [0]
    again = opened(tmp_path / "second", *progress, 2, now_ms=late_ms, plan=SHORT, slots=10)
    again.offer([record for record in (first, second) if (record.offset() or 0) >= again.position], late_ms)
    again.tick(late_ms)
    assert [record[6] for record in sent(again, late_ms)[0]] == [1]


def test_what_is_due_does_not_wait_for_a_clock_to_catch_up(tmp_path: Path) -> None:
    """Another replica's clock was two hours ahead, and has sent by it."""
    ahead_ms = NOW_MS + 7_200_000
    wheel = opened(tmp_path / "first", now_ms=ahead_ms)
    wheel.offer([due(0, ahead_ms, timestamp_ms=ahead_ms)], ahead_ms)
    _, progress = sent(wheel, ahead_ms)
    again = opened(tmp_path / "second", *progress, 1, now_ms=NOW_MS)
    again.tick(NOW_MS)
    again.offer([due(1, NOW_MS - 5_000)], NOW_MS)
    assert again.next_due_ms is not None
    assert again.next_due_ms <= NOW_MS
    told = "messages were delivered by a clock that was 2h ahead: what is due within that time goes out at once"
    assert again.note == told
    again.tick(ahead_ms)
    assert again.note == ""
    assert [record[6] for record in sent(again, NOW_MS)[0]] == [1]


def test_a_batch_of_cancels_takes_time_in_proportion(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)

    def took_s(first: int, count: int) -> float:
        cancels = [
            message(first + number, ("TIMER_DEL_UNIQKEY", b"%d" % number), REAL_TOPIC) for number in range(count)
        ]
        gc.disable()  # as the sidecar does; a collection would look at all that other tests have left
        try:
            began_s = time.thread_time()  # whatever else the machine does
            wheel.offer(cancels, NOW_MS)
            return time.thread_time() - began_s
        finally:
            gc.enable()

    took_s(0, 10)
    small_s = took_s(10, 500)
    assert took_s(510, 5_000) < 40 * small_s + 0.2, "ten times as many took far more than ten times as long"


METADATA_BYTES_MAX = 4_096 - len(Mark("I" * 22, LastRead(10**15, NOW_MS, 2**31 - 1)).put_on(""))
"""Kafka's offset.metadata.max.bytes, and what each commit says of the log that it is of."""


HITS_AHEAD_MAX = HITS_AHEAD_MAX_BYTES // len("1000,")
"""Of cancels that stand some thousand records beyond the committed offset."""


def test_any_number_of_cancels_of_what_is_being_sent_fits_into_a_commit(tmp_path: Path) -> None:
    """The transaction is aborted, and they find it after all."""
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)
    sent(wheel, NOW_MS)
    count = 3_000
    wheel.offer([due(number, NOW_MS - 1, uniq_key=b"%d" % number) for number in range(count)], NOW_MS)
    cancels = [message(count + number, ("TIMER_DEL_UNIQKEY", b"%d" % number)) for number in range(1, count)]
    assert len(wheel.take(NOW_MS, count, 2**30)) == count
    wheel.offer(cancels, NOW_MS)
    assert wheel.position == count + 1
    wheel.put_back()
    out: list[int] = []
    for _ in range(count):
        records, (_, metadata) = sent(wheel, NOW_MS, most=max(1, len(out)))
        assert len(metadata) < METADATA_BYTES_MAX
        out += [record[6] for record in records]
        if not wheel.is_full:
            wheel.offer([record for record in cancels if (record.offset() or 0) >= wheel.position], NOW_MS)
        if wheel.position == 2 * count - 1 and not records:
            break
    assert out == [0, *range(HITS_AHEAD_MAX + 1, count)], "what was taken in is absent, the rest goes out once"


@pytest.mark.parametrize("apart", [10**3, 10**5, 10**7, 10**9])
def test_cancels_far_ahead_of_what_waits_fit_into_a_commit_beside_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    """What waits came due while delivery was stopped; plans and replacements take as much as they may."""
    needed, begins, count = 10**10, 10**10 + 10**9, HITS_AHEAD_MAX
    doubted = [begins - 1_000 + ahead for ahead in range(IN_DOUBT_MAX_BYTES)]
    monkeypatch.setattr(WheelIntake, "in_doubt", lambda _intake, _sent_below: doubted)
    plans = Plans(((needed, PLAN),))
    while len(msgspec.json.encode(plans)) < PLANS_MAX_BYTES:
        fits = plans
        plan = msgspec.structs.replace(PLAN, max_delay_ms=PLAN.max_delay_ms + len(plans.since))
        plans = plans.changed(begins - 1_000 + len(plans.since), plan)
    buried = tuple(range(10**9 - BURIED_MAX, 10**9))
    begun = WheelProgress(
        watermark=(NOW_MS, begins),
        lowest_needed=needed,
        plans=fits,
        buried=buried,
        begun_ms=NOW_MS,
        copied_below=begins,
    )
    wheel = opened(tmp_path, begins, begun.encode(), begins, plan=fits.since[-1][1])
    wheel.offer([due(needed + 1, NOW_MS + 60_000, uniq_key=b"kept")], NOW_MS)
    wheel.reached_end(begins)
    scheduled = [due(begins + n, NOW_MS + 60_000, uniq_key=b"%d" % n) for n in range(count)]
    waiting = [due(begins + count + n, NOW_MS - 1) for n in range(2)]
    wheel.offer([*scheduled, *waiting], NOW_MS)
    far = begins + count + apart
    cancels = [message(far + n, ("TIMER_DEL_UNIQKEY", b"%d" % n)) for n in range(count)]
    wheel.offer(cancels, NOW_MS)
    _, (offset, metadata) = sent(wheel, NOW_MS, most=1)
    assert offset == begins + count + 1
    told = WheelProgress.read(metadata, offset)
    assert len(told.hits_ahead) == min(count, HITS_AHEAD_MAX_BYTES // len(f"{told.hits_ahead[-1]},"))
    assert (len(told.buried), len(told.in_doubt)) == (BURIED_MAX, IN_DOUBT_MAX_BYTES // len(f"{10**9 - 1},"))
    assert METADATA_BYTES_MAX - 600 < len(metadata) < METADATA_BYTES_MAX
    while wheel.position < far + count:
        sent(wheel, NOW_MS)
        wheel.offer([each for each in cancels if (each.offset() or 0) >= wheel.position], NOW_MS)
    sent(wheel, NOW_MS)
    assert wheel.figures.pending == 1, "each has found what it names, and the others are untouched"


def test_any_number_of_cancels_that_are_read_with_a_replacement_fits_into_a_commit(tmp_path: Path) -> None:
    """Its message will hold back the committed offset, and so what they take out has to be remembered."""
    wheel, count = opened(tmp_path), 1_500
    wheel.offer([due(number, NOW_MS + 60_000, uniq_key=b"%d" % number) for number in range(count)], NOW_MS)
    sent(wheel, NOW_MS)
    names = ("UNIQ_KEY", b"new"), ("TIMER_REPLACE_UNIQKEY", b"0"), ("TIMER_DELAY_MS", b"60000")
    replacing = message(count, REAL_TOPIC, *names)
    cancels = [message(count + number, ("TIMER_DEL_UNIQKEY", b"%d" % number)) for number in range(1, count)]
    wheel.offer([replacing, *cancels], NOW_MS)
    _, (offset, metadata) = sent(wheel, NOW_MS, most=0)
    assert offset == count
    assert len(metadata) < METADATA_BYTES_MAX
    while wheel.position < 2 * count:
        sent(wheel, NOW_MS)
        wheel.offer([each for each in cancels if (each.offset() or 0) >= wheel.position], NOW_MS)
    assert (wheel.position, wheel.figures.pending) == (2 * count, 0)


def test_cancels_of_rolls_that_are_aborted_fit_into_a_commit(tmp_path: Path) -> None:
    """The copies are in the transaction in hand; it is aborted, and the next holds one record."""
    wheel = opened(tmp_path, plan=SHORT, slots=200)
    wheel.tick(NOW_MS)
    count, rolls_ms = 1_500, NOW_MS + 9_500
    wheel.offer([due(number, NOW_MS + 100_000, uniq_key=b"%d" % number) for number in range(count)], NOW_MS)
    wheel.tick(rolls_ms)
    wheel.offer([due(count, NOW_MS - 1), due(count + 1, NOW_MS - 1)], rolls_ms)
    assert len(wheel.take(rolls_ms, 5_000, 2**24)) == count + 2
    wheel.put_back()
    wheel.offer([message(count + 2 + n, ("TIMER_DEL_UNIQKEY", b"%d" % n)) for n in range(count)], rolls_ms)
    assert wheel.position > count + 2
    wheel.take(rolls_ms, 1, 2**24)
    assert len(wheel.progress[1]) < METADATA_BYTES_MAX


def test_a_replacement_behind_many_cancels_does_not_wait_for_a_commit(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)
    later_ms, count = NOW_MS + 3_600_000, 2 * HITS_AHEAD_MAX
    wheel.offer([due(number, later_ms, uniq_key=b"%d" % number) for number in range(count)], NOW_MS)
    sent(wheel, NOW_MS)
    cancels = [message(count + n, ("TIMER_DEL_UNIQKEY", b"%d" % n)) for n in range(count - 1)]
    replacing = [("TIMER_REPLACE_UNIQKEY", b"%d" % (count - 1)), ("TIMER_DELIVER_MS", b"%d" % later_ms)]
    wheel.offer([*cancels, message(2 * count - 1, REAL_TOPIC, *replacing)], NOW_MS)
    assert (wheel.position, wheel.is_full) == (2 * count, False)


def test_what_is_due_beyond_a_lap_stops_nothing_before_it(tmp_path: Path) -> None:
    """A timestamp that was ahead of the clock makes it so."""
    wheel = opened(tmp_path, plan=SHORT, slots=10)
    wheel.tick(NOW_MS)
    lap_ms = 20_000
    ahead = due(2, NOW_MS + 5_000 + lap_ms, timestamp_ms=NOW_MS + lap_ms)
    wheel.offer([due(0, NOW_MS + 4_000), due(1, NOW_MS + 5_000), ahead], NOW_MS)
    assert wheel.position == 2
    assert "of another lap" in wheel.trouble
    assert [record[6] for record in sent(wheel, NOW_MS + 5_000)[0]] == [0, 1]
    later_ms = NOW_MS + 30_000
    wheel.tick(later_ms)
    wheel.offer([ahead], later_ms)
    assert [record[6] for record in sent(wheel, later_ms)[0]] == [2]


def test_what_was_due_before_it_was_written_is_late_from_then_on(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    headers = REAL_TOPIC, ("TIMER_DELIVER_MS", b"1")
    written_ms = [NOW_MS - 30, NOW_MS + 40]  # Kafka's clock may be ahead
    wheel.offer([message(number, *headers, timestamp_ms=at_ms) for number, at_ms in enumerate(written_ms)], NOW_MS)
    parsed_in_full = [
        message(2, *headers, ("REAL_QID", b"0"), timestamp_ms=NOW_MS - 20),
        message(3, REAL_TOPIC, ("TIMER_DELIVER_MS", b"%d" % (NOW_MS - 10)), timestamp_ms=NOW_MS - 20),
    ]
    wheel.offer(parsed_in_full, NOW_MS)
    taken = wheel.take(NOW_MS, 10, 10**6)
    assert [record[5] for record in taken] == [NOW_MS - 30, NOW_MS, NOW_MS - 20, NOW_MS - 10]
    assert [dict(record[4])["TIMER_OUT_MS"] for record in taken[:3]] == [b"1"] * 3
    wheel.close()
