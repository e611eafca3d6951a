"""The schedule topics: which there have to be, with which configuration, and whether those that exist are fit."""

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from connectors.contract import TopicKind
from connectors.durations import format_duration
from sidecar.errors import KafkaUnreachableError, TopicsError
from sidecar.settings import Settings

DOWNTIME_TO_SURVIVE_MS = 7 * 86_400_000
"""How long a sidecar may be away without a topic's retention costing a record."""

INTAKE_MAX_BYTES = 1_048_588
"""Kafka's own default of max.message.bytes: what producers may schedule."""

OWN_MAX_BYTES = 2 * INTAKE_MAX_BYTES
"""For topics that the sidecar writes to: a record grows by the headers it adds."""

_TIMEOUT_S = 10.0


class TopicPlan(NamedTuple):
    """A topic that has to be there."""

    name: str
    configs: dict[str, str]


class Finding(NamedTuple):
    """What `check` has to say of one topic."""

    topic: str
    problem: str
    remedy: str
    fatal: bool


def plan_topics(settings: Settings) -> list[TopicPlan]:
    """Every topic the sidecar works on, with the configuration it needs."""
    names = settings.topic_names
    plans = []
    for topic in names.schedule_topics(settings.levels):
        level = names.level_of(topic)
        held_ms = settings.levels.delay_ms(level) if level else 0
        if names.kind(topic) is TopicKind.WHEEL:
            held_ms = settings.plan.roll_window_ms
        max_bytes = INTAKE_MAX_BYTES if names.kind(topic) is TopicKind.SEND_BACK else OWN_MAX_BYTES
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
            )
        )
    plans.append(TopicPlan(names.dead_letter(settings.group_id), {"max.message.bytes": str(OWN_MAX_BYTES)}))
    return plans


def reach_kafka(admin: AdminClient, bootstrap_servers: str, timeout_s: float = _TIMEOUT_S) -> None:
    """Raises KafkaUnreachableError when no broker answers in time."""
    try:
        admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise KafkaUnreachableError(
            f"no answer from Kafka at {bootstrap_servers} within {timeout_s:.0f} s ({error.args[0].str()}); "
            "check bootstrap_servers, and the security settings under kafka"
        ) from error


def create_topics(admin: AdminClient, settings: Settings) -> list[str]:
    """Create what is missing; names of what was created."""
    existing = set(admin.list_topics(timeout=_TIMEOUT_S).topics)
    missing = [plan for plan in plan_topics(settings) if plan.name not in existing]
    if not missing:
        return []
    futures = admin.create_topics(
        [
            NewTopic(
                plan.name,
                num_partitions=settings.partitions,
                replication_factor=settings.replication_factor,
                config=plan.configs,
            )
            for plan in missing
        ],
        operation_timeout=_TIMEOUT_S,
    )
    created = []
    for name, future in futures.items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicsError(f"topic {name} cannot be created: {error.args[0].str()}") from error
    wait_for_topics(admin, [plan.name for plan in missing])
    return sorted(created)


def wait_for_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Return once the brokers tell of all these topics."""
    for attempt in Retrying(
        retry=retry_if_exception_type(TopicsError),
        wait=wait_exponential(multiplier=0.02, max=0.5),
        stop=stop_after_delay(_TIMEOUT_S),
        reraise=True,
    ):
        with attempt:
            known = admin.list_topics(timeout=_TIMEOUT_S).topics
            unknown = [name for name in names if name not in known or not known[name].partitions]
            if unknown:
                raise TopicsError(f"the brokers do not tell of {', '.join(unknown)} yet")


def check_topics(admin: AdminClient, settings: Settings) -> list[Finding]:
    """What is wrong with the existing topics; an empty list is a clean bill."""
    plans = plan_topics(settings)
    existing = admin.list_topics(timeout=_TIMEOUT_S).topics
    findings = [
        Finding(plan.name, "does not exist", "run 'timewheel topics create', or set create_topics", True)
        for plan in plans
        if plan.name not in existing
    ]
    present = [plan for plan in plans if plan.name in existing]
    resources = {plan.name: ConfigResource(ResourceType.TOPIC, plan.name) for plan in present}
    answers = admin.describe_configs(list(resources.values()), request_timeout=_TIMEOUT_S) if resources else {}
    for plan in present:
        try:
            configs = {name: entry.value for name, entry in answers[resources[plan.name]].result().items()}
        except KafkaException as error:
            findings.append(
                Finding(
                    plan.name,
                    f"its configuration cannot be read: {error.args[0].str()}",
                    "allow DESCRIBE_CONFIGS",
                    False,
                )
            )
            continue
        findings += _judge(plan, configs)
    return findings


def removed_levels_in_use(admin: AdminClient, settings: Settings) -> list[Finding]:
    """Level topics beyond the table whose records nobody would deliver any more."""
    names = settings.topic_names
    existing = admin.list_topics(timeout=_TIMEOUT_S).topics
    beyond = [
        TopicPartition(topic, partition)
        for topic, metadata in existing.items()
        if (level := names.level_of(topic)) is not None and level > len(settings.levels)
        for partition in metadata.partitions
    ]
    if not beyond:
        return []
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(settings.group_id, beyond)])
    committed = {(p.topic, p.partition): p.offset for p in answer[settings.group_id].result().topic_partitions}
    ends = admin.list_offsets(dict.fromkeys(beyond, OffsetSpec.latest()), request_timeout=_TIMEOUT_S)
    begins = admin.list_offsets(dict.fromkeys(beyond, OffsetSpec.earliest()), request_timeout=_TIMEOUT_S)
    findings = []
    for place in beyond:
        done = max(committed.get((place.topic, place.partition), -1), begins[place].result().offset)
        waiting = ends[place].result().offset - done
        if waiting > 0:
            findings.append(
                Finding(
                    f"{place.topic}-{place.partition}",
                    f"belongs to a level that 'levels' no longer has, and up to {waiting} records wait in it",
                    "put the level back until they are delivered, or delete the topic to drop them",
                    True,
                )
            )
    return findings


def _judge(plan: TopicPlan, configs: dict[str, str | None]) -> list[Finding]:
    findings = []

    def wrong(name: str, why: str, *, fatal: bool) -> None:
        findings.append(
            Finding(plan.name, f"{name} is {configs.get(name)}: {why}", f"set {name}={plan.configs[name]}", fatal)
        )

    if "message.timestamp.type" in plan.configs:
        if configs.get("message.timestamp.type") != "LogAppendTime":
            wrong("message.timestamp.type", "delays count from whatever time a producer writes", fatal=False)
        if "compact" in str(configs.get("cleanup.policy")):
            wrong("cleanup.policy", "compaction removes scheduled records that share a key", fatal=True)
        retention_ms, needed_ms = int(configs.get("retention.ms") or -1), int(plan.configs["retention.ms"])
        held_ms = needed_ms - DOWNTIME_TO_SURVIVE_MS
        if 0 <= retention_ms <= held_ms:
            wrong("retention.ms", f"records are held {format_duration(held_ms)} before they are due", fatal=True)
        elif 0 <= retention_ms < needed_ms:
            wrong("retention.ms", "leaves less than 7 days for a sidecar that is away", fatal=False)
        if int(configs.get("retention.bytes") or -1) >= 0:
            wrong("retention.bytes", "a size limit removes records that are not due yet", fatal=False)
    if int(configs.get("max.message.bytes") or INTAKE_MAX_BYTES) < int(plan.configs["max.message.bytes"]):
        wrong("max.message.bytes", "a record may have no room for the headers that the sidecar adds", fatal=False)
    return findings
