"""``python -m benchmarks``: every figure beside its floor, several runs in turn, medians and spread.

Rates are by the destination's timestamps, first to last record; CPU is that of the process under test, user and system.
Run it on an idle machine: the ratio stands when both slow down together, but a busy machine widens the spread.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.sidecar import Sidecar
from benchmarks.workload import BATCH, VALUE_BYTES, Cluster, Run
from connectors.embedded import EmbeddedKafka

EXPECTED_FLOOR = 100_000
"""A relay floor below this is a busy machine, or a slow loop: seen were 105,000 to 180,000/s on two cores."""


def backlog_floor(cluster: Cluster, count: int) -> Run:
    source, destination = _topics(cluster, "floor")
    cluster.fill(source, count, lambda _: [("REAL_TOPIC", destination.encode())])
    command = [sys.executable, "-m", "benchmarks.floors", "relay", cluster.bootstrap_servers, source, destination]
    done = subprocess.run([*command, str(count)], check=True, capture_output=True, text=True)
    cpu_s = float(done.stdout.rpartition("cpu_s=")[2])
    return Run(cluster.rate(destination, count), cpu_s / count * 1e6)


def backlog_product(cluster: Cluster, count: int) -> Run:
    prefix = f"b{time.time_ns()}."
    source, destination = f"{prefix}SCHEDULE_TOPIC_XXXX-1", f"{prefix}out"
    cluster.create(source, config={"message.timestamp.type": "LogAppendTime"})
    cluster.create(destination)
    cluster.fill(source, count, lambda _: [("REAL_TOPIC", destination.encode())])
    with tempfile.TemporaryDirectory() as directory:
        with Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1ms") as sidecar:
            sidecar.wait_for("timewheel_assigned_partitions", 1)
            before_s = sidecar.cpu_s()
            sidecar.wait_for("timewheel_delivered_records_total", count)
            cpu_s = sidecar.cpu_s() - before_s
        return Run(cluster.rate(destination, count), cpu_s / count * 1e6)


def _topics(cluster: Cluster, kind: str) -> tuple[str, str]:
    source, destination = f"{kind}-in-{time.time_ns()}", f"{kind}-out-{time.time_ns()}"
    cluster.create(source, destination)
    return source, destination


ROWS = {"level backlog": (backlog_product, backlog_floor, "raw transactional relay", 0.9)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs per row")
    parser.add_argument("--records", type=int, default=300_000, help="records per run")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    console = Console()
    results = {}
    with EmbeddedKafka(heap="1g") as broker, Progress(console=Console(stderr=True), transient=True) as progress:
        cluster = Cluster(broker.bootstrap_servers)
        for name, (product, floor, floor_name, goal) in ROWS.items():
            task = progress.add_task(name, total=2 * arguments.runs + 2)
            pairs = []
            for number in range(arguments.runs + 1):
                floor_run = floor(cluster, arguments.records)
                progress.advance(task)
                product_run = product(cluster, arguments.records)
                progress.advance(task)
                if number:  # the first pair warms up the broker's JVM
                    pairs.append((product_run, floor_run))
            results[name] = {"pairs": pairs, "floor": floor_name, "goal": goal}
    _print(console, results, arguments.records)
    if arguments.out:
        arguments.out.write_text(json.dumps(_as_json(results), indent=2) + "\n")


def _print(console: Console, results: dict, records: int) -> None:  # type: ignore[type-arg]
    console.print(
        f"{platform.machine()}, Python {platform.python_version()}; {records:,} records of {VALUE_BYTES} bytes, "
        f"transactions of {BATCH:,}; median (lowest to highest)"
    )
    for name, row in results.items():
        products = [product.per_second for product, _ in row["pairs"]]
        floors = [floor.per_second for _, floor in row["pairs"]]
        ratios = [product.per_second / floor.per_second for product, floor in row["pairs"]]
        cpu_us = [statistics.median(run.cpu_us for run in runs) for runs in zip(*row["pairs"], strict=True)]
        table = Table("", "median", "lowest", "highest", title=f"{name}, goal {row['goal']:.2f}", title_justify="left")
        table.add_row("timewheel, records/s", *_spread(products, ",.0f"))
        table.add_row(f"{row['floor']}, records/s", *_spread(floors, ",.0f"))
        table.add_row("ratio", *_spread(ratios, ".2f"))
        table.add_row("CPU µs a record, timewheel / floor", f"{cpu_us[0]:.1f} / {cpu_us[1]:.1f}")
        console.print(table)
        if statistics.median(floors) < EXPECTED_FLOOR:
            console.print(f"[yellow]{name}: the floor is below {EXPECTED_FLOOR:,}/s: a busy machine?[/]")


def _spread(values: list[float], form: str) -> tuple[str, str, str]:
    return f"{statistics.median(values):{form}}", f"{min(values):{form}}", f"{max(values):{form}}"


def _as_json(results: dict) -> dict:  # type: ignore[type-arg]
    return {
        name: {
            "floor": row["floor"],
            "goal": row["goal"],
            "runs": [
                {
                    "per_second": product.per_second,
                    "floor_per_second": floor.per_second,
                    "cpu_us": product.cpu_us,
                    "floor_cpu_us": floor.cpu_us,
                }
                for product, floor in row["pairs"]
            ],
        }
        for name, row in results.items()
    }


if __name__ == "__main__":
    main()
