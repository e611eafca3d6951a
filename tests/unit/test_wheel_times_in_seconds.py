"""A producer that writes seconds where milliseconds are meant: its messages go out at once, and the log says why."""

from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.support.logged import logged
from tests.support.one_wheel import NOW_MS, REAL_TOPIC, due, message, opened, sent

IN_SECONDS = NOW_MS // 1_000 + 3_600
PLAIN, FOR_A_PARTITION = (), (("REAL_QID", b"0"),)


def lines_of(directory: Path, log: list[Message]) -> list[dict[str, object]]:
    """What is told of a batch, all of which is sent."""
    wheel = opened(directory)
    with logged() as lines:
        wheel.offer(log, NOW_MS)
    records, _ = sent(wheel, NOW_MS)
    assert len(records) == len(log)
    return [dict(line) for line in lines if line["event"] == "times in seconds"]


@pytest.mark.parametrize("more", [PLAIN, FOR_A_PARTITION])
@pytest.mark.parametrize("count", [1, 30])
def test_they_are_told_once_a_batch(tmp_path: Path, count: int, more: tuple[tuple[str, bytes], ...]) -> None:
    """Read one by one, as neighbours that are alike, and with headers that only the whole parser knows."""
    in_seconds = ("TIMER_DELIVER_MS", b"%d" % IN_SECONDS)
    log = [due(0, NOW_MS), *(message(1 + number, REAL_TOPIC, in_seconds, *more) for number in range(count))]
    (line,) = lines_of(tmp_path, log)
    assert (line["partition"], line["offset"], line["count"]) == ("SCHEDULE_TOPIC_XXXX-wheel-0", 1, count)
    assert "milliseconds" in str(line["operator_action"])


def test_neighbours_that_are_alike_are_told_once(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, [due(offset, IN_SECONDS) for offset in range(700)])
    assert (line["offset"], line["count"]) == (0, 700)


@pytest.mark.parametrize("due_ms", [0, 1, NOW_MS - 1, NOW_MS - 40 * 365 * 86_400_000])
@pytest.mark.parametrize("count", [1, 30])
def test_an_honest_time_in_the_past_is_not(tmp_path: Path, due_ms: int, count: int) -> None:
    assert lines_of(tmp_path, [due(offset, due_ms) for offset in range(count)]) == []


def test_nor_is_what_is_read_again_told_again(tmp_path: Path) -> None:
    log = [due(offset, IN_SECONDS) for offset in range(30)]
    wheel = opened(tmp_path / "first")
    wheel.offer(log, NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    again = opened(tmp_path / "second", *progress, len(log))
    with logged() as lines:
        again.offer(log, NOW_MS)
    assert [line for line in lines if line["event"] == "times in seconds"] == []
