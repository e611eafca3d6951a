"""The 64-bit hash of a message id, and the 32-bit one of a topic, as the timer log holds them.

Both are stable across processes and versions of Python: they stand on disk. Neither decides anything: the payload does.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from zlib_ng.zlib_ng import crc32

from sidecar.store.layout import Int64Array

_WIDTH = 64
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def hash_ids(ids: Sequence[bytes]) -> Int64Array:
    """Hashes of message ids, shape (n,), for a whole batch at once.

    Each eight bytes are folded in with a multiplication and a shift (as splitmix64 does); of an id of more than 64
    bytes, those of its BLAKE2b digest.
    """
    if not ids:
        return np.empty(0, np.int64)
    lengths = np.fromiter(map(len, ids), np.uint64, len(ids))
    if lengths.max() > _WIDTH:
        ids = [one if len(one) <= _WIDTH else hashlib.blake2b(one).digest() for one in ids]
    words = np.array(ids, dtype=f"S{_WIDTH}").view(np.uint64).reshape(len(ids), _WIDTH // 8)
    hashes = lengths * _PRIME
    for column in range(words.shape[1]):
        hashes ^= words[:, column]
        hashes *= _PRIME
        hashes ^= hashes >> _SHIFT
    return hashes.view(np.int64)


def hash_topic(topic: str) -> int:
    """CRC-32 of a topic's name as a signed number."""
    unsigned = crc32(topic.encode())
    return unsigned - 2**32 if unsigned >= 2**31 else unsigned
