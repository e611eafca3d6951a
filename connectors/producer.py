"""Schedules records: a Kafka producer that writes to the schedule topics and hands out receipts."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from connectors.contract import CONTROL_HEADERS, DelayLevels, Header, TopicNames, is_legal_topic_name
from connectors.receipt import Receipt

HeaderPairs = Iterable[tuple[str, bytes | str | None]]

_NOT_KEPT = CONTROL_HEADERS | {str(Header.UNIQ_KEY), str(Header.TIMER_REPLACE_UNIQKEY)}


class ScheduleError(ValueError):
    """The record cannot be scheduled as asked."""


class ScheduledProducer:
    """Schedules records for a time, after a delay, or by delay level; cancels and reschedules them.

    Args:
        config: librdkafka's; the partitioner is set to Kafka's own (murmur2), so that keys land where a Java producer
            would put them.
        names: names of the schedule topics, for sidecars with a prefix or templates of their own.
        levels: the sidecar's delay levels.
    """

    def __init__(
        self, config: Mapping[str, Any], *, names: TopicNames | None = None, levels: DelayLevels | None = None
    ) -> None:
        self._config = dict(config)
        self._producer = Producer({"enable.idempotence": True, **config, "partitioner": "murmur2_random"})
        self._names = names or TopicNames()
        self._levels = levels

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        deliver_at: datetime | None = None,
        delay_ms: int | None = None,
        level: int | None = None,
        key: bytes | str | None = None,
        headers: HeaderPairs = (),
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Schedule one record and wait for Kafka's acknowledgement.

        Args:
            deliver_at: a time with a zone.
            delay_ms: from the moment Kafka takes the record.
            level: the delay level, from 1; clamped to the last. Such a record cannot be cancelled.
            timeout_s: how long to wait for the acknowledgement.

        Raises:
            ScheduleError: not exactly one of ``deliver_at``, ``delay_ms`` and ``level``, or one that cannot be used.
            KafkaException: Kafka refused the record, or did not answer in time; then it is not known whether it waits.
        """
        destination = self._destination(topic)
        carried = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers]
        ids = [text for name, text in carried if name == Header.UNIQ_KEY and text]
        if not ids:
            ids = [uuid.uuid4().hex.encode()]
            carried.append((str(Header.UNIQ_KEY), ids[0]))
        carried.append((str(Header.REAL_TOPIC), destination.encode()))
        if level is not None:
            if deliver_at is not None or delay_ms is not None:
                raise ScheduleError("give one of deliver_at, delay and level")
            return self._send_to_level(destination, value, level, key, carried, ids[-1], timeout_s)
        when = _when(deliver_at, delay_ms)
        message = self._produce(self._names.wheel, value, key, None, [*carried, when], timeout_s)
        return self._receipt(message, ids[-1], destination, when)

    def cancel(self, receipt: Receipt, *, timeout_s: float = 30.0) -> tuple[int, int]:
        """Take a message back; returns the partition and offset of the cancel once Kafka has it.

        Whether it came in time is decided by the sidecar.

        Raises:
            ScheduleError: the message stands on a level topic.
        """
        _check_cancellable(receipt)
        headers: list[tuple[str, bytes | None]] = [
            (str(Header.TIMER_DEL_UNIQKEY), receipt.id.encode()),
            (str(Header.TIMER_DELIVER_MS), b"%d" % receipt.deliver_ms),
            (str(Header.REAL_TOPIC), receipt.topic.encode()),
        ]
        message = self._produce(receipt.schedule_topic, None, receipt.key, receipt.partition, headers, timeout_s)
        return message.partition() or 0, message.offset() or 0

    def reschedule(
        self,
        receipt: Receipt,
        *,
        deliver_at: datetime | None = None,
        delay_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Receipt:
        """Give a pending message another time: one record that replaces it, or does nothing if it has gone out.

        The message itself is read from the schedule topic.

        Raises:
            ScheduleError: the message stands on a level topic, or Kafka no longer has the record.
        """
        _check_cancellable(receipt)
        when = _when(deliver_at, delay_ms)
        original = self._read(receipt, timeout_s)
        given: list[tuple[str, bytes | None]] = original.headers() or []  # type: ignore[assignment]
        headers = [header for header in given if header[0] not in _NOT_KEPT]
        headers += [
            (str(Header.UNIQ_KEY), receipt.id.encode()),
            (str(Header.REAL_TOPIC), receipt.topic.encode()),
            (str(Header.TIMER_REPLACE_UNIQKEY), receipt.id.encode()),
            when,
        ]
        message = self._produce(
            receipt.schedule_topic, original.value(), original.key(), receipt.partition, headers, timeout_s
        )
        return self._receipt(message, receipt.id.encode(), receipt.topic, when)

    def _destination(self, topic: str) -> str:
        destination = self._names.physical(topic)
        if not is_legal_topic_name(destination):
            raise ScheduleError(f"'{topic}' is no legal topic name (at most 249 letters, digits, '.', '_' and '-')")
        return destination

    def _send_to_level(
        self,
        destination: str,
        value: bytes | str | None,
        level: int,
        key: bytes | str | None,
        headers: list[tuple[str, bytes | None]],
        uniq_key: bytes,
        timeout_s: float,
    ) -> Receipt:
        if level < 1:
            raise ScheduleError(f"level {level} does not exist; levels are counted from 1")
        clamped = self._levels.clamp(level) if self._levels else level
        message = self._produce(self._names.level(clamped), value, key, None, headers, timeout_s)
        return Receipt(
            schedule_topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            id=uniq_key.decode(errors="backslashreplace"),
            topic=destination,
            deliver_ms=message.timestamp()[1] + (self._levels.delay_ms(clamped) if self._levels else 0),
            cancellable=False,
        )

    def _receipt(self, message: Message, uniq_key: bytes, destination: str, when: tuple[str, bytes]) -> Receipt:
        name, text = when
        since_ms = message.timestamp()[1] if name == Header.TIMER_DELAY_MS else 0
        return Receipt(
            schedule_topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            id=uniq_key.decode(errors="backslashreplace"),
            topic=destination,
            deliver_ms=since_ms + int(text),
            key=message.key(),
        )

    def _read(self, receipt: Receipt, timeout_s: float) -> Message:
        """The record as it was scheduled."""
        consumer = Consumer(
            {
                **self._config,
                "group.id": "timewheel-reschedule",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            consumer.assign([TopicPartition(receipt.schedule_topic, receipt.partition, receipt.offset)])
            message = consumer.poll(timeout_s)
        finally:
            consumer.close()
        if message is None or message.error() is not None or message.offset() != receipt.offset:
            raise ScheduleError("Kafka no longer has the scheduled record; cancel it and send it again")
        return message

    def _produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int | None,
        headers: list[tuple[str, bytes | None]],
        timeout_s: float,
    ) -> Message:
        answers: list[tuple[KafkaError | None, Message]] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            answers.append((error, message))

        place = -1 if partition is None else partition
        self._producer.produce(topic, value, key, place, headers=list(headers), on_delivery=on_delivery)
        self._producer.flush(timeout_s)
        if not answers:
            silence = f"no acknowledgement from {topic} within {timeout_s:.0f} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, silence))
        error, message = answers[0]
        if error is not None:
            raise KafkaException(error)
        return message


def _check_cancellable(receipt: Receipt) -> None:
    if not receipt.cancellable:
        raise ScheduleError(
            "the message waits on a level topic, where it cannot be cancelled or replaced; "
            "schedule with a delay or a time for that"
        )


def _when(deliver_at: datetime | None, delay_ms: int | None) -> tuple[str, bytes]:
    """The time header."""
    if (deliver_at is None) == (delay_ms is None):
        raise ScheduleError("give one of deliver_at, delay and level")
    if delay_ms is not None:
        if delay_ms < 0:
            raise ScheduleError(f"a delay of {delay_ms} ms is negative")
        return str(Header.TIMER_DELAY_MS), b"%d" % delay_ms
    assert deliver_at is not None
    if deliver_at.utcoffset() is None:
        raise ScheduleError(f"{deliver_at.isoformat()} has no time zone; add one, such as +00:00")
    return str(Header.TIMER_DELIVER_MS), b"%d" % round(deliver_at.timestamp() * 1000)
