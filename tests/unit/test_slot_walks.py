"""The slots that come next are followed through the timer log side by side."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sidecar.store import slot_walks
from sidecar.store.files import File, RealFileSystem
from sidecar.store.payload_log import PayloadLog
from sidecar.store.slot_walks import SIDE_BY_SIDE, SlotWalks
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_wheel import TimerWheel
from tests.support.slots import new_records, put

PRECISION_MS = 1_000
CALLS = ("will_need", "pread")


class Watched:
    """A file that tells what it is asked for."""

    def __init__(self, file: File, calls: list[tuple[str, int]]) -> None:
        self._file = file
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._file, name)
        if name not in CALLS:
            return call

        def told(length: int, position: int) -> Any:
            self._calls.append((name, position))
            return call(length, position)

        return told


class WatchedFileSystem(RealFileSystem):
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def open(self, path: Path, *, create: bool = False) -> File:
        return Watched(super().open(path, create=create), self.calls)  # type: ignore[return-value]


class Parts:
    """A timer log with its wheel, of records that take turns in their slots."""

    def __init__(self, directory: Path) -> None:
        self.fs = WatchedFileSystem()
        self.log = TimerLog(directory / "log", 4_000, self.fs)
        self.wheel = TimerWheel(directory / "wheel", 100, PRECISION_MS, self.fs)
        self.walks = SlotWalks(self.log, self.wheel)

    def put(self, slots: list[int]) -> None:
        records = new_records(len(slots))
        records["curr_write_time"] = np.array(slots, np.int64) * PRECISION_MS
        records["prev_pos"] = put(self.wheel, records["curr_write_time"], self.log.positions_for(len(slots)))
        self.log.append(records)

    def walked(self, slot: int) -> list[int]:
        """Positions of its records, as far as its walk has come."""
        walk = self.walks.of(slot * PRECISION_MS)
        assert walk is not None
        return walk.found()[0].tolist()

    def all_of(self, slot: int) -> list[int]:
        held = self.wheel.slot(slot * PRECISION_MS)
        return sorted(self.log.chain(held.last_pos, first_pos=held.first_pos)[0].tolist())


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    monkeypatch.setattr("sidecar.store.timer_log.FILTER_RECORDS_PER_CHAIN_STEP", 1)
    parts = Parts(tmp_path)
    yield parts
    parts.log.close()
    parts.wheel.close()


def test_the_disk_is_asked_for_a_record_of_each_before_one_is_waited_for(parts: Parts) -> None:
    parts.put([5, 6, 7] * 20)
    parts.fs.calls.clear()
    parts.walks.look_ahead(4_000)
    names = [name for name, _ in parts.fs.calls]
    assert names == (["will_need"] * 3 + ["pread"] * 3) * 20
    for begin in range(0, len(names), 6):
        asked, read = parts.fs.calls[begin : begin + 3], parts.fs.calls[begin + 3 : begin + 6]
        assert [position for _, position in asked] == [position for _, position in read]
    assert [parts.walked(slot) for slot in (5, 6, 7)] == [parts.all_of(slot) for slot in (5, 6, 7)]


def test_a_few_steps_are_taken_at_a_time(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_walks, "STEPS_AT_A_TIME", 10)
    parts.put([5, 6] * 20)
    for calls in range(4):
        parts.walks.look_ahead(5_000)
        assert [len(parts.walked(slot)) for slot in (5, 6)] == [5 * (calls + 1)] * 2
    parts.fs.calls.clear()
    parts.walks.look_ahead(5_000)
    assert not parts.fs.calls, "they are at their ends"


def test_what_is_loaded_takes_all_its_steps_and_others_a_few_along(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_walks, "STEPS_AT_A_TIME", 10)
    monkeypatch.setattr(slot_walks, "STEPS_AT_ITS_SIDE", 4)
    parts.put([5, 6, 7] * 15)
    walks = [parts.walks.of(slot * PRECISION_MS) for slot in (5, 6, 7)]
    assert walks[0] is not None
    assert not parts.walks.step(walks[0])
    assert [len(parts.walked(slot)) for slot in (5, 6, 7)] == [10, 2, 2]
    assert parts.walks.step(walks[0])
    assert [len(parts.walked(slot)) for slot in (5, 6, 7)] == [15, 4, 4]


def test_no_more_slots_than_some_are_looked_ahead(parts: Parts) -> None:
    slots = list(range(10, 10 + 2 * SIDE_BY_SIDE))
    parts.put(slots * 2)
    parts.fs.calls.clear()
    parts.walks.look_ahead(10_000)
    assert len(parts.fs.calls) == SIDE_BY_SIDE * 2 * len(CALLS)
    parts.fs.calls.clear()
    parts.walks.look_ahead(13_000)
    assert len(parts.fs.calls) == 3 * 2 * len(CALLS), "three are behind, three are new"


def test_the_wheel_is_not_looked_through_for_them(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    is_occupied = TimerWheel._is_occupied
    monkeypatch.setattr(
        TimerWheel, "_is_occupied", lambda wheel, *args: looked.append(args[2]) or is_occupied(wheel, *args)
    )
    parts.put([5, 10, 5, 10])
    parts.wheel.next_occupied(11_000)
    assert sum(looked) == 200, "once, for what is known to be empty from then on"
    for slot in range(11, 100):
        parts.walks.look_ahead(slot * PRECISION_MS)
        assert parts.wheel.next_occupied(slot * PRECISION_MS) is None
    assert sum(looked) < 2 * 200, "but for what has come into sight at its end"


def test_beyond_so_many_records_only_what_is_asked_for_goes_on(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_walks, "STEPS_AT_A_TIME", 10)
    monkeypatch.setattr(slot_walks, "RECORDS_AHEAD", 20)
    parts.put([5, 6] * 20)
    for _ in range(10):
        parts.walks.look_ahead(5_000)
    assert [len(parts.walked(slot)) for slot in (5, 6)] == [10, 10]
    walk = parts.walks.of(5_000)
    assert walk is not None
    assert parts.walks.step(walk)
    assert [len(parts.walked(slot)) for slot in (5, 6)] == [20, 10]


def test_what_lies_together_is_not_walked(parts: Parts) -> None:
    parts.put([5] * 20 + [6] * 20)
    parts.fs.calls.clear()
    parts.walks.look_ahead(5_000)
    assert parts.walks.of(5_000) is None
    assert not parts.fs.calls


def test_payloads_that_lie_apart_are_asked_for_before_one_is_waited_for(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    log = PayloadLog(tmp_path, 1 << 20, fs)
    positions, sizes = log.append_batch([b"%d" % number * 1_000 for number in range(100)])
    apart, together = np.arange(0, 100, 10), np.arange(10)
    fs.calls.clear()
    assert log.read_many(positions[apart], sizes[apart]) == [b"%d" % number * 1_000 for number in range(0, 100, 10)]
    assert [name for name, _ in fs.calls] == ["will_need"] * 10 + ["pread"] * 10
    fs.calls.clear()
    log.read_many(positions[together], sizes[together])
    assert [name for name, _ in fs.calls] == ["pread"]
    log.close()
