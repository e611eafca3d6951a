"""What records of destinations, of retry topics and of dead-letter topics say: that something has arrived."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import DelayLevels, Header, TopicNames
from spark import topic_kinds
from spark.content import content
from spark.headers import (
    REDRIVES_MAX,
    Headers,
    coordinates,
    count,
    is_legal_topic,
    meant_by_all,
    once,
    physical,
    readable,
    said_by_all,
    whole_number,
)

Told = tuple[DataFrame, Mapping[str, Column]]
"""Records that make a fact, and what its columns are made of (`spark.facts.SCHEMA`); those left out are null."""


def of_destinations(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """Those with a ``UNIQ_KEY``; of what was redriven also whose dead letter it was."""
    meant, headers, c = _meant(), Headers(), F.col
    is_redriven = headers.text(Header.REDRIVE_COUNT).isNotNull()
    whose = {
        "raw_origin": F.when(is_redriven, headers.last(Header.RETRY_TOPIC)),
        "consumer_group": F.when(is_redriven, headers.text(Header.CONSUMER_GROUP)),
    }
    told = records.withColumns({**_said(headers), **whose})
    meant |= {"told_id": once(meant["told_id"]), "origin": F.when(c("raw_origin").isNotNull(), _origin(names))}
    told = told.withColumns(meant).where("told_id is not null")
    return told, {
        "kind": F.lit("delivered"),
        "id": c("told_id"),
        **_arrival(),
        "group": F.make_valid_utf8(c("consumer_group")),
        "of_topic": F.when(is_legal_topic(c("origin")), c("origin")),
    }


def of_retries(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """The same, and whose retries they are."""
    told, columns = of_destinations(records, names, levels)
    return told, {**columns, "group": topic_kinds.group(F.col("topic"), names)}


def of_dead_letters(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """Messages that have failed too often, and records that were rejected."""
    c, headers = F.col, Headers()
    said = records.withColumns(
        {
            "raw_code": headers.last(Header.ERROR_CODE),
            "raw_origin": headers.last(Header.RETRY_TOPIC),
            "error_topic": headers.text(Header.ERROR_TOPIC),
            "error_partition_text": headers.text(Header.ERROR_PARTITION),
            "error_offset_text": headers.text(Header.ERROR_OFFSET),
            "failed_since": F.coalesce(headers.is_behind(Header.RECONSUME_TIME, Header.ERROR_OFFSET), F.lit(False)),
            **_said(headers),
        }
    )
    meant = said.withColumns(
        {
            "error_code": readable(c("raw_code")),
            "origin": _origin(names),
            "error_kind": topic_kinds.kind(c("error_topic"), names),
            "error_partition": whole_number(c("error_partition_text")),
            "error_offset": whole_number(c("error_offset_text")),
            **_meant(),
        }
    )
    # A consumer that reads dead letters and fails has one of its own, with the errors that it was told of.
    says_of_what = c("error_code").isNotNull() & c("error_offset").isNotNull() & ~c("failed_since")
    is_rejected = says_of_what & F.coalesce(c("error_kind").isin(*topic_kinds.INPUTS), F.lit(False))
    told = meant.withColumn("is_rejected", once(is_rejected)).where("is_rejected or told_id is not null")

    def of_rejected(column: Column) -> Column:
        return F.when(c("is_rejected"), column)

    of_coordinates = F.concat_ws("-", "error_topic", "error_partition_text", "error_offset_text")
    return told, {
        "kind": F.when(c("is_rejected"), "rejected").otherwise("dead_letter"),
        "id": F.coalesce(c("told_id"), of_rejected(of_coordinates), coordinates()),
        **_arrival(),
        "group": topic_kinds.group(c("topic"), names),
        "of_topic": of_rejected(F.make_valid_utf8(c("error_topic"))).when(is_legal_topic(c("origin")), c("origin")),
        "of_partition": of_rejected(c("error_partition")),
        "of_offset": of_rejected(c("error_offset")),
        "why": of_rejected(c("error_code")),
        "content": F.when(~Headers().has(Header.ERROR_OMITTED), content()),
    }


def of_no_interest(records: DataFrame, names: TopicNames, levels: DelayLevels) -> Told:
    """Topics whose records make no fact."""
    return records.where(F.lit(False)), {}


# --- what all of them say ---------------------------------------------------------------------------------------------


def _said(headers: Headers) -> dict[str, Column]:
    return {**said_by_all(headers), "out_ms_text": headers.text(Header.TIMER_OUT_MS)}


def _meant() -> dict[str, Column]:
    return {**meant_by_all(), "out_ms": whole_number(F.col("out_ms_text"))}


def _origin(names: TopicNames) -> Column:
    """Where a message failed, in ``raw_origin``."""
    return physical(F.make_valid_utf8(F.col("raw_origin").cast("string")), names)


def _arrival() -> dict[str, Column]:
    return {
        "destination": F.col("topic"),
        "retries": count(F.col("reconsume")),
        "redrives": count(F.col("redrives"), REDRIVES_MAX),
        "due_ms": F.col("out_ms"),
    }
