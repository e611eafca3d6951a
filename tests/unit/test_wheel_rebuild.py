"""A wheel partition whose disk is gone, after more changes of mind than may be remembered ahead of a commit."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from connectors.contract import Headers
from sidecar.dispatch.wheel.intake import HITS_AHEAD_MAX_BYTES
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.store.timer_store import quota_bytes_min
from tests.support.one_wheel import NOW_MS, WHEEL, due, message, opened, sent

SLOTS = 20
IN_AN_HOUR = ("TIMER_DELIVER_MS", b"%d" % (NOW_MS + 3_600_000))


class Log:
    """The wheel topic, and a consumer and producer of it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.committed: tuple[int, str] = (0, "")

    def append(self, *headers: tuple[str, bytes | None]) -> None:
        self.messages.append(message(len(self.messages), *headers))

    def serve(self, wheel: WheelPartition, batch: int) -> None:
        """Read and send until there is nothing to do; fails where that takes for ever."""
        now_ms = NOW_MS
        for _ in range(1_000):
            now_ms += 50
            if not wheel.is_full:
                messages = self.messages[wheel.position : wheel.position + batch]
                if messages:
                    wheel.offer(messages, now_ms)
            due_ms = wheel.next_due_ms
            is_due = due_ms is not None and due_ms <= now_ms
            if is_due or wheel.has_progress:
                records = wheel.take(now_ms, 5_000, 10**7) if is_due else wheel.take(-1, 0, 0)
                self.committed = wheel.progress
                for record in records:
                    assert record[0] == WHEEL, "nothing but copies is due"
                    self.append(*record[4])
                wheel.confirm()
            wheel.tick(now_ms)
            if wheel.position == len(self.messages) and not wheel.has_progress and not is_due:
                return
        pytest.fail(f"stands still at offset {wheel.position} of {len(self.messages)}: {wheel.trouble}")


@pytest.mark.parametrize("batch", [50, 1_000])
@pytest.mark.parametrize("changes", ["replacements", "cancels and a replacement"])
def test_a_rebuild_gets_through_any_number_of_changes(tmp_path: Path, changes: str, batch: int) -> None:
    log, count = Log(), HITS_AHEAD_MAX_BYTES
    for number in range(count):
        log.append(("REAL_TOPIC", b"orders"), ("UNIQ_KEY", b"m%d" % number), IN_AN_HOUR)
    for number in range(count):
        name = b"m%d" % number
        if changes == "replacements" or number == count - 1:
            replacement: Headers = [("REAL_TOPIC", b"orders"), ("UNIQ_KEY", name), IN_AN_HOUR]
            log.append(*replacement, ("TIMER_REPLACE_UNIQKEY", name))
        else:
            log.append(("TIMER_DEL_UNIQKEY", name))
    first = opened(tmp_path / "first", 0, "", len(log.messages))
    log.serve(first, batch)
    end = len(log.messages)
    again: Any = opened(tmp_path / "second", *log.committed, end)
    assert again.position < end
    log.serve(again, batch)
    assert (again.is_recovering, len(log.messages)) == (False, end)
    pending = count if changes == "replacements" else 1
    assert again.figures.pending == first.figures.pending == pending


def test_a_rebuild_whose_last_batch_goes_beyond_the_quota_comes_to_its_end(tmp_path: Path) -> None:
    """Nothing is sent before that, so that waiting would make no room."""
    quota_bytes, later_ms = quota_bytes_min(SLOTS), NOW_MS + 5_000
    value = b"x" * (quota_bytes // 10)
    wheel = opened(tmp_path / "first", slots=SLOTS, quota_bytes=quota_bytes)
    wheel.tick(NOW_MS)
    while not wheel.trouble:
        wheel.offer([due(wheel.position, later_ms, value=value)], NOW_MS)
    progress = sent(wheel, NOW_MS)[1]
    end = wheel.position + 2
    again = opened(tmp_path / "second", *progress, end, slots=SLOTS, quota_bytes=quota_bytes)
    again.offer([due(offset, later_ms, value=value) for offset in range(end)], NOW_MS)
    again.tick(later_ms)
    out: list[int] = []
    while taken := sent(again, later_ms)[0]:
        out += [record[6] for record in taken]
    assert out == list(range(end))
