"""The figures that people ask for first, as a sentence of README.md, from results.json."""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.compared import BEGIN, END
from benchmarks.figures import RATE
from benchmarks.lateness import P50, P99

PAGE = Path(__file__).parent.parent / "README.md"
ROWS = ("straight", "intake", "burst", "lateness-10000")


def with_sentence(page: str, told: Mapping[str, Any]) -> str:
    """The page with the sentence between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_sentence(told)}\n{END}{after}"


def _sentence(told: Mapping[str, Any]) -> str:
    machine, rows = told["machine"], told["rows"]
    straight, intake, burst, late = (rows[name] for name in ROWS)
    dates = sorted({row["date"] for row in (straight, intake, burst, late)})
    lines = (
        f"In one process, with one partition and the broker on the same {machine['cores']} cores of an "
        f"{machine['processor']} ({' to '.join({dates[0]: 1, dates[-1]: 1})}),",
        f"of records with {straight['load']['value_bytes']} bytes: **{_rate(straight)}** a second that are due when "
        f"they come, {_rate(intake)} taken in for later, {_rate(burst)}",
        f"where {burst['load']['records']:,} fall due at once. At 10,000 a second, half arrive within "
        f"**{_ms(late, P50)}** of their time, and 99 % within {_ms(late, P99)}.",
    )
    return "".join(f"{line}\n" for line in lines)


def _rate(row: Mapping[str, Any]) -> str:
    return f"{float(row['figures'][RATE]['timewheel']):,.0f}"


def _ms(row: Mapping[str, Any], figure: str) -> str:
    return f"{ceil(row['figures'][figure.strip()]['timewheel'])} ms"
