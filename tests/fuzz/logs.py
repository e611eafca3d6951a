"""Timer log, payload log and the records in it, from segments that hold any bytes whatever.

byte 0   which: timer log, payload log, a stored record
byte 1   records between start and end that the checkpoint would claim; or a size
byte 2   where to read
the rest the first segment and those after it
"""

from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from zlib_ng.zlib_ng import crc32

from sidecar.records import decode_record, encode_record, for_disk, source_headers
from sidecar.store.errors import StoreError
from sidecar.store.layout import BLANK, RECORD_BYTES, Slot
from sidecar.store.payload_log import HEADER_BYTES, PayloadLog
from sidecar.store.timer_log import TimerLog, in_log_order
from tests.fuzz.memory_disk import memory_disk
from tests.support.slots import new_records

SEGMENT_BYTES = 256
DIRECTORY = Path("/log")
PRECISION_MS = 1_000


def _timer_seed() -> bytes:
    records = new_records(4)
    records["curr_write_time"] = 10_000
    records["delayed_time"] = [100, 900, 1_500, 2_500]
    records["prev_pos"] = [BLANK, 0, 52, 104]
    return records.tobytes()


def _payload(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + crc32(payload).to_bytes(4, "little") + payload


_RECORD = encode_record(
    for_disk(("orders", -1, b"k", None, [("TAGS", b"a"), ("n", None)], 5, 17, [("REAL_TOPIC", b"orders")]))
)
DICTIONARY = ("4\\x00\\x00\\x00", "\\xff\\xff\\xff\\xff", "\\x01\\x00\\x00\\x00")
SEEDS = (
    bytes([0, 4, 2]) + _timer_seed(),
    bytes([0, 6, 0]) + _timer_seed() + b"\x30\0\0\0" + bytes(8) + b"\xff" * 4 + bytes(32) + _timer_seed(),
    bytes([1, 40, 0]) + _payload(b"zero") + _payload(b"one") + _payload(b"a" * 30),
    bytes([1, 4, 0]) + _payload(b"zero")[:-1],
    bytes([2, 0, 0]) + _RECORD,
    b"",
)


def fuzz_one(data: bytes) -> None:
    kind, number, place, body = (*data[:3], *b"\0\0\0")[0], data[1:2], data[2:3], data[3:4_096]
    (_timer_log, _payload_log, _record)[kind % 3](number[0] if number else 0, place[0] if place else 0, body)


def _timer_log(count: int, place: int, body: bytes) -> None:
    """Under CRCs that are right: what is wrong is found by what the records say."""
    segments = {base: body[base : base + SEGMENT_BYTES] for base in range(0, max(1, len(body)), SEGMENT_BYTES)}
    fs = memory_disk({DIRECTORY / f"{base:020d}": piece for base, piece in segments.items()})
    per_segment = (SEGMENT_BYTES - RECORD_BYTES - 16) // RECORD_BYTES + 1
    end = count // per_segment * SEGMENT_BYTES + count % per_segment * RECORD_BYTES
    crcs = [crc32(segments.get(base, b"")[: end - base]) for base in range(0, end, SEGMENT_BYTES)]
    try:
        log = TimerLog(DIRECTORY, SEGMENT_BYTES, fs, end_position=end, crcs=crcs)
    except StoreError:
        return
    assert all(type(problem) is str for problem in log.check(PRECISION_MS))
    seen = 0
    with suppress(StoreError):
        for _, positions, records in log.verified():
            assert len(positions) == len(records)
            seen += len(records)
        assert seen == count
    position = place // per_segment * SEGMENT_BYTES + place % per_segment * RECORD_BYTES
    with suppress(StoreError):
        positions, _ = log.chain(position)
        assert len(positions) <= count
    with suppress(StoreError):
        positions, records = in_log_order(log.slot_pieces(Slot(10_000, 0, position, place % 3, 0), PRECISION_MS))
        assert len(positions) == len(records) <= count
    with suppress(StoreError):
        assert len(log.gather(np.array([position, 0, position], np.int64))) == 3
    log.close()


def _payload_log(size: int, place: int, body: bytes) -> None:
    """What is read is what has the CRC that stands before it, and nothing else is."""
    fs = memory_disk({DIRECTORY / f"{0:020d}": body})
    try:
        log = PayloadLog(DIRECTORY, SEGMENT_BYTES, fs, end_position=max(0, len(body) - size % 4))
    except StoreError:
        return
    assert all(type(problem) is str for problem in log.check())
    for position in {place, 0}:
        with suppress(StoreError):
            payload = log.read(position, size)
            assert _payload(payload) == body[position : position + HEADER_BYTES + size]
            wanted = np.array([position, position], np.int64)
            assert log.read_many(wanted, np.array([size, size], np.int32)) == [payload, payload]
    log.close()


def _record(_number: int, _place: int, body: bytes) -> None:
    """A payload has passed its CRC before it is decoded; whatever it is, it is told."""
    try:
        record = decode_record(body)
        headers = source_headers(record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    again = decode_record(encode_record(for_disk((*record[:7], headers))))
    assert (again[:7], source_headers(again)) == (record[:7], headers)
