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
    Header,
    TopicNames,
)

ID_MAX_BYTES = 1_000
"""A longer id is cut, and told apart from others by its SHA-256."""

RETRIES_MAX = 2**31 - 1

COUNT_MAX = RETRIES_MAX - 1
"""Of retries, as a consumer may tell them: what it sends back then has one more."""

REDRIVES_MAX = 999_999_999

_ID_KEPT_BYTES = 200
_DIGITS_MAX = 18
_NUMBER_MAX = 10**_DIGITS_MAX - 1
_ENCODED_GROUP = "enc--"


class Headers:
    """Looks into the headers of a record, ``headers`` as the Kafka source gives them.

    Whatever is asked for in one step, Spark turns them round for it once.
    """

    def __init__(self) -> None:
        headers = F.col("headers")
        self.names, self.values = F.reverse(headers["key"]), F.reverse(headers["value"])
        """The last header first."""

    def has(self, name: str) -> Column:
        """Whether there is such a header, be its value null."""
        return F.coalesce(F.array_contains(self.names, name), F.lit(False))

    def last(self, name: str | Column) -> Column:
        """Its last value, binary; null where there is none, or it is null."""
        return F.get(self.values, F.array_position(self.names, name).cast("int") - 1)

    def is_behind(self, name: str, other: str) -> Column:
        """Whether the last header of a name stands behind the last of another; null where there are no headers."""
        place, before = (F.array_position(self.names, each) for each in (name, other))
        return (place > 0) & (place < before)

    def text(self, name: str | Column) -> Column:
        """Bytes as they are, under the type of a string: only to be compared and matched."""
        return self.last(name).cast("string")


def whole_number(text: Column) -> Column:
    """The number that a text is, as a bigint; null where it is none. Of more than 18 digits: the largest of 18."""
    number = text.try_cast("bigint")
    is_usual = (number.cast("string") == text) & (F.octet_length(text) < _DIGITS_MAX)  # for less than the pattern takes
    largest = F.when(text.startswith("-"), -_NUMBER_MAX).otherwise(_NUMBER_MAX)
    return (
        F.when(is_usual | text.rlike(rf"\A-?0*[0-9]{{1,{_DIGITS_MAX}}}\z"), number)
        .when(text.rlike(r"\A-?[0-9]+\z"), largest)
        .cast("bigint")
    )


def count(number: Column, most: int = RETRIES_MAX) -> Column:
    """A number of retries or redrives as an int; 0 where there is none."""
    return F.when(number.between(0, most), number.cast("int")).otherwise(0)


def said_by_all(headers: Headers) -> dict[str, Column]:
    """What every kind of record may carry, as it stands there."""
    return {
        "raw_id": headers.last(Header.UNIQ_KEY),
        "reconsume_text": headers.text(Header.RECONSUME_TIME),
        "redrives_text": headers.text(Header.REDRIVE_COUNT),
    }


def meant_by_all() -> dict[str, Column]:
    """The same, on the columns of `said_by_all`: ``told_id``, null where there is none, and two numbers."""
    return {
        "told_id": readable(F.col("raw_id")),
        "reconsume": whole_number(F.col("reconsume_text")),
        "redrives": whole_number(F.col("redrives_text")),
    }


def coordinates() -> Column:
    """The id of a record that has been given none."""
    return F.concat_ws("-", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))


def once(column: Column) -> Column:
    """The same, but no filter is carried past it: Spark would work it out twice."""
    return F.when(F.spark_partition_id() >= 0, column)  # always; Spark takes it for what differs from task to task


def readable(raw: Column) -> Column:
    """An id as a text: itself where it is UTF-8, else every byte as ``\\xHH``; never longer than a little over 1 kB.

    So is every byte of a text that looks as if that had been done to it. Null where it is empty.
    """
    text, size = raw.cast("string"), F.octet_length(raw)
    escaped = F.regexp_replace(F.hex(raw), "(..)", r"\\x$1")
    # What is_valid_utf8 finds is asked first: a cut may fall into the middle of a letter.
    cut = F.concat(F.make_valid_utf8(F.substring(raw, 1, _ID_KEPT_BYTES).cast("string")), F.lit("…"), F.sha2(raw, 256))
    looks_escaped = text.startswith("\\x") & text.rlike(r"\A(\\x[0-9A-F]{2})+\z")
    is_itself = F.is_valid_utf8(text) & ~looks_escaped
    return F.when(size > ID_MAX_BYTES, cut).when(size > 0, F.when(is_itself, text).otherwise(escaped))


def physical(name: Column, names: TopicNames) -> Column:
    """The Kafka topic for a logical or a physical name (`TopicNames.physical`)."""
    is_retry, is_dead_letter = (
        name.startswith(prefix) & (name != prefix) for prefix in (LOGICAL_RETRY_PREFIX, LOGICAL_DEAD_LETTER_PREFIX)
    )
    retry, dead_letter = (
        (names.prefix + template).split("{group}") for template in (names.retry_template, names.dead_letter_template)
    )
    begin = F.when(is_retry, len(LOGICAL_RETRY_PREFIX) + 1).otherwise(len(LOGICAL_DEAD_LETTER_PREFIX) + 1)
    group_topic = F.concat(
        F.when(is_retry, retry[0]).otherwise(dead_letter[0]),
        encode_group(F.substr(name, begin)),
        F.when(is_retry, retry[1]).otherwise(dead_letter[1]),
    )
    return (
        F.when(is_retry | is_dead_letter, group_topic)
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
