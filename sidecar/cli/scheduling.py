"""What the commands that schedule and take back have in common: a producer, times, receipts."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, BinaryIO

import msgspec
import typer
from confluent_kafka import KafkaError, KafkaException

from connectors.kafka import common_config
from connectors.kafka_errors import MISSING
from connectors.producer import ScheduledProducer, ScheduleError
from connectors.receipt import Receipt, ReceiptError
from connectors.schedule_record import RecordGoneError
from sidecar.cli.times import duration_ms, time_of
from sidecar.errors import TimewheelError, UsageError
from sidecar.kafka import topics
from sidecar.kafka.clients import options_refused
from sidecar.kafka.failure import failure
from sidecar.schedule_request import too_far
from sidecar.settings import Settings

KAFKA_SETTINGS = ("bootstrap_servers", "kafka", "topic_prefix", "levels")
SETTINGS = (*KAFKA_SETTINGS, "max_delay")
"""Of the commands that name a time."""

ACKNOWLEDGED_WITHIN_S = 30
"""How long Kafka may take to acknowledge a record."""

_TOPIC_KNOWN_WITHIN_MS = 5_000
"""How long brokers may take to tell of a topic that has just been made. Beyond it there is none: that is certain, and a
record that has to wait for as long as for its acknowledgement would come to an end of which nothing is known."""

_QUEUE_MAX_KBYTES = 65_536
"""Of records that Kafka has not acknowledged: what a batch costs in memory, about."""

_UNKNOWN = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_INFLIGHT)
"""Kafka may have taken the record, and its answer was lost."""

Delay = Annotated[str | None, typer.Option(help="Deliver after this long, such as 90s or 1h30m.")]
At = Annotated[str | None, typer.Option("--at", "--deliver-at", help="Deliver at this time (ISO 8601 with a zone).")]

AlwaysJson = Annotated[bool, typer.Option("--json", help="Changes nothing: the output is always JSON.")]


@contextmanager
def scheduled_producer(
    settings: Settings, check: Callable[[ScheduledProducer], None] = lambda _: None
) -> Iterator[ScheduledProducer]:
    """A producer for the settings.

    Args:
        check: what can be told to be wrong, with `ScheduledProducer.check`, before Kafka is asked.

    Raises:
        KafkaUnreachableError: nobody answers.
        UsageError, TimewheelError: what the producer raises within, in the command's own words.
    """
    producer = _make_producer(settings)
    try:
        check(producer)
        topics.reach_kafka(settings)
        # From here on the outcome tells what there is to tell; single attempts are of no interest.
        logging.getLogger("librdkafka").disabled = True
        yield producer
    except RecordGoneError as error:
        raise TimewheelError(str(error)) from error
    except ScheduleError as error:
        raise UsageError(str(error)) from error
    except KafkaException as error:
        raise failure(error.args[0], not_taken(error.args[0])) from error
    finally:
        logging.getLogger("librdkafka").disabled = False


def _make_producer(settings: Settings) -> ScheduledProducer:
    config = {
        "message.timeout.ms": ACKNOWLEDGED_WITHIN_S * 1000,
        "topic.metadata.propagation.max.ms": _TOPIC_KNOWN_WITHIN_MS,
        "queue.buffering.max.kbytes": _QUEUE_MAX_KBYTES,
        **common_config(settings.bootstrap_servers, settings.kafka, "timewheel-send"),
    }
    try:
        return ScheduledProducer(config, names=settings.topic_names, levels=settings.levels)
    except KafkaException as exception:
        raise options_refused(exception) from exception


def not_taken(error: KafkaError, what: str = "record") -> str:
    """What Kafka's answer, or its silence, means for the record."""
    if error.code() in _UNKNOWN:
        return f"it is not known whether Kafka has taken the {what}, for it has not answered: {error.str()}"
    if error.code() in MISSING:
        return (
            f"Kafka has not taken the {what}: there is no such schedule topic or partition; start the sidecar, or run "
            "'timewheel topics create', and see that topic_prefix and levels are the sidecar's"
        )
    return f"Kafka has not taken the {what}: {error.str()}"


def print_receipt(receipt: Receipt) -> None:
    """Raises TimewheelError where it cannot be printed, which then has the receipt."""
    text = json.dumps(receipt.to_dict())
    try:
        typer.echo(text)
    except OSError as error:
        raise TimewheelError(f"it is scheduled, and its receipt cannot be printed: {error.strerror}: {text}") from error


def stdin() -> BinaryIO:
    """Raises UsageError where there is none."""
    if sys.stdin is None:
        raise UsageError("stdin is closed; name a file, or let the command read from something")
    return sys.stdin.buffer


def delivery_time(settings: Settings, delay: str | None, at: str | None) -> dict[str, Any]:
    """The producer's argument for one of ``--delay`` and ``--at``.

    Raises:
        UsageError: it is no time, or one that the sidecar would reject.
    """
    when: dict[str, Any]
    if delay is not None:
        given, when = f"--delay {delay}", {"delay_ms": duration_ms("--delay", delay)}
    else:
        given, when = f"--at {at}", {"deliver_at": time_of("--at", at or "")}
    if told := refused_as_too_far(settings, **when):
        raise UsageError(f"{given} {told}")
    return when


def refused_as_too_far(settings: Settings, *, deliver_at: datetime | None = None, delay_ms: int | None = None) -> str:
    """Why such a time is not written to Kafka, where the message would end among the dead letters; empty if it is."""
    told = too_far(settings.max_delay, deliver_at, delay_ms)
    return told and f"{told}, and the sidecar would reject it; if its max_delay is longer, give --max-delay here, too"


def receipts(words: list[str]) -> list[Receipt]:
    """The receipts of words, or of lines that ``send`` prints; ``-`` stands for those on stdin, one a line."""
    given: list[str] = []
    for word in words:
        lines = [raw.decode(errors="replace") for raw in stdin()] if word == "-" else [word]
        given += [_word(line) for line in lines if word != "-" or line.strip()]
    decoded = []
    for number, word in enumerate(given, 1):
        try:
            decoded.append(Receipt.decode(word))
        except ReceiptError as error:
            raise UsageError(f"receipt {number}: {error}" if len(given) > 1 else str(error)) from error
    return decoded


def _word(line: str) -> str:
    line = line.strip()
    if not line.startswith("{"):
        return line
    try:
        return str(msgspec.json.decode(line)["receipt"])
    except (msgspec.MsgspecError, UnicodeEncodeError, KeyError) as error:
        raise UsageError(
            f"'{line[:40]}' is not a line that 'timewheel send' printed; pass the value of \"receipt\", or the whole "
            "line in quotes"
        ) from error
