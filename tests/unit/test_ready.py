"""What is about to fall due, held against a sorted list, and how often the disk is asked for it."""

import random
from pathlib import Path

import numpy as np
import pytest

from sidecar.dispatch.wheel.ready import STEPS_AT_A_TIME, Joined, Ready
from sidecar.records import Outgoing, encode_record
from sidecar.sizes import size_of
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


def test_what_has_joined_goes_out_in_its_millisecond(store: TimerStore) -> None:
    ready = loaded(store, [SLOT_MS])
    join(store, ready, SLOT_MS + 5, 1)
    assert keys(ready.take(SLOT_MS + 4, MANY, MANY)) == [(SLOT_MS, 0)]
    assert keys(ready.take(SLOT_MS + 5, MANY, MANY)) == [(SLOT_MS + 5, 1)]


def test_no_more_bytes_are_taken_than_a_transaction_takes_but_for_those_of_its_last_record(store: TimerStore) -> None:
    ready = loaded(store, [SLOT_MS] * 10)
    size_bytes = len(encode_record(record(SLOT_MS, 0)))
    assert len(ready.take(SLOT_MS, MANY, 2 * size_bytes)) == 2
    assert len(ready.take(SLOT_MS, MANY, 2 * size_bytes + 1)) == 3
    assert len(ready.take(SLOT_MS, MANY, MANY)) == 5
    for offset in range(10, 15):
        join(store, ready, SLOT_MS + 1, offset)
    assert len(ready.take(SLOT_MS + 1, MANY, 2 * size_of(record(SLOT_MS + 1, 0)))) == 2


@pytest.mark.parametrize("seed", range(60))
def test_it_gives_what_a_sorted_list_gives(store: TimerStore, seed: int) -> None:
    chance = random.Random(seed)
    times_ms = [SLOT_MS + chance.randrange(3_000) for _ in range(chance.randrange(1, 80))]
    ready = loaded(store, times_ms, SLOT_MS + 3_000)
    waiting = sorted((time_ms, offset) for offset, time_ms in enumerate(times_ms))
    next_offset, now_ms = len(times_ms), SLOT_MS
    while waiting:
        now_ms += chance.randrange(200)
        match chance.randrange(5):
            case 0:
                act_ms = max(now_ms, waiting[0][0]) + chance.randrange(500)
                join(store, ready, act_ms, next_offset)
                waiting = sorted([*waiting, (act_ms, next_offset)])
                next_offset += 1
            case 1:
                ready.prepare(now_ms + chance.randrange(100), chance.randrange(1, 20), chance.choice([1, MANY]))
            case 2:
                gone = chance.choice(waiting)
                everybody = hash_ids([b"%d" % offset for _, offset in waiting])
                removed = ready.drop(lambda record, gone=gone: record[6] == gone[1], everybody)  # type: ignore[misc]
                assert removed.act_ms.tolist() == [gone[0]]
                waiting.remove(gone)
            case 3:
                limit = chance.randrange(1, 30)
                due = [key for key in waiting if key[0] <= now_ms][:limit]
                assert keys(ready.take(now_ms, limit, MANY)) == due
                if chance.random() < 0.3:
                    # What is in hand is left alone.
                    everybody = hash_ids([b"%d" % offset for _, offset in waiting])
                    last = max(offset for _, offset in waiting)
                    ready.drop(lambda record, last=last: record[6] == last, everybody)  # type: ignore[misc]
                    waiting = [key for number, key in enumerate(waiting) if number < len(due) or key[1] != last]
                    ready.put_back()
                else:
                    ready.confirm()
                    waiting = waiting[len(due) :]
            case 4:
                before = ready.snapshot()
                ready.drop(lambda record: record[6] % 2 == 0, hash_ids([b"%d" % key[1] for key in waiting]))
                ready.restore(before)
        joined = sum(offset >= len(times_ms) for _, offset in waiting)
        assert (ready.joined, ready.joined_bytes) == (joined, joined * size_of(record(now_ms, 0)))
        assert (
            sorted(ready.times_ms().tolist()) == sorted(ready.pending().act_ms) == [time_ms for time_ms, _ in waiting]
        )
        assert ready.waiting == sum(count for _, count in ready.count_topics()) == len(waiting)
        assert ready.next_ms == (waiting[0][0] if waiting else None)


def test_what_the_watermark_says_is_done_is_passed_over(store: TimerStore) -> None:
    put(store, [record(SLOT_MS + after_ms, offset) for offset, after_ms in enumerate([1, 2, 2, 3])])
    for watermark, left in (((SLOT_MS + 2, 1), [(SLOT_MS + 2, 2), (SLOT_MS + 3, 3)]), ((SLOT_MS + 3, 3), [])):
        ready = Ready(store, watermark)
        ready.load(SLOT_MS, MANY)
        assert ready.next_ms == (left[0][0] if left else None)
        assert keys(ready.take(SLOT_MS + 3, MANY, MANY)) == left


@pytest.mark.parametrize("done", [-1, 0, 700, 998, 999, 5_000])
def test_of_many_that_are_due_at_the_watermark_few_are_read_to_know_which_are_done(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """A million may be due in that millisecond: their payloads are not to be in memory at once."""
    put(store, [record(SLOT_MS, offset) for offset in range(1_000)])
    disk = Disk(store, monkeypatch)
    ready = Ready(store, (SLOT_MS, done))
    ready.load(SLOT_MS, MANY)
    assert sum(disk.asked) <= 11
    assert [offset for _, offset in keys(ready.take(SLOT_MS, MANY, MANY))] == list(range(done + 1, 1_000))


def test_no_more_slots_are_loaded_than_hold_enough(store: TimerStore) -> None:
    ready = loaded(store, [SLOT_MS] * 3 + [SLOT_MS + PRECISION_MS] * 3, until_ms=SLOT_MS - 1)
    ready.load(SLOT_MS + PRECISION_MS, 3)
    assert ready.waiting == 3
    ready.load(SLOT_MS + PRECISION_MS, 4)
    assert ready.waiting == 6


def test_it_is_loaded_as_far_as_was_asked_for_by_whole_slots(store: TimerStore) -> None:
    """What arrives before that joins, with its payload; in the midst of a slot it would be loaded with it once more."""
    ready = loaded(store, [SLOT_MS + 20 * PRECISION_MS], until_ms=SLOT_MS)
    assert ready.loaded_until_ms == SLOT_MS
    ready.load(SLOT_MS + 5 * PRECISION_MS + 300, MANY)
    assert ready.loaded_until_ms == SLOT_MS + 5 * PRECISION_MS


@pytest.mark.parametrize("beyond_ms", [0, PRECISION_MS, 10**9])
def test_a_clock_that_leaps_over_a_lap_passes_over_nothing(store: TimerStore, beyond_ms: int) -> None:
    ready = loaded(store, [SLOT_MS])
    far_ms = ready.loaded_until_ms + store.lap_ms + beyond_ms
    put(store, [record(far_ms, 1)])
    ready.load(far_ms, MANY)
    assert keys(ready.take(far_ms, MANY, MANY)) == [(SLOT_MS, 0), (far_ms, 1)]


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
