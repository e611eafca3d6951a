"""The report as one HTML file that loads nothing: styles, script and plots stand inside it.

What came from Kafka reaches the page only through the template's escaping (`words.shown` for what cannot be seen).
Should that fail one day, the content security policy still runs no script but ours, by its hash.
"""

import base64
import hashlib

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark.report import plots
from spark.report.model import BROKEN, FAULTY, AuditReport, Verdict
from spark.report.words import MEANING, bucket, duration, headline, messages, moment, shown, verdict_name

MAX_SHOWN = 1_000
"""Faulty messages on the page; a browser sorts and prints so many at ease."""

_TEMPLATES = "templates"


def render(report: AuditReport) -> str:
    """The page's text."""
    environment = Environment(
        loader=PackageLoader("spark.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        bucket=bucket, count=_count, duration=duration, messages=messages, moment=moment, shown=shown, name=verdict_name
    )
    script = _own(environment, "report.js")
    return environment.get_template("report.html.j2").render(
        report=report,
        headline=headline(report),
        verdicts=[(verdict, report.verdicts[verdict], MEANING[verdict]) for verdict in Verdict],
        broken=BROKEN,
        faulty=report.faulty[:MAX_SHOWN],
        faulty_named=len(report.faulty),
        faulty_total=len(report.faulty) + report.faulty_left_out,
        faulty_kinds=[verdict for verdict in FAULTY if any(message.verdict is verdict for message in report.faulty)],
        plot={
            name: Markup(svg) if svg else None  # ours: no text in it is Kafka's
            for name, svg in (
                ("due", plots.due_over_time(report)),
                ("histogram", plots.lateness_histogram(report)),
                ("lateness", plots.lateness_over_time(report)),
                ("hours_due", plots.hours_due(report)),
                ("hours_lateness", plots.hours_lateness(report)),
                ("retries", plots.retries_by_depth(report)),
                ("forecast", plots.forecast(report)),
            )
        },
        style=Markup(_own(environment, "report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _own(environment: Environment, name: str) -> str:
    """A file of ours as it stands, in no need of escaping."""
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    return source


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
