"""The report's files in the directory that ``audit batch`` writes."""

import os
from pathlib import Path

from pydantic import ValidationError

from connectors.extras import how_to_install
from spark.report.model import AuditReport
from spark.report.prometheus import prometheus_text

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
REPORT_PROMETHEUS = "report.prom"

_MAX_JSON_BYTES = 256 * 1024 * 1024


class ReportError(Exception):
    """A report cannot be read or made."""


def write_report(report: AuditReport, directory: Path) -> None:
    """Write report.json, report.prom and report.html, the machine's first.

    Raises:
        ReportError: the page cannot be made, for want of its libraries; the other two are there, and no page.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / REPORT_HTML).unlink(missing_ok=True)  # one of an earlier report, if this one's cannot be made
    write_whole(directory / REPORT_JSON, report.model_dump_json(indent=1))
    write_whole(directory / REPORT_PROMETHEUS, prometheus_text(report))
    write_whole(directory / REPORT_HTML, render_page(report))


def render_page(report: AuditReport) -> str:
    """The page; its libraries are loaded here, for they are large and an extra."""
    try:
        from spark.report.page import render
    except ModuleNotFoundError as error:
        raise ReportError(f"the page needs the package {error.name}; {how_to_install('report')}") from error
    return render(report)


def load_report(path: Path) -> AuditReport:
    """The report of a directory, or of its report.json.

    Raises:
        ReportError: says what is wrong with the path, or which field of the file.
    """
    file = path
    try:
        file = path / REPORT_JSON if path.is_dir() else path
        if file.stat().st_size > _MAX_JSON_BYTES:
            raise ReportError(f"{file} is larger than any report")
        raw = file.read_bytes()
    except FileNotFoundError as error:
        raise ReportError(f"{file} does not exist; 'timewheel audit batch --out DIR' writes it") from error
    except OSError as error:
        raise ReportError(f"{file} cannot be read: {error.strerror}") from error
    try:
        return AuditReport.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise ReportError(f"{file} is not an audit report of this version: {field}: {first['msg']}") from error


def write_whole(file: Path, text: str) -> None:
    """Replace a file by one step: a reader sees the one before or this one, never a part."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
