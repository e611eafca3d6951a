"""Today's code writes the committed bytes and reads them. A change is a new format version and a new golden file."""

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from sidecar.records import decode_record, encode_record, for_disk, source_headers
from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.errors import UnknownFormatVersion
from sidecar.store.files import ReadOnlyFileSystem, RealFileSystem
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.layout import FORMAT_VERSION, MAGIC_DELETE, MAGIC_ROLL, due_ms
from sidecar.store.opening import check_store, open_store
from sidecar.store.payload_log import PayloadLog
from sidecar.store.recovery import Case, Owner
from sidecar.store.timer_log import TimerLog, in_log_order
from sidecar.store.timer_wheel import TimerWheel
from tests.support.slots import new_records, put

GOLDEN = Path(__file__).parent.parent / "golden" / f"store-v{FORMAT_VERSION}"
FILES = (
    "checkpoint",
    "payload/00000000000000000000",
    "payload/00000000000000000096",
    "timerlog/00000000000000000000",
    "timerlog/00000000000000000256",
    "timerwheel",
)
T_MS = 1_700_000_000_000
PAYLOADS = [b"zero", b"the first payload of several", bytes(range(40)), "dernière charge ✓".encode(), b"4"]
CHECKPOINT = Checkpoint(
    complete_to_offset=42,
    timer_log_end=308,
    timer_log_start=0,
    timer_log_crcs=[0xADF824F9, 0x4CE09482],
    payload_log_end=133,
    payload_log_start=0,
    cluster_id="4L6g3nShT-eMCtK--X86sw",
    topic_id="mI9H8nR5Q0yJ3v7gq3n3Yw",
    group_id="timewheel",
    partition=7,
    plan="roll=172800;precision=1000",
    slots_total=8,
    precision_ms=1_000,
    wheel_crc=0xF3D52FBD,
    extra={"plans": [[0, "roll=172800;precision=1000"]]},
)


OLD = GOLDEN.with_name("store-v3")


def write_store(directory: Path) -> None:
    fs = RealFileSystem()
    payload_log = PayloadLog(directory / "payload", 120, fs)
    timer_log = TimerLog(directory / "timerlog", 256, fs)
    wheel = TimerWheel(directory / "timerwheel", 8, 1_000, fs)
    records = new_records(5)
    records["curr_write_time"] = T_MS + np.arange(5)
    records["delayed_time"] = [5_000, 3_000, 5_001, 14_000, 5_500]
    records["magic"][3] |= MAGIC_ROLL
    records["magic"][4] |= MAGIC_DELETE
    records["offset_py"], records["size_py"] = payload_log.append_batch(PAYLOADS)
    records["topic_hash"] = [1, -2, 3, -4, 2**31 - 1]
    records["reserved"] = [1, -2, 2**62, -(2**63), 2**63 - 1]
    records["prev_pos"] = put(wheel, due_ms(records), timer_log.positions_for(5))
    timer_log.append(records)
    wheel.flush()
    assert (timer_log.crcs(0, timer_log.mark()), wheel.crc()) == (CHECKPOINT.timer_log_crcs, CHECKPOINT.wheel_crc)
    checkpoints.save(directory / "checkpoint", CHECKPOINT, fs)
    wheel.close()
    timer_log.close()
    payload_log.close()


def test_the_bytes_written_are_the_committed_ones(tmp_path: Path) -> None:
    write_store(tmp_path)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == sorted(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes(), name


def test_the_committed_bytes_are_those_of_the_layout_tables() -> None:
    timerlog = (GOLDEN / "timerlog" / f"{0:020d}").read_bytes()
    assert timerlog[104:156] == struct.pack("<iqiqiqiiq", 52, 0, 1, T_MS + 2, 5_001, 48, 40, 3, 2**62)
    assert timerlog[208:] == struct.pack("<iqi", 48, 0, -1) + bytes(32)
    timerwheel = (GOLDEN / "timerwheel").read_bytes()
    assert timerwheel[:32] == struct.pack("<qqqii", -1, -1, -1, 0, 0)
    index = (T_MS // 1_000 + 5) % 16
    assert timerwheel[32 * index : 32 * index + 32] == struct.pack("<qqqii", T_MS + 5_000, 0, 256, 3, 0)


def test_the_committed_bytes_are_read(tmp_path: Path) -> None:
    fs = RealFileSystem()
    shutil.copytree(GOLDEN, tmp_path / "store")
    checkpoint = checkpoints.load(tmp_path / "store" / "checkpoint", fs)
    assert checkpoint == CHECKPOINT
    timer_log = TimerLog(
        tmp_path / "store" / "timerlog",
        256,
        fs,
        end_position=checkpoint.timer_log_end,
        crcs=checkpoint.timer_log_crcs,
    )
    payload_log = PayloadLog(tmp_path / "store" / "payload", 120, fs, end_position=checkpoint.payload_log_end)
    wheel = TimerWheel(tmp_path / "store" / "timerwheel", 8, 1_000, fs)
    assert wheel.slot(T_MS + 5_000) == (T_MS + 5_000, 0, 256, 3, 0)
    _, records = in_log_order(timer_log.slot_pieces(wheel.slot(T_MS + 5_000), 1_000))
    assert due_ms(records).tolist() == [T_MS + 5_000, T_MS + 5_003, T_MS + 5_504]
    assert records["prev_pos"].tolist() == [-1, 0, 104]
    assert records["reserved"].tolist() == [1, 2**62, 2**63 - 1]
    assert records["magic"].tolist() == [1, 1, 5]
    assert payload_log.read_many(records["offset_py"], records["size_py"]) == [PAYLOADS[n] for n in (0, 2, 4)]
    assert timer_log.check(1_000) == wheel.check(timer_log.end_position) == payload_log.check() == []
    wheel.close()


def test_the_hashes_are_those_that_stand_on_disk() -> None:
    ids = [b"", b"order-17", b"\0", b"64 bytes " * 7 + b"x", b"65 bytes " * 7 + b"xy", b"long" * 8_000]
    assert list(map(len, ids)) == [0, 8, 1, 64, 65, 32_000]
    assert hash_ids(ids).tolist() == [
        0,
        1116677115055228082,
        -4017682496301303470,
        -5238503100753585149,
        5839306602788602814,
        2545750527206692363,
    ]
    assert hash_topic("orders") == -449839634


def test_ids_that_differ_at_their_end_alone_have_hashes_of_their_own() -> None:
    ids = [b"tenant/" * 40 + b"%06d" % number for number in range(20_000)]
    assert len(set(hash_ids(ids).tolist())) == len(ids)


def test_the_bytes_of_a_payload_are_the_committed_ones() -> None:
    record = ("orders", -1, b"k", None, [("TAGS", b"a")], T_MS, 17, [("REAL_TOPIC", b"orders"), ("é", None)])
    payload = encode_record(for_disk(record))
    head = b"\x98\xa6orders\xff\xc4\x01k\xc0\x91\x92\xa4TAGS\xc4\x01a\xcf" + struct.pack(">Q", T_MS) + b"\x11"
    headers = b"\x92\x92\xaaREAL_TOPIC\xc4\x06orders\x92\xa2\xc3\xa9\xc0"
    assert payload == head + b"\xc4" + bytes([len(headers)]) + headers
    assert decode_record(payload) == (*record[:7], headers)
    assert source_headers(decode_record(payload)) == record[7]


def test_the_bytes_of_the_version_before_are_refused_with_words(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "wheel-7")
    with pytest.raises(UnknownFormatVersion, match="format version 3, this version knows 4"):
        checkpoints.load(tmp_path / "wheel-7" / "checkpoint", RealFileSystem())
    assert "format version 3" in check_store(tmp_path / "wheel-7", ReadOnlyFileSystem())[0]
    found = open_store(
        tmp_path / "wheel-7",
        RealFileSystem(),
        Owner(CHECKPOINT.cluster_id, CHECKPOINT.topic_id, CHECKPOINT.group_id, CHECKPOINT.partition, CHECKPOINT.plan),
        slots_total=8,
        precision_ms=1_000,
        committed_offset=42,
        lowest_needed_offset=7,
        live_from_ms=T_MS,
    )
    assert (found.case, found.complete_to_offset, found.store.pending_count) == (Case.UNKNOWN, 7, 0)
    found.store.close(None, {})
