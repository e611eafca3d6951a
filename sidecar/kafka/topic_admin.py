"""What the loop asks of Kafka about topics, and the topics it creates."""

from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartitionInfo
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, TopicDescription
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from connectors.contract import Place
from sidecar.dispatch.outages import Replicas
from sidecar.kafka.topic_plan import group_topic_configs
from sidecar.settings import Settings

_TIMEOUT_S = 5.0
_BROKERS_WITHIN_S = 1.0
_CREATED_WITHIN_S = 1.0
"""How long the loop, and every delivery with it, waits for a new topic to be made, and then to be shown. Kafka goes on
with it after that, and a later question finds it."""
_NO_SUCH_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


class TopicsSeen(NamedTuple):
    """How topics are."""

    leaderless: set[Place]
    """Partitions that no broker leads."""
    ids: dict[str, str]
    """By topic, of those that there are; one that is made anew has another."""
    closed: frozenset[str] = frozenset()
    """Those that this login may not read; known only where that was asked for."""


class TopicAdmin:
    """Asks through an admin client, which never makes a broker create a topic, as a producer's question may.

    A consumer's would not either, but it would wait behind that consumer's long poll. Every method raises
    KafkaException where Kafka does not answer.
    """

    def __init__(self, admin: AdminClient, settings: Settings) -> None:
        self._admin = admin
        self._settings = settings

    def count_partitions(self, topics: Collection[str]) -> dict[str, int]:
        """0 where there is no such topic."""
        return {topic: len(infos) for topic, infos in self._partitions(topics).items()}

    def ids_and_counts(self, topics: Collection[str]) -> dict[str, tuple[str, int]]:
        """The id of each topic that there is, and how many partitions it has."""
        described = self._described(topics, _TIMEOUT_S)
        return {topic: (str(seen.topic_id), len(seen.partitions)) for topic, seen in described.items()}

    def replicas(self, topic: str) -> dict[int, Replicas]:
        """How each partition of a topic is; empty where there is no such topic."""
        return {
            info.id: Replicas(info.leader is not None, len(info.isr), len(info.replicas))
            for info in self._partitions([topic])[topic]
        }

    def look(
        self, topics: Collection[str], timeout_s: float = _TIMEOUT_S, *, with_rights: bool = False
    ) -> "TopicsSeen":
        """What is to be known of topics before they are read, and while they are, with one question."""
        described = self._described(topics, timeout_s, with_rights=with_rights)
        return TopicsSeen(
            {(topic, info.id) for topic, seen in described.items() for info in seen.partitions if info.leader is None},
            {topic: str(seen.topic_id) for topic, seen in described.items()},
            frozenset(topic for topic, seen in described.items() if _is_closed(seen)),
        )

    def create_topic(self, topic: str) -> int:
        """How many partitions it has then; 0 where that is not known in time.

        Raises:
            KafkaException: Kafka refuses, or has not answered yet.
        """
        new = NewTopic(
            topic,
            num_partitions=self._settings.partitions,
            replication_factor=self._settings.replication_factor,
            config=group_topic_configs(self._settings, topic),
        )
        try:
            with self._asking_the_controller():
                self._create(new)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        # Another broker than the one that created it may not know of it yet.
        patience = Retrying(
            retry=retry_if_result(lambda partitions: partitions == 0),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(_CREATED_WITHIN_S),
            retry_error_callback=lambda _: 0,
        )
        return patience(lambda: self.count_partitions([topic])[topic])

    def count_group_topics(self) -> int:
        """How many retry and dead-letter topics there are."""
        names = self._settings.topic_names
        return sum(names.is_group_topic(topic) for topic in self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def identify(self, topic: str) -> tuple[str, str]:
        """The ids of the cluster and of a topic: a topic that is made anew has another."""
        with self._asking_the_controller():
            asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
            described = asked[topic].result()
        return str(self._admin.list_topics(topic, timeout=_TIMEOUT_S).cluster_id), str(described.topic_id)

    def _create(self, new: NewTopic) -> None:
        try:
            # Without a time-out of its own a request waits for librdkafka's 60 s, and the loop with it.
            asked = self._admin.create_topics([new], operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
            asked[new.topic].result(_CREATED_WITHIN_S)
        except TimeoutError:
            words = f"no answer within {_CREATED_WITHIN_S:.0f} s to the creation of {new.topic}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words)) from None

    @contextmanager
    def _asking_the_controller(self) -> Iterator[None]:
        """Around what librdkafka asks the broker that Kafka has named as controller; with KRaft any that is alive.

        It does not notice that this one is gone, and waits for it each time (seen with 2.16, of three brokers one
        killed: every question timed out for as long as it was watched). What any broker answers names another.
        """
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:
                with suppress(KafkaException):
                    self._admin.list_topics(timeout=_BROKERS_WITHIN_S)
            raise

    def _partitions(
        self, topics: Collection[str], timeout_s: float = _TIMEOUT_S
    ) -> dict[str, list[TopicPartitionInfo]]:
        described = self._described(topics, timeout_s)
        return {topic: list(described[topic].partitions) if topic in described else [] for topic in topics}

    def _described(
        self, topics: Collection[str], timeout_s: float, *, with_rights: bool = False
    ) -> dict[str, TopicDescription]:
        """Those that there are."""
        with self._asking_the_controller():
            asked = self._admin.describe_topics(
                TopicCollection(list(topics)), include_authorized_operations=with_rights, request_timeout=timeout_s
            )
            found = {topic: _described(answer) for topic, answer in asked.items()}
        return {topic: description for topic, description in found.items() if description is not None}


def _is_closed(description: TopicDescription) -> bool:
    return bool(description.authorized_operations) and AclOperation.READ not in description.authorized_operations


def _described(answer: Future[TopicDescription]) -> TopicDescription | None:
    """None where there is no such topic."""
    try:
        return answer.result()
    except KafkaException as error:
        if error.args[0].code() in _NO_SUCH_TOPIC:
            return None
        raise
