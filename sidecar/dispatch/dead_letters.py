"""Rejected records: the same record with the reason in its headers, on the sidecar's own dead-letter topic."""

from enum import IntEnum

from connectors.contract import ERROR_HEADERS, ErrorCode, Headers
from connectors.header_names import ERROR_CODE, ERROR_MESSAGE, ERROR_OFFSET, ERROR_OMITTED, ERROR_PARTITION, ERROR_TOPIC
from connectors.kafka import BY_KEY
from sidecar.records import Outgoing, Rejection, source_headers

TOO_LARGE_REMEDY = (
    "raise max.message.bytes of that topic, or, where its producer compresses, let the sidecar do so, too: "
    "--kafka compression.type=zstd"
)
"""Brokers measure what is compressed: the sidecar, which does not unless told, writes more bytes than it has read."""


class Size(IntEnum):
    """How much of a record its dead letter carries; each is tried when Kafka finds the one before too large."""

    WHOLE = 0  # -> WITHOUT_VALUE
    WITHOUT_VALUE = 1  # -> REASON_ONLY
    REASON_ONLY = 2

    def smaller(self) -> "Size":
        return Size(min(self + 1, Size.REASON_ONLY))


def dead_letter(
    dead_letter_topic: str,
    rejection: Rejection,
    record: Outgoing,
    *,
    source_topic: str,
    source_partition: int,
    size: Size = Size.WHOLE,
) -> Outgoing:
    """The record as it came, with the reason and its coordinates; error headers of an earlier life are replaced."""
    _, _, key, value, _, due_ms, offset, _ = record
    headers = source_headers(record)
    message = rejection.message
    carried: Headers = [header for header in headers if header[0] not in ERROR_HEADERS]
    if size is Size.WITHOUT_VALUE:
        told = f"the value of {len(value or b'')} bytes is too large for this topic"
        message += f" ({told}: read it at ERROR_TOPIC, ERROR_OFFSET)"
        value = None
        carried.append((ERROR_OMITTED, b"value"))
    elif size is Size.REASON_ONLY:
        message += " (key, value and headers are too large for this topic: read them at ERROR_TOPIC, ERROR_OFFSET)"
        key = value = None
        carried = [(ERROR_OMITTED, b"record")]
    carried += [
        (ERROR_CODE, rejection.code.encode()),
        (ERROR_MESSAGE, message.encode()),
        (ERROR_TOPIC, source_topic.encode()),
        (ERROR_PARTITION, b"%d" % source_partition),
        (ERROR_OFFSET, b"%d" % offset),
    ]
    return dead_letter_topic, BY_KEY, key, value, carried, due_ms, offset, headers


def too_large(record: Outgoing, reason: str) -> Rejection:
    """Kafka, or its client, finds the record too large for its destination."""
    topic, _, key, value, headers = record[:5]
    size_bytes = len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)
    return Rejection(
        ErrorCode.RECORD_TOO_LARGE,
        f"'{topic}' refuses the record of {size_bytes} bytes with its headers: {reason}; {TOO_LARGE_REMEDY}",
    )
