"""``python -m benchmarks``: every figure beside its floor, several runs in turn, medians and spread.

Rates are by the destination's timestamps, first to last record; CPU is that of the process under test, user and system.
Run it on an idle machine: the ratio stands when both slow down together, but a busy machine widens the spread.
"""

import argparse
import json
import platform
import statistics
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.rows import ROWS, Row
from benchmarks.workload import BATCH, VALUE_BYTES, Cluster, Run
from connectors.embedded import EmbeddedKafka

Results = list[tuple[str, Row, list[tuple[Run, Run]]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs per row")
    parser.add_argument("--records", type=int, default=300_000, help="records per run")
    parser.add_argument("--only", choices=list(ROWS), action="append", help="measure this row; repeat for more")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    console = Console()
    results: Results = []
    chosen = {name: row for name, row in ROWS.items() if not arguments.only or name in arguments.only}
    with EmbeddedKafka(heap="1g") as broker, Progress(console=Console(stderr=True), transient=True) as progress:
        cluster = Cluster(broker.bootstrap_servers)
        for name, row in chosen.items():
            task = progress.add_task(name, total=2 * arguments.runs + 2)
            pairs = []
            for number in range(arguments.runs + 1):
                floor_run = row.floor(cluster, arguments.records)
                progress.advance(task)
                product_run = row.product(cluster, arguments.records)
                progress.advance(task)
                if number:  # the first pair warms up the broker's JVM
                    pairs.append((product_run, floor_run))
            results.append((name, row, pairs))
    _print(console, results, arguments.records)
    if arguments.out:
        arguments.out.write_text(json.dumps(_as_json(results), indent=2) + "\n")


def _print(console: Console, results: Results, records: int) -> None:
    console.print(
        f"{platform.machine()}, Python {platform.python_version()}; {records:,} records of {VALUE_BYTES} bytes, "
        f"transactions of {BATCH:,}"
    )
    for name, row, pairs in results:
        floors = [floor.per_second for _, floor in pairs]
        cpu_us = [statistics.median(run.cpu_us for run in runs) for runs in zip(*pairs, strict=True)]
        table = Table("", "median", "lowest", "highest", title=f"{name}, goal {row.goal:.2f}", title_justify="left")
        table.add_row("timewheel, records/s", *_spread([product.per_second for product, _ in pairs], ",.0f"))
        table.add_row(f"{row.floor_name}, records/s", *_spread(floors, ",.0f"))
        table.add_row("ratio", *_spread([product.per_second / floor.per_second for product, floor in pairs], ".2f"))
        table.add_row("CPU µs a record, timewheel / floor", f"{cpu_us[0]:.1f} / {cpu_us[1]:.1f}")
        console.print(table)
        if statistics.median(floors) < row.expected_floor:
            console.print(f"[yellow]{name}: the floor is below {row.expected_floor:,}/s: a busy machine?[/]")


def _spread(values: list[float], form: str) -> tuple[str, str, str]:
    return f"{statistics.median(values):{form}}", f"{min(values):{form}}", f"{max(values):{form}}"


def _as_json(results: Results) -> dict[str, object]:
    return {
        name: {
            "floor": row.floor_name,
            "goal": row.goal,
            "runs": [{"timewheel": product._asdict(), "floor": floor._asdict()} for product, floor in pairs],
        }
        for name, row, pairs in results
    }


if __name__ == "__main__":
    main()
