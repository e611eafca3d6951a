"""An admin client with the methods of `confluent_kafka.admin.AdminClient` that a scheduler and its tests use.

Everything is answered at once; futures are confluent-kafka's, done when they are handed out.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka._model import Node, TopicPartitionInfo
from confluent_kafka.admin import (
    AclOperation,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    DeletedRecords,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from connectors.testing.client import Client
from connectors.testing.errors import failure, words
from connectors.testing.faults import Fault, Kind
from connectors.testing.log import PartitionLog
from connectors.testing.metadata import BROKER_ID, HOST, PORT, cluster_metadata
from connectors.testing.topics import DEFAULT_CONFIGS, is_legal_name

K = TypeVar("K")

_TIMEOUT_S = 60.0
_TOPIC_OPERATIONS = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")


class InMemoryAdmin(Client):
    """Looks at the cluster and changes topics."""

    def poll(self, timeout: float = -1) -> int:
        """No callback is told anything."""
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        if _timed_out(self._before("metadata", timeout)) or _timed_out(self._after("metadata", timeout)):
            raise failure(KafkaError._TIMED_OUT, f"Failed to get metadata: {words(KafkaError._TIMED_OUT)}")
        return cluster_metadata(self._kafka.topics, topic)

    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        operation_timeout: float = 0,
        request_timeout: float = _TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[str, "Future[None]"]:
        def create(new: NewTopic) -> None:
            self._check_new(new)
            if not validate_only:
                self._kafka.create_topic(new.topic, max(new.num_partitions, 1), dict(new.config or {}))

        return self._each("create_topics", {new.topic: new for new in new_topics}, create, request_timeout)

    def delete_topics(
        self, topics: Sequence[str], *, operation_timeout: float = 0, request_timeout: float = _TIMEOUT_S
    ) -> dict[str, "Future[None]"]:
        def delete(topic: str) -> None:
            self._check_exists(topic)
            self._kafka.delete_topic(topic)

        return self._each("delete_topics", {topic: topic for topic in topics}, delete, request_timeout)

    def describe_topics(
        self,
        topics: TopicCollection,
        *,
        include_authorized_operations: bool = False,
        request_timeout: float = _TIMEOUT_S,
    ) -> dict[str, "Future[TopicDescription]"]:
        def describe(name: str) -> TopicDescription:
            self._check_exists(name)
            topic = self._kafka.topics[name]
            node = Node(BROKER_ID, HOST, PORT)
            partitions = [
                TopicPartitionInfo(log.number, node, [node], [node])
                if self._kafka.has_leader(name, log.number)
                else TopicPartitionInfo(log.number, None, [node], [])  # type: ignore[arg-type]
                for log in topic.logs
            ]
            allowed = self._allowed(name) if include_authorized_operations else None
            return TopicDescription(name, topic.id, name.startswith("__"), partitions, allowed)

        return self._each("describe_topics", {name: name for name in topics.topic_names}, describe, request_timeout)

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = _TIMEOUT_S,
    ) -> dict[TopicPartition, "Future[ListOffsetsResultInfo]"]:
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED

        def are_led() -> bool:
            return all(self._kafka.has_leader(asked.topic, asked.partition) for asked in topic_partition_offsets)

        is_led = self._kafka.wait(request_timeout, are_led)  # librdkafka looks for all leaders before it asks any

        def find(asked: tuple[TopicPartition, OffsetSpec]) -> ListOffsetsResultInfo:
            if not is_led:
                raise failure(
                    KafkaError._TIMED_OUT, f"Failed to query partition leaders: {words(KafkaError._TIMED_OUT)}"
                )
            log = self._kafka.log(asked[0].topic, asked[0].partition)
            if log is None:
                raise failure(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
            offset, timestamp_ms = _offset(log, int(asked[1]._value), is_committed=is_committed)
            epoch = log.epoch_of(offset) if self._kafka.tells_epochs and offset >= 0 else -1
            return ListOffsetsResultInfo(offset, timestamp_ms, epoch)

        return self._each(
            "list_offsets",
            {partition: (partition, spec) for partition, spec in topic_partition_offsets.items()},
            find,
            request_timeout,
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float = _TIMEOUT_S
    ) -> dict[ConfigResource, "Future[dict[str, ConfigEntry]]"]:
        def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            if resource.restype is ResourceType.BROKER:
                return _entries(self._kafka.broker_configs, {}, ConfigSource.STATIC_BROKER_CONFIG)
            self._check_exists(resource.name)
            return _entries(DEFAULT_CONFIGS, self._kafka.topics[resource.name].overrides, ConfigSource.DEFAULT_CONFIG)

        return self._each("describe_configs", {resource: resource for resource in resources}, describe, request_timeout)

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], *, request_timeout: float = _TIMEOUT_S, **_: object
    ) -> dict[TopicPartition, "Future[DeletedRecords]"]:
        def delete(partition: TopicPartition) -> DeletedRecords:
            log = self._kafka.log(partition.topic, partition.partition)
            if log is None:
                raise failure(KafkaError.UNKNOWN_TOPIC_OR_PART)
            if partition.offset > log.end:
                raise failure(KafkaError.OFFSET_OUT_OF_RANGE)
            log.delete_before(log.end if partition.offset < 0 else partition.offset)
            return DeletedRecords(log.begin)

        return self._each("delete_records", {p: p for p in topic_partition_offsets}, delete, request_timeout)

    # ------------------------------------------------------------------------------------------------------------------

    def _each(
        self, call: str, asked: Mapping[K, Any], answer: Callable[[Any], Any], timeout_s: float
    ) -> dict[K, "Future[Any]"]:
        """One future per item. A time-out before the effect comes instead of it, one after it besides."""
        reason = f"Failed while waiting for response from broker: {words(KafkaError._TIMED_OUT)}"
        is_lost = _timed_out(self._before(call, timeout_s))
        futures: dict[K, Future[Any]] = {key: Future() for key in asked}
        outcomes: dict[K, tuple[Any, BaseException | None]] = {}
        if not is_lost:
            for key, item in asked.items():
                try:
                    outcomes[key] = answer(item), None
                except Exception as failed:  # noqa: BLE001
                    outcomes[key] = None, failed
            is_lost = _timed_out(self._after(call, timeout_s))
        for key, future in futures.items():
            if is_lost:
                future.set_exception(failure(KafkaError._TIMED_OUT, reason))
            elif (failed_with := outcomes[key][1]) is not None:
                future.set_exception(failed_with)
            else:
                future.set_result(outcomes[key][0])
        return futures

    def _allowed(self, topic: str) -> list[str | int | AclOperation]:
        """What may be done to a topic: everything, but write where a standing rule refuses that."""
        denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
        is_denied = any((rule.topic, rule.code) == (topic, denied) for rule in self._kafka.faults.refusals)
        names = [name for name in _TOPIC_OPERATIONS if not (is_denied and name == "WRITE")]
        return [AclOperation[name].value for name in names]

    def _check_exists(self, topic: str) -> None:
        if topic not in self._kafka.topics:
            raise failure(KafkaError.UNKNOWN_TOPIC_OR_PART if is_legal_name(topic) else KafkaError.TOPIC_EXCEPTION)

    def _check_new(self, new: NewTopic) -> None:
        if not is_legal_name(new.topic):
            reason = (
                f"Topic name is invalid: '{new.topic}' contains one or more characters other than ASCII "
                "alphanumerics, '.', '_' and '-'"
            )
            raise failure(KafkaError.TOPIC_EXCEPTION, reason)
        if new.topic in self._kafka.topics:
            raise failure(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{new.topic}' already exists.")
        for name in new.config or {}:
            if name not in DEFAULT_CONFIGS:
                raise failure(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if new.num_partitions == 0:
            raise failure(
                KafkaError.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )


def _offset(log: PartitionLog, spec: int, *, is_committed: bool) -> tuple[int, int]:
    """Offset and timestamp; -1 is "none"."""
    if spec == int(OffsetSpec.earliest()._value):
        return log.begin, -1
    if spec == int(OffsetSpec.latest()._value):
        return log.stable_end if is_committed else log.end, -1
    found = log.latest() if spec == int(OffsetSpec.max_timestamp()._value) else log.first_at(spec)
    return found if found is not None else (-1, -1)


def _entries(defaults: Mapping[str, str], overrides: Mapping[str, str], source: ConfigSource) -> dict[str, ConfigEntry]:
    entries = {name: ConfigEntry(name, value, source=source, is_default=True) for name, value in defaults.items()}
    for name, value in overrides.items():
        entries[name] = ConfigEntry(name, value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return entries


def _timed_out(fault: Fault | None) -> bool:
    return fault is not None and fault.kind is Kind.TIME_OUT
