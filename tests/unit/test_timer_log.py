"""The timer log's segments, positions and chains. The figures 19, 936 and 6 files are RocketMQ's own (TimerLogTest)."""

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from sidecar.store.errors import CorruptFile, CorruptRecord, EndPositionRequired, IncompleteLog, PositionOutOfRange
from sidecar.store.files import RealFile, RealFileSystem
from sidecar.store.layout import MAGIC_DELETE, Int64Array, RecordArray, Slot
from sidecar.store.timer_log import TimerLog, in_log_order
from tests.support.slots import new_records

SEGMENT_BYTES = 1024
RECORDS_PER_SEGMENT = 19
LAST_IN_SEGMENT = 936
PRECISION_MS = 1000


def a_log(directory: Path, *, end_position: int | None = None, start_position: int = 0) -> TimerLog:
    """A log as its checkpoint tells of it; the CRCs are those of what the files hold."""
    return TimerLog(
        directory,
        SEGMENT_BYTES,
        RealFileSystem(),
        end_position=end_position,
        start_position=start_position,
        crcs=crcs_on_disk(directory, start_position, end_position or 0),
    )


def crcs_on_disk(directory: Path, start: int, end: int) -> list[int]:
    bases = range(start // SEGMENT_BYTES * SEGMENT_BYTES, end, SEGMENT_BYTES)
    paths = [directory / f"{base:020d}" for base in bases]
    return [
        crc32(path.read_bytes()[: end - base]) if path.exists() else 0 for base, path in zip(bases, paths, strict=True)
    ]


def some_records(count: int, *, first: int = 0, delay_ms: int = 0) -> RecordArray:
    """Records numbered in offset_py."""
    records = new_records(count)
    records["curr_write_time"] = 1_000_000
    records["delayed_time"] = delay_ms
    records["offset_py"] = np.arange(first, first + count)
    return records


def chained(log: TimerLog, slots: list[int]) -> Int64Array:
    """Append one record per entry of `slots` (the slot's number), linked as the wheel would."""
    records = some_records(len(slots))
    records["delayed_time"] = np.array(slots) * PRECISION_MS + 7
    last: dict[int, int] = {}
    for at, (slot, position) in enumerate(zip(slots, log.positions_for(len(slots)).tolist(), strict=True)):
        records["prev_pos"][at] = last.get(slot, -1)
        last[slot] = position
    return log.append(records)


def slot_of(positions: Int64Array, slots: list[int], slot: int) -> Slot:
    mine = [position for position, other in zip(positions.tolist(), slots, strict=True) if other == slot]
    return Slot(1_000_000 + slot * PRECISION_MS, mine[0], mine[-1], len(mine), 0)


def test_110_records_of_52_bytes_take_six_files_of_1024(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.records_per_segment == RECORDS_PER_SEGMENT
    positions = log.append(some_records(110))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{1024 * n:020d}" for n in range(6)]
    assert positions[RECORDS_PER_SEGMENT - 1] == LAST_IN_SEGMENT
    assert positions[RECORDS_PER_SEGMENT] == SEGMENT_BYTES
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [1024] * 5 + [15 * 52]
    assert log.check(PRECISION_MS) == []


def test_a_segment_is_closed_by_a_blank_record_of_what_is_left(tmp_path: Path) -> None:
    a_log(tmp_path).append(some_records(19))
    data = (tmp_path / f"{0:020d}").read_bytes()
    assert len(data) == SEGMENT_BYTES
    closer = data[LAST_IN_SEGMENT + 52 :]
    assert closer == b"\x24\0\0\0" + b"\0" * 8 + b"\xff\xff\xff\xff" + b"\0" * 20


@pytest.mark.parametrize(("segment_bytes", "records"), [(68, 1), (119, 1), (120, 2), (1024, 19), (1023, 19)])
def test_a_segment_takes_a_record_while_52_and_16_bytes_are_free(
    tmp_path: Path, segment_bytes: int, records: int
) -> None:
    log = TimerLog(tmp_path, segment_bytes, RealFileSystem())
    assert log.append(some_records(records + 1))[-1] == segment_bytes
    assert log.check(PRECISION_MS) == []


def test_a_segment_too_small_for_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes no record"):
        TimerLog(tmp_path, 67, RealFileSystem())


@pytest.mark.parametrize("sizes", [[1] * 45, [19, 19, 7], [18, 2, 25], [45], [0, 45, 0], [5, 40]])
def test_positions_are_those_promised_however_the_batches_fall(tmp_path: Path, sizes: list[int]) -> None:
    log = a_log(tmp_path)
    seen: list[int] = []
    for size in sizes:
        promised = log.positions_for(size)
        positions = log.append(some_records(size, first=len(seen)))
        assert positions.tolist() == promised.tolist()
        seen += positions.tolist()
    assert seen == [n // 19 * 1024 + n % 19 * 52 for n in range(45)]
    assert log.gather(np.array(seen, np.int64))["offset_py"].tolist() == list(range(45))


def test_read_gives_one_record(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(30))
    assert log.read(int(positions[25]))["offset_py"].tolist() == [25]


@pytest.mark.parametrize("position", [-52, 1, 988, 1024 + 52 * 11, 5000])
def test_positions_that_hold_no_record_are_refused(tmp_path: Path, position: int) -> None:
    log = a_log(tmp_path)
    log.append(some_records(30))
    with pytest.raises(PositionOutOfRange):
        log.read(position)
    with pytest.raises(PositionOutOfRange):
        log.gather(np.array([0, position], np.int64))
    with pytest.raises(PositionOutOfRange):
        log.chain(position) if position > 0 else log.read(position)


def test_gather_takes_any_order_and_repeats(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(400))
    wanted = [399, 0, 17, 17, 250, 18, 19, 20, 1, 399]
    assert log.gather(positions[wanted])["offset_py"].tolist() == wanted
    assert len(log.gather(np.empty(0, np.int64))) == 0


def test_scan_skips_blanks_and_stays_within_its_chunk(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(50))
    chunks = list(log.scan(chunk_records=8))
    assert max(len(records) for _, records in chunks) == 8
    assert np.concatenate([found for found, _ in chunks]).tolist() == positions.tolist()
    assert np.concatenate([records["offset_py"] for _, records in chunks]).tolist() == list(range(50))
    part = list(log.scan(int(positions[18]), int(positions[21])))
    assert [found.tolist() for found, _ in part] == [[936], [1024, 1076]]
    assert list(log.scan(log.end_position)) == []


def test_chain_walks_from_the_newest_to_the_first(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    slots = [n % 3 for n in range(60)]
    positions = chained(log, slots)
    found, records = log.chain(int(positions[58]))
    assert found.tolist() == positions[[n for n in range(60) if n % 3 == 1]][::-1].tolist()
    assert records["offset_py"].tolist() == list(range(58, 0, -3))
    assert log.chain(int(positions[58]), num=2)[1]["offset_py"].tolist() == [58, 55]
    assert log.chain(int(positions[58]), first_pos=int(positions[52]))[1]["offset_py"].tolist() == [58, 55, 52]
    assert len(log.chain(-1)[0]) == 0


def test_a_chain_ends_where_the_log_was_deleted(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    slots = [n % 3 for n in range(60)]
    positions = chained(log, slots)
    log.delete_before(1024)
    assert log.chain(int(positions[58]))[1]["offset_py"].tolist() == list(range(58, 18, -3))
    slot = slot_of(positions, slots, 1)
    for found in (
        in_log_order(log.slot_pieces(slot, PRECISION_MS)),
        in_log_order(log._filtered_pieces(slot, PRECISION_MS)),
    ):
        assert found[1]["offset_py"].tolist() == list(range(19, 60, 3))
    gone = slot._replace(last_pos=int(positions[1]))
    assert len(in_log_order(log.slot_pieces(gone, PRECISION_MS))[0]) == 0
    assert len(in_log_order(log._filtered_pieces(gone, PRECISION_MS))[0]) == 0


def test_a_dense_slot_and_a_sparse_one_give_the_same_as_their_chains(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    slots = [0 if n % 2 else n + 1 for n in range(800)]
    slots[3] = slots[790] = 9_999
    positions = chained(log, slots)
    for number, offsets in ((0, [n for n in range(800) if slots[n] == 0]), (9_999, [3, 790])):
        slot = slot_of(positions, slots, number)
        found, records = in_log_order(log.slot_pieces(slot, PRECISION_MS))
        assert records["offset_py"].tolist() == offsets
        assert found.tolist() == in_log_order(log._filtered_pieces(slot, PRECISION_MS))[0].tolist()
        assert found.tolist() == log.chain(slot.last_pos, first_pos=slot.first_pos)[0][::-1].tolist()


def test_prev_pos_that_does_not_lie_before_its_record_is_corrupt_not_endless(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    records = some_records(3)
    records["prev_pos"] = [-1, 52, 52]
    log.append(records)
    with pytest.raises(CorruptRecord, match=r"00000000000000000000.*position 52.*prev_pos 52"):
        log.chain(104)
    assert log.check(PRECISION_MS) == ["position 52: prev_pos 52 does not lie before it"]


def test_cut_back_to_an_earlier_mark_it_goes_on_from_there(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(45))
    log.close()
    for keep in (40, 38, 19, 18, 0):
        log = a_log(tmp_path, end_position=int(positions[keep]))
        assert log.end_position == positions[keep]
        assert sum(len(records) for _, _, records in log.verified()) == keep
        assert log.check(PRECISION_MS) == []
        log.close()
    assert list(tmp_path.iterdir()) == []
    log = a_log(tmp_path, end_position=0)
    assert log.append(some_records(45)).tolist() == positions.tolist()


def test_the_crcs_are_those_of_the_segments_up_to_the_mark(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    marks = [log.mark()]
    for first, count in ((0, 1), (1, 17), (18, 1), (19, 5), (24, 40)):
        log.append(some_records(count, first=first))
        marks.append(log.mark())
    assert [mark.position for mark in marks] == [0, 52, 936, 1024, 1284, 3 * 1024 + 7 * 52]
    for mark in marks:
        for start in (0, 52, 1024, 2048 + 104):
            if start <= mark.position:
                assert log.crcs(start, mark) == crcs_on_disk(tmp_path, start, mark.position)
    assert marks[0] == (0, 0)
    assert marks[3] == (1024, 0)


def test_the_crc_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(some_records(25))
    mark = log.mark()
    crcs = log.crcs(0, mark)
    log.append(some_records(30))
    log.close()
    log = TimerLog(tmp_path, SEGMENT_BYTES, RealFileSystem(), end_position=mark.position, crcs=crcs)
    assert log.mark() == mark
    log.append(some_records(60))
    assert log.crcs(0, log.mark()) == crcs_on_disk(tmp_path, 0, log.end_position)


@pytest.mark.parametrize("start", [0, 3, 25])
def test_verified_yields_all_records_kept_by_blocks(
    tmp_path: Path, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 8)
    log = a_log(tmp_path)
    positions = log.append(some_records(45))
    log.close()
    log = a_log(tmp_path, end_position=log.end_position, start_position=int(positions[start]))
    found = list(log.verified())
    assert np.concatenate([records["offset_py"] for _, _, records in found]).tolist() == list(range(start, 45))
    assert np.concatenate([at for _, at, _ in found]).tolist() == positions[start:].tolist()
    assert [block for block, _, _ in found] == list(log.blocks(log.start_position))
    for block, _, records in found:
        assert records.tolist() == log.read_block(block).tolist()


def test_every_flipped_bit_is_noticed_at_an_opening(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    log.append(some_records(22))
    crcs = log.crcs(0, log.mark())
    log.close()
    for path in sorted((tmp_path / "log").iterdir()):
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
            again = TimerLog(path.parent, SEGMENT_BYTES, RealFileSystem(), end_position=log.end_position, crcs=crcs)
            with pytest.raises(CorruptFile, match=f"{path.name}: the CRC"):
                list(again.verified())
            assert any("the CRC" in problem for problem in again.check(PRECISION_MS))
            again.close()
        path.write_bytes(whole)


def test_a_checkpoint_with_another_number_of_crcs_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(some_records(22))
    for crcs in ([], [1], [1, 2, 3]):
        with pytest.raises(IncompleteLog, match=f"{len(crcs)} CRCs for 2 segments"):
            TimerLog(tmp_path, SEGMENT_BYTES, RealFileSystem(), end_position=log.end_position, crcs=crcs)


def test_a_scan_passes_over_what_is_deleted_meanwhile(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(some_records(45))
    scan = log.scan(chunk_records=10)
    blocks, further = list(log.blocks(0)), log.blocks(0)
    assert next(further) == blocks[0]
    assert next(scan)[1]["offset_py"].tolist() == list(range(10))
    log.delete_before(2048)
    assert list(further) == blocks[2:]
    assert [records["offset_py"].tolist() for _, records in scan] == [list(range(38, 45))]
    assert [len(log.read_block(block)) for block in blocks] == [0, 0, 7]


@pytest.mark.parametrize("steps", [1, 3, 1000])
def test_a_slot_comes_in_pieces(tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHAIN_STEPS_MAX", steps)
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 5)
    log = a_log(tmp_path)
    slots = [n % 3 for n in range(60)]
    positions = chained(log, slots)
    slot = slot_of(positions, slots, 1)
    dense = [records for _, records in log.slot_pieces(slot, PRECISION_MS)]
    monkeypatch.setattr("sidecar.store.timer_log.FILTER_RECORDS_PER_CHAIN_STEP", 1)
    sparse = [records for _, records in log.slot_pieces(slot, PRECISION_MS)]
    assert max(map(len, sparse)) == min(steps, 20)
    for pieces in (dense, sparse):
        assert sorted(np.concatenate([piece["offset_py"] for piece in pieces]).tolist()) == list(range(1, 60, 3))
    assert in_log_order(log.slot_pieces(slot, PRECISION_MS))[1]["offset_py"].tolist() == list(range(1, 60, 3))


def test_delete_before_removes_whole_segments_only(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(45))
    assert log.delete_before(LAST_IN_SEGMENT) == 0
    assert log.delete_before(2048 + 52) == 2
    assert log.start_position == 2048
    assert [path.name for path in tmp_path.iterdir()] == [f"{2048:020d}"]
    assert sum(len(positions) for positions, _ in log.scan()) == 7
    with pytest.raises(PositionOutOfRange):
        log.read(int(positions[0]))
    assert log.delete_before(log.end_position) == 0


def test_all_of_a_log_can_be_deleted_when_its_last_segment_is_full(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(some_records(38))
    assert log.delete_before(log.end_position) == 2
    assert (log.start_position, log.end_position) == (2048, 2048)
    assert log.append(some_records(1)).tolist() == [2048]


def test_a_log_is_not_opened_without_its_end(tmp_path: Path) -> None:
    a_log(tmp_path).append(some_records(1))
    with pytest.raises(EndPositionRequired):
        a_log(tmp_path)


def test_reopened_at_the_checkpoint_what_lies_behind_is_cut_off(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(60))
    log.flush()
    log.close()
    again = a_log(tmp_path, end_position=int(positions[25]))
    assert sum(len(records) for _, records in again.scan()) == 25
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == [6 * 52, 1024]
    assert again.append(some_records(1, first=25)).tolist() == [positions[25]]


def test_reopened_with_a_start_the_segments_below_are_removed(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(60))
    log.close()
    again = a_log(tmp_path, end_position=log.end_position, start_position=int(positions[22]))
    assert again.start_position == positions[22]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{1024 * n:020d}" for n in (1, 2, 3)]
    assert next(iter(again.scan()))[1]["offset_py"][0] == 22


def test_an_empty_log_may_begin_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(30))
    log.close()
    log = a_log(tmp_path, end_position=int(positions[5]), start_position=int(positions[5]))
    assert log.append(some_records(20, first=5)).tolist() == positions[5:25].tolist()
    log.close()
    log = a_log(tmp_path, end_position=int(positions[25]), start_position=int(positions[5]))
    assert log.check(PRECISION_MS) == []
    assert sum(len(records) for _, records in log.scan()) == 20


def test_a_log_shorter_than_its_checkpoint_says_is_refused_and_not_touched(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = log.append(some_records(60))
    log.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(IncompleteLog, match=f"{3072:020d}"):
        a_log(tmp_path, end_position=int(positions[59]) + 104)
    with pytest.raises(IncompleteLog, match=f"{3072:020d}: 156 bytes"):
        a_log(tmp_path, end_position=4096 + 52)
    with pytest.raises(IncompleteLog, match="0 CRCs for 4503599627370496 segments"):
        TimerLog(tmp_path, SEGMENT_BYTES, RealFileSystem(), end_position=2**62)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / f"{1024:020d}").unlink()
    with pytest.raises(IncompleteLog, match=f"{1024:020d}: no such segment"):
        a_log(tmp_path, end_position=log.end_position)


def test_a_start_behind_the_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PositionOutOfRange):
        a_log(tmp_path, end_position=52, start_position=104)


def test_files_with_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    a_log(tmp_path).append(some_records(1))
    a_log(tmp_path, end_position=0)
    assert [path.name for path in tmp_path.iterdir()] == ["lost+found"]


@pytest.mark.parametrize(
    ("at", "data", "words"),
    [
        (1024 + 52, b"\0" * 52, "size 0, magic 0"),
        (1024 + 52, b"\x35", "size 53, magic 1"),
        (1024 + 52 + 12, b"\x08", "size 52, magic 8"),
        (1024 + 52 + 12, b"\xff\xff\xff\xff", "size 52, magic -1"),
    ],
)
def test_a_damaged_record_is_noticed_by_every_reader(tmp_path: Path, at: int, data: bytes, words: str) -> None:
    log = a_log(tmp_path)
    positions = chained(log, [0] * 40)
    with (tmp_path / f"{1024:020d}").open("r+b") as file:
        file.seek(at - 1024)
        file.write(data)
    readers = (
        lambda: log.read(1076),
        lambda: log.gather(positions),
        lambda: list(log.scan()),
        lambda: log.chain(int(positions[39])),
    )
    for reader in readers:
        with pytest.raises(CorruptRecord, match=f"position 1076: {words}"):
            reader()
    assert any(words in problem for problem in log.check(PRECISION_MS))


def test_a_read_that_gives_less_than_it_was_asked_for_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path)
    positions = chained(log, [0] * 40)
    pread = RealFile.pread
    monkeypatch.setattr(RealFile, "pread", lambda file, length, at: pread(file, min(length, 30), at))
    assert log.gather(positions).tolist() == log.chain(int(positions[39]))[1][::-1].tolist()
    assert [records.tolist() for _, records in log.scan()] == [
        log.gather(positions[begin : begin + 19]).tolist() for begin in (0, 19, 38)
    ]


def test_a_file_cut_short_underneath_is_noticed_by_every_reader(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions = chained(log, [0] * 40)
    with (tmp_path / f"{1024:020d}").open("r+b") as file:
        file.truncate(110)
    for reader in (lambda: log.gather(positions), lambda: list(log.scan()), lambda: log.chain(int(positions[39]))):
        with pytest.raises(CorruptRecord, match="the file ends inside it"):
            reader()
    assert log.check(PRECISION_MS) != []


def test_check_names_a_missing_blank_record_and_a_link_into_another_slot(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    slots = [n % 2 for n in range(40)]
    chained(log, slots)
    assert log.check(PRECISION_MS) == []
    with (tmp_path / f"{0:020d}").open("r+b") as file:
        file.seek(988)
        file.write(b"\x25")
        file.seek(52 * 4 + 4)
        file.write(b"\x34")
    assert log.check(PRECISION_MS) == [
        f"{tmp_path}/{0:020d}: the CRC of its first 1024 bytes does not match",
        "position 208: prev_pos 52 belongs to another slot",
        "position 988: the segment is not closed by a blank record",
    ]


def test_a_record_may_be_a_delete(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    records = some_records(2)
    records["magic"] |= MAGIC_DELETE
    log.append(records)
    assert log.check(PRECISION_MS) == []


def test_records_of_another_dtype_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        a_log(tmp_path).append(np.zeros(3, np.dtype([("size", "<i4")])))


def test_more_segments_than_open_files(tmp_path: Path) -> None:
    log = TimerLog(tmp_path, 68, RealFileSystem())
    positions = log.append(some_records(200))
    log.flush()
    assert log.gather(positions)["offset_py"].tolist() == list(range(200))
    assert log.check(PRECISION_MS) == []
    log.close()
    log.close()
