"""Cancels read ahead of the committed offset, that have taken out something from below it."""

from pathlib import Path

import pytest

from tests.support.one_wheel import NOW_MS, REAL_TOPIC, due, message, opened, sent


def test_a_rebuild_sends_nothing_before_it_has_read_a_cancel_that_had_hit(tmp_path: Path) -> None:
    """What it took out is pending again in the new files, and due: it must not go out before the cancel is read."""
    records = [
        due(0, NOW_MS + 1_000, uniq_key=b"cancelled"),
        due(1, NOW_MS - 1, uniq_key=b"waits"),
        message(2, ("TIMER_DEL_UNIQKEY", b"cancelled")),
        due(3, NOW_MS + 500, uniq_key=b"later"),
    ]
    before = opened(tmp_path / "one")
    before.offer(records[:3], NOW_MS)
    _, (offset, metadata) = sent(before, NOW_MS, most=0)
    assert offset == 1
    after = opened(tmp_path / "two", offset, metadata, end=4, now_ms=NOW_MS + 2_000)
    after.offer(records[:2], NOW_MS + 2_000)
    assert after.next_due_ms is None
    assert after.is_recovering
    assert after.take(NOW_MS + 2_000, 10, 10_000) == []
    after.offer(records[2:], NOW_MS + 2_000)
    assert not after.is_recovering
    delivered, _ = sent(after, NOW_MS + 2_000)
    assert [record[6] for record in delivered] == [1, 3]


def test_a_cancel_is_remembered_that_was_read_during_a_transaction_which_was_aborted(tmp_path: Path) -> None:
    """What it took out lies below it; between them lies what was in hand, and holds back the offset again."""
    records = [
        due(0, NOW_MS + 1_000, uniq_key=b"cancelled"),
        due(1, NOW_MS - 1, uniq_key=b"first"),
        due(2, NOW_MS - 1, uniq_key=b"second"),
        message(3, ("TIMER_DEL_UNIQKEY", b"cancelled")),
    ]
    before = opened(tmp_path / "one")
    before.offer(records[:3], NOW_MS)
    assert len(before.take(NOW_MS, 10, 10_000)) == 2
    before.offer(records[3:], NOW_MS)
    before.put_back()
    delivered, (offset, metadata) = sent(before, NOW_MS, most=1)
    assert ([record[6] for record in delivered], offset) == ([1], 2)
    after = opened(tmp_path / "two", offset, metadata, end=4, now_ms=NOW_MS + 2_000)
    after.offer(records[:3], NOW_MS + 2_000)
    assert after.is_recovering
    assert after.take(NOW_MS + 2_000, 10, 10_000) == []
    after.offer(records[3:], NOW_MS + 2_000)
    delivered, _ = sent(after, NOW_MS + 2_000)
    assert [record[6] for record in delivered] == [2]


def test_a_replacement_is_remembered_with_every_commit_until_what_it_brings_is_sent(tmp_path: Path) -> None:
    """Also where it is the first record that a process has read, and so stands at the committed offset itself."""
    records = [
        due(0, NOW_MS + 1_000, uniq_key=b"replaced"),
        due(1, NOW_MS + 1_001, uniq_key=b"first"),
        due(2, NOW_MS + 1_002, uniq_key=b"second"),
        message(3, REAL_TOPIC, ("UNIQ_KEY", b"new"), ("TIMER_REPLACE_UNIQKEY", b"replaced"), ("TIMER_DELAY_MS", b"9")),
    ]
    now_ms = NOW_MS + 2_000
    one = opened(tmp_path / "one")
    one.offer(records[:3], NOW_MS)
    _, committed = sent(one, NOW_MS)
    two = opened(tmp_path / "two", *committed, end=4)
    two.offer(records, now_ms)
    for number in (1, 2):
        delivered, committed = sent(two, now_ms, most=1)
        assert ([record[6] for record in delivered], committed[0]) == ([number], 3)
        again = opened(tmp_path / f"three-{number}", *committed, end=4, now_ms=now_ms)
        again.offer(records, now_ms)
        left = [dict(record[4])["UNIQ_KEY"] for record in sent(again, now_ms)[0]]
        assert left == [b"second", b"new"][number - 1 :]


@pytest.mark.parametrize("is_grown_again", [False, True])
def test_a_cancel_that_had_hit_and_is_lost_with_the_logs_end_is_not_waited_for(
    tmp_path: Path, is_grown_again: bool
) -> None:
    """Nor does another hit that stands in its place now."""
    waits, cancelled = due(0, NOW_MS + 1_000, uniq_key=b"cancelled"), due(1, NOW_MS - 1, uniq_key=b"waits")
    before = opened(tmp_path / "one")
    before.offer([waits, cancelled, message(2, ("TIMER_DEL_UNIQKEY", b"cancelled"))], NOW_MS)
    _, (offset, metadata) = sent(before, NOW_MS, most=0)
    outcomes: dict[int, str] = {}
    after = opened(
        tmp_path / "two",
        offset,
        metadata,
        end=3 if is_grown_again else 2,
        now_ms=NOW_MS + 2_000,
        tell_outcomes=lambda told, _: outcomes.update(told),
    )
    after.offer([waits], NOW_MS + 2_000)
    if is_grown_again:
        after.lost_end(2)
    after.offer([cancelled], NOW_MS + 2_000)
    if is_grown_again:
        after.offer([message(2, ("TIMER_DEL_UNIQKEY", b"another"))], NOW_MS + 2_000)
    assert not after.is_recovering
    delivered, _ = sent(after, NOW_MS + 2_000)
    assert [record[6] for record in delivered] == [0, 1]
    assert outcomes == ({2: "unknown"} if is_grown_again else {})
