"""Kafka headers as columns: the last value of a name, numbers and ids out of binary values.

The Kafka source gives ``array<struct<key: string, value: binary>>``; names repeat, values may be null, and the whole
array is null where there is none. Everything here is null-safe and never raises, also in ANSI mode.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from connectors.contract import (
    LOGICAL_DEAD_LETTER_PREFIX,
    LOGICAL_RETRY_PREFIX,
    LOGICAL_SEND_BACK,
    LOGICAL_WHEEL,
    TopicNames,
)

ID_MAX_BYTES = 1_000
"""A longer id is cut, and told apart from others by its SHA-256."""

_ID_KEPT_BYTES = 200
_DIGITS_MAX = 18
_ENCODED_GROUP = "enc--"


class Headers:
    """The headers of a record.

    Args:
        names, values: their names and values, the last header first.
    """

    def __init__(self, names: Column, values: Column) -> None:
        self._names = names
        self._values = values

    def has(self, name: str) -> Column:
        """Whether there is such a header, be its value null."""
        return F.coalesce(F.array_contains(self._names, name), F.lit(False))

    def last(self, name: str) -> Column:
        """Binary; null where there is none, or it is null."""
        position = F.nullif(F.array_position(self._names, name), F.lit(0).cast("bigint"))
        return F.try_element_at(self._values, position.cast("int"))

    def text(self, name: str) -> Column:
        """Bytes as they are, under the type of a string: only to be compared and matched."""
        return self.last(name).cast("string")

    def filled(self, name: str) -> Column:
        """The last value; null where it is empty."""
        value = self.last(name)
        return F.when(F.octet_length(value) > 0, value)


def names_of(headers: Column) -> Column:
    return F.reverse(headers["key"])


def values_of(headers: Column) -> Column:
    return F.reverse(headers["value"])


def whole_number(text: Column) -> Column:
    """The number that a text is, as a bigint; null where it is none, or has more than 18 digits."""
    return F.when(text.rlike(rf"\A-?[0-9]{{1,{_DIGITS_MAX}}}\z"), text.try_cast("bigint"))


def count(text: Column, most: int = 2**31 - 2) -> Column:
    """A number of retries or redrives as an int; 0 where there is none."""
    number = whole_number(text)
    return F.coalesce(F.when(number.between(0, most), number.cast("int")), F.lit(0))


def readable(raw: Column) -> Column:
    """An id as a text: itself where it is UTF-8, else every byte as ``\\xHH``; never longer than a little over 1 kB."""
    text = raw.cast("string")
    escaped = F.regexp_replace(F.hex(raw), "(..)", r"\\x$1")
    # What is_valid_utf8 finds is asked first: a cut may fall into the middle of a letter.
    cut = F.concat(F.make_valid_utf8(F.substring(raw, 1, _ID_KEPT_BYTES).cast("string")), F.lit("…"), F.sha2(raw, 256))
    return F.when(F.octet_length(raw) > ID_MAX_BYTES, cut).when(F.is_valid_utf8(text), text).otherwise(escaped)


def physical(name: Column, names: TopicNames) -> Column:
    """The Kafka topic for a logical or a physical name (`TopicNames.physical`)."""

    def group_topic(prefix: str, template: str) -> Column:
        group = encode_group(F.substr(name, F.lit(len(prefix) + 1)))
        head, tail = (names.prefix + template).split("{group}")
        return F.concat(F.lit(head), group, F.lit(tail))

    return (
        F.when(name.startswith(LOGICAL_RETRY_PREFIX), group_topic(LOGICAL_RETRY_PREFIX, names.retry_template))
        .when(
            name.startswith(LOGICAL_DEAD_LETTER_PREFIX),
            group_topic(LOGICAL_DEAD_LETTER_PREFIX, names.dead_letter_template),
        )
        .when(name == LOGICAL_WHEEL, F.lit(names.wheel))
        .when(name == LOGICAL_SEND_BACK, F.lit(names.send_back))
        .otherwise(name)
    )


def encode_group(group: Column) -> Column:
    """A consumer group's id as a part of a topic name (`connectors.contract.encode_group`)."""
    is_plain = group.rlike(r"\A[a-zA-Z0-9._-]+\z") & ~group.startswith(_ENCODED_GROUP)
    dots = F.replace(F.url_encode(group), F.lit("."), F.lit(".2E"))
    for plain, code in (("*", ".2A"), ("+", ".20"), ("%", ".")):
        dots = F.replace(dots, F.lit(plain), F.lit(code))
    return F.when(is_plain, group).otherwise(F.concat(F.lit(_ENCODED_GROUP), dots))


def decode_group(encoded: Column) -> Column:
    """The consumer group that `encode_group` wrote; a text that it never writes stands for itself."""
    percent = F.replace(F.substr(encoded, F.lit(len(_ENCODED_GROUP) + 1)), F.lit("."), F.lit("%"))
    decoded = F.try_url_decode(percent)
    is_ours = encoded.startswith(_ENCODED_GROUP) & (encode_group(decoded) == encoded)
    return F.when(F.coalesce(is_ours, F.lit(False)), decoded).otherwise(encoded)


def is_legal_topic(topic: Column) -> Column:
    """Whether Kafka could ever hold a topic of that name (`connectors.contract.is_legal_topic_name`)."""
    return topic.rlike(r"\A[a-zA-Z0-9._-]{1,249}\z") & ~topic.isin(".", "..")
