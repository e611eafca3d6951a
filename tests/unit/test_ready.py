"""What is about to fall due, held against a sorted list, and how often the disk is asked for it."""

import random
from pathlib import Path

import numpy as np
import pytest

from sidecar.dispatch.wheel.ready import STEPS_AT_A_TIME, Joined, Ready
from sidecar.records import Outgoing
from sidecar.store.id_hash import hash_ids
from sidecar.store.timer_store import TimerStore
from tests.support.timer_store import PRECISION_MS, a_store, put, record

SLOT_MS = 1_000_000
MANY = 10**9


class Disk:
    """A store that says how often it is read, and how many records."""

    def __init__(self, store: TimerStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        read = store.read

        def counts(positions: np.ndarray, sizes: np.ndarray) -> list[bytes]:
            self.asked.append(len(positions))
            return read(positions, sizes)

        monkeypatch.setattr(store, "read", counts)


@pytest.fixture
def store(tmp_path: Path) -> TimerStore:
    return a_store(tmp_path, slots_total=60)


def loaded(store: TimerStore, times_ms: list[int], until_ms: int = SLOT_MS) -> Ready:
    put(store, [record(time_ms, offset) for offset, time_ms in enumerate(times_ms)])
    ready = Ready(store, (-1, -1))
    ready.load(until_ms, MANY)
    return ready


def join(store: TimerStore, ready: Ready, act_ms: int, offset: int) -> None:
    one = record(act_ms, offset)
    ready.join(Joined((act_ms, offset), one, put(store, [one])))


def keys(records: list[Outgoing]) -> list[tuple[int, int]]:
    return [(record[5], record[6]) for record in records]


def test_what_has_joined_parts_a_slot_and_the_disk_is_read_once(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = loaded(store, [SLOT_MS + 2 * number for number in range(100)])
    for number in range(50):
        join(store, ready, SLOT_MS + 2 * number + 1, 100 + number)
    disk = Disk(store, monkeypatch)
    taken = keys(ready.take(SLOT_MS + 60, MANY, MANY))
    assert taken == sorted(taken)
    assert len(taken) == 31 + 30
    assert disk.asked == [31]


def test_what_falls_due_soon_is_read_ahead_and_no_more(store: TimerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = loaded(store, [SLOT_MS + number for number in range(100)])
    disk = Disk(store, monkeypatch)
    ready.prepare(SLOT_MS + 29, MANY, MANY)
    ready.prepare(SLOT_MS + 39, MANY, MANY)
    assert disk.asked == [30, 10]
    assert len(ready.take(SLOT_MS + 9, MANY, MANY)) == 10
    ready.confirm()
    ready.prepare(SLOT_MS + 39, MANY, MANY)
    assert len(ready.take(SLOT_MS + 39, MANY, MANY)) == 30
    assert disk.asked == [30, 10]
    assert len(ready.take(SLOT_MS + 40, MANY, MANY)) == 1
    assert disk.asked == [30, 10, 1]


def test_no_more_is_read_than_a_transaction_takes(store: TimerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = loaded(store, [SLOT_MS] * 100)
    disk = Disk(store, monkeypatch)
    ready.prepare(SLOT_MS, 20, MANY)
    assert len(ready.take(SLOT_MS, 30, MANY)) == 30
    ready.confirm()
    ready.prepare(SLOT_MS, MANY, 1)
    assert disk.asked == [20, 10, 1]


@pytest.mark.parametrize("seed", range(60))
def test_it_gives_what_a_sorted_list_gives(store: TimerStore, seed: int) -> None:
    chance = random.Random(seed)
    times_ms = [SLOT_MS + chance.randrange(3_000) for _ in range(chance.randrange(1, 80))]
    ready = loaded(store, times_ms, SLOT_MS + 3_000)
    waiting = sorted((time_ms, offset) for offset, time_ms in enumerate(times_ms))
    next_offset, now_ms = len(times_ms), SLOT_MS
    while waiting:
        now_ms += chance.randrange(200)
        match chance.randrange(4):
            case 0:
                act_ms = max(now_ms, waiting[0][0]) + chance.randrange(500)
                join(store, ready, act_ms, next_offset)
                waiting = sorted([*waiting, (act_ms, next_offset)])
                next_offset += 1
            case 1:
                ready.prepare(now_ms + chance.randrange(100), chance.randrange(1, 20), chance.choice([1, MANY]))
            case 2:
                gone = chance.choice(waiting)[1]
                ready.drop(lambda record, gone=gone: record[6] == gone, hash_ids([b"%d" % gone]))  # type: ignore[misc]
                waiting = [key for key in waiting if key[1] != gone]
            case 3:
                limit = chance.randrange(1, 30)
                due = [key for key in waiting if key[0] <= now_ms][:limit]
                assert keys(ready.take(now_ms, limit, MANY)) == due
                if chance.random() < 0.3:
                    ready.put_back()
                else:
                    ready.confirm()
                    waiting = waiting[len(due) :]
        assert ready.waiting == len(waiting)
        assert ready.next_ms == (waiting[0][0] if waiting else None)


def test_a_slot_is_loaded_step_by_step_while_something_is_due(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 4)
    next_ms = SLOT_MS + PRECISION_MS
    ready = loaded(store, [SLOT_MS + 5, *[next_ms + number for number in range(20)]], SLOT_MS)
    calls = 0
    while ready.loaded_until_ms <= next_ms:
        ready.load(next_ms, MANY, busy_by_ms=SLOT_MS + 100)
        calls += 1
        if calls == 2:  # for a slot that is half loaded
            put(store, [record(next_ms + 3, 100), record(next_ms + 900, 101)])
    assert calls == 20 // 4
    assert keys(ready.take(next_ms + 4, MANY, MANY))[-3:] == [(next_ms + 3, 4), (next_ms + 3, 100), (next_ms + 4, 5)]
    assert ready.waiting == 15 + 1


@pytest.mark.parametrize("busy_by_ms", [None, SLOT_MS + 4])
def test_a_slot_is_loaded_at_once_where_nothing_is_due(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch, busy_by_ms: int | None
) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 4)
    next_ms = SLOT_MS + PRECISION_MS
    ready = loaded(store, [SLOT_MS + 5, *[next_ms + number for number in range(20)]], SLOT_MS)
    ready.load(next_ms, MANY, busy_by_ms=busy_by_ms)
    assert ready.waiting == 21


def test_a_large_slot_is_loaded_some_steps_at_a_time_ahead_and_at_once_when_it_is_due(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 4)
    next_ms = SLOT_MS + PRECISION_MS
    count = 4 * 2 * STEPS_AT_A_TIME
    ready = loaded(store, [next_ms] * count, SLOT_MS)
    ready.load(next_ms, MANY, busy_by_ms=SLOT_MS)
    assert ready.waiting == 0, "others may be due"
    ready.load(next_ms, MANY, busy_by_ms=SLOT_MS)
    assert ready.waiting == count
    put(store, [record(next_ms + PRECISION_MS, number) for number in range(count)])
    ready.load(next_ms + PRECISION_MS, MANY)
    assert ready.waiting == 2 * count


def test_an_earlier_slot_comes_before_one_that_is_half_loaded(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has got its first record meanwhile."""
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 4)
    far_ms = SLOT_MS + 2 * PRECISION_MS
    ready = loaded(store, [SLOT_MS + 5, *[far_ms + number for number in range(20)]], SLOT_MS)
    ready.load(far_ms, MANY, busy_by_ms=SLOT_MS + 100)
    put(store, [record(SLOT_MS + PRECISION_MS, 100)])
    assert keys(ready.take(SLOT_MS + 5, MANY, MANY)) == [(SLOT_MS + 5, 0)]
    ready.confirm()
    ready.load(SLOT_MS + PRECISION_MS, MANY)
    assert keys(ready.take(far_ms, MANY, MANY)) == [(SLOT_MS + PRECISION_MS, 100)]
    ready.confirm()
    ready.load(far_ms, MANY)
    assert ready.waiting == 20
