"""Rejected records: the same record with the reason in its headers, on the sidecar's own dead-letter topic."""

from connectors.contract import ERROR_HEADERS, ErrorCode, Header
from sidecar.records import BY_KEY, Headers, Outgoing, Rejection

_CODE, _MESSAGE = str(Header.ERROR_CODE), str(Header.ERROR_MESSAGE)
_TOPIC, _PARTITION, _OFFSET = str(Header.ERROR_TOPIC), str(Header.ERROR_PARTITION), str(Header.ERROR_OFFSET)


def dead_letter(
    dead_letter_topic: str,
    rejection: Rejection,
    *,
    source_topic: str,
    source_partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    due_ms: int,
) -> Outgoing:
    """The record as it came, with the reason and its coordinates; error headers of an earlier life are replaced."""
    carried = [header for header in headers if header[0] not in ERROR_HEADERS]
    carried += [
        (_CODE, rejection.code.encode()),
        (_MESSAGE, rejection.message.encode()),
        (_TOPIC, source_topic.encode()),
        (_PARTITION, b"%d" % source_partition),
        (_OFFSET, b"%d" % offset),
    ]
    return dead_letter_topic, BY_KEY, key, value, carried, due_ms, offset, headers


def without_value(letter: Outgoing) -> Outgoing:
    """A dead letter that is itself too large, less its value; the message says so and how to find the value."""
    topic, partition, key, value, headers, due_ms, offset, source_headers = letter
    size_bytes = len(value or b"")
    note = f" (the value of {size_bytes} bytes is too large for this topic: read it at ERROR_TOPIC, ERROR_OFFSET)"
    headers = [(name, (text or b"") + note.encode()) if name == _MESSAGE else (name, text) for name, text in headers]
    return topic, partition, key, None, headers, due_ms, offset, source_headers


def too_large(size_bytes: int, destination: str, reason: str) -> Rejection:
    return Rejection(
        ErrorCode.RECORD_TOO_LARGE,
        f"'{destination}' refuses the record of {size_bytes} bytes: {reason}; raise max.message.bytes of that topic",
    )
