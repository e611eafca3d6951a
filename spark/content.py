"""What a delivery has untouched from the record that asked for it: key, value, and headers that are not the contract's.

One number a record, ``content``, with a part of a hash for each, so that what differs can be named.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import Header

_CARRIED = (Header.TAGS, Header.KEYS)
_OURS = [header.value for header in Header if header not in _CARRIED]

_PARTS = {"headers": (0, 22), "value": (22, 22), "key": (44, 19)}
"""Where in the number, and how many bits; the sign is left alone."""


def content() -> Column:
    """Of a record as the Kafka source gives it. Headers count in their order, repeated and null ones included."""
    others = F.filter("headers", lambda header: ~header["key"].isin(_OURS))
    return _bits("key", F.xxhash64("key")) + _bits("value", F.xxhash64("value")) + _bits("headers", F.xxhash64(others))


def altered(asked: Column, came: Column) -> Column:
    """In words, what of the one content is not in the other; null: nothing, or one of them is not known."""
    differs = asked.bitwiseXOR(came)
    found = [
        F.when(F.shiftright(differs, place).bitwiseAND(2**bits - 1) != 0, name)
        for name, (place, bits) in reversed(_PARTS.items())
    ]
    return F.nullif(F.concat_ws(", ", *found), F.lit(""))


def is_misplaced(asked_partition: Column) -> Column:
    """Whether something is in another ``delivered_partition`` than it had to go to."""
    return F.coalesce(F.col("delivered_partition") != asked_partition, F.lit(False))


def _bits(part: str, hashed: Column) -> Column:
    place, bits = _PARTS[part]
    return F.shiftleft(hashed.bitwiseAND(2**bits - 1), place)
