"""The Kafka clients of one session: made together, thrown away together."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartitionInfo
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from connectors.kafka import common_config, consumer_config, producer_config, transactional_config
from sidecar.clock import Clock
from sidecar.dispatch.outages import Replicas
from sidecar.dispatch.transactions import CALL_TIMEOUT_S, AtLeastOnce, ExactlyOnce, Publishing, collect_failures
from sidecar.errors import ClientsLostError, UsageError
from sidecar.intake.start_finder import KafkaStartFinder, StartFinder
from sidecar.settings import Settings
from sidecar.topic_plan import group_topic_configs

log = structlog.get_logger("timewheel")

T = TypeVar("T")

_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 1.0
_NO_SUCH_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


@dataclass
class Clients:
    """What the loop needs of Kafka."""

    consumer: Consumer
    publishing: Publishing
    starts: StartFinder
    count_partitions: Callable[[str], int]
    create_topic: Callable[[str], int]
    replicas: Callable[[str], Mapping[int, Replicas]]
    """How each partition of a topic is; empty where there is no such topic."""
    count_group_topics: Callable[[], int]
    """How many retry and dead-letter topics there are."""
    identify: Callable[[str], tuple[str, str]]
    """The ids of the cluster and of a topic: a topic that is made anew has another."""

    def close(self) -> None:
        """Leave, or keep the place in the group (static members), and release everything."""
        self.publishing.close()
        # librdkafka can wait for ever for a consumer that was fenced; it is left behind then, like a stuck transaction.
        closing = threading.Thread(target=self.consumer.close, name="closing", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)
        if closing.is_alive():
            log.warning(
                "consumer left behind",
                operator_action="nothing: it does not close, and ends with the process; a new one is made",
            )


ClientsFactory = Callable[[Callable[[], bool]], Clients]
"""Makes clients; the argument tells whether to give up waiting."""


def admin_client(settings: Settings) -> AdminClient:
    """Raises UsageError for options that librdkafka does not take."""
    return _make(AdminClient, common_config(settings.bootstrap_servers, settings.kafka, f"{settings.group_id}-admin"))


def connect(settings: Settings, clock: Clock, is_stopping: Callable[[], bool]) -> Clients:
    """Clients for the settings. Blocks until Kafka has settled what an earlier life of this identity left open.

    Raises:
        ClientsLostError: Kafka refuses this sidecar's transactions.
        StoppedWaitingError: a stop was asked for meanwhile.
    """
    consumer = _make(
        Consumer,
        consumer_config(
            settings.bootstrap_servers,
            settings.kafka,
            group_id=settings.group_id,
            instance_id=settings.identity if settings.membership == "static" else None,
            session_timeout_ms=settings.session_timeout,
        ),
    )
    admin = admin_client(settings)

    def partitions(topic: str) -> list[TopicPartitionInfo]:
        # Describing a topic never makes a broker create it, as a producer's metadata request may. A consumer's would
        # not either, but it would wait behind that consumer's long poll.
        try:
            description = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[topic].result()
        except KafkaException as error:
            if error.args[0].code() in _NO_SUCH_TOPIC:
                return []
            raise
        return list(description.partitions)

    def count_partitions(topic: str) -> int:
        return len(partitions(topic))

    def replicas(topic: str) -> dict[int, Replicas]:
        return {
            info.id: Replicas(info.leader is not None, len(info.isr), len(info.replicas)) for info in partitions(topic)
        }

    def create_topic(topic: str) -> int:
        new = NewTopic(
            topic,
            num_partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            config=group_topic_configs(settings, topic),
        )
        try:
            admin.create_topics([new], operation_timeout=_TIMEOUT_S)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        # Another broker than the one that created it may not know of it yet.
        patience = Retrying(
            retry=retry_if_result(lambda partitions: partitions == 0),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(_TIMEOUT_S),
            retry_error_callback=lambda _: 0,
        )
        return patience(count_partitions, topic)

    def count_group_topics() -> int:
        names = settings.topic_names
        return sum(names.is_group_topic(topic) for topic in admin.list_topics(timeout=_TIMEOUT_S).topics)

    def identify(topic: str) -> tuple[str, str]:
        description = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[topic].result()
        return str(admin.list_topics(topic, timeout=_TIMEOUT_S).cluster_id), str(description.topic_id)

    return Clients(
        consumer,
        _publishing(settings, consumer, is_stopping),
        KafkaStartFinder(consumer, admin, clock),
        count_partitions,
        create_topic,
        replicas,
        count_group_topics,
        identify,
    )


def _publishing(settings: Settings, consumer: Consumer, is_stopping: Callable[[], bool]) -> Publishing:
    failures: list[tuple[str, int, KafkaError]] = []
    on_delivery = collect_failures(failures)
    servers, options = settings.bootstrap_servers, settings.kafka
    if settings.guarantee == "at_least_once":
        config = producer_config(servers, options, f"{settings.group_id}-producer")
        patience = {"message.timeout.ms": settings.transaction_timeout // 2}  # as within a transaction
        producer = _make(Producer, {**config, **patience, "on_delivery": on_delivery})
        return AtLeastOnce(
            producer, lambda offsets: consumer.commit(offsets=offsets, asynchronous=False), failures, is_stopping
        )
    producers = [
        _make(
            Producer,
            {
                **transactional_config(
                    servers,
                    options,
                    transactional_id=f"{settings.group_id}-{settings.identity}-{turn}",
                    transaction_timeout_ms=settings.transaction_timeout,
                ),
                "on_delivery": on_delivery,
            },
        )
        for turn in (0, 1)
    ]
    for producer in producers:
        with suppress(KafkaException):  # init_transactions on a client without a connection waits for half a second
            producer.list_topics(settings.topic_names.wheel, CALL_TIMEOUT_S)
    is_static = settings.membership == "static"  # then the metadata names the instance, and is never anybody's
    group_metadata = consumer.consumer_group_metadata if is_static else lambda: _group_metadata(consumer)
    return ExactlyOnce(producers, group_metadata, failures, is_stopping)


def _group_metadata(consumer: Consumer) -> Any:
    """What makes Kafka refuse the progress of a sidecar that is no member any more.

    Raises:
        ClientsLostError: it knows already that it is none; what it would tell then, Kafka takes from anybody.
    """
    member_id = consumer.memberid()
    metadata = consumer.consumer_group_metadata()
    if not member_id or consumer.memberid() != member_id:
        raise ClientsLostError("no member of the group any more")
    return metadata


def _make(client: Callable[[dict[str, Any]], T], config: dict[str, Any]) -> T:
    try:
        return client(config)
    except KafkaException as exception:
        raise UsageError(f"kafka: {exception.args[0].str()}; librdkafka's options are the ones to use") from exception
