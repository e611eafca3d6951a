"""How many bytes a record takes in Kafka's format (record batch, version 2), so that size limits bite where they do."""

from collections.abc import Sequence

BATCH_OVERHEAD_BYTES = 61
"""baseOffset 8 · batchLength 4 · leaderEpoch 4 · magic 1 · crc 4 · attributes 2 · lastOffsetDelta 4 · baseTimestamp 8
· maxTimestamp 8 · producerId 8 · producerEpoch 2 · baseSequence 4 · records count 4"""

CLIENT_OVERHEAD_BYTES = 36
"""What librdkafka allows for a record's own fields when it compares with ``message.max.bytes``."""


def varint_bytes(value: int) -> int:
    """Length of a zigzag varint of a value that is not negative."""
    return ((value << 1).bit_length() + 6) // 7 or 1


def headers_bytes(headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """Without the varint that counts them."""
    if not headers:
        return 0
    total = 0
    for name, value in headers:
        length = len(name.encode())
        total += varint_bytes(length) + length
        total += 1 if value is None else varint_bytes(len(value)) + len(value)
    return total


def record_bytes(key: bytes | None, value: bytes | None, size_of_headers: int, headers: int, index: int) -> int:
    """A record inside its batch; timestamps of one batch are taken to be equal."""
    body = 1 + 1 + varint_bytes(index)  # attributes, timestamp delta, offset delta
    for part in (key, value):
        body += 1 if part is None else varint_bytes(len(part)) + len(part)
    body += varint_bytes(headers) + size_of_headers
    return varint_bytes(body) + body
