"""``timewheel pending`` and ``timewheel status``: asked of a running sidecar over HTTP."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from typing import Annotated, Any

import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from connectors.durations import DurationError, parse_duration_ms
from sidecar.cli.options import with_settings
from sidecar.errors import TimewheelError, UsageError
from sidecar.settings import Settings

_SETTINGS = ("http_address", "http_token")
_TIMEOUT_S = 10.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel pending --topic orders --within 1h")(pending)
    app.command(epilog="Example: timewheel status --http-address 127.0.0.1:8080")(status)


@with_settings(only=_SETTINGS)
def pending(
    settings: Settings,
    topic: Annotated[str | None, typer.Option(help="Only messages for this topic.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Only the message with this UNIQ_KEY.")] = None,
    within: Annotated[str | None, typer.Option(help="Only messages due within this time from now, such as 1h.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most messages to list.")] = 100,
    as_json: Json = False,
) -> None:
    """List what waits on the wheel partitions of a running sidecar, the soonest first."""
    query = {"limit": str(limit)}
    if topic is not None:
        query["topic"] = settings.topic_names.physical(topic)
    if message_id is not None:
        query["id"] = message_id
    if within is not None:
        try:
            query["to"] = str(time.time_ns() // 1_000_000 + parse_duration_ms(within))
        except DurationError as error:
            raise UsageError(f"--within: {error}") from error
    answer = json.loads(_get(settings, f"/api/v1/pending?{urllib.parse.urlencode(query)}"))
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    table = Table("due", "topic", "id", "partition", "offset")
    for message in answer["messages"]:
        due = datetime.fromtimestamp(message["deliver_ms"] / 1000).astimezone().isoformat(timespec="milliseconds")
        table.add_row(due, message["topic"], message["id"], str(message["partition"]), str(message["offset"]))
    Console().print(table)
    partitions = ", ".join(map(str, answer["partitions"])) or "none"
    typer.echo(f"{answer['total']} pending on wheel partitions {partitions}, {len(answer['messages'])} shown")


@with_settings(only=_SETTINGS)
def status(settings: Settings, as_json: Json = False) -> None:
    """Tell how a running sidecar is: ready or why not, what it has delivered, how far behind it is."""
    ready = json.loads(_get(settings, "/readyz"))
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(_get(settings, "/metrics")):
        for sample in family.samples:
            if sample.name.startswith("timewheel_") and not sample.name.endswith(("_bucket", "_created")):
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    told: dict[str, Any] = {**ready, "metrics": values}
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo("ready" if ready["ready"] else "not ready: " + "; ".join(ready["reasons"]))
    table = Table("metric", "value")
    for name, value in sorted(values.items()):
        table.add_row(name, f"{value:g}")
    Console().print(table)


def _get(settings: Settings, path: str) -> str:
    request = urllib.request.Request(f"http://{settings.http_address}{path}")
    if settings.http_token is not None:
        request.add_header("Authorization", f"Bearer {settings.http_token.get_secret_value()}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            body: bytes = response.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
        if error.code != 503 or path != "/readyz":
            raise TimewheelError(f"the sidecar answers {error.code}: {body.decode()[:500]}") from error
    except OSError as error:
        raise TimewheelError(
            f"no sidecar answers at http://{settings.http_address} ({error}); check http_address"
        ) from error
    return body.decode()
