"""The shapes that travel from intake to dispatch. Plain tuples: a class per record would cost a tenth to a third of
parsing it.

    ns a record or field (CPython 3.11)    made, of columns    a field read
    tuple                                  33                   6, by index; 7, by one that has a name
    NamedTuple, by `tuple.__new__`         90                  12, by attribute
    NamedTuple, by `_make`                 145                 12
    NamedTuple, called                     190                 12

Beside that, to read the headers of a record and parse it among a thousand that are alike takes 540.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple, cast

import msgspec

from connectors.contract import ErrorCode, Headers
from connectors.header_names import TIMER_ORIGIN_OFFSET

BROUGHT_DUE_MS = 0
"""In place of a due time, of a copy that a replacement brings: it goes as soon as it can."""


class Rejection(NamedTuple):
    """Why a record goes to the dead letters instead of its destination."""

    code: ErrorCode
    message: str


# The parts of an `Outgoing`.
TOPIC: Final = 0
PARTITION: Final = 1
KEY: Final = 2
VALUE: Final = 3
HEADERS: Final = 4
DUE_MS: Final = 5
OFFSET: Final = 6
SOURCE_HEADERS: Final = 7

Outgoing = tuple[str | Rejection, int, bytes | None, bytes | None, Headers, int, int, Headers | bytes]
"""A record to publish; its partition may be BY_KEY, the offset and the source headers are those of the schedule topic.

In place of the topic stands the reason where intake has rejected the record: it goes to the dead letters. Source
headers are wanted of those alone, so that the disk holds them encoded: of what goes there, or comes from there, they
are what `encode_headers` gives. `source_headers` reads either."""

# For a loop that runs in C: ``map(due_ms_of, records)``.
topic_of = itemgetter(TOPIC)
value_of = itemgetter(VALUE)
due_ms_of = itemgetter(DUE_MS)


_StoredTuple = tuple[str, int, bytes | None, bytes | None, Headers, int, int, bytes]
_encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode

encode_headers = cast(Callable[[Headers], bytes], _encode)
"""Source headers as the payload log holds them: to step over them takes no time then."""

encode_record = cast(Callable[[Outgoing], bytes], _encode)
"""An `Outgoing` whose source headers are encoded, as the payload log holds it."""

_decode: Callable[[bytes], object] = msgspec.msgpack.Decoder(_StoredTuple).decode

decode_record = cast(Callable[[bytes], Outgoing], _decode)
"""The `Outgoing` that `encode_record` wrote."""


_decode_headers = msgspec.msgpack.Decoder(Headers).decode


def brought_by(record: Outgoing, schedule_topic: str) -> int | None:
    """The offset of the replacement that brings the message; None: no replacement does."""
    if record[TOPIC] == schedule_topic and record[DUE_MS] == BROUGHT_DUE_MS:
        return int(dict(record[HEADERS]).get(TIMER_ORIGIN_OFFSET) or record[OFFSET])
    return None


def source_headers(record: Outgoing) -> Headers:
    """The headers as they came from the schedule topic, whether or not the record has been on disk."""
    headers = record[SOURCE_HEADERS]
    return _decode_headers(headers) if isinstance(headers, bytes) else headers


def for_disk(record: Outgoing) -> Outgoing:
    """The same record with its source headers encoded."""
    return (*record[:SOURCE_HEADERS], encode_headers(source_headers(record)))
