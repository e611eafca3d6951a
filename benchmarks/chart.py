"""The committed figures (results.json) for readers: ``python -m benchmarks.chart`` (make docs) writes

docs/images/benchmarks.svg          every rate as a share of its floor, with the spread
docs/explanation/compared.md        the table of figures, Timewheel's column among them
README.md                           the figures that people ask for first

The same figures give the same bytes: a test holds that neither is out of date.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import compared, in_short, results
from benchmarks.figures import RATE
from benchmarks.rows import ROWS

SVG = Path(__file__).parent.parent / "docs" / "images" / "benchmarks.svg"

_PAPER, _INK, _SOFT, _LINE, _BAR = "#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#4493f8"
_DARK = {_PAPER: "#0d1117", _INK: "#f0f6fc", _SOFT: "#9198a1", _LINE: "#3d444d"}
"""In the dark the reader's own style sheet exchanges them; who knows nothing of that shows all of it light."""

_ROW_IN, _EDGES_IN, _WIDTH_IN = 0.42, 0.95, 8.0
_LEFT, _RIGHT = 0.37, 0.83
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "figure.facecolor": _PAPER,
    "axes.facecolor": _PAPER,
    "axes.axisbelow": True,
}


class Bar(NamedTuple):
    """A rate beside its floor's."""

    name: str
    floor: str
    rate: float
    ratio: float
    lowest: float
    highest: float


def bars(told: Mapping[str, Any]) -> list[Bar]:
    """Of every row that has a rate, in the order of the table."""
    rows = [told["rows"][name] for name in ROWS if RATE in told["rows"].get(name, {}).get("figures", {})]
    found = []
    for row in rows:
        rate = row["figures"][RATE]
        found.append(Bar(row["name"], row["floor"], rate["timewheel"], rate["beside"], rate["lowest"], rate["highest"]))
    return found


def chart(told: Mapping[str, Any]) -> str:
    """An SVG of horizontal bars; text stays text."""
    drawn = bars(told)
    height_in = _ROW_IN * len(drawn) + _EDGES_IN
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, height_in))
        axes = figure.add_subplot()
        figure.subplots_adjust(_LEFT, 0.55 / height_in, _RIGHT, 1 - 0.4 / height_in)
        places = range(len(drawn))
        axes.barh(places, [bar.ratio for bar in drawn], height=0.5, color=_BAR)
        spread = [[bar.ratio - bar.lowest for bar in drawn], [bar.highest - bar.ratio for bar in drawn]]
        axes.errorbar(
            [bar.ratio for bar in drawn], places, xerr=spread, fmt="none", ecolor=_INK, elinewidth=1.1, capsize=3
        )
        axes.axvline(1, color=_INK, linewidth=1.4)
        for place, bar in zip(places, drawn, strict=True):
            _write(axes, (-0.02, place), 3, bar.name, ha="right", color=_INK)
            _write(axes, (-0.02, place), -9, f"beside: {bar.floor}", ha="right", color=_SOFT, fontsize=8)
            _write(axes, (1.02, place), -4, f"{bar.ratio:.2f} · {bar.rate:,.0f}/s", ha="left", color=_INK)
        axes.set_xlim(0, max([1.1, *(bar.highest + 0.05 for bar in drawn)]))
        axes.set_ylim(len(drawn) - 0.4, -0.6)
        axes.set_yticks([])
        axes.tick_params(colors=_SOFT, length=0)
        axes.grid(axis="x", color=_LINE, linewidth=0.6)
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.text(0.02, 1 - 0.26 / height_in, "Records a second, as a share of the floor", color=_INK, weight="bold")
        figure.text(0.02, 0.15 / height_in, _machine(told["machine"]), color=_SOFT, fontsize=8)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return _finish(written.getvalue())


def _write(axes: Axes, place: tuple[float, float], up_pt: float, text: str, **style: Any) -> None:
    """Beside the bars: across in shares of the axes, up in bars and points."""
    axes.annotate(text, place, (0, up_pt), xycoords=axes.get_yaxis_transform(), textcoords="offset points", **style)


def _machine(machine: Mapping[str, Any]) -> str:
    return (
        f"{machine['cores']} × {machine['processor']}, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system'].split('-')[0]}, Python {machine['python']}, librdkafka {machine['librdkafka']}, "
        f"Kafka {machine['kafka']} on the same machine"
    )


def _finish(svg: str) -> str:
    """Coordinates as fine as anybody sees, and the colours of the dark."""
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    rules = [
        f'[style*="{part}: {light}"] {{ {part}: {dark} !important }}'
        for light, dark in _DARK.items()
        for part in ("fill", "stroke")
    ]
    style = "<style>@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}</style>\n"
    return svg.replace("<defs>", f"{style}<defs>", 1)


def main() -> None:
    told = results.load()
    SVG.write_text(chart(told))
    print(SVG)
    compared.PAGE.write_text(compared.with_table(compared.PAGE.read_text(), told))
    print(compared.PAGE)
    in_short.PAGE.write_text(in_short.with_sentence(in_short.PAGE.read_text(), told))
    print(in_short.PAGE)


if __name__ == "__main__":
    main()
