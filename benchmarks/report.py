"""The figures as a table for people, and as JSON for whoever compares runs."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, Held, Pair, Result, Values
from benchmarks.machine import is_busy
from benchmarks.workload import Load


def console() -> Console:
    """Wide enough for every column where the output is no terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=140)


def warn_if_busy(out: Console, described: Mapping[str, object]) -> None:
    if is_busy(described):
        out.print("[yellow]The machine was busy with something else when this began: take no figure from it.[/]")


def table(results: Mapping[str, Result], load: Load, machine: Mapping[str, object]) -> Table:
    """Medians; the comparison with its lowest and highest pair."""
    title = (
        f"{load.records:,} records of {load.value_bytes} bytes; steady rates for {load.seconds:g} s; "
        f"{load.pending:,} pending\n{machine['cores']} × {machine['processor']}, Python {machine['python']}, "
        f"librdkafka {machine['librdkafka']}"
    )
    made = Table("", "timewheel", "floor", "beside it (lowest to highest)", "goal", "reached", title=title)
    for column in made.columns[1:4]:
        column.justify = "right"
    for result in results.values():
        made.add_section()
        made.add_row(f"[bold]{result.row.name}[/]", "", f"[dim]{result.row.floor_name}[/]", f"{_runs(result.pairs)}")
        for figure in result.row.figures:
            made.add_row(f"  {figure.name}", *_cells(figure, result.pairs))
    return made


def as_json(results: Mapping[str, Result], load: Load, machine: Mapping[str, object]) -> dict[str, Any]:
    """Every run, and what the table says of it."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": dict(machine),
        "load": load._asdict(),
        "rows": {
            name: {
                "name": result.row.name,
                "floor": result.row.floor_name,
                "load": result.row.load(load)._asdict(),
                "figures": [_figure_as_json(figure, result.pairs) for figure in result.row.figures],
            }
            for name, result in results.items()
        },
    }


def _cells(figure: Figure, pairs: Sequence[Pair]) -> tuple[str, ...]:
    product = f"{_median([pair.product for pair in pairs], figure):{figure.form}}"
    reached = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[figure.is_reached(pairs)]
    if figure.held is Held.ALONE:
        return product, "", _spread(figure, pairs, figure.form), _goal(figure), reached
    floor = f"{_median([pair.floor for pair in pairs], figure):{figure.form}}"
    form = ".2f" if figure.held is Held.RATIO else f"+{figure.form}"
    return product, floor, _spread(figure, pairs, form), _goal(figure), reached


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    goal = {
        Held.RATIO: f"≥ {figure.goal:.2f}",
        Held.EXTRA: f"≤ {figure.goal:+g}",
        Held.ALONE: f"≤ {figure.goal:g}",
    }[figure.held]
    return f"{goal} (wished)" if figure.is_wish else goal


def _median(runs: Sequence[Values], figure: Figure) -> float:
    return statistics.median(run[figure.name] for run in runs)


def _spread(figure: Figure, pairs: Sequence[Pair], form: str) -> str:
    values = [figure.compare(pair) for pair in pairs]
    spread = f"({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
    if figure.held is Held.ALONE:
        return spread
    return f"{statistics.median(values):{form}} {spread}".rstrip()


def _runs(pairs: Sequence[Pair]) -> str:
    return f"[dim]{len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'}[/]"


def _figure_as_json(figure: Figure, pairs: Sequence[Pair]) -> dict[str, object]:
    compared = [figure.compare(pair) for pair in pairs]
    return {
        "name": figure.name.strip(),
        "held": str(figure.held),
        "goal": figure.goal,
        "is_wish": figure.is_wish,
        "reached": figure.is_reached(pairs),
        "timewheel": [pair.product[figure.name] for pair in pairs],
        "floor": None if figure.held is Held.ALONE else [pair.floor[figure.name] for pair in pairs],
        "median": statistics.median(compared),
        "spread": [min(compared), max(compared)],
    }
