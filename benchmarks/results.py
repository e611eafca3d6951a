"""The committed figures, ``results.json``: what was measured last of every row, and on what machine.

A figure is the medians of product and floor, and what is held against the goal as median and spread over the pairs
("beside": a ratio to the floor, a difference from it, or the product's own). Rows come of different days, but of one
kind of machine.
"""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "results.json"
_SAME = ("processor", "cores")
_FLEETING = "load_before"


def load(path: Path = PATH) -> dict[str, Any]:
    """Empty where nothing has been saved."""
    return json.loads(path.read_text()) if path.exists() else {"machine": {}, "rows": {}}


def why_not_saved(machine: Mapping[str, object], path: Path = PATH) -> str | None:
    """Why rows of this machine cannot stand beside those that are there; None where they can."""
    there = load(path)["machine"]
    if not there or all(there[name] == machine[name] for name in _SAME):
        return None
    return f"{path.name} is of another machine, {there['cores']} × {there['processor']}: remove it to begin anew"


def save(told: Mapping[str, Any], path: Path = PATH) -> list[str]:
    """Put the rows of a report (`report.as_json`) in place of those that are there; the others stay as they are.

    Returns:
        The rows that stay, too, because more records waited when they were measured: the one of ten million.
    """
    there = load(path)["rows"]
    machine = {name: value for name, value in told["machine"].items() if name != _FLEETING}
    rows = {name: _row(row, told) for name, row in told["rows"].items()}
    larger = [name for name, row in rows.items() if name in there and _pending(there[name]) > _pending(row)]
    whole = {
        "machine": {**machine, "date": told["date"]},
        "rows": there | {name: row for name, row in rows.items() if name not in larger},
    }
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    return larger


def _pending(row: Mapping[str, Any]) -> int:
    pending: int = row["load"]["pending"]
    return pending


def _row(row: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "floor": row["floor"],
        "date": told["date"],
        "load": row["load"],
        "pairs": len(row["figures"][0]["timewheel"]),
        "figures": {figure["name"]: _figure(figure) for figure in row["figures"]},
    }


def _figure(figure: Mapping[str, Any]) -> dict[str, Any]:
    product, floor = figure["timewheel"], figure["floor"]
    return {
        "timewheel": _round(statistics.median(product)),
        "floor": floor and _round(statistics.median(floor)),
        "held": figure["held"],
        "beside": _round(figure["median"]),
        "lowest": _round(figure["spread"][0]),
        "highest": _round(figure["spread"][1]),
        "goal": figure["goal"],
        "reached": figure["reached"],
    }


def _round(value: float) -> float:
    return float(f"{value:.4g}")
