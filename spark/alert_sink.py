"""Alerts into their topic, with the progress, in one transaction; and into metrics."""

import json
import time
from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from connectors.bounded_call import ends_within
from connectors.client_options import for_consumer, for_producer
from connectors.clock import Deadline, SystemClock
from connectors.kafka import common_config, transactional_config
from connectors.kafka_errors import PASSING
from connectors.until_answered import until_answered
from spark.alerts import Alert, Progress, as_json
from spark.errors import AuditError, NotAnsweredError
from spark.kafka_options import for_librdkafka
from spark.report.files import write_whole

MAX_DESTINATIONS = 100
"""Destinations with a counter of their own; those that come later are counted as ``other``."""

_TIMEOUT_S = 30.0
_AGAIN_S = 0.1
_TRANSACTION_TIMEOUT_MS = 600_000
"""A million alerts, when the sidecar has been down, are one transaction."""


class AlertMetrics:
    """Prometheus figures of the alerts, served or written to a file."""

    def __init__(self, file: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self._file = file
        self._destinations: set[str] = set()
        self._raised = Counter(
            "timewheel_audit_overdue",
            "Messages that were overdue and not delivered when they were judged.",
            ["destination"],
            registry=self.registry,
        )
        self._until = Gauge(
            "timewheel_audit_watched_until_timestamp_seconds",
            "Up to when everything that was due has been judged; an alert of its own, where it stands still.",
            registry=self.registry,
        )

    def judged(self, alerts: Mapping[str, int], until_ms: int) -> None:
        """Alerts by destination have been raised, and all that was due until then has been judged.

        Raises:
            AuditError: the file cannot be written.
        """
        for destination, count in alerts.items():
            name = destination
            if name not in self._destinations and len(self._destinations) >= MAX_DESTINATIONS:
                name = "other"
            self._destinations.add(name)
            self._raised.labels(name).inc(count)
        self._until.set(until_ms / 1000)
        if self._file is not None:
            try:
                write_whole(self._file, generate_latest(self.registry).decode())
            except OSError as error:
                raise AuditError(f"--metrics-file {self._file} cannot be written: {error.strerror}") from error


class KafkaAlerts:
    """The alerts topic.

    One at a time writes it: who comes later takes over, and the one before is refused.

    Args:
        options: librdkafka's, ``bootstrap.servers`` among them.
        group: whose committed metadata is the progress, and the transactional id.

    Raises:
        NotAnsweredError: Kafka does not answer.
    """

    def __init__(
        self, options: Mapping[str, str], topic: str, group: str, metrics: AlertMetrics, *, replication_factor: int = -1
    ) -> None:
        self._topic = topic
        self._group = group
        self._metrics = metrics
        self._place = TopicPartition(topic, 0)
        servers = options["bootstrap.servers"]
        others = {name: value for name, value in for_librdkafka(options).items() if name != "bootstrap.servers"}
        self._failures: list[KafkaError] = []
        self._is_left = False
        """Whether a call has not returned: the producer takes no other."""
        try:
            _create_topic(AdminClient(common_config(servers, for_producer(others), group)), topic, replication_factor)
            self._producer = Producer(
                {
                    **transactional_config(
                        servers,
                        for_producer(others),
                        transactional_id=group,
                        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                    ),
                    "on_delivery": self._on_delivery,
                }
            )
            self._producer.init_transactions(_TIMEOUT_S)  # fences whoever was before, and ends what it left open
            self._consumer = Consumer(
                {
                    **common_config(servers, for_consumer(others), group),
                    "group.id": group,
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
            )
        except KafkaException as error:
            raise NotAnsweredError(f"the alerts' topic {topic} cannot be written: {error.args[0].str()}") from error

    def progress(self) -> Progress | None:
        """As the last transaction left it."""
        try:
            committed = self._committed()
        except KafkaException as error:
            raise NotAnsweredError(f"the progress of {self._group} cannot be read: {error.args[0].str()}") from error
        if committed.offset < 0 or not committed.metadata:
            return None
        try:
            told = json.loads(committed.metadata)
            due_until_ms = told.get("due_until_ms")
            return Progress(int(told["judged_until_ms"]), None if due_until_ms is None else int(due_until_ms))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AuditError(
                f"the group {self._group} has committed '{committed.metadata[:80]}', which is not progress of alerts. "
                "Operator action: give the alerts a topic that no consumer group of that name reads"
            ) from error

    def put(self, alerts: Iterable[Alert], progress: Progress) -> int:
        """All of them and the progress, or nothing.

        Raises:
            AuditError: another one has taken over, or Kafka refuses them; nothing of it is seen.
        """
        raised: Counts[str] = Counts()
        producer = self._producer
        self._failures.clear()
        try:
            producer.begin_transaction()
            for alert in alerts:
                self._produce(json.dumps(as_json(alert)).encode(), alert.id.encode())
                raised[alert.destination or "none"] += 1
            place = TopicPartition(self._topic, 0, 0, json.dumps(progress._asdict()))
            self._send_offsets(place)
            until_answered(producer.commit_transaction)
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        except BaseException:  # Spark has failed meanwhile: readers are not to wait for the time-out
            if not self._is_left:
                with suppress(KafkaException):
                    producer.abort_transaction(_TIMEOUT_S)
            raise
        self._metrics.judged(raised, progress.judged_until_ms)
        return raised.total()

    def _send_offsets(self, place: TopicPartition) -> None:
        """The progress joins the transaction. librdkafka waits for as long as that may last, whatever it is told.

        Raises:
            NotAnsweredError: Kafka does not answer.
            KafkaException: it refuses.
        """
        metadata = self._consumer.consumer_group_metadata()

        def send() -> None:
            self._producer.send_offsets_to_transaction([place], metadata, _TIMEOUT_S)

        if not ends_within(_TIMEOUT_S, send, "alerts-progress"):
            self._is_left = True
            raise NotAnsweredError(
                f"Kafka does not take the progress of {self._group} within {_TIMEOUT_S:.0f} s; what this look has "
                "found is not seen, and a start raises it"
            )

    def close(self) -> None:
        self._consumer.close()

    def _committed(self) -> TopicPartition:
        """What the group has committed; asked again where the partition's own answer is an error, which looks as if
        there were none: all alerts of the last hour would be raised again.

        Raises:
            KafkaException: it does not become known.
        """
        deadline = Deadline(SystemClock(), _TIMEOUT_S)
        while True:
            (committed,) = self._consumer.committed([self._place], _TIMEOUT_S)
            if committed.error is None:
                return committed
            if deadline.left_s == 0:
                raise KafkaException(committed.error)
            time.sleep(_AGAIN_S)

    def _produce(self, value: bytes, key: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failures.append(error)

    def _refused(self, error: KafkaError) -> AuditError:
        reason = (self._failures or [error])[0].str()
        if error.fatal():
            return AuditError(
                f"another 'audit alert' of the group {self._group} has taken over, or a broker was restarted "
                f"({error.str()}); start it again if no other is to run"
            )
        try:
            until_answered(self._producer.abort_transaction)
        except KafkaException as failed:
            reason = f"{reason}; {failed.args[0].str()}"
        if error.code() in PASSING:
            return NotAnsweredError(f"Kafka does not take the alerts: {reason}; a start goes on where this one was")
        return AuditError(f"Kafka refuses the alerts: {reason}; start it again, and it goes on where it was")


def _create_topic(admin: AdminClient, topic: str, replication_factor: int) -> None:
    if topic in admin.list_topics(timeout=_TIMEOUT_S).topics:
        return
    try:
        admin.create_topics([NewTopic(topic, 1, replication_factor)])[topic].result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
