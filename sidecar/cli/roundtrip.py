"""``timewheel roundtrip``: is delivery alive? Schedules through a level and the wheel, and waits for both."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.contract import Headers
from connectors.kafka import HEADER_ERRORS, common_config
from connectors.kafka_errors import is_about_group
from sidecar.cli.options import with_settings
from sidecar.cli.scheduling import KAFKA_SETTINGS, scheduled_producer
from sidecar.cli.times import duration_ms
from sidecar.errors import TimewheelError
from sidecar.kafka import topics
from sidecar.kafka.failure import failure
from sidecar.settings import Settings

_TIMEOUT_S = 10.0
_RETENTION_MS = 3_600_000
"""Of the topic that is created: nobody reads what is older than this command."""


class Delivered(NamedTuple):
    """How a message came back."""

    via: str
    lateness_ms: int


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel roundtrip --topic timewheel-roundtrip --timeout 30s")(roundtrip)


@with_settings(only=KAFKA_SETTINGS)
def roundtrip(
    settings: Settings,
    topic: Annotated[
        str, typer.Option(help="The topic to deliver to; it is created where it is missing.")
    ] = "timewheel-roundtrip",
    timeout: Annotated[str, typer.Option(help="How long to wait, such as 30s, after the delay.")] = "30s",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Schedule two messages, by level 1 and by the wheel, and wait until both are delivered.

    Exit code 1 when one does not come: then no sidecar delivers, or it may not deliver to that topic.
    """
    waiting_ms = duration_ms("--timeout", timeout)
    admin = topics.reach_kafka(settings)
    topic = settings.topic_names.physical(topic)
    _have_topic(admin, topic)
    delay_ms = settings.levels.delay_ms(1)
    with _reader(settings, admin, topic) as reader, scheduled_producer(settings) as producer:
        key = uuid.uuid4().hex
        sent = {
            producer.send(topic, "roundtrip", key=key, level=1).id: "level 1",
            producer.send(topic, "roundtrip", key=key, delay_ms=delay_ms).id: "wheel",
        }
        delivered = _wait_for(reader, sent, time.monotonic() + (delay_ms + waiting_ms) / 1000)
    if as_json:
        typer.echo(json.dumps({"topic": topic, "delivered": [each._asdict() for each in delivered]}))
    else:
        for each in delivered:
            typer.echo(f"{each.via}: delivered to {topic}, {each.lateness_ms} ms after it was due")
    if missing := sorted(set(sent.values()) - {each.via for each in delivered}):
        raise TimewheelError(
            f"nothing came back by {' and '.join(missing)} within {timeout} of its time; "
            "ask 'timewheel status', and look for it with 'timewheel dlq show'"
        )


def _have_topic(admin: AdminClient, topic: str) -> None:
    if topic in admin.list_topics(timeout=_TIMEOUT_S).topics:
        return
    new = NewTopic(topic, num_partitions=1, config={"retention.ms": str(_RETENTION_MS)})
    try:
        admin.create_topics([new], operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            remedy = f"allow this login to create {topic}, or create it as one that may (docs/security.md)"
            raise topics.not_created(error.args[0], topic, remedy) from error
    topics.wait_for_topics(admin, [topic])


@contextmanager
def _reader(settings: Settings, admin: AdminClient, topic: str) -> Iterator[Consumer]:
    """A consumer that stands at the end of the topic, and belongs to no group."""
    consumer = Consumer(
        {
            "fetch.wait.max.ms": 100,
            **common_config(settings.bootstrap_servers, settings.kafka, "timewheel-roundtrip"),
            "group.id": "timewheel-roundtrip",  # librdkafka wants one; nothing is committed under it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        places = [
            TopicPartition(topic, number) for number in admin.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        ]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, _TIMEOUT_S)[1]
        consumer.assign(places)
        yield consumer
    except KafkaException as error:
        raise failure(error.args[0], f"topic {topic} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _wait_for(reader: Consumer, sent: dict[str, str], deadline_s: float) -> list[Delivered]:
    """The messages that have arrived by the deadline, in the order of their arrival."""
    delivered: dict[str, Delivered] = {}
    while len(delivered) < len(sent) and (left_s := deadline_s - time.monotonic()) > 0:
        message = reader.poll(min(left_s, 1.0))
        if message is None or is_about_group(message.error()):
            continue
        if (error := message.error()) is not None:
            raise KafkaException(error)
        headers = _headers(message)
        if (via := sent.get(headers.get("UNIQ_KEY", ""))) is not None:
            lateness_ms = message.timestamp()[1] - int(headers["TIMER_OUT_MS"])
            delivered[via] = Delivered(via, lateness_ms)
    return list(delivered.values())


def _headers(message: Message) -> dict[str, str]:
    """Headers as text; none where they cannot be read: the record is another's."""
    try:
        headers: Headers = message.headers() or []  # type: ignore[assignment]
    except HEADER_ERRORS:
        return {}
    return {name: (value or b"").decode(errors="replace") for name, value in headers}
