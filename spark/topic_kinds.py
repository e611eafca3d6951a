"""What a topic is to the sidecar, as columns: `connectors.contract.TopicNames`, told to Spark."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import LOGICAL_RETRY_PREFIX, TopicKind, TopicNames
from spark.headers import decode_group

INPUTS = (TopicKind.LEVEL.value, TopicKind.WHEEL.value, TopicKind.SEND_BACK.value)
"""Kinds that the sidecar reads."""


def kind(topic: Column, names: TopicNames) -> Column:
    """A `TopicKind`, by the same rules in the same order as `TopicNames.kind`."""
    queue = _slot(topic, names.prefix + names.schedule_template, "{queue}")
    return (
        F.when(queue == "wheel", TopicKind.WHEEL.value)
        .when(queue == "sendback", TopicKind.SEND_BACK.value)
        .when(queue == "redriven", TopicKind.REDRIVEN.value)
        .when(queue == "idempotency", TopicKind.IDEMPOTENCY.value)
        .when(queue.rlike(r"\A[0-9]+\z"), TopicKind.LEVEL.value)
        .when(_slot(topic, names.prefix + names.retry_template, "{group}").isNotNull(), TopicKind.RETRY.value)
        .when(
            _slot(topic, names.prefix + names.dead_letter_template, "{group}").isNotNull(), TopicKind.DEAD_LETTER.value
        )
        .otherwise(TopicKind.OTHER.value)
    )


def is_input(topic: Column, names: TopicNames) -> Column:
    """Whether the `kind` of a topic is one of `INPUTS`."""
    queue = _slot(topic, names.prefix + names.schedule_template, "{queue}")
    return F.coalesce(queue.isin("wheel", "sendback") | queue.rlike(r"\A[0-9]+\z"), F.lit(False))


def is_reserved(topic: Column, names: TopicNames) -> Column:
    """Whether no message belongs there (`TopicNames.is_reserved`)."""
    queue = _slot(topic, names.prefix + names.schedule_template, "{queue}")
    return topic.startswith("__") | F.coalesce(queue.isin("redriven", "idempotency"), F.lit(False))


def is_retry(name: Column, names: TopicNames) -> Column:
    """Whether a name, logical or physical, is that of a retry topic."""
    head, tail = (names.prefix + names.retry_template).split("{group}")
    is_physical = name.startswith(head) & name.endswith(tail) & (F.length(name) > len(head) + len(tail))
    return (name.startswith(LOGICAL_RETRY_PREFIX) & (name != LOGICAL_RETRY_PREFIX)) | is_physical


def level(topic: Column, names: TopicNames) -> Column:
    """The number of a level topic, as an int."""
    queue = _slot(topic, names.prefix + names.schedule_template, "{queue}")
    return F.when(queue.rlike(r"\A[0-9]{1,9}\z"), queue.try_cast("int"))


def group(topic: Column, names: TopicNames) -> Column:
    """The consumer group of a retry or dead-letter topic."""
    templates = (names.retry_template, names.dead_letter_template)
    return decode_group(F.coalesce(*(_slot(topic, names.prefix + template, "{group}") for template in templates)))


def group_topic(template: str, names: TopicNames, encoded_group: Column) -> Column:
    head, tail = (names.prefix + template).split("{group}")
    return F.concat(F.lit(head), encoded_group, F.lit(tail))


def schedule_topic(level: Column, names: TopicNames) -> Column:
    """The level topic of a number; the wheel's of 0."""
    head, tail = (names.prefix + names.schedule_template).split("{queue}")
    queue = F.when(level == 0, F.lit("wheel")).otherwise(level.cast("string"))
    return F.concat(F.lit(head), queue, F.lit(tail))


def _slot(topic: Column, template: str, slot: str) -> Column:
    """What stands in a template's place; null where the topic is not made by it."""
    head, tail = template.split(slot)
    inner = F.substr(topic, F.lit(len(head) + 1), F.length(topic) - len(head) - len(tail))
    is_made = topic.startswith(head) & topic.endswith(tail) & (F.length(topic) > len(head) + len(tail))
    return F.when(is_made, inner)
