"""``timewheel audit report``: the findings as a page, as Prometheus text, as JSON."""

import sys
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sidecar.errors import TimewheelError, UsageError
from spark.report import REPORT_HTML, AuditReport, ReportError, load_report
from spark.report.files import render_page, write_whole
from spark.report.prometheus import prometheus_text
from spark.report.words import headline

STDOUT = Path("-")


class Format(StrEnum):
    """What is written."""

    HTML = "html"
    PROMETHEUS = "prometheus"
    JSON = "json"


def register(group: typer.Typer) -> None:
    group.command(epilog="Example: timewheel audit report ./audit --open")(report)


def report(
    source: Annotated[Path, typer.Argument(help="What 'audit batch --out' wrote: the directory, or its report.json.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; - for standard output. Default: report.html beside report.json for a page, "
            "standard output for the others.",
            metavar="FILE",
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.HTML,
    open_it: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: the same as --format json.")] = False,
) -> None:
    """Show what an audit found: one HTML file that loads nothing from elsewhere, Prometheus text, or JSON."""
    if as_json:
        form = Format.JSON
    if open_it and (form is not Format.HTML or out == STDOUT):
        raise UsageError("--open shows a page in a file; leave out --format, --json and --out -")
    try:
        findings = load_report(source)
        text = _rendered(findings, form)
    except ReportError as error:
        raise TimewheelError(str(error)) from error
    target = out or (_beside(source) if form is Format.HTML else STDOUT)
    if target == STDOUT:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    try:
        write_whole(target, text)
    except OSError as error:
        raise TimewheelError(f"{target} cannot be written: {error.strerror}") from error
    typer.echo(headline(findings).sentence)
    typer.echo(str(target))
    if open_it and not webbrowser.open(target.resolve().as_uri()):
        typer.echo("there is no browser to show it in", err=True)


def _rendered(findings: AuditReport, form: Format) -> str:
    match form:
        case Format.HTML:
            return render_page(findings)
        case Format.PROMETHEUS:
            return prometheus_text(findings)
        case Format.JSON:
            return findings.model_dump_json(indent=2)


def _beside(source: Path) -> Path:
    return (source if source.is_dir() else source.parent) / REPORT_HTML
