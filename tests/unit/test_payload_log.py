"""The payload log: what goes in comes out, and what is damaged does not."""

import struct
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from sidecar.store.errors import CorruptRecord, EndPositionRequired, IncompleteLog, PositionOutOfRange
from sidecar.store.files import RealFileSystem
from sidecar.store.payload_log import READ_BYTES_MAX, READ_GAP_BYTES, PayloadLog

SEGMENT_BYTES = 40


def a_log(
    directory: Path, segment_bytes: int = SEGMENT_BYTES, *, end_position: int | None = None, start_position: int = 0
) -> PayloadLog:
    return PayloadLog(
        directory, segment_bytes, RealFileSystem(), end_position=end_position, start_position=start_position
    )


def some_payloads(count: int, *, size: int = 300) -> list[bytes]:
    rng = np.random.default_rng(count)
    return [rng.bytes(int(length)) for length in rng.integers(1, 2 * size, count)]


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


def test_the_worked_example(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions, sizes = log.append_batch([b"a" * 10, b"b" * 10, b"c" * 40])
    assert (positions.tolist(), sizes.tolist()) == ([0, 18, 36], [10, 10, 40])
    assert (positions.dtype, sizes.dtype) == (np.int64, np.int32)
    assert names(tmp_path) == [0, 36]
    assert log.append_batch([b"d"])[0].tolist() == [84]
    assert names(tmp_path) == [0, 36, 84]
    assert log.check() == []


def test_a_payload_has_its_size_and_crc_before_it(tmp_path: Path) -> None:
    a_log(tmp_path).append_batch([b"first", b"second"])
    data = struct.pack("<II", 5, crc32(b"first")) + b"first" + struct.pack("<II", 6, crc32(b"second")) + b"second"
    assert (tmp_path / f"{0:020d}").read_bytes() == data


@pytest.mark.parametrize("segment_bytes", [9, 100, 1_000, 10_000, 1 << 20])
def test_what_is_appended_is_read(tmp_path: Path, segment_bytes: int) -> None:
    log = a_log(tmp_path, segment_bytes)
    payloads = some_payloads(300)
    halves = [log.append_batch(payloads[:140]), log.append_batch([]), log.append_batch(payloads[140:])]
    positions = np.concatenate([half[0] for half in halves])
    sizes = np.concatenate([half[1] for half in halves])
    assert [log.read(int(at), int(size)) for at, size in zip(positions, sizes, strict=True)] == payloads
    assert log.read_many(positions, sizes) == payloads
    shuffled = np.random.default_rng(1).permutation(300)[:77]
    shuffled[5] = shuffled[6]
    assert log.read_many(positions[shuffled], sizes[shuffled]) == [payloads[at] for at in shuffled]
    assert log.read_many(positions[:0], sizes[:0]) == []
    assert log.check() == []
    assert all(log._segments.size(base) <= max(segment_bytes, 608) for base in log._segments.bases)


@pytest.mark.parametrize("gap_bytes", [READ_GAP_BYTES - 8, READ_GAP_BYTES - 7, 3 * READ_GAP_BYTES])
def test_payloads_that_lie_apart_are_read(tmp_path: Path, gap_bytes: int) -> None:
    log = a_log(tmp_path, 1 << 30)
    payloads = [b"%d" % number if number % 3 else b"-" * gap_bytes for number in range(100)]
    positions, sizes = log.append_batch(payloads)
    wanted = [number for number in range(100) if number % 3]
    assert log.read_many(positions[wanted], sizes[wanted]) == [payloads[number] for number in wanted]


def test_payloads_larger_than_a_read_are_read_and_checked(tmp_path: Path) -> None:
    log = a_log(tmp_path, 1 << 30)
    payloads = [b"x", b"y" * (READ_BYTES_MAX + 1), b"z" * (READ_BYTES_MAX - 10), b"end"]
    positions, sizes = log.append_batch(payloads)
    assert log.read_many(positions, sizes) == payloads
    assert log.check() == []


@pytest.mark.parametrize("payloads", [[b""], [b"a", b"", b"b"]])
def test_an_empty_payload_is_refused(tmp_path: Path, payloads: list[bytes]) -> None:
    log = a_log(tmp_path)
    with pytest.raises(ValueError, match="1 to"):
        log.append_batch(payloads)
    assert log.end_position == 0


def test_a_segment_too_small_for_a_payload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes no payload"):
        a_log(tmp_path, 8)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("at", "data", "words"),
    [
        pytest.param(18 + 8, b"B", "its CRC does not match", id="a bit of the payload"),
        pytest.param(18 + 17, b"B", "its CRC does not match", id="its last byte"),
        pytest.param(18 + 4, b"\0", "its CRC does not match", id="the crc"),
        pytest.param(18, b"\x09", "it has 9 bytes, the timer log says 10", id="the size"),
        pytest.param(
            18,
            struct.pack("<II", 9, crc32(b"b" * 9)),
            "it has 9 bytes, the timer log says 10",
            id="the size, with the crc made to match",
        ),
        pytest.param(18, b"\xff\xff\xff\xff", "it has 4294967295 bytes", id="the largest size"),
        pytest.param(18, b"\0" * 18, "it has 0 bytes, the timer log says 10", id="zeros, whose crc is zero"),
    ],
)
def test_damage_is_noticed_and_named(tmp_path: Path, at: int, data: bytes, words: str) -> None:
    log = a_log(tmp_path)
    payloads = [b"a" * 10, b"b" * 10, b"c" * 10]
    positions, sizes = log.append_batch(payloads)
    overwrite(tmp_path / f"{0:020d}", at, data)
    with pytest.raises(CorruptRecord, match=f"0{{20}}.*position 18: {words}"):
        log.read(18, 10)
    with pytest.raises(CorruptRecord, match=f"0{{20}}.*position 18: {words}"):
        log.read_many(positions[1:2], sizes[1:2])
    with pytest.raises(CorruptRecord, match=f"0{{20}}.*position 18: {words}") as caught:
        log.read_many(positions, sizes)
    assert (caught.value.position, caught.value.path) == (18, tmp_path / f"{0:020d}")
    assert len(log.check()) == 1
    assert log.read(0, 10) == payloads[0]
    assert log.read_many(positions[::2], sizes[::2]) == payloads[::2]


@pytest.mark.parametrize("length", [0, 5, 8, 20, 35])
def test_a_file_cut_short_underneath_is_noticed(tmp_path: Path, length: int) -> None:
    log = a_log(tmp_path)
    positions, sizes = log.append_batch([b"a" * 10, b"b" * 10])
    with (tmp_path / f"{0:020d}").open("r+b") as file:
        file.truncate(length)
    with pytest.raises(CorruptRecord, match="the file ends inside it"):
        log.read(18, 10)
    for some in (slice(None), slice(1, 2)):
        with pytest.raises(CorruptRecord, match="the file ends inside it"):
            log.read_many(positions[some], sizes[some])
    assert len(log.check()) == 1


@pytest.mark.parametrize(("position", "size"), [(-1, 1), (0, 29), (36, 1), (100, 1)])
def test_positions_outside_the_log_are_refused(tmp_path: Path, position: int, size: int) -> None:
    log = a_log(tmp_path)
    log.append_batch([b"a" * 10, b"b" * 10])
    with pytest.raises(PositionOutOfRange):
        log.read(position, size)
    with pytest.raises(PositionOutOfRange):
        log.read_many(np.array([0, position], np.int64), np.array([10, size], np.int32))


def test_truncate_forgets_and_the_next_append_lands_there(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    payloads = [bytes([65 + n]) * 10 for n in range(7)]
    positions, sizes = log.append_batch(payloads)
    assert names(tmp_path) == [0, 36, 72, 108]
    for keep in (6, 5, 4, 3):
        log.truncate(int(positions[keep]))
        assert log.read_many(positions[:keep], sizes[:keep]) == payloads[:keep]
        assert log.check() == []
    assert names(tmp_path) == [0, 36]
    assert log.append_batch([b"Z" * 30])[0].tolist() == [54]
    assert names(tmp_path) == [0, 36, 54]
    assert log.check() == []
    with pytest.raises(PositionOutOfRange):
        log.truncate(93)
    log.truncate(0)
    assert names(tmp_path) == []


def test_delete_before_removes_whole_segments_only(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.delete_before(0) == 0
    positions, sizes = log.append_batch([bytes([65 + n]) * 10 for n in range(7)])
    assert log.delete_before(18) == 0
    assert log.delete_before(90) == 2
    assert log.start_position == 72
    assert names(tmp_path) == [72, 108]
    with pytest.raises(PositionOutOfRange):
        log.read(36, 10)
    assert log.read_many(positions[4:], sizes[4:]) == [b"E" * 10, b"F" * 10, b"G" * 10]
    assert log.delete_before(log.end_position) == 1
    assert names(tmp_path) == [108]
    with pytest.raises(PositionOutOfRange):
        log.delete_before(log.end_position + 1)


def test_a_log_is_not_opened_without_its_end(tmp_path: Path) -> None:
    a_log(tmp_path).append_batch([b"a"])
    with pytest.raises(EndPositionRequired):
        a_log(tmp_path)


@pytest.mark.parametrize("keep", range(8))
def test_reopened_at_the_checkpoint_what_lies_behind_is_cut_off(tmp_path: Path, keep: int) -> None:
    log = a_log(tmp_path)
    payloads = [bytes([65 + n]) * 10 for n in range(8)]
    positions, sizes = log.append_batch(payloads)
    log.flush()
    log.close()
    log = a_log(tmp_path, end_position=int(positions[keep]))
    assert log.read_many(positions[:keep], sizes[:keep]) == payloads[:keep]
    assert log.append_batch([b"x" * 25])[0].tolist() == [positions[keep]]
    assert log.check() == []
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == log.end_position


def test_reopened_with_a_start_the_segments_below_are_removed(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    positions, _ = log.append_batch([bytes([65 + n]) * 10 for n in range(7)])
    log.close()
    log = a_log(tmp_path, end_position=log.end_position, start_position=int(positions[3]))
    assert log.start_position == positions[3]
    assert names(tmp_path) == [36, 72, 108]
    assert log.check() == []
    log.close()
    log = a_log(tmp_path, end_position=log.end_position, start_position=log.end_position)
    assert names(tmp_path) == []
    assert log.append_batch([b"a"])[0].tolist() == [126]
    assert names(tmp_path) == [126]


def test_a_log_that_lacks_what_its_checkpoint_says_is_refused_and_not_touched(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append_batch([bytes([65 + n]) * 10 for n in range(7)])
    log.close()
    end = log.end_position
    with pytest.raises(IncompleteLog, match="its checkpoint needs"):
        a_log(tmp_path, end_position=end + 1)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == end
    (tmp_path / f"{36:020d}").unlink()
    with pytest.raises(IncompleteLog, match="its checkpoint needs"):
        a_log(tmp_path, end_position=end)
    (tmp_path / f"{0:020d}").unlink()
    with pytest.raises(IncompleteLog, match="no segment holds position 40"):
        a_log(tmp_path, end_position=end, start_position=40)
    assert names(tmp_path) == [72, 108]
    with pytest.raises(PositionOutOfRange):
        a_log(tmp_path, end_position=1, start_position=2)


def test_a_check_goes_on_where_too_little_is_left_for_a_payload(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(3))
    (tmp_path / f"{40:020d}").write_bytes(bytes(8))
    log = PayloadLog(tmp_path, SEGMENT_BYTES, RealFileSystem(), end_position=3, only_look=True)
    assert ["3 bytes are left" in problem for problem in log.check()] == [True]
