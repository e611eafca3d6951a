"""``timewheel pending``, ``status`` and ``switch``: asked of a running sidecar over HTTP."""

import json
import os
import shlex
import time
import urllib.parse
from typing import Annotated, Any

import typer
from rich.table import Table

from sidecar.cli.options import with_settings
from sidecar.cli.pager import moment, one_line, paged, plain
from sidecar.cli.sidecar_api import SETTINGS, SidecarApi
from sidecar.cli.status_view import first_of
from sidecar.cli.times import duration_ms, time_ms
from sidecar.cli.watch import watch
from sidecar.errors import TimewheelError, UsageError
from sidecar.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel pending --topic orders --within 1h")(pending)
    app.command(epilog="Example: timewheel status --watch")(status)
    app.command(epilog="Example: timewheel switch --stop-dequeue")(switch)


@with_settings(only=SETTINGS)
def pending(
    settings: Settings,
    topic: Annotated[str | None, typer.Option(help="Only messages for this topic.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Only the message with this UNIQ_KEY.")] = None,
    within: Annotated[str | None, typer.Option(help="Only messages due within this time from now, such as 1h.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="Only messages due at this time or later.", metavar="ISO8601")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Only messages due before this time.", metavar="ISO8601")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most messages to list.")] = 100,
    as_json: Json = False,
) -> None:
    """List what waits on the wheel partitions of a running sidecar, by the time at which it acts on them: when they
    are due, or earlier, where a long delay rolls."""
    for option, given in (("--topic", topic), ("--id", message_id)):
        if given == "":
            raise UsageError(f"{option} is empty; leave it out to list them all")
    query = {"limit": str(limit)}
    if topic is not None:
        query["topic"] = topic
    if message_id is not None:
        query["id"] = message_id
    if within is not None and until is not None:
        raise UsageError("give one of --within and --to")
    since_ms, until_ms = time_ms("--from", since), time_ms("--to", until)
    if within is not None:
        until_ms = time.time_ns() // 1_000_000 + duration_ms("--within", within)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageError(f"--from {since} is not before {f'--to {until}' if within is None else f'--within {within}'}")
    query |= {name: str(at_ms) for name, at_ms in (("from", since_ms), ("to", until_ms)) if at_ms is not None}
    with SidecarApi(settings) as api:
        answer = api.get(f"/api/v1/pending?{urllib.parse.urlencode(query, errors='surrogateescape')}").json()
        is_missed = message_id is not None and not answer["total"] and not as_json
        group = api.get("/api/v1/status").json()["group_id"] if is_missed else ""
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("due", no_wrap=True)
    table.add_column("topic", overflow="fold")
    table.add_column("id", overflow="fold")  # whole on any terminal: other commands want it
    table.add_column("partition", justify="right")
    table.add_column("offset", justify="right")
    for message in answer["messages"]:
        shown_id = message["id"] if message["receipt"] else f"{message['id']} (not UTF-8 text: no receipt)"
        row = (
            moment(message["deliver_ms"]),
            message["topic"],
            shown_id,
            str(message["partition"]),
            str(message["offset"]),
        )
        table.add_row(*(plain(one_line(cell)) for cell in row))
    with paged() as console:
        console.print(table)
        console.print(
            f"{answer['total']} pending on {_partitions(answer)}; {len(answer['messages'])} shown", highlight=False
        )
        if is_missed:
            found = shlex.join(["timewheel", "dlq", "show", group, "--filter", f"id={message_id}"])
            found = os.fsencode(found).decode(errors="backslashreplace")
            told = f"not on the wheel: delivered, cancelled, or on a level; if it was rejected: {found}"
            console.print(plain(one_line(told)), soft_wrap=True)


@with_settings(only=SETTINGS)
def status(
    settings: Settings,
    is_watched: Annotated[
        bool, typer.Option("--watch", help="Show it again each second, until Ctrl-C; also while it is away.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell how a running sidecar is: ready or why not, how far behind, what waits, what became of cancels."""
    if is_watched:
        watch(settings, as_json=as_json)
        return
    with SidecarApi(settings) as api:
        told = _status(api)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo("ready" if told["ready"] else "not ready: " + "; ".join(first_of(told["reasons"])))
    typer.echo(f"state:      {told['state']}: {told['words']}")
    if told["action"]:
        typer.echo(f"to do:      {told['action']}")
    typer.echo(f"intake:     {'stopped (stop_enqueue)' if told['stop_enqueue'] else 'on'}")
    typer.echo(f"delivery:   {'stopped (stop_dequeue)' if told['stop_dequeue'] else 'on'}")
    typer.echo(f"behind:     {told['behind_seconds']:.3f} s")
    typer.echo(f"partitions: {told['partitions']['assigned']} assigned, {told['partitions']['stopped']} stopped")
    waiting = ", ".join(f"{count} on {_queue(queue)}" for queue, count in told["waiting"].items() if count)
    typer.echo(f"waiting:    {waiting or 'nothing'}")
    known = told["pending"]
    typer.echo(
        "pending:    not known yet" if known is None else f"pending:    {known['total']} on {_partitions(known)}"
    )
    typer.echo("cancels:    " + ", ".join(f"{count} {outcome}" for outcome, count in told["cancels"].items()))
    rejected = sum(told["rejected"].values())
    seen_with = f" (see 'timewheel dlq show {told['group_id']}')" if rejected else ""
    typer.echo(f"delivered:  {sum(told['delivered'].values())}, rejected: {rejected}{seen_with}")


@with_settings(only=SETTINGS)
def switch(
    settings: Settings,
    stop_enqueue: Annotated[
        bool | None, typer.Option("--stop-enqueue/--start-enqueue", help="Intake: reading of the schedule topics.")
    ] = None,
    stop_dequeue: Annotated[
        bool | None, typer.Option("--stop-dequeue/--start-dequeue", help="Delivery, dead letters included.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Stop or start intake or delivery of a running sidecar.

    Without intake nothing new is read, and what has been read is delivered. Without delivery nothing is published,
    while messages are taken in and cancelled; what falls due meanwhile goes out once delivery is started again.
    It holds until the sidecar ends; the settings of these names say how it starts.
    """
    given = {"stop_enqueue": stop_enqueue, "stop_dequeue": stop_dequeue}
    change = {name: value for name, value in given.items() if value is not None}
    if not change:
        raise UsageError("say what to stop or start: --stop-dequeue, --start-dequeue, --stop-enqueue, --start-enqueue")
    with SidecarApi(settings) as api:
        told = api.put("/api/v1/switches", change).json()
    if as_json:
        typer.echo(json.dumps(told))
        return
    typer.echo(f"intake:   {'stopped' if told['stop_enqueue'] else 'on'}")
    typer.echo(f"delivery: {'stopped' if told['stop_dequeue'] else 'on'}")


def _status(api: SidecarApi) -> dict[str, Any]:
    told: dict[str, Any] = api.get("/api/v1/status").json()
    try:
        pending = api.get("/api/v1/pending?limit=1").json()  # as of now: what the status tells is a second old
    except TimewheelError:  # no session with Kafka yet
        pending = None
    return {**told, "pending": pending and {"total": pending["total"], "partitions": pending["partitions"]}}


def _partitions(answer: dict[str, Any]) -> str:
    partitions = ", ".join(map(str, answer["partitions"]))
    return f"wheel partitions {partitions}" if partitions else "no wheel partition: none is assigned"


def _queue(queue: str) -> str:
    return f"level {queue}" if queue.isdigit() else queue
