"""A Kafka producer that outlives its fatal errors.

librdkafka's producer is of no more use once its sequence numbers no longer fit the broker's: ``poll`` or ``flush``
raises the error, once, and ``produce`` refuses from then on (_FATAL). Here another producer takes its place with the
next record, and not before: where the error comes of a right that is missing, the next one is lost as soon as it has
connected. What the lost one had not sent is told as failed; what was on its way, as Kafka answers it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from connectors.clients import Clients
from connectors.clock import Deadline
from connectors.event_log import EventLog
from connectors.in_turns import TURN_S
from connectors.kafka_errors import is_fatal

_log = EventLog(logging.getLogger(__name__))

_PURGED_WITHIN_S = 1.0
"""How long the answers to what is given up may take, which no broker gives."""

OnDelivery = Callable[[KafkaError | None, Message], object]


class LastingProducer:
    """What `confluent_kafka.Producer` does without transactions. Any thread may use it."""

    def __init__(self, clients: Clients, config: Mapping[str, Any]) -> None:
        self._clients = clients
        self._config = dict(config)
        self.client: Any = clients.producer(self._config)
        """The producer in use. Whoever is in a hurry may call it, and `produce` of this class where it raises: it may
        be lost then."""
        self._lost: tuple[Any, ...] = ()
        """Producers that were replaced, until each of their records is answered."""
        self._replacing = threading.Lock()

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int,
        callback: OnDelivery,
        on_delivery: None,
        timestamp: int,
        headers: Any,
    ) -> None:
        """Queue a record. All arguments by position, as confluent-kafka has them: keywords cost 0.14 µs.

        Raises:
            BufferError: the queue is full.
            KafkaException: the client refuses the record.
        """
        client = self.client
        try:
            client.produce(topic, value, key, partition, callback, on_delivery, timestamp, headers)
        except KafkaException as exception:
            if not is_fatal(exception.args[0]):
                raise
        else:
            return
        # Outside of the handler, as in `ScheduledProducer.begin_send`.
        self._replace(client)
        self.client.produce(topic, value, key, partition, callback, on_delivery, timestamp, headers)

    def poll(self, timeout_s: float = 0.0) -> int:
        """Tell of the answers that have come, or wait for some; how many there were. Negative: for ever."""
        deadline = self._deadline(timeout_s)
        while True:
            told = sum([self._ask(lost, lambda client: client.poll(0)) for lost in self._lost])
            told += self._ask(self.client, lambda client: client.poll(min(TURN_S, deadline.left_s)))
            self._forget_answered()
            if told or deadline.left_s == 0:
                return told

    def flush(self, timeout_s: float) -> int:
        """Wait for the answer to everything; how many are still out. Negative: for ever."""
        deadline = self._deadline(timeout_s)
        while True:
            clients = (*self._lost, self.client)
            still_out = sum(
                [self._ask(each, lambda client: client.flush(min(TURN_S, deadline.left_s))) for each in clients]
            )
            self._forget_answered()
            if not still_out or deadline.left_s == 0:
                return still_out

    def give_up(self) -> int:
        """Everything that is still out fails (_PURGE_QUEUE; _PURGE_INFLIGHT where Kafka may have it), and is told;
        how many are out all the same."""
        for client in (*self._lost, self.client):
            client.purge()
        return self.flush(_PURGED_WITHIN_S)

    def list_topics(self, topic: str, timeout: float) -> Any:
        return self.client.list_topics(topic, timeout=timeout)

    def _deadline(self, timeout_s: float) -> Deadline:
        return Deadline(self._clients.clock, timeout_s if timeout_s >= 0 else inf)

    def _ask(self, client: Any, call: Callable[[Any], int]) -> int:
        try:
            return call(client)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if not is_fatal(error):
                raise
        _log.error(
            "producer lost",
            "a producer is of no more use: %s",
            error.str(),
            operator_action="nothing, if rare: another takes its place; else check the brokers, and the rights",
        )
        return call(client)  # the error is told once; what follows are the answers

    def _replace(self, lost: Any) -> None:
        with self._replacing:
            if self.client is lost:  # and not another thread has been here
                self.client = self._clients.producer(self._config)
                self._lost = (*self._lost, lost)

    def _forget_answered(self) -> None:
        if self._lost:
            with self._replacing:
                self._lost = tuple(lost for lost in self._lost if len(lost))
