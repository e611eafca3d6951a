"""The Kafka clients of one session: made together, thrown away together."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception_type, wait_fixed

from connectors.bounded_call import ends_within
from connectors.contract import Place
from connectors.kafka import (
    UNPOLLED,
    common_config,
    consumer_config,
    delivery_timeout,
    producer_config,
    transactional_config,
)
from connectors.kafka_errors import is_about_group
from connectors.static_member import name_for
from sidecar.clock import Clock
from sidecar.dispatch.transactions import CALL_TIMEOUT_S, AtLeastOnce, ExactlyOnce, Publishing, collect_failures
from sidecar.errors import ClientsLostError, StoppedWaitingError, UsageError
from sidecar.intake.start_finder import KafkaStartFinder, StartFinder
from sidecar.kafka.throttling import Throttling
from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.settings import Settings

log = structlog.get_logger("timewheel")

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 1.0
_ASKED_AGAIN_S = 0.2


@dataclass
class Clients:
    """What the loop needs of Kafka."""

    consumer: Consumer
    publishing: Publishing
    starts: StartFinder
    topics: TopicAdmin
    throttling: Throttling

    def close(self) -> None:
        """Leave, or keep the place in the group (static members), and release everything."""
        self.publishing.close()
        _close(self.consumer)


def admin_client(settings: Settings, *, role: str = "admin", **told_by: Any) -> AdminClient:
    """An admin client. Raises UsageError for options that librdkafka does not take.

    Args:
        told_by: ``error_cb`` and ``logger``, for a client that is polled. With any other the lines of librdkafka's log
            would pile up, one a second for each broker that is away: they are not made.
    """
    options = settings.kafka if told_by else {**UNPOLLED, **settings.kafka}
    config = common_config(settings.bootstrap_servers, options, f"{settings.group_id}-{role}")
    return _make(AdminClient, {**config, **(told_by or {"log_level": 0})})


def outside_consumer(settings: Settings, *, role: str) -> Consumer:
    """A consumer of the group that never joins it, for `committed_offsets`. Raises UsageError, as `admin_client`."""
    config = common_config(settings.bootstrap_servers, {**UNPOLLED, **settings.kafka}, f"{settings.group_id}-{role}")
    # Uncommitted: a commit that is under way is not waited for.
    own = {"group.id": settings.group_id, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    return _make(Consumer, {**config, **own, "log_level": 0})


def committed_offsets(consumer: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> dict[Place, int]:
    """The group's offsets by topic and partition, as `committed_progress` finds them."""
    return {(place.topic, place.partition): place.offset for place in committed_progress(consumer, places, timeout_s)}


def committed_progress(consumer: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """The group's progress, with the metadata beside the offsets; places that have none are left out.

    An admin client's ListConsumerGroupOffsets ends the whole process (``Assertion `eonce->refcnt > 0' failed``) where a
    broker goes away meanwhile: confluentinc/librdkafka issue 3663 and pull request 5397, seen with 2.16.

    Raises:
        KafkaException: Kafka does not answer, or refuses.
    """
    try:
        found = consumer.committed(list(places), timeout_s) if places else []
    except KafkaException:
        told = consumer.poll(0)  # only who polls is told that the group may not be read
        if told is not None and is_about_group(told.error()):
            raise KafkaException(told.error()) from None
        raise
    if refused := next((place.error for place in found if place.error is not None), None):
        raise KafkaException(refused)
    return [place for place in found if place.offset >= 0]


def connect(settings: Settings, clock: Clock, is_stopping: Callable[[], bool], tell: Callable[[str], None]) -> Clients:
    """Clients for the settings. Blocks until Kafka has settled what an earlier life of this identity left open.

    Args:
        tell: told what Kafka keeps to itself, when a partition is to be read.

    Raises:
        ClientsLostError: Kafka refuses this sidecar's transactions.
        StoppedWaitingError: a stop was asked for meanwhile.
    """
    admin = admin_client(settings)
    topics = TopicAdmin(admin, settings)
    throttling = Throttling(clock)
    callbacks = {"throttle_cb": throttling.throttled}
    config = consumer_config(
        settings.bootstrap_servers,
        {**UNPOLLED, **settings.kafka},
        group_id=settings.group_id,
        instance_id=_instance_id(settings, topics, is_stopping) if settings.membership == "static" else None,
        session_timeout_ms=settings.session_timeout,
    )
    consumer = _make(Consumer, {**config, **callbacks})
    try:
        publishing = _publishing(settings, consumer, is_stopping, callbacks)
    except BaseException:
        _close(consumer)
        raise
    starts = KafkaStartFinder(consumer, admin, topics.look, clock, is_stopping, tell)
    return Clients(consumer, publishing, starts, topics, throttling)


def _instance_id(settings: Settings, topics: TopicAdmin, is_stopping: Callable[[], bool]) -> str:
    """The name of a static member: another one once there is a level or a partition more, or a topic is another.

    Those of a topic that was deleted, when the group gave them up, and made anew would be nobody's, too.

    Raises:
        StoppedWaitingError: a stop was asked for before Kafka has told which partitions there are.
    """
    answered = Retrying(
        retry=retry_if_exception_type(KafkaException),
        stop=lambda _state: is_stopping(),
        wait=wait_fixed(_ASKED_AGAIN_S),
        reraise=True,
    )
    try:
        told = answered(topics.ids_and_counts, settings.topic_names.schedule_topics(settings.levels))
    except KafkaException as error:
        raise StoppedWaitingError(f"describe_topics: {error}") from error
    return name_for(settings.identity, told.items())


def _close(consumer: Consumer) -> None:
    # librdkafka can wait for ever for a consumer that was fenced; it is left behind then, like a stuck transaction.
    if not ends_within(_CLOSE_TIMEOUT_S, consumer.close, "closing"):
        log.warning(
            "consumer left behind",
            operator_action="nothing: it does not close, and ends with the process; a new one is made",
        )


def _publishing(
    settings: Settings,
    consumer: Consumer,
    is_stopping: Callable[[], bool],
    callbacks: Mapping[str, Callable[..., None]],
) -> Publishing:
    failures: list[tuple[str, int, KafkaError]] = []
    callbacks = {**callbacks, "on_delivery": collect_failures(failures)}
    servers, options = settings.bootstrap_servers, {**UNPOLLED, **settings.kafka}
    if settings.guarantee == "at_least_once":
        config = producer_config(servers, options, f"{settings.group_id}-producer")
        config |= delivery_timeout(settings.transaction_timeout)  # as within a transaction
        producer = _make(Producer, {**config, **callbacks})
        return AtLeastOnce(producer, consumer.commit, failures, is_stopping)
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
                **callbacks,
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


def options_refused(exception: KafkaException) -> UsageError:
    """What librdkafka has against the options of a client that is to be made."""
    told = exception.args[0].str().strip()  # of a value out of range it ends with a line break
    return UsageError(f"kafka: {told}; librdkafka's options are the ones to use")


def _make(client: Callable[[dict[str, Any]], T], config: dict[str, Any]) -> T:
    try:
        return client(config)
    except KafkaException as exception:
        raise options_refused(exception) from exception
    except (TypeError, AttributeError) as error:  # confluent-kafka's own, of what has to be a function or an object
        raise UsageError(f"kafka: {error}; an option that is a function, such as error_cb, is for programs") from error
