"""The shapes that travel from intake to dispatch. Plain tuples: a class per record would cost more than parsing it."""

from typing import NamedTuple

from connectors.contract import ErrorCode

Headers = list[tuple[str, bytes | None]]
"""Record headers in order; names may repeat, values may be null."""

Outgoing = tuple[str, int, bytes | None, bytes | None, Headers, int, int, Headers]
"""A record to publish: topic, partition (-1: by key), key, value, headers, due_ms, source offset, source headers.

The last two are what a dead letter needs when Kafka refuses the record."""

BY_KEY = -1
"""The partition of a record whose key decides."""


class Rejection(NamedTuple):
    """Why a record goes to the dead letters instead of its destination."""

    code: ErrorCode
    message: str
