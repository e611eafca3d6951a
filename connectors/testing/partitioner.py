"""Where a key goes: the partitioners of librdkafka and of the Java producer."""

import zlib
from collections.abc import Callable

from connectors.murmur2 import partition_of_key

Partitioner = Callable[[bytes | None, int, int], int]
"""Key, number of partitions, and the turn of a record without a place of its own -> partition."""


def _any(_key: bytes | None, partitions: int, turn: int) -> int:
    return turn % partitions


def _murmur2(key: bytes | None, partitions: int, _turn: int) -> int:
    return partition_of_key(key or b"", partitions)


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
