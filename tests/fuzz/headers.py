"""Bytes -> record headers, and what holds of every rejection.

A header a line: `NAME=value`; a line without `=` is a header whose value is null. Readable, so that a seed says what it
is, and so that a mutation is mostly one header's.
"""

from connectors.contract import ErrorCode, Header, Headers, TopicNames
from sidecar.records import Rejection

NAMES = TopicNames()
WORDS = tuple(str(header) for header in Header)
"""For the fuzzer to write names with."""

MESSAGE_MAX_CHARACTERS = 1_000
_SPOKEN_OF = (*WORDS, "max_delay")


def read_headers(data: bytes) -> Headers:
    headers: Headers = []
    for line in data.split(b"\n"):
        name, separator, value = line.partition(b"=")
        if name or separator:
            headers.append((name.decode(errors="replace"), value if separator else None))
    return headers


def check_rejection(rejection: Rejection) -> None:
    """It has a code, and a message of bounded length that names the header, and that a header can carry."""
    assert rejection.code in ErrorCode
    assert 0 < len(rejection.message) <= MESSAGE_MAX_CHARACTERS
    assert any(word in rejection.message for word in _SPOKEN_OF), rejection
    assert rejection.message.encode().decode() == rejection.message
    assert "\n" not in rejection.message
