"""Cancels and replacements of what is in the transaction in hand: not read before its end, and then as any other."""

from pathlib import Path

import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.partition import WheelPartition
from tests.support.one_wheel import NOW_MS, PLAN, REAL_TOPIC, WHEEL, due, message, opened, sent


def replacing(offset: int, old: bytes, new: bytes) -> Message:
    later = ("TIMER_DELAY_MS", b"5000")
    return message(offset, REAL_TOPIC, ("UNIQ_KEY", new), ("TIMER_REPLACE_UNIQKEY", old), later)


def cancelling(offset: int, uniq_key: bytes, *headers: tuple[str, bytes]) -> Message:
    return message(offset, ("TIMER_DEL_UNIQKEY", uniq_key), *headers)


def ended(wheel: WheelPartition, is_aborted: bool) -> None:
    """The end of the transaction in hand."""
    if is_aborted:
        wheel.put_back()
    else:
        assert wheel.progress
        wheel.confirm()


@pytest.mark.parametrize("is_aborted", [False, True])
@pytest.mark.parametrize("is_replacement", [False, True])
def test_nothing_is_read_behind_it_before_the_end(tmp_path: Path, is_replacement: bool, is_aborted: bool) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a"), due(1, NOW_MS - 1, uniq_key=b"d")], NOW_MS)
    assert len(wheel.take(NOW_MS, 10, 10_000)) == 2
    batch = [replacing(2, b"a", b"b") if is_replacement else cancelling(2, b"a"), due(3, NOW_MS + 5_000)]
    for _ in range(2):
        wheel.offer(batch, NOW_MS)
        wheel.reached_end(4)
        assert (wheel.position, wheel.is_full) == (2, False)
    ended(wheel, is_aborted)
    wheel.offer(batch, NOW_MS)
    assert wheel.position == 4


def test_what_was_written_before_a_start_is_waited_for_until_it_is_read(tmp_path: Path) -> None:
    """Kafka's end of the log was taken for it, though a cancel before it was not taken in yet."""
    wheel = opened(tmp_path, end=3)
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.take(NOW_MS, 10, 10_000)
    batch = [cancelling(1, b"a"), due(2, NOW_MS + 5_000)]
    wheel.offer(batch, NOW_MS)
    wheel.reached_end(3)
    wheel.put_back()
    assert (wheel.position, wheel.next_due_ms) == (1, None)
    wheel.offer(batch, NOW_MS)
    assert wheel.position == 3
    assert wheel.next_due_ms is not None
    assert wheel.take(NOW_MS, 10, 10_000) == []


def test_what_another_transaction_holds_back_at_the_start_is_not_waited_for(tmp_path: Path) -> None:
    """Kafka's end of the log lies before the end that was told; it may take minutes until there is more to read."""
    wheel = opened(tmp_path, end=3)
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.next_due_ms is None
    wheel.reached_end(1)
    assert wheel.next_due_ms is not None


def test_one_of_another_topic_waits_for_nothing(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.take(NOW_MS, 10, 10_000)
    wheel.offer([cancelling(1, b"a", ("REAL_TOPIC", b"payments")), cancelling(2, b"b")], NOW_MS)
    assert wheel.position == 3


def test_a_replacement_goes_out_with_the_offset_that_has_decided_it(tmp_path: Path) -> None:
    """Also where transactions are small: had it gone before, the next start would carry it out again."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS - 2, uniq_key=b"a"), due(1, NOW_MS - 1, uniq_key=b"b")], NOW_MS)
    assert [record[6] for record in wheel.take(NOW_MS, 10, 10_000)] == [0, 1]
    batch = [replacing(2, b"b", b"c"), due(3, NOW_MS - 1, uniq_key=b"d")]
    wheel.offer(batch, NOW_MS)
    wheel.put_back()
    wheel.offer(batch, NOW_MS)
    first, (offset, _) = sent(wheel, NOW_MS, most=1)
    assert ([record[6] for record in first], offset) == ([0], 2)
    second, (offset, _) = sent(wheel, NOW_MS, most=1)
    assert [(record[0], dict(record[4])["UNIQ_KEY"]) for record in second] == [(WHEEL, b"c")]
    assert offset == 3
    assert [record[6] for record in sent(wheel, NOW_MS, most=1)[0]] == [3]


def test_a_replacement_of_an_id_that_stands_twice_is_carried_out_once(tmp_path: Path) -> None:
    """A message and a copy of another, both in the transaction that was aborted."""
    wheel = opened(tmp_path)
    rolling = due(0, NOW_MS + PLAN.roll_window_ms + 5_000, timestamp_ms=NOW_MS - PLAN.roll_window_ms, uniq_key=b"a")
    wheel.offer([rolling, due(1, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    taken = wheel.take(NOW_MS, 10, 10_000)
    assert sorted(record[0] for record in taken) == sorted([WHEEL, "orders"])
    wheel.offer([replacing(2, b"a", b"b")], NOW_MS)
    wheel.put_back()
    wheel.offer([replacing(2, b"a", b"b")], NOW_MS)
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(wheel, NOW_MS)[0]] == [b"b"]


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_chain_is_decided_as_one(tmp_path: Path, is_aborted: bool) -> None:
    """a is replaced by b, that by c, and y is cancelled, which would have replaced what never was."""
    told: dict[int, str] = {}
    wheel = opened(tmp_path, tell_outcomes=lambda outcomes, _: told.update(outcomes))
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.take(NOW_MS, 10, 10_000)
    chain = [replacing(1, b"a", b"b"), replacing(2, b"b", b"c"), replacing(3, b"x", b"y"), cancelling(4, b"y")]
    wheel.offer(chain, NOW_MS)
    ended(wheel, is_aborted)
    wheel.offer(chain, NOW_MS)
    brought = [dict(record[4])["UNIQ_KEY"] for record in sent(wheel, NOW_MS)[0]]
    assert brought == ([b"c"] if is_aborted else [])
    of_chain = "cancelled" if is_aborted else "too_late"
    assert told == {1: of_chain, 2: of_chain, 3: "too_late", 4: "unknown"}


def test_a_cancel_of_a_roll_takes_out_its_copy(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    before_ms = NOW_MS - PLAN.roll_window_ms
    wheel.offer([due(0, NOW_MS + PLAN.roll_window_ms, timestamp_ms=before_ms, uniq_key=b"a")], NOW_MS)
    (copy,) = wheel.take(NOW_MS, 10, 10_000)
    log = [cancelling(1, b"a"), message(2, *copy[4])]
    wheel.offer(log, NOW_MS)
    ended(wheel, is_aborted=False)
    wheel.offer(log, NOW_MS)
    assert (wheel.position, wheel.figures.pending) == (3, 0)


def test_a_cancel_that_stays_in_force_is_told_once(tmp_path: Path) -> None:
    """Below the log's end of the start, every cancel does: a copy of an earlier process may come."""
    told: list[dict[int, str]] = []
    wheel = opened(tmp_path, end=10, tell_outcomes=lambda outcomes, _: told.append(dict(outcomes)))
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.take(NOW_MS, 10, 10_000)
    wheel.put_back()
    wheel.offer([cancelling(1, b"a")], NOW_MS)
    assert sent(wheel, NOW_MS)[0] == []
    wheel.offer([due(offset, NOW_MS + 5_000) for offset in range(2, 12)], NOW_MS)
    sent(wheel, NOW_MS)
    assert [outcomes for outcomes in told if outcomes] == [{1: "cancelled"}]
