"""A sidecar whose clock is ahead of the broker's, which stamps the copies of what rolls."""

from pathlib import Path

import pytest

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.intake.copies import Copied
from sidecar.plan import Plan
from tests.support.logged import logged
from tests.support.one_wheel import COPIES, NOW_MS, REAL_TOPIC, WHEEL, due, message, opened, sent

WINDOW_MS = 3_600_000
STEP_MS = WINDOW_MS // 6
ROLLING = Plan(roll_window_ms=WINDOW_MS, precision_ms=60_000, max_delay_ms=10**10, levels="1s")
LONG_MS = 12 * WINDOW_MS


class Broker:
    """The wheel topic, stamped by a clock that is ``ahead_ms`` behind the sidecar's."""

    def __init__(self, wheel: WheelPartition, ahead_ms: int) -> None:
        self.wheel = wheel
        self.ahead_ms = ahead_ms
        self.copies_ms: list[int] = []
        """When they were written, by the sidecar's clock."""
        self.delivered_ms: list[int] = []

    def serve(self, now_ms: int) -> None:
        """Send what is due, and read at once what that has written to the wheel."""
        self.wheel.tick(now_ms)
        for _ in range(10):
            if (self.wheel.next_due_ms or 0) > now_ms or not (records := sent(self.wheel, now_ms)[0]):
                return
            copies = [list(record[4]) for record in records if record[0] == WHEEL]
            self.delivered_ms += [now_ms] * (len(records) - len(copies))
            self.copies_ms += [now_ms] * len(copies)
            for headers in copies:
                read = message(self.wheel.position, *headers, timestamp_ms=now_ms - self.ahead_ms)
                self.wheel.offer([read], now_ms)


@pytest.mark.parametrize("ahead_ms", [WINDOW_MS // 2, WINDOW_MS, 100 * WINDOW_MS])
def test_a_long_message_rolls_at_its_pace_and_comes_in_time(tmp_path: Path, ahead_ms: int) -> None:
    wheel = opened(tmp_path, plan=ROLLING, slots=2_000)
    broker = Broker(wheel, ahead_ms)
    due_ms = NOW_MS + LONG_MS
    wheel.offer([due(0, due_ms, timestamp_ms=NOW_MS - ahead_ms, uniq_key=b"m")], NOW_MS)
    for now_ms in range(NOW_MS, due_ms + 1, STEP_MS):
        broker.serve(now_ms)
    assert broker.delivered_ms == [due_ms]
    first, *others = broker.copies_ms[1:]
    assert len(others) < 2 * LONG_MS // WINDOW_MS
    gaps = [after - before for before, after in zip([first, *others], others, strict=False)]
    assert min(gaps) >= WINDOW_MS // 2
    assert max(gaps) <= WINDOW_MS + STEP_MS, "a retention may take what rolls later"


def test_it_is_told_until_a_record_comes_in_time(tmp_path: Path) -> None:
    wheel = opened(tmp_path, plan=ROLLING, slots=2_000)
    broker = Broker(wheel, 2 * WINDOW_MS)
    with logged() as logs:
        wheel.offer([due(0, NOW_MS + LONG_MS, timestamp_ms=NOW_MS - 2 * WINDOW_MS, uniq_key=b"m")], NOW_MS)
        assert not wheel.note, "that may have lain there while we were away"
        broker.serve(NOW_MS)
        broker.serve(NOW_MS + 1_000)
    assert "ahead of Kafka" in wheel.note
    assert [line["ahead_ms"] for line in logs if line["event"] == "clock ahead of kafka"] == [2 * WINDOW_MS]
    wheel.offer([due(wheel.position, NOW_MS + 1, timestamp_ms=NOW_MS)], NOW_MS + 2_000)
    assert not wheel.note


def test_a_rebuild_finds_the_copy_where_it_waited(tmp_path: Path) -> None:
    """When it rolls stands in the record: another clock, and another disk, change nothing."""
    wheel = opened(tmp_path / "first", plan=ROLLING, slots=2_000)
    broker = Broker(wheel, 2 * WINDOW_MS)
    wheel.offer([due(0, NOW_MS + LONG_MS, timestamp_ms=NOW_MS - 2 * WINDOW_MS, uniq_key=b"m")], NOW_MS)
    written: list[list[tuple[str, bytes | None]]] = []
    for _ in range(2):
        records, _ = sent(wheel, NOW_MS)
        written.append(list(records[0][4]))
        read = message(wheel.position, *written[-1], timestamp_ms=NOW_MS - broker.ahead_ms)
        wheel.offer([read], NOW_MS)
    _, (offset, metadata) = sent(wheel, NOW_MS)
    again = opened(tmp_path / "second", offset, metadata, 3, plan=ROLLING, slots=2_000)
    again.offer([message(2, *written[1], timestamp_ms=NOW_MS - broker.ahead_ms)], NOW_MS)
    for asked in (wheel, again):
        asked.tick(NOW_MS)
        assert asked.next_due_ms == (NOW_MS + WINDOW_MS // 2) // 60_000 * 60_000


def test_nobody_else_says_when_a_copy_rolls() -> None:
    copied = Copied(0, 1, roll_after_ms=NOW_MS + LONG_MS)
    headers = COPIES.headers(b"m", NOW_MS + 10 * LONG_MS, copied)
    assert COPIES.read(dict(headers), 5, b"m") == copied
    forged = [(name, b"%d" % NOW_MS if name == "TIMER_ROLL_AFTER_MS" else value) for name, value in headers]
    assert COPIES.read(dict(forged), 5, b"m") is None
    assert COPIES.read(dict([header for header in headers if header[0] != "TIMER_ROLL_AFTER_MS"]), 5, b"m") is None


def test_a_copy_that_comes_at_once_says_no_more_than_before(tmp_path: Path) -> None:
    wheel = opened(tmp_path, plan=ROLLING, slots=2_000)
    wheel.offer([due(0, NOW_MS + LONG_MS, uniq_key=b"m"), message(1, REAL_TOPIC, ("TIMER_DELAY_SEC", b"1"))], NOW_MS)
    later_ms = NOW_MS + WINDOW_MS
    wheel.tick(later_ms)
    records, _ = sent(wheel, later_ms)
    copy = next(record for record in records if record[0] == WHEEL)
    wheel.offer([message(2, *copy[4], timestamp_ms=later_ms)], later_ms + 5)
    wheel.tick(later_ms + WINDOW_MS)
    (again,), _ = sent(wheel, later_ms + WINDOW_MS)
    assert [name for name, _ in again[4]] == [name for name, _ in copy[4]]
    assert "TIMER_ROLL_AFTER_MS" not in dict(copy[4])
