"""``timewheel dlq``: dead letters, counted, shown and redriven."""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

from connectors.contract import is_legal_topic_name
from connectors.dead_letters import (
    DEFAULT_MAX_REDRIVES,
    DeadLetter,
    DeadLetters,
    DeadLettersError,
    Filter,
    FilterError,
    LetterCursor,
    NotAnsweredError,
    OnProgress,
    Page,
    Redriven,
)
from sidecar.cli.options import with_settings
from sidecar.cli.pager import moment, one_line, paged, plain
from sidecar.dispatch.call_thread import SWITCH_INTERVAL_S
from sidecar.dispatch.destinations import not_allowed
from sidecar.errors import KafkaUnreachableError, TimewheelError, UsageError
from sidecar.garbage import tame_collector
from sidecar.kafka import topics
from sidecar.settings import Settings

_SETTINGS = ("bootstrap_servers", "kafka", "topic_prefix")
_OF_REDRIVES = ("allowed_topics", "denied_topics", "allowed_groups", "replication_factor", "dead_letter_retention")
"""Where a redrive may write; and what it makes the ledger with, and the topic of what is parked."""

_FILTER_HELP = (
    "Only letters that meet this condition; repeat for more: reason=GIVEN_UP, key=…, id=…, from=ISO8601, to=ISO8601, "
    "header.NAME=…"
)
Group = Annotated[str, typer.Argument(help="The consumer group, or its dead-letter topic.", metavar="GROUP")]
Conditions = Annotated[list[str] | None, typer.Option("--filter", help=_FILTER_HELP, metavar="NAME=VALUE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_DEEPER = 8 * " "
"""Before further lines of a value: none of them is taken for a header, or for another letter."""


class Body(StrEnum):
    """How a value is shown."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    BASE64 = "base64"


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="Dead letters: count them, look at them, send them where they belong.",
        epilog="Example: timewheel dlq list",
    )
    group.command(name="list", epilog="Example: timewheel dlq list --json")(list_groups)
    group.command(epilog="Example: timewheel dlq show billing --filter reason=RETRIES_EXHAUSTED --limit 5")(show)
    group.command(epilog="Example: timewheel dlq redrive billing --filter header.TAGS=vip --rate 100 --dry-run")(
        redrive
    )
    app.add_typer(group, name="dlq")


@with_settings(only=_SETTINGS)
def list_groups(settings: Settings, as_json: Json = False) -> None:
    """Count the dead letters of every group, by reason. It reads all of them."""
    with _dead_letters(settings) as letters, _bar("reading") as on_progress:
        summaries = letters.summaries(on_progress)
    if as_json:
        rows = [
            {
                "group": summary.group,
                "topic": summary.topic,
                "total": summary.total,
                "redriven": summary.redriven,
                "waiting": summary.waiting,
                "reasons": dict(summary.reasons),
            }
            for summary in summaries
        ]
        typer.echo(json.dumps({"groups": rows}, indent=2))
        return
    table = Table("group", "waiting", "reason", "redriven", "total")
    for summary in summaries:
        reasons = "\n".join(f"{one_line(reason)} {count:,}" for reason, count in summary.reasons.most_common())
        counts = (f"{count:,}" for count in (summary.redriven, summary.total))
        table.add_row(plain(one_line(summary.group)), f"{summary.waiting:,}", plain(reasons), *counts)
    with paged() as console:
        console.print(table)


@with_settings(only=_SETTINGS)
def show(
    settings: Settings,
    group: Group,
    conditions: Conditions = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Letters on a page.")] = 20,
    after: Annotated[
        str | None, typer.Option(help="Where the page begins, as the one before told: PARTITION-OFFSET.")
    ] = None,
    all_letters: Annotated[bool, typer.Option("--all", help="Also those that have been redriven.")] = False,
    body: Annotated[
        Body, typer.Option(help="How values are shown; auto: as text where they are text, else as base64.")
    ] = Body.AUTO,
    as_json: Json = False,
) -> None:
    """Show a group's dead letters with their headers and values, the oldest of each partition first."""
    chosen, place = _filter(conditions), _place(after)
    with _dead_letters(settings) as letters:
        page = letters.browse(group, chosen, limit=limit, after=place, with_redriven=all_letters)
        name = letters.group_of(group)
    if as_json:
        typer.echo(json.dumps(_page(name, page, body), indent=2))
        return
    with paged() as console:
        for letter in page.letters:
            console.print(plain(_in_words(letter, body)), soft_wrap=True)
        if not page.letters:
            redriven = f"; {page.redriven:,} were redriven (--all shows them)" if page.redriven else ""
            console.print(f"no letters match{redriven}", highlight=False)
        if page.next is not None:
            console.print(f"more: --after {page.next}", highlight=False)


@with_settings(only=(*_SETTINGS, *_OF_REDRIVES))
def redrive(
    settings: Settings,
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(help="The destination of all of them. Default: RETRY_TOPIC, or REAL_TOPIC of a rejected record."),
    ] = None,
    conditions: Conditions = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Move nothing; print what would be done.")] = False,
    rate: Annotated[int | None, typer.Option(min=1, help="Messages a second, at most.")] = None,
    max_redrives: Annotated[
        int, typer.Option(min=1, help="A message redriven so often is parked, as a dead letter of GROUP.parked.")
    ] = DEFAULT_MAX_REDRIVES,
    again: Annotated[bool, typer.Option("--again", help="Also those that have been redriven.")] = False,
    as_json: Json = False,
) -> None:
    """Send a group's dead letters where they belong, each once.

    A record that the sidecar rejected goes to its REAL_TOPIC at once, whatever time it asked for; --to a schedule topic
    (SCHEDULE_TOPIC_XXXX-wheel, or that of a level) schedules it.

    Letters for topics that allowed_topics, denied_topics or allowed_groups keep the sidecar from stay, where the
    command is given the sidecar's settings. Run twice, it moves nothing twice; killed, it continues where it stopped
    when it is run again. Letters that a filter leaves out, and those that cannot be sent, stay.
    """
    chosen = _filter(conditions)
    if to is not None and not is_legal_topic_name(settings.topic_names.physical(to)):
        raise UsageError(f"--to '{to}' is not a valid topic name (at most 249 letters, digits, '.', '_' and '-')")
    with _dead_letters(settings) as letters, _bar("redriving") as on_progress:
        told = letters.redrive(
            group,
            chosen,
            to=to,
            rate=rate,
            max_redrives=max_redrives,
            again=again,
            dry_run=dry_run,
            on_progress=on_progress,
        )
    if as_json:
        typer.echo(json.dumps({"dry_run": dry_run, **told.to_dict()}, indent=2))
    else:
        _print_report(told, dry_run=dry_run)
    if told.stayed:
        raise typer.Exit(1)


# --- questions --------------------------------------------------------------------------------------------------------


@contextmanager
def _dead_letters(settings: Settings) -> Iterator[DeadLetters]:
    topics.reach_kafka(settings)
    tame_collector()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # a redrive commits in a thread, while the next batch is read
    config = {"bootstrap.servers": settings.bootstrap_servers, **settings.kafka}
    try:
        yield DeadLetters(
            config,
            names=settings.topic_names,
            why_not=lambda topic: not_allowed(settings.topic_names, settings, topic),
            replication_factor=settings.replication_factor,
            retention_ms=settings.dead_letter_retention,
        )
    except NotAnsweredError as error:
        raise KafkaUnreachableError(str(error)) from error
    except DeadLettersError as error:
        raise TimewheelError(str(error)) from error


def _filter(conditions: list[str] | None) -> Filter:
    try:
        return Filter.parse(conditions or [])
    except FilterError as error:
        raise UsageError(f"--filter {error}") from error


def _place(after: str | None) -> LetterCursor | None:
    try:
        return None if after is None else LetterCursor.parse(after)
    except ValueError as error:
        raise UsageError(f"--after {error}") from error


@contextmanager
def _bar(what: str) -> Iterator[OnProgress]:
    """A bar on the terminal; nothing where there is none."""
    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        f"{what}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# --- answers ----------------------------------------------------------------------------------------------------------


def _print_report(told: Redriven, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    for topic, count in told.moved.most_common():
        typer.echo(f"{count:,} {would}redriven to {topic}")
    if told.parked:
        typer.echo(f"{told.parked:,} {would}parked: they have been redriven too often")
    for reason, count in told.stayed.most_common():
        typer.echo(f"{count:,} cannot be redriven: {reason}")
    if told.done_before:
        typer.echo(f"{told.done_before:,} have been redriven before")
    if told.filtered_out:
        typer.echo(f"{told.filtered_out:,} left out by the filter")
    if not told.seen:
        typer.echo("there are no dead letters")


def _page(group: str, page: Page, body: Body) -> dict[str, Any]:
    following = None if page.next is None else str(page.next)
    return {"group": group, "letters": [_letter(letter, body) for letter in page.letters], "next": following}


def _letter(letter: DeadLetter, body: Body) -> dict[str, Any]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "id": letter.id,
        "reason": letter.reason,
        "is_redriven": letter.is_redriven,
        **_shown("key", letter.key, Body.AUTO if body is Body.JSON else body, _text),
        **_shown("value", letter.value, body, _parsed),
        "headers": [[name, _header_text(value)] for name, value in letter.headers],
    }


def _shown(name: str, raw: bytes | None, body: Body, read: Callable[[bytes], Any]) -> dict[str, Any]:
    """A key or value under its name, or as base64 under ``NAME_base64``, as the API tells it."""
    if raw is None:
        return {name: None}
    match body:
        case Body.BASE64:
            return {f"{name}_base64": base64.b64encode(raw).decode()}
        case Body.TEXT:
            return {name: raw.decode(errors="backslashreplace")}
        case _:
            try:
                return {name: read(raw) if body is Body.JSON else raw.decode()}
            except UnicodeDecodeError:
                return {f"{name}_base64": base64.b64encode(raw).decode()}


def _text(raw: bytes) -> str:
    return raw.decode()


def _parsed(raw: bytes) -> Any:
    """JSON as what it says; anything else as its text."""
    text = raw.decode()
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False).encode()  # half of a surrogate pair cannot be shown
    except (ValueError, RecursionError):
        return text
    return parsed


def _header_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _in_words(letter: DeadLetter, body: Body) -> str:
    buried = moment(letter.timestamp_ms, UTC)
    told = [one_line(f"{letter.partition}-{letter.offset}  {buried}  {letter.reason}  {letter.id}")]
    if letter.is_redriven:
        told[0] += "  (redriven)"
    headers = ((name, "null" if value is None else _header_text(value)) for name, value in letter.headers)
    told += [one_line(f"    {name}: {value}") for name, value in headers]
    shown = {**_shown("key", letter.key, Body.AUTO, _text), **_shown("value", letter.value, body, _parsed)}
    for name, value in shown.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        told.append(f"    {name} = {text.replace(chr(10), chr(10) + _DEEPER)}")
    return "\n".join(told)
