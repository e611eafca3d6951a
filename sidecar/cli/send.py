"""``timewheel send``: schedule a record from the command line."""

import json
from typing import Annotated

import typer
from confluent_kafka import KafkaException

from connectors.kafka import common_config
from connectors.producer import ScheduledProducer, ScheduleError
from sidecar import topics
from sidecar.cli.options import with_settings
from sidecar.clients import admin_client
from sidecar.errors import TimewheelError, UsageError
from sidecar.settings import Settings


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel send --topic orders --key 17 --level 3 'order 17 is unpaid'")(send)


@with_settings(only=("bootstrap_servers", "kafka", "topic_prefix", "levels"))
def send(
    settings: Settings,
    value: Annotated[str, typer.Argument(help="The record's value.")],
    topic: Annotated[str, typer.Option(help="The topic to deliver to.")],
    level: Annotated[int, typer.Option(help="The delay level, from 1.")],
    key: Annotated[str | None, typer.Option(help="The record's key.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header as name=value; repeat for more.")] = None,
) -> None:
    """Schedule one record; prints a receipt as JSON once Kafka has it."""
    headers = [_header(text) for text in header or []]
    if level < 1:
        raise UsageError(f"--level {level} does not exist; levels are counted from 1")
    admin = admin_client(settings)
    topics.reach_kafka(admin, settings.bootstrap_servers)
    producer = ScheduledProducer(
        common_config(settings.bootstrap_servers, settings.kafka, "timewheel-send"),
        names=settings.topic_names,
        levels=settings.levels,
    )
    try:
        receipt = producer.send(topic, value, level=level, key=key, headers=headers)
    except ScheduleError as error:
        raise UsageError(str(error)) from error
    except KafkaException as error:
        raise TimewheelError(f"Kafka has not taken the record: {error.args[0].str()}") from error
    typer.echo(json.dumps(receipt.to_dict()))


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--header '{text}' is not name=value")
    return name, value
