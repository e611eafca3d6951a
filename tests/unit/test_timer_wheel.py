"""The timer wheel's slots. The figures are those of RocketMQ's TimerWheelTest."""

import errno
import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from sidecar.store.errors import SlotConflict, WrongFileSize
from sidecar.store.files import RealFileSystem, RealMappedFile
from sidecar.store.layout import EMPTY_SLOT, MAGIC_DELETE, Int64Array
from sidecar.store.timer_log import TimerLog, in_log_order
from sidecar.store.timer_wheel import TimerWheel
from tests.support.slots import new_records, put
from tests.support.steps import result_of

SLOTS = 30
PRECISION_MS = 500
LAP_MS = 2 * SLOTS * PRECISION_MS
T_MS = 1_700_000_000_000


def a_wheel(path: Path, slots: int = SLOTS) -> TimerWheel:
    return TimerWheel(path / "timerwheel", slots, PRECISION_MS, RealFileSystem())


def anew(path: Path, wheel: TimerWheel) -> TimerWheel:
    wheel.close()
    wheel.path.unlink()
    return a_wheel(path)


@pytest.fixture(params=[(256, 65_536), (4, 16)], ids=["in one look", "in several"])
def wheel(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TimerWheel]:
    first, last = request.param
    monkeypatch.setattr("sidecar.store.timer_wheel._FIRST_CHUNK_SLOTS", first)
    monkeypatch.setattr("sidecar.store.timer_wheel._LAST_CHUNK_SLOTS", last)
    made = a_wheel(tmp_path)
    yield made
    assert made.check() == []
    made.close()


def slot_in_file(wheel: TimerWheel, time_ms: int) -> tuple[int, ...]:
    """As a program reads it that knows only RIP-43's layout."""
    return struct.unpack_from("<qqqii", wheel.path.read_bytes(), 32 * wheel.slot_index(time_ms))


def write_in_file(wheel: TimerWheel, time_ms: int, *fields: int) -> None:
    """As such a program writes it."""
    with wheel.path.open("r+b") as file:
        file.seek(32 * wheel.slot_index(time_ms))
        file.write(struct.pack("<qqqii", *fields))


def int64(*values: int) -> Int64Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(("time_ms", "index"), [(500, 1), (29_500, 59), (30_000, 0)])
def test_a_time_has_its_index(wheel: TimerWheel, time_ms: int, index: int) -> None:
    assert wheel.slot_index(time_ms) == index


def test_the_file_has_1920_bytes(tmp_path: Path, wheel: TimerWheel) -> None:
    assert (tmp_path / "timerwheel").stat().st_size == wheel.file_bytes == 1920
    assert [path.name for path in tmp_path.iterdir()] == ["timerwheel"]


def test_the_default_file_has_38707200_bytes(tmp_path: Path) -> None:
    wheel = TimerWheel(tmp_path / "timerwheel", 604_800, 1_000, RealFileSystem())
    assert (tmp_path / "timerwheel").stat().st_size == 38_707_200
    assert wheel.next_occupied(T_MS) is None
    put(wheel, [T_MS + 14 * 86_400_000 - 1], [0])
    assert wheel.next_occupied(T_MS) == T_MS + 14 * 86_400_000 - 1_000
    wheel.close()


def test_what_is_put_is_got(wheel: TimerWheel) -> None:
    put(wheel, [T_MS, T_MS + 1, T_MS + PRECISION_MS - 1], [1, 53, 105])
    slot = wheel.slot(T_MS)
    assert (slot.first_pos, slot.last_pos, slot.num, slot.magic) == (1, 105, 3, 0)
    assert slot.time_ms == T_MS
    assert wheel.slot(T_MS + PRECISION_MS - 1) == slot
    assert slot_in_file(wheel, T_MS) == slot


def test_a_slots_magic_is_kept_until_another_lap_has_its_place(wheel: TimerWheel) -> None:
    """`TimerWheel.Slot`: "no use now, just keep it"."""
    write_in_file(wheel, T_MS, T_MS, 1, 2, 3, 4)
    assert wheel.slot(T_MS) == (T_MS, 1, 2, 3, 4)
    assert put(wheel, [T_MS], [52]).tolist() == [2]
    assert wheel.slot(T_MS) == (T_MS, 1, 52, 4, 4)
    wheel.advance(T_MS + PRECISION_MS)
    put(wheel, [T_MS + LAP_MS], [104])
    assert wheel.slot(T_MS + LAP_MS) == (T_MS + LAP_MS, 104, 104, 1, 0)


@pytest.mark.parametrize("time_ms", [0, 500, T_MS, T_MS + 12_345])
def test_an_empty_slot_is_minus_one(wheel: TimerWheel, time_ms: int) -> None:
    slot = wheel.slot(time_ms)
    assert (slot.time_ms, slot.first_pos, slot.last_pos, slot.num) == (-1, -1, -1, 0)


def test_a_slot_of_another_lap_reads_as_empty(wheel: TimerWheel) -> None:
    put(wheel, [T_MS], [1])
    assert wheel.slot(T_MS + LAP_MS) == EMPTY_SLOT
    assert wheel.slot(T_MS - LAP_MS) == EMPTY_SLOT
    assert wheel.num(T_MS + LAP_MS) == 0


def test_slots_at_the_epoch_are_like_others(wheel: TimerWheel) -> None:
    assert wheel.next_occupied(0) is None
    assert put(wheel, [0, 499, 29_999], [0, 52, 104]).tolist() == [-1, 0, -1]
    assert wheel.slot(0) == (0, 0, 52, 2, 0)
    assert wheel.next_occupied(0) == 0
    assert wheel.next_occupied(500) == 29_500
    with pytest.raises(SlotConflict):
        put(wheel, [LAP_MS], [156])


def test_num_counts_a_slot_and_all_from_it(wheel: TimerWheel) -> None:
    put(wheel, [T_MS] * 3 + [T_MS + 5 * PRECISION_MS] * 7, range(10))
    assert wheel.num(T_MS) == 3
    assert wheel.num(T_MS + 5 * PRECISION_MS) == 7
    assert result_of(wheel.num_between(T_MS, T_MS + LAP_MS)) == 10
    assert result_of(wheel.num_between(T_MS + PRECISION_MS, T_MS + LAP_MS)) == 7


@pytest.mark.parametrize(("ahead", "lowest"), [(0, 1), (1, 2), (5, 2), (6, 3), (10, 3), (11, None)])
def test_the_lowest_position_that_slots_from_a_time_on_need(wheel: TimerWheel, ahead: int, lowest: int | None) -> None:
    """`TimerWheel.checkPhyPos` asks for that."""
    for slots_ahead, first_pos in ((0, 1), (5, 2), (10, 3)):
        put(wheel, [T_MS + slots_ahead * PRECISION_MS] * 2, [first_pos, first_pos * 100])
    from_ms = T_MS + ahead * PRECISION_MS
    assert result_of(wheel.survey([from_ms], from_ms, [])).first_pos == (lowest,)


def test_a_slot_of_a_lap_that_has_left_is_put_anew(wheel: TimerWheel) -> None:
    put(wheel, [T_MS, T_MS], [3, 55])
    next_lap_ms = T_MS + LAP_MS
    wheel.advance(next_lap_ms)
    assert wheel.slot(next_lap_ms) == EMPTY_SLOT
    assert wheel.slot(T_MS)[1:4] == (3, 55, 2)
    assert put(wheel, [next_lap_ms], [107]).tolist() == [-1]
    assert wheel.slot(next_lap_ms)[1:4] == (107, 107, 1)
    assert wheel.slot(T_MS) == EMPTY_SLOT


def test_flushed_and_reopened_it_is_identical(tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path)
    put(wheel, [T_MS, T_MS + 600, T_MS], [0, 52, 104])
    wheel.flush()
    before = (tmp_path / "timerwheel").read_bytes()
    wheel.close()
    wheel.close()
    again = a_wheel(tmp_path)
    assert (tmp_path / "timerwheel").read_bytes() == before
    assert again.slot(T_MS) == (T_MS, 0, 104, 2, 0)
    again.close()


def test_a_new_wheels_name_becomes_durable_with_its_bytes_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: list[str] = []
    monkeypatch.setattr(RealFileSystem, "sync_directory", lambda _fs, path: durable.append(path.name))
    monkeypatch.setattr(RealMappedFile, "flush", lambda _map: durable.append("bytes"))
    wheel = a_wheel(tmp_path)
    wheel.flush()
    wheel.flush()
    wheel.close()
    assert durable == ["bytes", tmp_path.name, "bytes"]
    again = a_wheel(tmp_path)
    again.flush()
    again.close()
    assert durable[3:] == ["bytes"]


def test_a_wheel_that_the_disk_has_no_room_for_leaves_nothing_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_fs: RealFileSystem, path: Path, size: int) -> None:
        path.write_bytes(bytes(size // 2))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RealFileSystem, "allocate", half)
    with pytest.raises(OSError, match="No space"):
        a_wheel(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slots", [SLOTS - 1, SLOTS + 1, 2 * SLOTS])
def test_reopened_with_another_number_of_slots_it_is_refused_and_not_touched(tmp_path: Path, slots: int) -> None:
    wheel = a_wheel(tmp_path)
    put(wheel, [T_MS], [1])
    wheel.close()
    before = (tmp_path / "timerwheel").read_bytes()
    with pytest.raises(WrongFileSize, match=r"1920 bytes.*Operator action"):
        a_wheel(tmp_path, slots)
    assert (tmp_path / "timerwheel").read_bytes() == before


@pytest.mark.parametrize(("slots", "precision_ms"), [(0, 500), (30, 0), (-1, 500)])
def test_a_wheel_without_slots_is_refused(tmp_path: Path, slots: int, precision_ms: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        TimerWheel(tmp_path / "timerwheel", slots, precision_ms, RealFileSystem())


def test_a_batch_links_each_record_to_the_one_before_in_its_slot(wheel: TimerWheel) -> None:
    a, b, c = T_MS, T_MS + PRECISION_MS, T_MS - PRECISION_MS
    assert put(wheel, [a, b + 1, a + 499, c, b], [0, 52, 104, 156, 208]).tolist() == [-1, -1, 0, -1, 52]
    assert put(wheel, [b, a, b], [260, 312, 364]).tolist() == [208, 104, 260]
    assert wheel.slot(a) == (a, 0, 312, 3, 0)
    assert wheel.slot(b) == (b, 52, 364, 4, 0)
    assert wheel.slot(c) == (c, 156, 156, 1, 0)
    assert put(wheel, [], []).tolist() == []


def test_a_delete_may_take_one_off_num(wheel: TimerWheel) -> None:
    put(wheel, [T_MS, T_MS], [0, 52])
    put(wheel, [T_MS, T_MS + 500], [104, 156], [-1, 1])
    assert wheel.slot(T_MS) == (T_MS, 0, 104, 1, 0)
    assert wheel.num(T_MS + 500) == 1


def test_a_prepared_batch_changes_nothing_until_it_is_applied(wheel: TimerWheel) -> None:
    put(wheel, [T_MS], [0])
    batch = wheel.prepare_batch(int64(T_MS, T_MS + 500), int64(52, 104), np.ones(2, np.int32))
    assert batch.prev_positions.tolist() == [0, -1]
    assert wheel.slot(T_MS).num == 1
    assert wheel.next_occupied(T_MS + 500) is None
    wheel.apply(batch)
    assert wheel.slot(T_MS).num == 2
    assert wheel.next_occupied(T_MS + 500) == T_MS + 500
    with pytest.raises(RuntimeError, match="has changed"):
        wheel.apply(batch)


def test_a_put_over_a_live_slot_of_another_lap_is_refused(wheel: TimerWheel) -> None:
    put(wheel, [T_MS], [0])
    wheel.advance(T_MS + PRECISION_MS - 1)
    for other_ms in (T_MS + LAP_MS, T_MS - LAP_MS):
        with pytest.raises(SlotConflict, match=str(T_MS)):
            put(wheel, [other_ms], [52])
    assert wheel.slot(T_MS)[1:4] == (0, 0, 1)
    wheel.advance(T_MS + PRECISION_MS)
    assert put(wheel, [T_MS + LAP_MS], [52]).tolist() == [-1]
    assert wheel.slot(T_MS + LAP_MS)[1:4] == (52, 52, 1)


def test_a_batch_with_two_laps_of_one_place_is_refused(wheel: TimerWheel) -> None:
    with pytest.raises(SlotConflict, match=f"slot {T_MS + LAP_MS} ms falls on slot {T_MS} ms"):
        put(wheel, [T_MS + PRECISION_MS, T_MS + LAP_MS, T_MS], [0, 52, 104])
    assert wheel.first_occupied(0) is None


def test_a_batch_may_be_wider_than_a_lap(wheel: TimerWheel) -> None:
    """As where cancels name what was put before and after a stop of the delivery."""
    times = [T_MS, T_MS + LAP_MS + PRECISION_MS, T_MS]
    assert put(wheel, times, [0, 52, 104]).tolist() == [-1, -1, 0]
    assert put(wheel, times, [156, 208, 260], -1).tolist() == [104, 52, 156]
    assert wheel.first_occupied(0) is None


def test_a_time_before_the_epoch_is_refused(wheel: TimerWheel) -> None:
    with pytest.raises(ValueError, match="negative"):
        put(wheel, [-1], [0])
    with pytest.raises(ValueError, match="negative"):
        put(wheel, [5, -1], [0, 52])


def test_the_wheel_never_moves_back(wheel: TimerWheel) -> None:
    wheel.advance(T_MS + 700)
    wheel.advance(T_MS)
    assert wheel.live_from_ms == T_MS + 500


def test_next_occupied_finds_the_first_slot_from_a_time_on(wheel: TimerWheel) -> None:
    assert wheel.next_occupied(T_MS) is None
    put(wheel, [T_MS + 7 * PRECISION_MS], [1])
    assert wheel.next_occupied(T_MS) == T_MS + 7 * PRECISION_MS
    assert wheel.next_occupied(T_MS + 7 * PRECISION_MS + 499) == T_MS + 7 * PRECISION_MS
    assert wheel.next_occupied(T_MS + 8 * PRECISION_MS) is None
    put(wheel, [T_MS + 3 * PRECISION_MS], [1])
    assert wheel.next_occupied(T_MS) == T_MS + 3 * PRECISION_MS
    assert wheel.next_occupied(T_MS + 4 * PRECISION_MS) == T_MS + 7 * PRECISION_MS


def test_next_occupied_sees_a_lap_ahead_and_no_further(wheel: TimerWheel) -> None:
    put(wheel, [T_MS + LAP_MS - PRECISION_MS], [1])
    assert wheel.next_occupied(T_MS - PRECISION_MS) is None
    assert wheel.next_occupied(T_MS) == T_MS + LAP_MS - PRECISION_MS


def test_what_was_found_empty_from_a_time_on_says_nothing_of_what_lies_before(wheel: TimerWheel) -> None:
    put(wheel, [T_MS + 2 * PRECISION_MS, T_MS + 9 * PRECISION_MS], [0, 52])
    assert wheel.next_occupied(T_MS + 5 * PRECISION_MS) == T_MS + 9 * PRECISION_MS
    assert wheel.next_occupied(T_MS + 2 * PRECISION_MS) == T_MS + 2 * PRECISION_MS
    assert wheel.next_occupied(T_MS) == T_MS + 2 * PRECISION_MS
    assert wheel.next_occupied(T_MS + 6 * PRECISION_MS) == T_MS + 9 * PRECISION_MS


def test_a_survey_looks_at_what_is_needed_before_now_and_counts_what_is_ahead_of_it(wheel: TimerWheel) -> None:
    """The first of many positions does not stand in the first of many slots."""
    slots_ahead = (40, 0, 25, 59, 10)
    for at, ahead in enumerate(slots_ahead):
        put(wheel, [T_MS + ahead * PRECISION_MS] * 2, [104 * at, 104 * at + 52])
    starts_ms = [T_MS, T_MS + 5 * PRECISION_MS, T_MS + 50 * PRECISION_MS, T_MS + LAP_MS]
    now_ms = T_MS + 25 * PRECISION_MS + 1
    found = result_of(wheel.survey(starts_ms, now_ms, [T_MS + 41 * PRECISION_MS, T_MS + 59 * PRECISION_MS, 2**62]))
    assert found == ((0, 0, 312, None), [2, 0, 2], T_MS + 59 * PRECISION_MS)
    last_ms = T_MS + 59 * PRECISION_MS
    assert result_of(wheel.survey([T_MS + LAP_MS], last_ms + 1, [2**62])) == ((None,), [0], last_ms)
    assert result_of(wheel.survey([T_MS + LAP_MS], last_ms, [2**62])) == ((None,), [2], last_ms)


def test_counts_per_bucket(wheel: TimerWheel) -> None:
    put(wheel, [T_MS + slot * PRECISION_MS for slot in (0, 0, 1, 2, 9, 9, 10, 59)], np.arange(8) * 52)
    assert wheel.counts(T_MS, T_MS + 6_000, 1_000).tolist() == [3, 1, 0, 0, 2, 1]
    assert wheel.counts(T_MS + 1, T_MS + 5_001, 2_500).tolist() == [2, 3]
    assert wheel.counts(T_MS, T_MS + 5 * LAP_MS, LAP_MS).tolist() == [8, 0, 0, 0, 0]
    assert wheel.counts(T_MS - LAP_MS + 10_000, T_MS + 10_000, 10_000).tolist() == [0, 0, 7]
    assert wheel.counts(T_MS, T_MS, 1_000).tolist() == []
    with pytest.raises(ValueError, match="bucket_ms 0"):
        wheel.counts(T_MS, T_MS + 1, 0)


def test_250_messages_survive_a_slot_whose_positions_were_overwritten(tmp_path: Path) -> None:
    """RocketMQ's TimerMessageStoreTest: the last slot gets (-1, max), and after the restart all are there."""
    log = TimerLog(tmp_path / "timerlog", 1024, RealFileSystem())
    wheel = a_wheel(tmp_path)
    records = new_records(250)
    records["curr_write_time"] = T_MS
    records["delayed_time"] = np.arange(250) // 50 * PRECISION_MS + 5_000
    due = records["curr_write_time"] + records["delayed_time"]
    records["prev_pos"] = put(wheel, due, log.positions_for(250))
    log.append(records)
    slots = [wheel.slot(T_MS + 5_000 + n * PRECISION_MS) for n in range(5)]
    write_in_file(wheel, slots[-1].time_ms, slots[-1].time_ms, -1, 2**63 - 1, 50, 0)
    assert len(wheel.check(log.end_position)) == 2
    wheel = anew(tmp_path, wheel)
    wheel.fill(log.scan())
    assert wheel.check(log.end_position) == []
    assert [wheel.slot(slot.time_ms) for slot in slots] == slots
    assert sum(len(in_log_order(log.slot_pieces(slot, PRECISION_MS))[0]) for slot in slots) == 250
    wheel.close()


@pytest.mark.parametrize("chunk_records", [1, 2, 100])
def test_fill_counts_deletes_and_refuses_two_laps_of_one_place(tmp_path: Path, chunk_records: int) -> None:
    log = TimerLog(tmp_path / "timerlog", 1024, RealFileSystem())
    records = new_records(5)
    records["curr_write_time"] = T_MS
    records["delayed_time"] = [0, LAP_MS, LAP_MS + 1, LAP_MS + 600, LAP_MS]
    records["magic"][4] |= MAGIC_DELETE
    positions = log.append(records)
    wheel = a_wheel(tmp_path)
    with pytest.raises(SlotConflict, match=f"slot {T_MS + LAP_MS} ms falls on slot {T_MS} ms"):
        wheel.fill(log.scan(chunk_records=chunk_records))
    wheel = anew(tmp_path, wheel)
    wheel.fill(log.scan(int(positions[1]), chunk_records=chunk_records))
    assert wheel.slot(T_MS) == EMPTY_SLOT
    assert wheel.slot(T_MS + LAP_MS) == (T_MS + LAP_MS, 52, 208, 1, 0)
    assert wheel.slot(T_MS + LAP_MS + 500) == (T_MS + LAP_MS + 500, 156, 156, 1, 0)
    wheel.close()


def test_what_was_known_of_an_empty_wheel_does_not_hold_once_it_is_filled(tmp_path: Path) -> None:
    log = TimerLog(tmp_path / "timerlog", 1024, RealFileSystem())
    records = new_records(1)
    records["curr_write_time"] = T_MS
    log.append(records)
    wheel = a_wheel(tmp_path)
    assert wheel.next_occupied(T_MS) is None
    prepared = wheel.prepare_batch(int64(T_MS), int64(52), np.ones(1, np.int32))
    wheel.fill(log.scan())
    assert wheel.next_occupied(T_MS) == T_MS
    with pytest.raises(RuntimeError, match="has changed"):
        wheel.apply(prepared)
    wheel.close()


def test_a_slot_whose_messages_were_all_cancelled_is_empty_and_its_place_is_free(wheel: TimerWheel) -> None:
    put(wheel, [T_MS, T_MS], [0, 52])
    put(wheel, [T_MS, T_MS], [104, 156], -1)
    assert wheel.slot(T_MS) == EMPTY_SLOT
    assert wheel.next_occupied(T_MS) is None
    assert wheel.first_occupied(0) is None
    assert result_of(wheel.survey([0], 0, [2**62])) == ((None,), [0], None)
    assert result_of(wheel.num_between(0, 2**62)) == 0
    # Anew, without what was there.
    assert put(wheel, [T_MS], [208]).tolist() == [-1]
    assert wheel.slot(T_MS) == (T_MS, 208, 208, 1, 0)
    with pytest.raises(SlotConflict):
        put(wheel, [T_MS + LAP_MS], [260])
    put(wheel, [T_MS], [260], -1)
    assert put(wheel, [T_MS + LAP_MS], [312]).tolist() == [-1]
    assert wheel.slot(T_MS + LAP_MS) == (T_MS + LAP_MS, 312, 312, 1, 0)
    with pytest.raises(SlotConflict):
        put(wheel, [T_MS], [364])


@pytest.mark.parametrize("chunk_records", [1, 2, 3, 4, 5, 6, 7, 100])
def test_fill_gives_the_place_of_an_emptied_slot_to_another_lap(tmp_path: Path, chunk_records: int) -> None:
    log = TimerLog(tmp_path / "timerlog", 1024, RealFileSystem())
    records = new_records(7)
    records["curr_write_time"] = T_MS
    records["delayed_time"] = [0, 600, 0, LAP_MS, LAP_MS, 1, LAP_MS + 700]
    records["magic"][[2, 4]] = MAGIC_DELETE
    positions = log.append(records).tolist()
    wheel = a_wheel(tmp_path)
    with pytest.raises(SlotConflict, match=f"slot {T_MS + LAP_MS + 500} ms falls on slot {T_MS + 500} ms"):
        wheel.fill(log.scan(chunk_records=chunk_records))
    wheel = anew(tmp_path, wheel)
    wheel.fill(log.scan(stop=positions[6], chunk_records=chunk_records))
    assert wheel.slot(T_MS) == (T_MS, positions[5], positions[5], 1, 0)
    assert wheel.slot(T_MS + 500) == (T_MS + 500, positions[1], positions[1], 1, 0)
    assert wheel.slot(T_MS + LAP_MS) == EMPTY_SLOT
    wheel.close()


def test_all_occupied_slots_in_the_order_of_time_however_far_ahead(wheel: TimerWheel) -> None:
    slots = [T_MS, T_MS + 500, T_MS + LAP_MS + 1_000, T_MS + 7 * LAP_MS + 2_000, T_MS + 7 * LAP_MS + 22_500]
    for at, slot_ms in enumerate(slots):
        put(wheel, [slot_ms] * (at + 1), [52 * at] * (at + 1))
    for from_ms, expected in ((T_MS + 499, slots), (T_MS + 500, slots[1:]), (slots[-1] + 500, [])):
        assert [slot_ms for slot_ms in wheel.occupied_from(from_ms) if slot_ms is not None] == expected
    assert wheel.first_occupied(0) == slots[0]
    assert result_of(wheel.num_between(T_MS, slots[-1])) == 1 + 2 + 3 + 4
    assert result_of(wheel.num_between(T_MS, T_MS + 501)) == 1
    assert result_of(wheel.num_between(T_MS + 500, 2**62)) == 2 + 3 + 4 + 5
    assert wheel.counts(T_MS, T_MS + 8 * LAP_MS, 4 * LAP_MS).tolist() == [1 + 2, 0]
    survey = result_of(wheel.survey([T_MS + 499, T_MS + 500], T_MS + 1, [slots[2], slots[3] + 1]))
    assert survey == ((0, 52), [2, 3 + 4], slots[-1])


def test_the_crc_is_that_of_the_file(tmp_path: Path, wheel: TimerWheel) -> None:
    empty = wheel.crc()
    put(wheel, [T_MS], [1])
    wheel.flush()
    assert wheel.crc() == crc32((tmp_path / "timerwheel").read_bytes()) != empty


def test_check_names_slots_that_cannot_be(tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path)
    put(wheel, [T_MS, T_MS + 500], [0, 52])
    wheel.close()
    index = T_MS // PRECISION_MS % 60
    with (tmp_path / "timerwheel").open("r+b") as file:
        file.seek(32 * index)
        file.write(int(T_MS + 1).to_bytes(8, "little"))
        file.seek(32 * (index + 1) + 16)
        file.write(b"\x33")
    wheel = a_wheel(tmp_path)
    write_in_file(wheel, T_MS + 1_000, -1, 0, 0, 0, 0)
    write_in_file(wheel, 0, -LAP_MS, 0, 0, 0, 0)
    problems = wheel.check()
    assert [problem.split(" (")[0] for problem in problems] == [
        "slot 0: does not belong here",
        f"slot {index}: does not belong here",
        f"slot {index + 2}: does not belong here",
        f"slot {index + 1}: first_pos lies behind last_pos or is none",
    ]
    assert [len(wheel.check(timer_log_end)) for timer_log_end in (52, 51)] == [4, 5]
    wheel.close()
