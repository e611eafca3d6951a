"""The checkpoint: written in one step, and refused when it is not what was written."""

import re
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from sidecar.store import checkpoint as checkpoints
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.errors import CorruptCheckpoint, StoreError, UnknownFormatVersion
from sidecar.store.files import RealFileSystem

FS = RealFileSystem()
CHECKPOINT = Checkpoint(
    complete_to_offset=110,
    timer_log_end=5_860,
    timer_log_start=1_024,
    timer_log_crcs=[0, 2**32 - 1, 7, 1, 9],
    payload_log_end=33_000,
    payload_log_start=0,
    cluster_id="4L6g3nShT-eMCtK--X86sw",
    topic_id="mI9H8nR5Q0yJ3v7gq3n3Yw",
    group_id="timewheel",
    partition=3,
    plan="v1:172800:1000:⏱",
    slots_total=604_800,
    precision_ms=1_000,
    wheel_crc=0xC0FFEE,
    extra={"plans": [[0, "v1"]], "wheel": {"num": 2**63 - 1}},
)


def sealed(body: bytes, version: bytes = b"0004") -> bytes:
    """A file with this body and the checksum that belongs to it."""
    head = b"timewheel-checkpoint " + version + b" "
    return head + b"%08x\n" % crc32(body, crc32(head)) + body


def body_with(**changes: object) -> bytes:
    fields = msgspec.json.decode(msgspec.json.encode(CHECKPOINT))
    return msgspec.json.encode({**fields, **changes})


def body_without(name: str) -> bytes:
    fields = msgspec.json.decode(msgspec.json.encode(CHECKPOINT))
    del fields[name]
    return msgspec.json.encode(fields)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoints.save(path, CHECKPOINT, FS)
    assert checkpoints.load(path, FS) == CHECKPOINT
    other = msgspec.structs.replace(CHECKPOINT, complete_to_offset=111, extra={})
    checkpoints.save(path, other, FS)
    assert checkpoints.load(path, FS) == other
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_none_where_there_is_no_file(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path / "checkpoint", FS) is None


def test_it_starts_with_its_format_version_and_can_be_read_by_eye() -> None:
    data = checkpoints.encode(CHECKPOINT)
    assert re.fullmatch(rb'timewheel-checkpoint 0004 [0-9a-f]{8}\n\{"version":4,"complete_to_offset":110,.*\}\n', data)


def test_what_a_crash_left_under_the_temporary_name_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    (tmp_path / "checkpoint.tmp").write_bytes(b"x" * 10_000)
    assert checkpoints.load(path, FS) is None
    checkpoints.save(path, CHECKPOINT, FS)
    assert checkpoints.load(path, FS) == CHECKPOINT


GOOD = checkpoints.encode(CHECKPOINT)

MALFORMED = {
    "empty": b"",
    "zeros": bytes(len(GOOD)),
    "header cut short": GOOD[:34],
    "header alone": GOOD[:35],
    "body cut short": GOOD[:-20],
    "one byte more": GOOD + b" ",
    "another file": b"PK\x03\x04" + GOOD,
    "no space behind the name": GOOD.replace(b"checkpoint ", b"checkpoint_", 1),
    "no space behind the version": GOOD.replace(b"0004 ", b"0004_", 1),
    "version is no number": sealed(body_with(), b"1.00"),
    "version is negative": sealed(body_with(), b"-001"),
    "crc of something else": GOOD.replace(b'"partition":3', b'"partition":4'),
    "crc in capitals": GOOD[:26] + GOOD[26:34].upper().replace(b"0", b"O") + GOOD[34:],
    "sealed: body is empty": sealed(b""),
    "sealed: body is no JSON": sealed(b"{"),
    "sealed: body is a list": sealed(b"[]"),
    "sealed: body is not UTF-8": sealed(body_with().replace(b"timewheel", b"timewh\xff\xff")),
    "sealed: two bodies": sealed(body_with() * 2),
    "sealed: a field too many": sealed(body_with(colour="red")),
    "sealed: a number is text": sealed(body_with(partition="3")),
    "sealed: a number is a float": sealed(body_with(partition=3.5)),
    "sealed: a number is null": sealed(body_with(timer_log_end=None)),
    "sealed: a CRC beyond 32 bits": sealed(body_with(wheel_crc=2**32)),
    "sealed: a CRC is negative": sealed(body_with(timer_log_crcs=[1, -1])),
    "sealed: the CRCs are null": sealed(body_with(timer_log_crcs=None)),
    "sealed: extra is a list": sealed(body_with(extra=[])),
    "sealed: another version inside": sealed(body_with(version=1)),
    "sealed: offset beyond 63 bits": sealed(body_with(complete_to_offset=2**63)),
    "sealed: deep": sealed(body_with().replace(b"2", b"[" * 100_000, 1)),
    "sealed: deep in extra": sealed(body_with(extra={"x": 777}).replace(b"777", b"[" * 100_000)),
    "sealed: offset negative": sealed(body_with(complete_to_offset=-1)),
    "sealed: partition negative": sealed(body_with(partition=-1)),
    "sealed: timer log ends before it starts": sealed(body_with(timer_log_end=1_023)),
    "sealed: timer log starts below zero": sealed(body_with(timer_log_start=-1)),
    "sealed: payload log ends before it starts": sealed(body_with(payload_log_start=33_001)),
    "sealed: payload log starts below zero": sealed(body_with(payload_log_start=-1)),
    "sealed: no slots": sealed(body_with(slots_total=0)),
    "sealed: no precision": sealed(body_with(precision_ms=0)),
} | {
    f"sealed: no {name}": sealed(body_without(name))
    for name in msgspec.structs.asdict(CHECKPOINT)
    if name not in ("version", "extra")
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_checkpoints_are_corrupt(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match=f"{re.escape(str(path))}.*Operator action") as caught:
        checkpoints.load(path, FS)
    assert isinstance(caught.value, StoreError)


def test_every_single_bit_counts(tmp_path: Path) -> None:
    for at in range(len(GOOD)):
        for bit in range(8):
            data = bytearray(GOOD)
            data[at] ^= 1 << bit
            with pytest.raises((CorruptCheckpoint, UnknownFormatVersion)):
                checkpoints.decode(bytes(data), tmp_path)


@pytest.mark.parametrize("version", [b"0000", b"0001", b"0003", b"0005", b"9999"])
def test_an_unknown_version_is_refused_with_words(tmp_path: Path, version: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(sealed(b"who knows", version))
    with pytest.raises(UnknownFormatVersion, match="Operator action: start the version that wrote it") as caught:
        checkpoints.load(path, FS)
    assert (caught.value.found, caught.value.known) == (int(version), 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: msgspec.structs.replace(CHECKPOINT, timer_log_end=0),
        lambda: msgspec.structs.replace(CHECKPOINT, partition="3"),
    ],
)
def test_a_checkpoint_that_could_not_be_loaded_is_not_saved(tmp_path: Path, make: Callable[[], Checkpoint]) -> None:
    path = tmp_path / "checkpoint"
    checkpoints.save(path, CHECKPOINT, FS)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.save(path, make(), FS)
    assert checkpoints.load(path, FS) == CHECKPOINT
