"""Which topics there have to be, and the configuration of every topic that the sidecar creates."""

from typing import NamedTuple

from connectors.contract import TopicKind
from sidecar.settings import Settings

DOWNTIME_TO_SURVIVE_MS = 7 * 86_400_000
"""How long a sidecar, or a group's consumers, may be away without a topic's retention costing a record."""

INTAKE_MAX_BYTES = 1_048_588
"""Kafka's own default of max.message.bytes: what producers may schedule."""

SEND_BACK_MAX_BYTES = 3 * INTAKE_MAX_BYTES // 2
"""A message that could be consumed can be sent back, with the headers that it has got since; and what can be sent back
can go where the sidecar sends it."""

OWN_MAX_BYTES = 2 * INTAKE_MAX_BYTES
"""For topics that the sidecar writes to: a record grows by the headers it adds."""


class TopicPlan(NamedTuple):
    """A topic that has to be there."""

    name: str
    configs: dict[str, str]
    held_ms: int | None
    """How long records wait in it; None: none waits, it is for dead letters."""


def plan_topics(settings: Settings) -> list[TopicPlan]:
    """Every topic the sidecar works on, with the configuration it needs."""
    names = settings.topic_names
    plans = []
    for topic in names.schedule_topics(settings.levels):
        level = names.level_of(topic)
        held_ms = settings.levels.delay_ms(level) if level else 0
        if names.kind(topic) is TopicKind.WHEEL:
            held_ms = settings.plan.roll_window_ms
        max_bytes = SEND_BACK_MAX_BYTES if names.kind(topic) is TopicKind.SEND_BACK else OWN_MAX_BYTES
        plans.append(
            TopicPlan(
                topic,
                {
                    "cleanup.policy": "delete",
                    "message.timestamp.type": "LogAppendTime",
                    "retention.ms": str(held_ms + DOWNTIME_TO_SURVIVE_MS),
                    "retention.bytes": "-1",
                    "max.message.bytes": str(max_bytes),
                },
                held_ms,
            )
        )
    own = names.dead_letter(settings.group_id)
    plans.append(TopicPlan(own, group_topic_configs(settings, own), None))
    return plans


def group_topic_configs(settings: Settings, topic: str) -> dict[str, str]:
    """What a group's retry or dead-letter topic is created with; nothing for other topics."""
    match settings.topic_names.kind(topic):
        case TopicKind.RETRY:
            retention_ms, timestamps = DOWNTIME_TO_SURVIVE_MS, "CreateTime"
        case TopicKind.DEAD_LETTER:
            # By a clock of the sidecar's that is wrong a letter could be refused, or be too old to be kept.
            retention_ms, timestamps = settings.dead_letter_retention, "LogAppendTime"
        case _:
            return {}
    return {
        "cleanup.policy": "delete",
        "message.timestamp.type": timestamps,
        "retention.ms": str(retention_ms),
        "retention.bytes": "-1",
        "max.message.bytes": str(OWN_MAX_BYTES),
    }
