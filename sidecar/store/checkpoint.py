"""The checkpoint: up to where the local files of a wheel partition are complete. All else on disk is judged by it.

    Offset  Size  Field    Meaning
    0       20    name     `timewheel-checkpoint`
    20      1     -        space
    21      4     version  format version of all files of the store, decimal digits
    25      1     -        space
    26      8     crc32    zlib.crc32 of bytes 0 to 25 and of the body, lower-case hex: the version is covered too
    34      1     -        newline
    35      -     body     a JSON object with exactly the fields of `Checkpoint`, and a newline

Worked example, cut short (tests/golden/store-v4):

    timewheel-checkpoint 0004 16f41dfd
    {"version":4,"complete_to_offset":42,"timer_log_end":308,"timer_log_start":0,"timer_log_crcs":[2918720761, ...

RIP-43's records and slots have no checksum of their own, so theirs stand here.

It is written after Kafka has committed an I of at least `complete_to_offset`. At a clean stop it is replaced in one
step: temporary file, fsync, rename, fsync of the directory. While running nothing waits for the disk, and the old one
stands aside for a moment, as `checkpoint.old`: where there is no other, it counts. Whoever changes a layout raises
`layout.FORMAT_VERSION`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from zlib_ng.zlib_ng import crc32

from sidecar.store.errors import CorruptCheckpoint, UnknownFormatVersion
from sidecar.store.files import FileSystem, read_full, replace_file, set_aside
from sidecar.store.layout import FORMAT_VERSION

_NAME = b"timewheel-checkpoint"
_VERSION_AT = len(_NAME) + 1
_CRC_AT = _VERSION_AT + 4 + 1
_BODY_AT = _CRC_AT + 8 + 1
if (_VERSION_AT, _CRC_AT, _BODY_AT) != (21, 26, 35):
    raise ImportError("the checkpoint's header is not the one in its table")


Crc32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the local files of one wheel partition hold, and whose they are. Positions and offsets are next ones."""

    version: int = FORMAT_VERSION
    complete_to_offset: NotNegative
    """F: the files hold all of the Kafka partition below this offset that is still needed."""
    timer_log_end: NotNegative
    timer_log_start: NotNegative
    timer_log_crcs: list[Crc32]
    """zlib.crc32 of each segment of the timer log from that of `timer_log_start` on, of the last up to its end."""
    payload_log_end: NotNegative
    payload_log_start: NotNegative
    cluster_id: str
    topic_id: str
    group_id: str
    partition: NotNegative
    plan: str
    """How the files are laid out, by slots, precision and parser version: `Owner.layout`."""
    slots_total: Positive
    precision_ms: Positive
    wheel_crc: Crc32 | None
    """zlib.crc32 of the wheel's file as a clean stop left it; None: it is in use, and is rebuilt from the timer log."""
    extra: dict[str, Any] = {}
    """What the store and its partition add, of what JSON can hold; a reader takes what it does not know for nothing."""


def save(path: Path, checkpoint: Checkpoint, fs: FileSystem, *, durable: bool = True) -> None:
    """Replace the checkpoint; ``durable`` also outlives the operating system.

    Raises OSError: `load` then finds the old one.
    """
    replace_file(fs, path, encode(checkpoint), durable=durable)


def load(path: Path, fs: FileSystem) -> Checkpoint | None:
    """The checkpoint at `path`, None where there is none.

    Raises CorruptCheckpoint, UnknownFormatVersion, OSError.
    """
    size = fs.size(path)
    if size is None:  # killed in the midst of a `save`, perhaps
        path = set_aside(path)
        size = fs.size(path)
    if size is None:
        return None
    file = fs.open(path)
    try:
        data = read_full(file, size, 0)
    finally:
        file.close()
    return decode(data, path)


def saved_ms(path: Path, fs: FileSystem) -> int | None:
    """When the checkpoint that `load` finds was saved, epoch ms; None where there is none. Raises OSError."""
    found = fs.modified_ms(path)
    return fs.modified_ms(set_aside(path)) if found is None else found


def remove(path: Path, fs: FileSystem) -> None:
    """Remove the checkpoint, whatever a `save` has left of it. Raises OSError."""
    fs.unlink(set_aside(path))
    fs.unlink(path)


def as_dict(checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields by name, for people."""
    told: dict[str, Any] = msgspec.to_builtins(checkpoint)
    return told


def encode(checkpoint: Checkpoint) -> bytes:
    """The checkpoint's bytes. Raises CorruptCheckpoint for one that `decode` would not take back."""
    head = b"%s %04d " % (_NAME, checkpoint.version)
    body = msgspec.json.encode(checkpoint) + b"\n"
    data = b"%s%08x\n%s" % (head, crc32(body, crc32(head)), body)
    decode(data, Path("checkpoint"))
    return data


def decode(data: bytes, path: Path) -> Checkpoint:
    """The checkpoint in `data`; `path` is for the messages. Raises CorruptCheckpoint, UnknownFormatVersion."""
    head, crc, body = data[:_CRC_AT], data[_CRC_AT:_BODY_AT], data[_BODY_AT:]
    if len(data) < _BODY_AT or not head.startswith(_NAME + b" ") or head[-1:] != b" ":
        raise CorruptCheckpoint(path, f"its {len(data)} bytes do not begin with a header")
    digits = head[_VERSION_AT:-1]
    if not digits.isdigit():
        raise CorruptCheckpoint(path, f"format version {digits!r} is not a number")
    if int(digits) != FORMAT_VERSION:
        raise UnknownFormatVersion(path, int(digits), FORMAT_VERSION)
    if crc != b"%08x\n" % crc32(body, crc32(head)):
        raise CorruptCheckpoint(path, "its CRC does not match")
    try:
        checkpoint = msgspec.json.decode(body, type=Checkpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptCheckpoint(path, str(error)) from error
    fault = _fault(checkpoint)
    if fault is not None:
        raise CorruptCheckpoint(path, fault)
    return checkpoint


def _fault(checkpoint: Checkpoint) -> str | None:
    """What cannot be in a checkpoint, whatever its CRC says."""
    if checkpoint.version != FORMAT_VERSION:
        return f"version {checkpoint.version} does not match the header"
    if checkpoint.timer_log_start > checkpoint.timer_log_end:
        return "the timer log ends before it starts"
    if checkpoint.payload_log_start > checkpoint.payload_log_end:
        return "the payload log ends before it starts"
    return None
