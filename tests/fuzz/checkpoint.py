"""The checkpoint's bytes, as they are and under a CRC that is right."""

from pathlib import Path

from zlib_ng.zlib_ng import crc32

from sidecar.store.checkpoint import Checkpoint, decode, encode
from sidecar.store.errors import CorruptCheckpoint, UnknownFormatVersion
from sidecar.store.layout import FORMAT_VERSION

PATH = Path("checkpoint")
_HEAD = b"timewheel-checkpoint %04d " % FORMAT_VERSION
_WRITTEN = encode(
    Checkpoint(
        complete_to_offset=42,
        timer_log_end=308,
        timer_log_start=0,
        timer_log_crcs=[1, 2**32 - 1],
        payload_log_end=133,
        payload_log_start=0,
        cluster_id="c",
        topic_id="t",
        group_id="g",
        partition=7,
        plan="p",
        slots_total=8,
        precision_ms=1_000,
        wheel_crc=None,
        extra={"tombstones": [[1, 2]], "boot_id": "b"},
    )
)
DICTIONARY = ("timewheel-checkpoint ", "0004 ", '"extra":', "null", "9223372036854775808", "[[[[[[[[")
SEEDS = (
    _WRITTEN,
    _WRITTEN[35:],
    _WRITTEN[:34],
    _WRITTEN.replace(b"0004", b"0005"),
    _WRITTEN.replace(b"0004", b"two!"),
    _WRITTEN[35:].replace(b'"timer_log_start":0', b'"timer_log_start":999'),
    _WRITTEN[35:].replace(b'"version":4', b'"version":5'),
    b"",
)


def fuzz_one(data: bytes) -> None:
    for told in (data, b"%b%08x\n%b" % (_HEAD, crc32(data, crc32(_HEAD)), data)):
        try:
            checkpoint = decode(told, PATH)
        except (CorruptCheckpoint, UnknownFormatVersion) as error:
            assert str(error).startswith(str(PATH))
            assert "Operator action" in str(error)
        else:
            assert decode(encode(checkpoint), PATH) == checkpoint
