"""Where a key goes: the partitioners of librdkafka and of the Java producer."""

import zlib
from collections.abc import Callable

Partitioner = Callable[[bytes | None, int, int], int]
"""Key, number of partitions, and the turn of a record without a place of its own -> partition."""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 (``org.apache.kafka.common.utils.Utils.murmur2``), unsigned."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = length - whole
    if rest == 3:
        h ^= data[whole + 2] << 16
    if rest >= 2:
        h ^= data[whole + 1] << 8
    if rest >= 1:
        h = (h ^ data[whole]) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def _any(_key: bytes | None, partitions: int, turn: int) -> int:
    return turn % partitions


def _murmur2(key: bytes | None, partitions: int, _turn: int) -> int:
    return (murmur2(key or b"") & 0x7FFFFFFF) % partitions


def _murmur2_random(key: bytes | None, partitions: int, turn: int) -> int:
    return turn % partitions if key is None else _murmur2(key, partitions, turn)


def _consistent(key: bytes | None, partitions: int, _turn: int) -> int:
    return zlib.crc32(key or b"") % partitions


def _consistent_random(key: bytes | None, partitions: int, turn: int) -> int:
    return _consistent(key, partitions, turn) if key else turn % partitions


PARTITIONERS: dict[str, Partitioner] = {
    "random": _any,
    "consistent": _consistent,
    "consistent_random": _consistent_random,  # librdkafka's default
    "murmur2": _murmur2,
    "murmur2_random": _murmur2_random,  # the Java producer's
}
"""By librdkafka's name. What is random there goes round in turn here."""
