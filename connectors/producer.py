"""Schedules records: a Kafka producer that writes to the schedule topics and hands out receipts."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectors.contract import DelayLevels, Header, TopicNames, is_legal_topic_name
from connectors.receipt import Receipt

HeaderPairs = Iterable[tuple[str, bytes | str | None]]


class ScheduleError(ValueError):
    """The record cannot be scheduled as asked."""


class ScheduledProducer:
    """Schedules records by delay level.

    Args:
        config: librdkafka's; the partitioner is set to Kafka's own (murmur2), so that keys land where a Java producer
            would put them.
        names: names of the schedule topics, for sidecars with a prefix or templates of their own.
        levels: the sidecar's delay levels.
    """

    def __init__(
        self, config: Mapping[str, Any], *, names: TopicNames | None = None, levels: DelayLevels | None = None
    ) -> None:
        self._producer = Producer({"enable.idempotence": True, **config, "partitioner": "murmur2_random"})
        self._names = names or TopicNames()
        self._levels = levels

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        level: int,
        key: bytes | str | None = None,
        headers: HeaderPairs = (),
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Schedule one record and wait for Kafka's acknowledgement.

        Args:
            level: the delay level, from 1; clamped to the last.

        Raises:
            ScheduleError: the topic or the level cannot be used.
            KafkaException: Kafka refused the record, or did not answer in time; then it is not known whether it waits.
        """
        destination = self._names.physical(topic)
        if not is_legal_topic_name(destination):
            raise ScheduleError(f"'{topic}' is no legal topic name (at most 249 letters, digits, '.', '_' and '-')")
        if level < 1:
            raise ScheduleError(f"level {level} does not exist; levels are counted from 1")
        clamped = self._levels.clamp(level) if self._levels else level
        carried = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers]
        ids = [text for name, text in carried if name == Header.UNIQ_KEY and text]
        if not ids:
            ids = [uuid.uuid4().hex.encode()]
            carried.append((str(Header.UNIQ_KEY), ids[0]))
        carried.append((str(Header.REAL_TOPIC), destination.encode()))
        schedule_topic = self._names.level(clamped)
        acknowledged = self._produce(schedule_topic, value, key, carried, timeout_s)
        _, timestamp_ms = acknowledged.timestamp()
        return Receipt(
            schedule_topic=schedule_topic,
            partition=acknowledged.partition() or 0,
            id=ids[-1].decode(errors="backslashreplace"),
            topic=destination,
            deliver_ms=timestamp_ms + (self._levels.delay_ms(clamped) if self._levels else 0),
            cancellable=False,
        )

    def _produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: list[tuple[str, bytes | None]],
        timeout_s: float,
    ) -> Message:
        answers: list[tuple[KafkaError | None, Message]] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            answers.append((error, message))

        self._producer.produce(topic, value, key, headers=list(headers), on_delivery=on_delivery)
        self._producer.flush(timeout_s)
        if not answers:
            silence = f"no acknowledgement from {topic} within {timeout_s:.0f} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, silence))
        error, message = answers[0]
        if error is not None:
            raise KafkaException(error)
        return message
