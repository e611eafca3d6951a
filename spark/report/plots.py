"""Plots as SVG to stand inside the page: text stays text, and colours are the page's variables (light, dark, print).

Matplotlib paints with stand-in colours, each of which becomes ``var(--name)`` afterwards. Nothing that came from Kafka
is drawn: names of topics and groups stand in tables.
"""

import io
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from spark.report.model import AuditReport, Hour, LatenessBucket, utc
from spark.report.words import bucket, duration

_NAMES = ("ink", "soft", "line", "first", "second", "bad", "warn", *(f"heat{step}" for step in range(7)))
_STAND_IN = {name: f"#0102{number:02x}" for number, name in enumerate(_NAMES, start=1)}
_HEAT_STEPS = 7

_LAST_MS = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp()) * 1000
"""Matplotlib's axes end with the year 9999."""

_INCHES = (5.6, 3.0)
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 10.5,
    "text.color": _STAND_IN["ink"],
    "axes.labelcolor": _STAND_IN["soft"],
    "axes.edgecolor": _STAND_IN["line"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _STAND_IN["line"],
    "grid.linewidth": 0.6,
    "xtick.color": _STAND_IN["soft"],
    "ytick.color": _STAND_IN["soft"],
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "lines.linewidth": 1.4,
}


def due_over_time(report: AuditReport) -> str | None:
    """Expected against delivered, by when they were due."""
    points = [point for point in report.due_over_time if point.at_ms < _LAST_MS]
    if not points:
        return None

    def draw(axes: Axes) -> None:
        at = _steps([point.at_ms for point in points], report.bucket_ms)
        _stairs(
            axes,
            [point.expected for point in points],
            at,
            color=_STAND_IN["first"],
            alpha=0.25,
            fill=True,
            label="expected",
        )
        _stairs(axes, [point.delivered for point in points], at, color=_STAND_IN["first"], label="delivered")
        faulty = [point for point in points if point.faulty]
        if faulty:  # one line that is broken between the points: a mark for each would be a megabyte
            middle = _dates([point.at_ms + report.bucket_ms // 2 for point in faulty for _ in range(3)])
            height = [value for point in faulty for value in (0, max(point.expected, point.delivered), np.nan)]
            axes.plot(middle, height, color=_STAND_IN["bad"], linewidth=1.6, label="faulty among them")
        _counts(axes, f"messages a {bucket(report.bucket_ms)}")
        _times(axes)
        _legend(axes)

    peak = max(points, key=lambda point: point.expected)
    faulty = sum(1 for point in points if point.faulty)
    words = (
        f"Messages expected and delivered, a {bucket(report.bucket_ms)}. The most were due at {_at(peak.at_ms)}: "
        f"{peak.expected:,} expected, {peak.delivered:,} delivered. "
        f"{faulty:,} of {len(points):,} points have a faulty message."
    )
    return _svg("due", draw, words)


def lateness_histogram(report: AuditReport) -> str | None:
    """How many deliveries were how late; a logarithm upwards, so that one late message is seen among a million."""
    bars = report.lateness_histogram
    if not any(bar.count for bar in bars):
        return None

    edges_ms = [bar.up_to_ms for bar in bars if bar.up_to_ms is not None]
    late_from_ms = min((edge_ms for edge_ms in edges_ms if edge_ms >= report.late_after_ms), default=max(edges_ms))
    """The edge from which on all are late; the bar below it may hold others, too."""

    def is_late(bar: LatenessBucket) -> bool:
        return bar.up_to_ms is None or bar.up_to_ms > late_from_ms

    def draw(axes: Axes) -> None:
        colors = [_STAND_IN["bad" if bar.up_to_ms == -1 else "warn" if is_late(bar) else "first"] for bar in bars]
        axes.bar(range(len(bars)), [bar.count for bar in bars], width=0.86, color=colors)
        axes.set_yscale("symlog", linthresh=1)
        _counts(axes, "deliveries")
        axes.set_xticks(range(len(bars)), [_edge(bar.up_to_ms) for bar in bars], rotation=60, ha="right", fontsize=8.5)
        axes.set_xlabel("up to so much after the due time")
        axes.grid(visible=False, axis="x")

    late = sum(bar.count for bar in bars if is_late(bar))
    total = sum(bar.count for bar in bars)
    words = (
        f"Lateness of {total:,} deliveries. Half came within {duration(report.lateness.p50_ms)}, 99 in 100 within "
        f"{duration(report.lateness.p99_ms)}; {late:,} later than {duration(late_from_ms)}."
    )
    return _svg("histogram", draw, words)


def lateness_over_time(report: AuditReport) -> str | None:
    """Percentiles by when the messages were due."""
    points = [point for point in report.lateness_over_time if point.count and point.at_ms < _LAST_MS]
    if not points:
        return None

    def draw(axes: Axes) -> None:
        at = _dates([point.at_ms + report.bucket_ms // 2 for point in points])
        marker = "." if len(points) < 60 else ""
        for label, style, width, color, values in (
            ("worst", "-", 0.5, "warn", [point.max_ms for point in points]),
            ("p99", "--", 0.8, "second", [point.p99_ms for point in points]),
            ("p50", "-", 1.2, "first", [point.p50_ms for point in points]),
        ):
            known = [np.nan if value is None else value for value in values]
            axes.plot(at, known, marker + style, color=_STAND_IN[color], label=label, linewidth=width)
        axes.set_yscale("symlog", linthresh=10)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(round(value))))
        axes.set_ylabel("lateness")
        _times(axes)
        _legend(axes)

    worst = max(points, key=lambda point: point.max_ms or 0)
    words = (
        f"Lateness over time, a {bucket(report.bucket_ms)}: median, 99th percentile and worst. "
        f"The worst was {duration(worst.max_ms)}, of what was due at {_at(worst.at_ms)}."
    )
    return _svg("lateness", draw, words)


def hours_due(report: AuditReport) -> str | None:
    """Heat map: how much was due, by day and hour."""
    if not report.hours:
        return None
    busiest = max(report.hours, key=lambda hour: hour.due)
    words = f"Messages due by day and hour, UTC. The busiest was {busiest.day} {busiest.hour}:00 with {busiest.due:,}."
    return _heat_map("hours-due", report.hours, lambda hour: hour.due, lambda value: f"{value:,.0f}", words)


def hours_lateness(report: AuditReport) -> str | None:
    """Heat map: how late it came, by day and hour."""
    known = [hour for hour in report.hours if hour.p99_ms is not None]
    if not known:
        return None
    worst = max(known, key=lambda hour: hour.p99_ms or 0)
    words = (
        f"99th percentile of lateness by day and hour, UTC. "
        f"The worst was {worst.day} {worst.hour}:00 with {duration(worst.p99_ms)}."
    )
    return _heat_map("hours-late", known, lambda hour: hour.p99_ms or 0, lambda value: duration(round(value)), words)


def retries_by_depth(report: AuditReport) -> str | None:
    """How many messages needed how many retries, and how many of them died."""
    rows = report.retries_by_depth
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        depths = [row.depth for row in rows]
        dead = [row.dead_lettered for row in rows]
        others = [row.messages - row.dead_lettered for row in rows]
        axes.bar(depths, others, color=_STAND_IN["first"], label="retried")
        if any(dead):
            axes.bar(depths, dead, bottom=others, color=_STAND_IN["bad"], label="dead letters")
            _legend(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("retries")
        _counts(axes, "messages")
        axes.grid(visible=False, axis="x")

    deepest = max(row.depth for row in rows if row.messages) if any(row.messages for row in rows) else 0
    words = (
        f"Messages by their number of retries: {sum(row.messages for row in rows):,} in all, "
        f"at most {deepest} retries, {sum(row.dead_lettered for row in rows):,} dead letters."
    )
    return _svg("retries", draw, words)


def forecast(report: AuditReport) -> str | None:
    """What falls due when."""
    points = [point for point in report.forecast if point.at_ms < _LAST_MS]
    if not points:
        return None

    def draw(axes: Axes) -> None:
        at = _steps([point.at_ms for point in points], report.forecast_bucket_ms)
        _stairs(axes, [point.pending for point in points], at, color=_STAND_IN["second"], fill=True)
        _counts(axes, f"messages a {bucket(report.forecast_bucket_ms)}")
        _times(axes)

    peak = max(points, key=lambda point: point.pending)
    words = (
        f"{sum(point.pending for point in points):,} pending messages by when they fall due, a "
        f"{bucket(report.forecast_bucket_ms)}. The most at {_at(peak.at_ms)}: {peak.pending:,}."
    )
    return _svg("forecast", draw, words)


# --- drawing ----------------------------------------------------------------------------------------------------------


def _heat_map(
    name: str, hours: Sequence[Hour], value: Callable[[Hour], int], text: Callable[[float], str], words: str
) -> str:
    days = sorted({hour.day for hour in hours})
    grid = np.full((len(days), 24), np.nan)
    for hour in hours:
        grid[days.index(hour.day), hour.hour] = value(hour)
    edges = _heat_edges(grid[grid > 0])
    colors = ListedColormap([_STAND_IN[f"heat{step}"] for step in range(_HEAT_STEPS)][-(len(edges) - 1) :])

    def draw(axes: Axes) -> None:
        norm = BoundaryNorm(edges, colors.N)
        mesh = axes.pcolormesh(np.arange(25), np.arange(len(days) + 1), grid, cmap=colors, norm=norm, shading="flat")
        axes.invert_yaxis()
        every = max(1, len(days) // 8)
        axes.set_yticks(np.arange(len(days))[::every] + 0.5, [day[5:] for day in days[::every]])
        axes.set_xticks(np.arange(0, 24, 3) + 0.5, [str(hour) for hour in range(0, 24, 3)])
        axes.set_xlabel("hour (UTC)")
        axes.grid(visible=False)
        bar = axes.figure.colorbar(mesh, ax=axes, ticks=edges, pad=0.02)
        bar.ax.set_yticklabels([text(edge) for edge in edges], fontsize=8.5)
        bar.outline.set_visible(False)

    return _svg(name, draw, words, height=1.6 + min(2.4, 0.14 * len(days)))


def _heat_edges(values: np.ndarray) -> list[float]:
    """Bounds of the colours: by ratios, for an hour can be a thousand times as busy as another."""
    if not values.size:
        return [0, 1]
    most = float(values.max())
    ratios = np.geomspace(max(1.0, float(np.percentile(values, 5))), most, _HEAT_STEPS)
    rounded = [min(float(f"{edge:.2g}"), most) for edge in ratios[:-1]]
    return [*sorted({0.0, *rounded}), most + 1]


def _steps(starts_ms: Sequence[int], bucket_ms: int) -> list[list[int]]:
    """Runs of adjoining buckets, each as its edges: where nothing was due for long, no line is drawn."""
    runs = [[starts_ms[0]]]
    for before, start in pairwise(starts_ms):
        if start > before + bucket_ms:
            runs[-1].append(before + bucket_ms)
            runs.append([])
        runs[-1].append(start)
    runs[-1].append(starts_ms[-1] + bucket_ms)
    return runs


def _stairs(axes: Axes, values: Sequence[int], runs: Sequence[Sequence[int]], **style: Any) -> None:
    begin = 0
    for edges in runs:
        count = len(edges) - 1
        axes.stairs(values[begin : begin + count], _dates(edges), **style)
        style.pop("label", None)
        begin += count


def _dates(at_ms: Sequence[int]) -> Any:
    return np.array(at_ms, dtype="datetime64[ms]")


def _counts(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.use_sticky_edges = False
    axes.autoscale_view()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_short_count))
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))


def _short_count(value: float, _: int) -> str:
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _times(axes: Axes) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC", labelpad=1)


def _legend(axes: Axes) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 0.98), ncols=3, borderaxespad=0, handlelength=1.8, columnspacing=1.2
    )


def _edge(up_to_ms: int | None) -> str:
    if up_to_ms is None:
        return "more"
    return "early" if up_to_ms == -1 else duration(up_to_ms)


def _at(at_ms: int) -> str:
    return f"{utc(at_ms):%Y-%m-%d %H:%M} UTC"


# --- SVG --------------------------------------------------------------------------------------------------------------

_PROLOGUE = re.compile(r"\A.*?(?=<svg)|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_SVG_TAG = re.compile(r"<svg\b[^>]*>")
_ID = re.compile(r'(\bid="|href="#|url\(#)')
_FONT = re.compile(r"font-family: [^;\"]*;? ?")
_FINE = re.compile(r"(\d\.\d\d)\d+|\n +")


def _svg(name: str, draw: Callable[[Axes], None], words: str, height: float = _INCHES[1]) -> str:
    """An inline SVG as wide as its place, with ``words`` for those who do not see it; ids begin with ``name``."""
    style: Any = _STYLE | {"svg.hashsalt": name}
    with mpl.rc_context(style):
        figure = Figure(figsize=(_INCHES[0], height), layout="constrained")
        draw(figure.add_subplot())
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        width_pt, height_pt = figure.get_size_inches() * 72
    svg = _PROLOGUE.sub("", written.getvalue())
    svg = _FINE.sub(r"\1", _FONT.sub("", svg))
    svg = _ID.sub(rf"\g<1>{name}-", svg)
    for variable, color in _STAND_IN.items():
        svg = svg.replace(color, f"var(--{variable})")
    head = f'<svg class="plot" role="img" aria-label="{words}" viewBox="0 0 {width_pt:g} {height_pt:g}">'
    return _SVG_TAG.sub(lambda _: head, svg, count=1)
