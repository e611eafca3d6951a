"""What a wheel partition tells for metrics."""

from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel import view as wheel_view
from sidecar.dispatch.wheel.figures import DUE_WITHIN_MS, added
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.store.timer_store import quota_bytes_min
from tests.support.one_wheel import NOW_MS, PLAN, due, message, opened, sent, ticks

HOUR_MS = 3_600_000


def for_topic(offset: int, topic: bytes, due_ms: int, timestamp_ms: int = NOW_MS) -> Message:
    return message(offset, ("REAL_TOPIC", topic), ("TIMER_DELIVER_MS", b"%d" % due_ms), timestamp_ms=timestamp_ms)


def test_a_topic_is_told_by_name_after_any_number_that_have_come_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_view, "TOPIC_NAMES_MAX", 10)
    wheel = opened(tmp_path)

    def schedule(topic: bytes, due_ms: int, now_ms: int) -> None:
        wheel.offer([for_topic(wheel.position, topic, due_ms, now_ms)], now_ms)

    schedule(b"lasting", NOW_MS + HOUR_MS, NOW_MS)
    for number in range(1, 25):
        now_ms = NOW_MS + 2_000 * number
        schedule(b"reply-%d" % number, now_ms + 1_000, now_ms)
        wheel.tick(now_ms + 1_000)
        assert len(sent(wheel, now_ms + 1_000)[0]) == 1
    schedule(b"new", NOW_MS + HOUR_MS, NOW_MS + 60_000)
    assert wheel.figures.by_topic == {"lasting": 1, "new": 1}
    assert len(wheel._view._topic_names) <= 11


DAY_MS = 24 * HOUR_MS
FAR = msgspec.structs.replace(PLAN, roll_window_ms=20 * DAY_MS, precision_ms=10_000)


def far(directory: Path) -> WheelPartition:
    """One whose wheel holds what is due in two weeks."""
    return opened(directory, plan=FAR, slots=172_800)


def test_what_waits_is_counted_by_how_soon_it_is_due(tmp_path: Path) -> None:
    wheel = far(tmp_path)
    assert wheel.figures.due_within == {}
    aheads_ms = [20_000, 50_000, 60_000, *(ahead_ms - 10_000 for ahead_ms in DUE_WITHIN_MS.values()), 8 * DAY_MS]
    wheel.offer([due(n, NOW_MS + ahead_ms) for n, ahead_ms in enumerate(aheads_ms)], NOW_MS)
    ticks(wheel, NOW_MS)
    figures = wheel.figures
    assert figures.due_within == {"1m": 3, "10m": 2, "1h": 1, "6h": 1, "1d": 1, "7d": 1, "later": 1}
    assert figures.furthest_ms == NOW_MS + 8 * DAY_MS
    assert figures.pending == len(aheads_ms)


@pytest.mark.parametrize("are_loaded", [False, True], ids=["on disk", "at hand"])
def test_what_is_due_already_and_waits_for_delivery_does_not_count_as_due_later(
    tmp_path: Path, are_loaded: bool
) -> None:
    wheel = far(tmp_path)
    wheel.offer([due(n, NOW_MS + 10_000 * (1 + n)) for n in range(5)] + [due(5, NOW_MS + 8 * DAY_MS)], NOW_MS)
    if are_loaded:
        assert len(wheel.take(NOW_MS + 50_000, 5, 10_000)) == 5
        wheel.put_back()
    else:
        wheel._at_hand_records = 1
    ticks(wheel, NOW_MS + 100_000)
    assert wheel.waiting == (5 if are_loaded else 1)
    figures = wheel.figures
    assert (figures.due_within["1m"], figures.due_within["later"]) == (5, 1)
    assert sum(figures.due_within.values()) == figures.pending == 6


def test_what_was_due_when_it_arrived_counts_as_due_at_once(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([for_topic(0, b"late", NOW_MS - HOUR_MS), for_topic(1, b"orders", NOW_MS + HOUR_MS // 2)], NOW_MS)
    ticks(wheel, NOW_MS)
    figures = wheel.figures
    assert (figures.due_within["1m"], figures.due_within["1h"], figures.pending) == (1, 1, 2)


def test_what_is_at_hand_is_told_as_all_that_waits(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([for_topic(0, b"orders", NOW_MS + 900), for_topic(1, b"bills", NOW_MS + 1_900)], NOW_MS)
    ticks(wheel, NOW_MS + 800)
    wheel.offer([for_topic(2, b"orders", NOW_MS + 950)], NOW_MS + 800)  # joins what is loaded
    wheel.offer([for_topic(3, b"orders", NOW_MS + HOUR_MS), for_topic(4, b"late", NOW_MS)], NOW_MS + 800)
    assert wheel.waiting == 4
    figures = wheel.figures
    assert (figures.pending, figures.by_topic) == (5, {"orders": 3, "bills": 1})
    assert (figures.due_within["1m"], figures.furthest_ms) == (2, NOW_MS + 1_000), "as they were looked at"


def test_what_has_been_sent_does_not_count_though_its_slot_is_not_over(tmp_path: Path) -> None:
    wheel = far(tmp_path)
    wheel.offer([due(n, NOW_MS + 10_000 + n) for n in range(3)], NOW_MS)
    assert len(sent(wheel, NOW_MS + 10_100)[0]) == 3
    ticks(wheel, NOW_MS + 10_100)
    figures = wheel.figures
    assert (set(figures.due_within.values()), figures.furthest_ms, figures.pending) == ({0}, None, 0)


def test_topics_whose_names_are_not_known_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start knows only those by name that had the most messages."""
    monkeypatch.setattr(wheel_view, "TOPICS_TOLD_MAX", 1)
    wheel = opened(tmp_path)
    topics = [b"a", b"a", b"b", b"c", b"c", b"c"]
    wheel.offer([for_topic(n, topic, NOW_MS + HOUR_MS * (1 + n)) for n, topic in enumerate(topics)], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    wheel.close()
    for _ in range(2):
        monkeypatch.setattr(wheel_view, "TOPICS_TOLD_MAX", 50)
        again = opened(tmp_path, *progress, len(topics))
        assert again.figures.by_topic == {"c": 3, "other": 3}
        again.close()


def test_a_name_is_not_forgotten_while_its_messages_are_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_view, "TOPIC_NAMES_MAX", 2)
    wheel = opened(tmp_path)
    wheel.offer([for_topic(0, b"a", NOW_MS + 900), for_topic(1, b"b", NOW_MS + 950)], NOW_MS)
    ticks(wheel, NOW_MS + 100)
    assert wheel.waiting == 2
    wheel.offer([for_topic(2, b"c", NOW_MS + HOUR_MS)], NOW_MS + 100)
    assert wheel.figures.by_topic == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("slots", [200_000, 800_000])
def test_the_quota_that_is_told_is_that_of_the_wheel_there_is(tmp_path: Path, slots: int) -> None:
    least_bytes = quota_bytes_min(slots)
    small, none = [
        opened(tmp_path / str(quota_bytes), slots=slots, quota_bytes=quota_bytes).figures for quota_bytes in (1, None)
    ]
    assert (small.quota_bytes, small.quota_used) == (least_bytes, small.disk_bytes / least_bytes)
    assert (none.quota_bytes, none.quota_used) == (0, 0.0)
    assert added([small, none]).quota_bytes == least_bytes
