"""The table of figures in docs/explanation/compared.md: others' as they were measured once, ours from results.json.

What SIGKILL costs is of endurance.json.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import RATE
from benchmarks.lateness import P50, P99
from benchmarks.pending import READY_KILLED, RSS

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "compared.md"
ENDURED = Path(__file__).parent / "endurance.json"
BEGIN, END = "<!-- made by python -m benchmarks.chart -->\n", "<!-- until here -->\n"

Row = Mapping[str, Any]

_HEAD = ("", "Timewheel", "RocketMQ 5.5.0", "NATS 2.15.2", "etf1/kafka-message-scheduler")
_OTHERS = {
    "lateness at 5,000/s, p50 / p99, ms": (
        "621 / 1,168 (precision 1,000 ms); 67 / 127 (100 ms)",
        "156 / 298",
        "60 / 179, worst 30,023",
    ),
    "due at one second, released": ("200,000 in 2.8-3.4 s", "100,000 in 1.8 s", "100,000 in 3.4 s"),
    "accepted/s": ("16,000-20,000", "74,000", "84,000"),
    "1 M pending: memory, ready after SIGKILL": (
        "2,102 MB, 6.3-7.2 s (broker included)",
        "596 MB, 3.3 s (server included)",
        "1,408 MB, 14.8-20.6 s",
    ),
    "SIGKILL while delivering": (
        "0 lost, 4,964 of 50,000 twice",
        "0 lost, 0 twice",
        "0 lost, 1,196-2,128 of 20,000 twice",
    ),
}


def with_table(page: str, told: Mapping[str, Any]) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_table(told)}\n{END}{after}"


def _table(told: Mapping[str, Any]) -> str:
    lines = [_HEAD, ("---",) * len(_HEAD)]
    for (name, others), ours in zip(_OTHERS.items(), _ours(told["rows"]), strict=True):
        lines.append((name, ours, *others))
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def _ours(rows: Mapping[str, Row]) -> list[str]:
    """A cell a line, each with the row of ``make bench`` that it comes from."""

    def cell(name: str, words: Callable[[Row], str]) -> str:
        return f"{words(rows[name]) if name in rows else '…'} (`{name}`)"

    return [
        cell("lateness-5000", lambda row: f"{_product(row, P50):.1f} / {_product(row, P99):.1f}"),
        cell("burst", lambda row: f"{_records(row):,} in {_records(row) / _product(row, RATE):.1f} s"),
        cell("intake", lambda row: f"{_product(row, RATE):,.0f}"),
        cell("pending", _pending),
        _killed(json.loads(ENDURED.read_text())),
    ]


def _killed(endured: Mapping[str, Any]) -> str:
    records = round(endured["rate"] * endured["minutes"] * 60)
    lost, twice = (endured["faults"][name] for name in ("lost", "twice"))
    return f"{lost} lost, {twice} twice of {records:,} in {endured['kills']} kills (`make endurance`)"


def _pending(row: Row) -> str:
    waiting = row["load"]["pending"]
    others = "" if waiting == 1_000_000 else f" with {waiting / 1e6:g} M"
    return f"{_product(row, RSS):,.0f} MB, {_product(row, READY_KILLED):.1f} s{others}"


def _product(row: Row, figure: str) -> float:
    return float(row["figures"][figure.strip()]["timewheel"])


def _records(row: Row) -> int:
    return int(row["load"]["records"])
