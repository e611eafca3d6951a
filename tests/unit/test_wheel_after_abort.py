"""What an aborted transaction leaves behind, where a replacement was waiting for it."""

from pathlib import Path

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
