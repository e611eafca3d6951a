"""The headers of neighbouring records, taken apart into columns where they are alike.

An application's records carry the same headers in the same order. What holds for a column holds for the records, and
the loops over it run in C.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from confluent_kafka import Message

from connectors.contract import Headers

MANY = 500
"""Records that are looked at together: one among them that is not like the others costs all of them the short way."""
FEW = 20
"""Records that are read faster one by one."""

Column = tuple[tuple[str, bytes | None], ...]
"""A header of each record."""

_name_of = itemgetter(0)
_value_of = itemgetter(1)


def stretches(
    messages: Sequence[Message], headers: Sequence[Headers | None]
) -> Iterator[tuple[Sequence[Message], Sequence[Headers | None]]]:
    """All messages with their headers, `MANY` at a time."""
    for begin in range(0, len(messages), MANY):
        yield messages[begin : begin + MANY], headers[begin : begin + MANY]


def columns_of(headers: Sequence[Headers | None]) -> list[tuple[str, Column]] | None:
    """The columns in their order, each with the name that it has in all records; None where they are not alike.

    A name may stand over more than one of them. Of no record at all there are none.
    """
    try:
        columns = list(zip(*headers, strict=True))
    except (TypeError, ValueError):  # none in one of them, or not so many as in the others
        return None
    named = []
    for column in columns:
        name = column[0][0]
        if list(map(_name_of, column)).count(name) < len(column):
            return None
        named.append((name, column))
    return named


def values_of(column: Column) -> list[bytes | None]:
    """The values alone."""
    return list(map(_value_of, column))


def rows_of(*columns: Iterable[tuple[str, bytes | None]]) -> list[Headers]:
    """The headers of each record again, in a list of its own. All columns are of one length."""
    return list(map(list, zip(*columns, strict=True)))
