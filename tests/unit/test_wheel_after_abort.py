"""What an aborted transaction leaves behind, where a replacement was waiting for it."""

from pathlib import Path

from tests.support.one_wheel import NOW_MS, REAL_TOPIC, WHEEL, due, message, opened, sent


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
