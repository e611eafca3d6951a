"""``timewheel topics create`` and ``timewheel topics check``."""

import json
from typing import Annotated

import typer

from sidecar.cli.options import with_settings
from sidecar.kafka import topics
from sidecar.kafka.topic_plan import plan_topics
from sidecar.settings import Settings

_SETTINGS = (
    "bootstrap_servers",
    "kafka",
    "group_id",
    "topic_prefix",
    "levels",
    "partitions",
    "replication_factor",
    "dead_letter_retention",
    "precision_ms",
    "slots_total",
    "roll_window",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="The schedule topics: create them, or verify an existing set.",
        epilog="Example: timewheel topics check",
    )
    group.command(epilog="Example: timewheel topics create --partitions 6 --replication-factor 3")(create)
    group.command(epilog="Example: timewheel topics check --levels '1s 5s 3h'")(check)
    app.add_typer(group, name="topics")


@with_settings(only=_SETTINGS)
def create(settings: Settings, as_json: Json = False) -> None:
    """Create the schedule topics that are missing, with the configuration they need."""
    admin = topics.reach_kafka(settings)
    created = topics.create_topics(admin, settings)
    if as_json:
        typer.echo(json.dumps({"created": created}))
    else:
        for name in created:
            typer.echo(f"created {name}")
        typer.echo(f"{len(created)} created, {len(plan_topics(settings)) - len(created)} there already")


@with_settings(only=_SETTINGS)
def check(settings: Settings, as_json: Json = False) -> None:
    """Verify the schedule topics; exit code 1 when one is missing or unfit."""
    admin = topics.reach_kafka(settings)
    findings = topics.all_findings(admin, settings)
    if as_json:
        typer.echo(json.dumps({"findings": [finding._asdict() for finding in findings]}, indent=2))
    else:
        for finding in findings:
            typer.echo(f"{finding.topic}: {finding.problem}. Remedy: {finding.remedy}")
        typer.echo(f"{len(plan_topics(settings))} topics, {len(findings)} findings")
    if findings:
        raise typer.Exit(1)
