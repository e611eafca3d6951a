"""A replacement whose message Kafka refuses: it is carried out by a dead letter, and no copy ever tells of it."""

from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.progress import BURIED_MAX
from sidecar.records import Outgoing
from tests.support.one_wheel import NOW_MS, REAL_TOPIC, due, message, opened, sent, ticks

LATER_MS = NOW_MS + 3_600_000
Progress = tuple[int, str]


def replacement(offset: int, uniq_key: bytes) -> Message:
    deliver = ("TIMER_DELIVER_MS", b"%d" % LATER_MS)
    return message(offset, REAL_TOPIC, deliver, ("UNIQ_KEY", uniq_key), ("TIMER_REPLACE_UNIQKEY", uniq_key))


def buried(wheel: WheelPartition) -> tuple[list[Outgoing], Progress]:
    """One transaction of dead letters."""
    records = wheel.take(NOW_MS, 5_000, 16 * 2**20)
    wheel.bury(records)
    progress = wheel.progress
    wheel.confirm()
    return records, progress


def rebuilt(directory: Path, log: list[Message], progress: Progress) -> WheelPartition:
    """From an empty disk, by a process that has read all there is."""
    wheel = opened(directory, *progress, len(log))
    assert wheel.position == 0, "nothing is left on disk"
    wheel.offer(log, NOW_MS)
    assert not wheel.is_recovering
    return wheel


def test_a_rebuild_does_not_bring_what_is_among_the_dead_letters(tmp_path: Path) -> None:
    log = [due(0, LATER_MS), due(1, LATER_MS, uniq_key=b"m"), replacement(2, b"m")]
    wheel = opened(tmp_path / "first")
    wheel.offer(log, NOW_MS)
    refused, progress = buried(wheel)
    assert [record[6] for record in refused] == [2]
    for name in ("second", "third"):  # the second tells it on
        wheel = rebuilt(tmp_path / name, log, progress)
        assert sent(wheel, NOW_MS)[0] == []
        log.append(due(len(log), LATER_MS))
        wheel.offer(log[-1:], NOW_MS)
        progress = sent(wheel, NOW_MS)[1]
        assert msgspec.json.decode(progress[1])["b"] == [2]
    assert [record[6] for record in sent(wheel, LATER_MS)[0]] == [0, 3, 4]


def test_an_aborted_burial_is_none(tmp_path: Path) -> None:
    log = [due(0, LATER_MS), due(1, LATER_MS, uniq_key=b"m"), replacement(2, b"m")]
    wheel = opened(tmp_path / "first")
    wheel.offer(log, NOW_MS)
    wheel.bury(wheel.take(NOW_MS, 10, 2**20))
    wheel.put_back()
    brought, progress = sent(wheel, NOW_MS)
    assert [record[6] for record in brought] == [2]
    assert "b" not in msgspec.json.decode(progress[1])


def test_it_is_forgotten_once_no_rebuild_reads_the_replacement(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, LATER_MS, uniq_key=b"m"), replacement(1, b"m")], NOW_MS)
    _, progress = buried(wheel)
    assert msgspec.json.decode(progress[1])["b"] == [1]
    ticks(wheel, NOW_MS + 60_000)
    wheel.offer([due(2, LATER_MS)], NOW_MS + 60_000)
    _, (committed, metadata) = sent(wheel, NOW_MS + 60_000)
    told = msgspec.json.decode(metadata)
    assert (told["l"], told.get("b")) == (committed - 1, None)


@pytest.mark.parametrize("count", [BURIED_MAX - 1, BURIED_MAX + 20])
def test_only_the_last_are_remembered(tmp_path: Path, count: int) -> None:
    """A commit's metadata has its bounds."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, LATER_MS), *(due(1 + n, LATER_MS, uniq_key=b"%d" % n) for n in range(count))], NOW_MS)
    wheel.offer([replacement(1 + count + n, b"%d" % n) for n in range(count)], NOW_MS)
    refused, (_, metadata) = buried(wheel)
    assert len(refused) == count
    assert msgspec.json.decode(metadata)["b"] == list(range(1 + count, 1 + 2 * count))[-BURIED_MAX:]
