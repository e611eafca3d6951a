"""However the records of a wheel partition come, at once or one by one: the same goes out, and the same is told."""

import errno
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from confluent_kafka import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.plan import Plan
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_store import quota_bytes_min
from tests.support.one_wheel import NOW_MS, REAL_TOPIC, WHEEL, due, message, opened, sent

PLAN = Plan(roll_window_ms=9_000, precision_ms=1_000, max_delay_ms=10**10, levels="1s")
SLOTS = 20
PAST_MS, SOON_MS, LATER_MS, ROLLS_MS = NOW_MS - 1, NOW_MS + 500, NOW_MS + 5_000, NOW_MS + 30_000

IDS = st.sampled_from([b"a", b"b", b"c", b"d"])
TIMES = st.sampled_from([PAST_MS, SOON_MS, LATER_MS, LATER_MS + 1, ROLLS_MS])
TOPICS = st.sampled_from([None, b"orders", b"payments"])
SCHEDULES = st.tuples(st.just("schedule"), IDS, TIMES)
CANCELS = st.tuples(st.just("cancel"), IDS, TOPICS)
REPLACEMENTS = st.tuples(st.just("replace"), IDS, IDS, TIMES)
REJECTED = st.just(("rejected",))
STORIES = st.lists(st.one_of(SCHEDULES, SCHEDULES, CANCELS, CANCELS, REPLACEMENTS, REJECTED), max_size=25)


def record(offset: int, kind: str, *what: object) -> Message:
    """One of a story."""
    match kind, *what:
        case "schedule", bytes(uniq_key), int(due_ms):
            return due(offset, due_ms, uniq_key=uniq_key, value=b"%d" % offset)
        case "cancel", bytes(uniq_key), None:
            return message(offset, ("TIMER_DEL_UNIQKEY", uniq_key))
        case "cancel", bytes(uniq_key), bytes(topic):
            return message(offset, ("TIMER_DEL_UNIQKEY", uniq_key), ("REAL_TOPIC", topic))
        case "replace", bytes(uniq_key), bytes(new_key), int(due_ms):
            when = ("TIMER_DELIVER_MS", b"%d" % due_ms)
            headers = ("TIMER_REPLACE_UNIQKEY", uniq_key), ("UNIQ_KEY", new_key), REAL_TOPIC, when
            return message(offset, *headers, value=b"%d" % offset)
    return message(offset, ("TAGS", b"no destination"))


class End(NamedTuple):
    """What has become of a story."""

    sent: list[tuple[object, ...]]
    outcomes: dict[int, str]
    progress: tuple[int, str]


def told(batches: Iterable[Sequence[Message]]) -> End:
    """Offered batch by batch; copies come back at the end of the topic, until nothing is left."""
    outcomes: dict[int, str] = {}

    def tell(final: Mapping[int, str], _committed: int) -> None:
        outcomes.update(final)

    with TemporaryDirectory() as directory:
        wheel = opened(Path(directory), plan=PLAN, slots=SLOTS, tell_outcomes=tell)
        wheel.tick(NOW_MS)
        for batch in batches:
            wheel.offer(batch, NOW_MS)
        out = list(_until_nothing_is_left(wheel))
        progress = wheel.progress
        wheel.close()
    return End(out, outcomes, progress)


def _until_nothing_is_left(wheel: WheelPartition) -> Iterator[tuple[object, ...]]:
    for now_ms in range(NOW_MS, ROLLS_MS + 2_000, 500):
        wheel.tick(now_ms)
        while taken := sent(wheel, now_ms)[0]:
            yield from taken
            copies = [
                message(wheel.position + number, *copy[4], timestamp_ms=now_ms, value=copy[3] or b"")
                for number, copy in enumerate(record for record in taken if record[0] == WHEEL)
            ]
            wheel.offer(copies, now_ms)


@settings(max_examples=150)
@given(STORIES, st.lists(st.integers(0, 25), max_size=3))
@example([("schedule", b"a", LATER_MS), ("cancel", b"a", None), ("schedule", b"a", LATER_MS)], [])
@example([("schedule", b"a", LATER_MS), ("cancel", b"b", None), ("schedule", b"b", LATER_MS)], [])
@example([("cancel", b"a", None), ("schedule", b"b", PAST_MS), ("cancel", b"b", None)], [])
@example([("replace", b"a", b"b", LATER_MS), ("schedule", b"b", LATER_MS), ("cancel", b"b", None)], [1])
def test_batches_of_any_size_end_alike(story: list[tuple[object, ...]], cuts: list[int]) -> None:
    records = [record(offset, *parts) for offset, parts in enumerate(story)]  # type: ignore[arg-type]
    one_by_one = told([record] for record in records)
    assert told([records]) == one_by_one
    bounds = sorted({0, *cuts, len(records)})
    assert told(records[begin:end] for begin, end in pairwise(bounds)) == one_by_one


def test_orders_that_come_and_are_cancelled_in_turns_cost_about_what_others_do(tmp_path: Path) -> None:
    """An application with a time-out for each of its orders: most are cancelled, and while others are scheduled."""
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)
    pending, count, rounds, later_ms = 20_000, 1_000, 3, NOW_MS + 3_600_000
    wheel.offer([due(number, later_ms + number, uniq_key=b"%d" % number) for number in range(pending)], NOW_MS)

    def took_s(records: Sequence[Message]) -> float:
        began_s = time.thread_time()
        wheel.offer(records, NOW_MS)
        return time.thread_time() - began_s

    alone_s: list[float] = []
    in_turns_s: list[float] = []
    for begin in range(pending, pending + 2 * rounds * count, 2 * count):
        schedules = [due(begin + number, later_ms) for number in range(count)]
        in_turns = [
            due(begin + number, later_ms)
            if number % 2
            else message(begin + number, ("TIMER_DEL_UNIQKEY", b"%d" % (begin - pending + number)))
            for number in range(count, 2 * count)
        ]
        alone_s.append(took_s(schedules))
        in_turns_s.append(took_s(in_turns))
    why = "each cancel was looked up, or written, by itself"
    assert min(in_turns_s) < 10 * min(*alone_s, 0.1) + 0.02, why


def test_a_cancel_between_costs_no_more_for_what_is_being_sent(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)
    in_hand, count, later_ms = 5_000, 300, NOW_MS + 3_600_000
    wheel.offer([due(number, NOW_MS - 1) for number in range(in_hand)], NOW_MS)
    assert len(wheel.take(NOW_MS, in_hand, 2**30)) == in_hand
    records = [
        due(in_hand + number, PAST_MS if number % 2 else later_ms)
        if number % 3
        else message(in_hand + number, ("TIMER_DEL_UNIQKEY", b"%d" % number))
        for number in range(count)
    ]
    began_s = time.thread_time()
    wheel.offer(records, NOW_MS)
    assert time.thread_time() - began_s < 0.005 * count
    assert wheel.position == in_hand + count
    wheel.confirm()
    assert wheel.figures.pending == sum(number % 3 != 0 for number in range(count))


@pytest.mark.parametrize("others", range(6))
def test_where_the_quota_is_used_up_cancels_before_what_needs_room_are_applied(tmp_path: Path, others: int) -> None:
    quota_bytes = quota_bytes_min(SLOTS)
    wheel = opened(tmp_path, plan=PLAN, slots=SLOTS, quota_bytes=quota_bytes)
    wheel.tick(NOW_MS)
    large = b"x" * (quota_bytes // 10)
    offset = 0
    while not wheel.trouble:
        wheel.offer([due(offset, LATER_MS, value=large, uniq_key=b"%d" % offset)], NOW_MS)
        offset = wheel.position if wheel.trouble else offset + 1
    wheel.tick(NOW_MS + 2_000)
    cancels = [message(offset + n, ("TIMER_DEL_UNIQKEY", b"of none" if n else b"0")) for n in range(1 + others)]
    last = offset + len(cancels)
    wheel.offer([*cancels, due(last, LATER_MS, value=large)], NOW_MS + 2_000)
    assert (wheel.position, wheel.trouble != "") == (last, True)
    out: list[int] = []
    while taken := sent(wheel, LATER_MS)[0]:
        out += [record[6] for record in taken]
    assert out == list(range(1, offset))


@pytest.mark.parametrize("others", range(6))
def test_all_before_what_has_no_place_on_the_wheel_is_taken_in(tmp_path: Path, others: int) -> None:
    wheel = opened(tmp_path, plan=PLAN, slots=SLOTS)
    wheel.tick(NOW_MS)
    lap_ms = 2 * SLOTS * PLAN.precision_ms
    ahead = due(1 + others, LATER_MS + lap_ms, timestamp_ms=NOW_MS + lap_ms)
    wheel.offer([due(0, LATER_MS), *(due(1 + number, LATER_MS) for number in range(others)), ahead], NOW_MS)
    assert (wheel.position, wheel.trouble != "") == (1 + others, True)


@pytest.mark.parametrize("others", range(6))
def test_a_cancel_that_the_disk_refuses_waits_and_those_before_it_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, LATER_MS, uniq_key=b"a")], NOW_MS)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(TimerLog, "append", full)
    cancels = [message(1 + number, ("TIMER_DEL_UNIQKEY", b"of none")) for number in range(others)]
    wheel.offer([*cancels, message(1 + others, ("TIMER_DEL_UNIQKEY", b"a"))], NOW_MS)
    assert (wheel.position, wheel.is_disk_full) == (1 + others, True)


@pytest.mark.parametrize("due_ms", [PAST_MS, LATER_MS])
def test_what_has_been_taken_in_is_passed_over_where_it_is_offered_again(tmp_path: Path, due_ms: int) -> None:
    """A consumer that is sent back to an offset may still hold what it had read before."""
    wheel = opened(tmp_path)
    records = [due(number, due_ms, uniq_key=b"%d" % number) for number in range(30)]
    wheel.offer(records[:20], NOW_MS)
    wheel.offer(records, NOW_MS)
    assert wheel.position == 30
    assert [record[6] for record in sent(wheel, LATER_MS)[0]] == list(range(30))


def test_nothing_behind_a_cancel_that_waits_is_taken_in(tmp_path: Path) -> None:
    """It is read again with the cancel, and would be stored twice."""
    outcomes: dict[int, str] = {}
    wheel = opened(tmp_path, tell_outcomes=lambda final, _committed: outcomes.update(final))
    wheel.tick(NOW_MS)
    count = 500
    wheel.offer([due(number, PAST_MS, uniq_key=b"%d" % number) for number in range(count)], NOW_MS)
    assert len(wheel.take(NOW_MS, count, 2**30)) == count
    records = [
        due(count + number, LATER_MS, uniq_key=b"later%d" % number)
        if number % 2
        else message(count + number, ("TIMER_DEL_UNIQKEY", b"%d" % (number // 2)))
        for number in range(2 * count)
    ]
    wheel.offer(records, NOW_MS)
    assert wheel.position == count
    wheel.confirm()
    while wheel.position < 3 * count:
        wheel.offer([record for record in records if (record.offset() or 0) >= wheel.position], NOW_MS)
        sent(wheel, NOW_MS, most=0)
    assert sorted(record[6] for record in sent(wheel, LATER_MS)[0]) == list(range(count + 1, 3 * count, 2))
    assert len(outcomes) == count


def test_batches_are_asked_for_whole_as_long_as_there_are_cancels(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    schedule, cancel = due(0, LATER_MS, uniq_key=b"m"), message(1, ("TIMER_DEL_UNIQKEY", b"m"))
    for read, is_whole in (([schedule], False), ([cancel], True), ([due(2, LATER_MS)], False)):
        wheel.offer(read, NOW_MS)
        assert wheel.is_best_read_whole is is_whole
