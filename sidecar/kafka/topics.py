"""The schedule topics: those that are missing are created, and those that exist are checked."""

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from connectors.durations import format_duration
from sidecar.errors import KafkaUnreachableError, StoppedWaitingError, TimewheelError, TopicsError
from sidecar.intake.start_finder import offsets_retention_ms
from sidecar.kafka.clients import committed_offsets, outside_consumer
from sidecar.kafka.failure import failure, failure_of
from sidecar.kafka.probe import Probe
from sidecar.kafka.topic_plan import DOWNTIME_TO_SURVIVE_MS, INTAKE_MAX_BYTES, TopicPlan, plan_topics
from sidecar.observability.health import Cause
from sidecar.settings import Settings

_TIMEOUT_S = 10.0
_SLICE_S = 0.5
_TOLD_EVERY = 120
"""Tries: about once a minute."""

log = structlog.get_logger("timewheel")


class Finding(NamedTuple):
    """What `check` has to say of one topic."""

    topic: str
    problem: str
    remedy: str
    fatal: bool
    is_short_of_downtime: bool = False
    """Whether it is a retention that leaves a sidecar that is away less than 7 days, which has a metric of its own."""


def prepare_topics(settings: Settings, is_stopping: Callable[[], bool] = lambda: False) -> None:
    """Create what is missing, check what there is, and tell what is wrong before anything depends on it.

    Raises:
        UsageError, KafkaUnreachableError, TopicsError, TimewheelError: there is no going on.
        StoppedWaitingError: a stop was asked for while Kafka did not answer.
    """
    try:
        _prepare_topics(settings, is_stopping)
    except KafkaException as error:
        raise failure_of(error) from error


def _prepare_topics(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    admin = reach_kafka(settings, settings.start_timeout / 1_000 or math.inf, is_stopping=is_stopping)
    if settings.create_topics and (created := create_topics(admin, settings)):
        log.info("topics created", topics=created)
    findings = all_findings(admin, settings)
    for finding in findings:
        log.warning("topic is not fit", topic=finding.topic, problem=finding.problem, operator_action=finding.remedy)
    forgets_ms = offsets_retention_ms(admin)
    if forgets_ms < DOWNTIME_TO_SURVIVE_MS:
        log.warning(
            "brokers forget progress soon",
            offsets_retention=format_duration(forgets_ms),
            operator_action="raise offsets.retention.minutes, or do not leave the sidecar stopped for longer than that",
        )
    if fatal := [finding for finding in findings if finding.fatal]:
        raise TopicsError("\n".join(f"{finding.topic} {finding.problem}; {finding.remedy}" for finding in fatal))


def reach_kafka(
    settings: Settings, timeout_s: float = _TIMEOUT_S, *, is_stopping: Callable[[], bool] = lambda: False
) -> AdminClient:
    """A client, once a broker answers it.

    Args:
        timeout_s: may be infinite.
        is_stopping: asked twice a second.

    Raises:
        UsageError: for options that librdkafka does not take.
        KafkaUnreachableError: no broker answers in time.
        StoppedWaitingError: a stop was asked for meanwhile.
    """
    probe = Probe(settings)
    cause: Cause | None = None
    for tries in count() if math.isinf(timeout_s) else range(max(1, round(timeout_s / _SLICE_S))):
        # A signal is handled between two calls, not within one.
        if is_stopping():
            raise StoppedWaitingError(f"stopped while kafka at {settings.bootstrap_servers} did not answer")
        cause = probe.ask(min(timeout_s, _SLICE_S))
        if cause is None:
            return probe.admin
        if math.isinf(timeout_s) and tries % _TOLD_EVERY == 0:
            log.warning("waits for kafka", reason=cause.words, operator_action=f"{cause.remedy}; it is tried again")
    assert cause is not None
    raise KafkaUnreachableError(
        f"no answer from Kafka at {settings.bootstrap_servers} within {timeout_s:.0f} s ({cause.words}); {cause.remedy}"
    )


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
        request_timeout=_TIMEOUT_S,
    )
    created = []
    for name, future in futures.items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise not_created(
                    error.args[0],
                    name,
                    "run 'timewheel topics create' as a login that may create topics, and set create_topics: false for "
                    "this one (docs/security.md)",
                ) from error
    wait_for_topics(admin, [plan.name for plan in missing])
    return sorted(created)


def not_created(error: KafkaError, topic: str, if_not_allowed: str) -> TimewheelError:
    """Why a topic cannot be created, with the remedy for a login that may not."""
    words = f"topic {topic} cannot be created: {error.str()}"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        words = f"{words.rstrip('.')}; {if_not_allowed}"
    return failure(error, words)


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


def all_findings(admin: AdminClient, settings: Settings) -> list[Finding]:
    """What a start tells, and is refused for where it is fatal."""
    return check_topics(admin, settings) + _removed_levels_in_use(admin, settings)


def check_topics(admin: AdminClient, settings: Settings) -> list[Finding]:
    """What is wrong with the existing topics; an empty list is a clean bill."""
    plans = plan_topics(settings)
    existing = admin.list_topics(timeout=_TIMEOUT_S).topics
    findings = [
        Finding(
            plan.name,
            "does not exist, or this login may not describe it",
            "run 'timewheel topics create', or set create_topics",
            True,
        )
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


def _removed_levels_in_use(admin: AdminClient, settings: Settings) -> list[Finding]:
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
    with outside_consumer(settings, role="levels") as consumer:
        committed = committed_offsets(consumer, beyond, _TIMEOUT_S)
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

    if plan.held_ms is None:
        if "compact" in str(configs.get("cleanup.policy")):
            wrong("cleanup.policy", "a dead letter without a key is refused, and its partition waits", fatal=False)
    else:
        if configs.get("message.timestamp.type") != "LogAppendTime":
            wrong("message.timestamp.type", "delays count from whatever time a producer writes", fatal=False)
        if "compact" in str(configs.get("cleanup.policy")):
            wrong("cleanup.policy", "compaction removes scheduled records that share a key", fatal=True)
        retention_ms, needed_ms = int(configs.get("retention.ms") or -1), int(plan.configs["retention.ms"])
        if 0 <= retention_ms <= plan.held_ms:
            wrong("retention.ms", f"records are held {format_duration(plan.held_ms)} before they are due", fatal=True)
        elif 0 <= retention_ms < needed_ms:
            wrong("retention.ms", "leaves less than 7 days for a sidecar that is away", fatal=False)
            findings[-1] = findings[-1]._replace(is_short_of_downtime=True)
        if int(configs.get("retention.bytes") or -1) >= 0:
            wrong("retention.bytes", "a size limit removes records that are not due yet", fatal=False)
        if configs.get("unclean.leader.election.enable") == "true":
            findings.append(
                Finding(
                    plan.name,
                    "unclean.leader.election.enable is true: where an election costs records that have been read, the "
                    "partition stops",
                    "set unclean.leader.election.enable=false",
                    False,
                )
            )
    if int(configs.get("max.message.bytes") or INTAKE_MAX_BYTES) < int(plan.configs["max.message.bytes"]):
        wrong("max.message.bytes", "a record may have no room for the headers that the sidecar adds", fatal=False)
    return findings
