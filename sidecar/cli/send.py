"""``timewheel send``, ``cancel`` and ``reschedule``: schedule from the command line."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException

from connectors.durations import DurationError, parse_duration_ms
from connectors.kafka import common_config
from connectors.producer import ScheduledProducer, ScheduleError
from connectors.receipt import Receipt, ReceiptError
from sidecar import topics
from sidecar.cli.options import with_settings
from sidecar.clients import admin_client
from sidecar.errors import TimewheelError, UsageError
from sidecar.settings import Settings

_SETTINGS = ("bootstrap_servers", "kafka", "topic_prefix", "levels")

Delay = Annotated[str | None, typer.Option(help="Deliver after this long, such as 90s or 1h30m.")]
At = Annotated[str | None, typer.Option(help="Deliver at this time (ISO 8601 with a zone).")]
ReceiptWord = Annotated[str, typer.Argument(help="The receipt that send printed.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel send --topic orders --key 17 --delay 90s 'order 17 is unpaid'")(send)
    app.command(epilog="Example: timewheel cancel RECEIPT")(cancel)
    app.command(epilog="Example: timewheel reschedule RECEIPT --delay 2h")(reschedule)


@with_settings(only=_SETTINGS)
def send(
    settings: Settings,
    topic: Annotated[str, typer.Option(help="The topic to deliver to.")],
    value: Annotated[str, typer.Argument(help="The record's value.")],
    delay: Delay = None,
    at: At = None,
    level: Annotated[int | None, typer.Option(help="The delay level, from 1.")] = None,
    key: Annotated[str | None, typer.Option(help="The record's key.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header as name=value; repeat for more.")] = None,
) -> None:
    """Schedule one record; prints a receipt as JSON once Kafka has it."""
    headers = [_header(text) for text in header or []]
    if level is not None and level < 1:
        raise UsageError(f"--level {level} does not exist; levels are counted from 1")
    if (delay is None) + (at is None) + (level is None) != 2:
        raise UsageError("say when with one of --delay, --at and --level")
    when = _when(delay, at) if level is None else {"level": level}
    with _producer(settings) as producer:
        receipt = producer.send(topic, value, key=key, headers=headers, **when)
    typer.echo(json.dumps(receipt.to_dict()))


@with_settings(only=_SETTINGS)
def cancel(settings: Settings, receipt: ReceiptWord) -> None:
    """Take a scheduled message back; done once Kafka has the cancel."""
    told = _receipt(receipt)
    with _producer(settings) as producer:
        partition, offset = producer.cancel(told)
    typer.echo(json.dumps({"id": told.id, "partition": partition, "offset": offset}))


@with_settings(only=_SETTINGS)
def reschedule(settings: Settings, receipt: ReceiptWord, delay: Delay = None, at: At = None) -> None:
    """Give a scheduled message another time; prints the new receipt."""
    told = _receipt(receipt)
    if (delay is None) == (at is None):
        raise UsageError("say when with one of --delay and --at")
    when = _when(delay, at)
    with _producer(settings) as producer:
        again = producer.reschedule(told, **when)
    typer.echo(json.dumps(again.to_dict()))


@contextmanager
def _producer(settings: Settings) -> Iterator[ScheduledProducer]:
    admin = admin_client(settings)
    topics.reach_kafka(admin, settings.bootstrap_servers)
    try:
        yield ScheduledProducer(
            common_config(settings.bootstrap_servers, settings.kafka, "timewheel-send"),
            names=settings.topic_names,
            levels=settings.levels,
        )
    except ScheduleError as error:
        raise UsageError(str(error)) from error
    except KafkaException as error:
        raise TimewheelError(f"Kafka has not taken the record: {error.args[0].str()}") from error


def _when(delay: str | None, at: str | None) -> dict[str, Any]:
    if delay is not None:
        try:
            return {"delay_ms": parse_duration_ms(delay)}
        except DurationError as error:
            raise UsageError(f"--delay: {error}") from error
    try:
        deliver_at = datetime.fromisoformat(at or "")
    except ValueError as error:
        raise UsageError(f"--at '{at}' is no ISO 8601 time, such as 2030-01-31T09:00:00+01:00") from error
    if deliver_at.utcoffset() is None:
        raise UsageError(f"--at '{at}' has no time zone; add one, such as {at}+00:00")
    return {"deliver_at": deliver_at}


def _receipt(word: str) -> Receipt:
    try:
        return Receipt.decode(sys.stdin.read() if word == "-" else word)
    except ReceiptError as error:
        raise UsageError(str(error)) from error


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--header '{text}' is not name=value")
    return name, value
