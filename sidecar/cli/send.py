"""``timewheel send``: schedule from the command line, one record or a file of them."""

from typing import Annotated

import typer

from connectors.arguments import argument_bytes
from sidecar.cli.options import with_settings
from sidecar.cli.scheduling import SETTINGS, AlwaysJson, At, Delay, delivery_time, print_receipt, scheduled_producer
from sidecar.cli.send_file import opened, send_lines
from sidecar.errors import UsageError
from sidecar.settings import Settings


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel send --topic orders --key 17 --delay 90s 'order 17 is unpaid'")(send)


@with_settings(only=SETTINGS)
def send(
    settings: Settings,
    value: Annotated[str | None, typer.Argument(help="The record's value.", metavar="VALUE")] = None,
    topic: Annotated[str | None, typer.Option(help="The topic to deliver to.")] = None,
    delay: Delay = None,
    at: At = None,
    level: Annotated[int | None, typer.Option(help="The delay level, from 1.")] = None,
    key: Annotated[str | None, typer.Option(help="The record's key.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header; repeat for more.", metavar="NAME=VALUE")] = None,
    file: Annotated[
        str | None, typer.Option(help="Schedule many: a file with one JSON object a line; - is stdin.")
    ] = None,
    _as_json: AlwaysJson = False,
) -> None:
    """Schedule a record; prints a receipt as JSON once Kafka has it.

    With --file, each line is an object with a topic; one of value (text or null), value_json and value_base64; and one
    of deliver_at (ISO 8601 with a zone), delay ("90s") and level. Optional are key or key_base64, and headers (a map,
    or a list of pairs if names repeat):

    {"topic": "orders", "key": "17", "value": "order 17 is unpaid", "delay": "90s"}

    It prints one receipt per line, in the order of the input, each as soon as Kafka has the record. A line that cannot
    be scheduled is reported on stderr by its number and has no receipt; the others are scheduled all the same, and the
    exit code is 1. Empty lines are skipped.
    """
    if file is not None:
        if any(given is not None for given in (value, topic, delay, at, level, key, header)):
            raise UsageError("--file takes the records from its lines: leave out VALUE and the options of one record")
        with opened(file) as lines, scheduled_producer(settings) as producer:
            send_lines(settings, producer, lines)
        return
    if topic is None or value is None:
        raise UsageError("give --topic and a VALUE, or --file with one JSON object a line")
    headers = [_header(text) for text in header or []]
    if level is not None and level < 1:
        raise UsageError(f"--level {level} does not exist; levels are counted from 1")
    if (delay is None) + (at is None) + (level is None) != 2:
        raise UsageError("say when with exactly one of --delay, --at and --level")
    when = delivery_time(settings, delay, at) if level is None else {"level": level}
    with scheduled_producer(settings, lambda one: one.check(topic, headers=headers, **when)) as producer:
        key_bytes = None if key is None else argument_bytes(key)
        receipt = producer.send(topic, argument_bytes(value), key=key_bytes, headers=headers, **when)
    print_receipt(receipt)


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--header '{text}' is not name=value")
    return name, argument_bytes(value)
