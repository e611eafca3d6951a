"""What an aborted transaction leaves behind, where a replacement was waiting for it."""

from pathlib import Path

from confluent_kafka import Message

from tests.support.one_wheel import NOW_MS, PLAN, REAL_TOPIC, WHEEL, due, message, opened, sent


def test_a_replacement_goes_out_with_the_offset_that_has_decided_it(tmp_path: Path) -> None:
    """Also where transactions are small: had it gone before, the next start would carry it out again."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS - 2, uniq_key=b"a"), due(1, NOW_MS - 1, uniq_key=b"b")], NOW_MS)
    assert [record[6] for record in wheel.take(NOW_MS, 10, 10_000)] == [0, 1]
    replacing = [("UNIQ_KEY", b"c"), ("TIMER_REPLACE_UNIQKEY", b"b"), ("TIMER_DELAY_MS", b"5000")]
    wheel.offer([message(2, REAL_TOPIC, *replacing), due(3, NOW_MS - 1, uniq_key=b"d")], NOW_MS)
    wheel.put_back()
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
    replacing = [("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELAY_MS", b"5000")]
    wheel.offer([message(2, REAL_TOPIC, *replacing)], NOW_MS)
    wheel.put_back()
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(wheel, NOW_MS)[0]] == [b"b"]


def test_it_waits_for_nothing_where_nothing_was_ever_committed(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    wheel.take(NOW_MS, 10, 10_000)
    replacing = [("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELAY_MS", b"5000")]
    wheel.offer([message(1, REAL_TOPIC, *replacing)], NOW_MS)
    wheel.put_back()
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(wheel, NOW_MS)[0]] == [b"b"]


def test_a_cancel_of_what_a_waiting_replacement_would_bring_waits_with_it(tmp_path: Path) -> None:
    """While what is replaced is being sent there is no telling, and the abort brings the whole chain back."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a"), due(1, NOW_MS - 1)], NOW_MS)
    assert len(wheel.take(NOW_MS, 10, 10_000)) == 2

    def replacing(offset: int, old: bytes, new: bytes) -> Message:
        later = ("TIMER_DELAY_MS", b"5000")
        return message(offset, REAL_TOPIC, ("UNIQ_KEY", new), ("TIMER_REPLACE_UNIQKEY", old), later)

    wheel.offer([replacing(2, b"a", b"b")], NOW_MS)
    wheel.offer([replacing(3, b"b", b"c"), replacing(4, b"x", b"y"), message(5, ("TIMER_DEL_UNIQKEY", b"y"))], NOW_MS)
    wheel.put_back()
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(wheel, NOW_MS)[0] if record[0] == WHEEL] == [b"c"]


def test_where_the_transaction_gets_through_all_of_the_chain_is_too_late(tmp_path: Path) -> None:
    told: dict[int, str] = {}
    wheel = opened(tmp_path, tell_outcomes=lambda outcomes, _: told.update(outcomes))
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.take(NOW_MS, 10, 10_000)
    chain = [("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELAY_MS", b"5000")]
    wheel.offer([message(1, REAL_TOPIC, *chain), message(2, ("TIMER_DEL_UNIQKEY", b"b"))], NOW_MS)
    assert wheel.progress
    wheel.confirm()
    assert sent(wheel, NOW_MS)[0] == []
    assert told == {1: "too_late", 2: "unknown"}


def test_a_cancel_that_waits_and_stays_in_force_is_told_once(tmp_path: Path) -> None:
    """Below the log's end of the start, every cancel stays in force: a copy of an earlier process may come."""
    told: list[dict[int, str]] = []
    wheel = opened(tmp_path, end=10, tell_outcomes=lambda outcomes, _: told.append(dict(outcomes)))
    wheel.offer([due(0, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert wheel.take(NOW_MS, 10, 10_000)
    wheel.offer([message(1, ("TIMER_DEL_UNIQKEY", b"a"))], NOW_MS)
    wheel.put_back()
    assert sent(wheel, NOW_MS)[0] == []
    wheel.offer([due(offset, NOW_MS + 5_000) for offset in range(2, 12)], NOW_MS)
    sent(wheel, NOW_MS)
    assert [outcomes for outcomes in told if outcomes] == [{1: "cancelled"}]


def test_what_is_brought_goes_before_what_was_stored_since(tmp_path: Path) -> None:
    """Behind its replacement lies what a start from there would store, and send, once more."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 5, uniq_key=b"a")], NOW_MS)
    now_ms = NOW_MS + 10
    assert [record[6] for record in wheel.take(now_ms, 10, 10_000)] == [0]
    replacing = [("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELAY_MS", b"5000")]
    wheel.offer([message(1, REAL_TOPIC, *replacing), due(2, now_ms + 5)], now_ms)
    now_ms += 10
    wheel.offer([due(3, NOW_MS)], now_ms)
    wheel.put_back()
    committed = [(record[6], offset) for (record,), (offset, _) in (sent(wheel, now_ms, most=1) for _ in range(3))]
    assert committed == [(1, 3), (2, 3), (3, 4)]


def test_a_copy_is_not_taken_in_before_a_cancel_that_waits(tmp_path: Path) -> None:
    """Two messages with one id: the cancel waits since one is in hand, and means the copy of the other, too."""
    wheel = opened(tmp_path)
    before_ms = NOW_MS - PLAN.roll_window_ms
    rolling = due(0, NOW_MS + PLAN.roll_window_ms + 5_000, timestamp_ms=before_ms, uniq_key=b"a")
    wheel.offer([rolling], NOW_MS)
    (rolled,), _ = sent(wheel, NOW_MS)
    wheel.offer([due(1, NOW_MS - 1, uniq_key=b"a")], NOW_MS)
    assert [record[6] for record in wheel.take(NOW_MS, 10, 10_000)] == [1]
    log = [message(2, ("TIMER_DEL_UNIQKEY", b"a")), message(3, *rolled[4]), due(4, NOW_MS + 5_000)]
    wheel.offer(log, NOW_MS)
    assert wheel.position == 3
    assert wheel.is_full
    wheel.confirm()
    assert wheel.has_room
    wheel.offer(log[1:], NOW_MS)
    assert (wheel.position, wheel.figures.pending) == (5, 1)
