"""The headers of a batch of records, some of which may be unreadable."""

from collections.abc import Sequence
from operator import methodcaller

from confluent_kafka import Message

from connectors.contract import ErrorCode, Headers
from connectors.kafka import HEADER_ERRORS
from sidecar.records import Rejection

UNREADABLE = Rejection(
    ErrorCode.UNREADABLE_HEADERS, "a header's name is not UTF-8 text, so that no header of this record can be read"
)

UNREADABLE_HEADERS: Headers = [("", None)]
"""What `read_headers` gives for a record that has to be rejected as `UNREADABLE`: this very list."""

_ask = methodcaller("headers")


def read_headers(messages: Sequence[Message]) -> list[Headers | None]:
    """The headers of each; None where it has none. Messages may be asked again: for a batch that is offered twice."""
    found: list[Headers | None] = []
    answers = map(_ask, messages)
    while True:
        try:
            found.extend(answers)  # behind one that has failed it goes on
        except HEADER_ERRORS:
            messages[len(found)].set_headers(UNREADABLE_HEADERS)  # type: ignore[arg-type]  # a second answer is garbage
            found.append(UNREADABLE_HEADERS)
        else:
            return found


def told_of(rejection: Rejection, headers: Headers) -> tuple[Rejection, Headers]:
    """Why a record is rejected, and the headers that its dead letter tells: none where they are unreadable."""
    return (UNREADABLE, []) if headers is UNREADABLE_HEADERS else (rejection, headers)
