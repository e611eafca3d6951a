"""How much memory records take, about: what bounds read-aheads and transactions."""

from collections.abc import Sequence

from connectors.contract import Headers
from sidecar.records import KEY, SOURCE_HEADERS, VALUE, Outgoing, value_of

RECORD_OVERHEAD_BYTES = 500
"""What a record takes beside its value, key and headers."""

SAMPLED = 50
"""Where many records are measured together, the key and headers of one in so many stand for all."""


def header_bytes(headers: Headers | bytes | None) -> int:
    """The size of headers, encoded or not."""
    if isinstance(headers, bytes):
        return len(headers)
    return sum([len(name) + len(value or b"") for name, value in headers or ()])


def size_of(record: Outgoing) -> int:
    """The size of one record, with its headers as they came."""
    return (
        RECORD_OVERHEAD_BYTES
        + len(record[KEY] or b"")
        + len(record[VALUE] or b"")
        + header_bytes(record[SOURCE_HEADERS])
    )


def bytes_of(records: Sequence[Outgoing]) -> int:
    """The size of many records, about; see `SAMPLED`."""
    sample = records[::SAMPLED]
    beside_values = sum([len(record[KEY] or b"") + header_bytes(record[SOURCE_HEADERS]) for record in sample])
    values = sum(map(len, filter(None, map(value_of, records))))
    return values + RECORD_OVERHEAD_BYTES * len(records) + beside_values * len(records) // max(1, len(sample))
