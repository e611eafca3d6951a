"""What a wheel partition tells for metrics."""

from pathlib import Path

import pytest

from sidecar.dispatch.wheel import view as wheel_view
from tests.support.one_wheel import NOW_MS, message, opened, sent

HOUR_MS = 3_600_000


def test_a_topic_is_told_by_name_after_any_number_that_have_come_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_view, "TOPIC_NAMES_MAX", 10)
    wheel = opened(tmp_path)

    def schedule(topic: bytes, due_ms: int, now_ms: int) -> None:
        headers = ("REAL_TOPIC", topic), ("TIMER_DELIVER_MS", b"%d" % due_ms)
        wheel.offer([message(wheel.position, *headers, timestamp_ms=now_ms)], now_ms)

    schedule(b"lasting", NOW_MS + HOUR_MS, NOW_MS)
    for number in range(1, 25):
        now_ms = NOW_MS + 2_000 * number
        schedule(b"reply-%d" % number, now_ms + 1_000, now_ms)
        wheel.tick(now_ms + 1_000)
        assert len(sent(wheel, now_ms + 1_000)[0]) == 1
    schedule(b"new", NOW_MS + HOUR_MS, NOW_MS + 60_000)
    assert wheel.figures.by_topic == {"lasting": 1, "new": 1}
    assert len(wheel._view._topic_names) <= 11
