"""A long time at a steady rate with a SIGKILL every minute: what is delivered, and whether anything grows.

    generator ──► wheel topic ──► sidecar, killed and started again ──► three partitions ──► reader
                       └────────────────────────── audit ───────────────────────┘

The reader judges every record by what the generator has written into it; then the audit judges all of them by Kafka's
records alone. Minute by minute: how late records came, those that fell due while nobody was there to send them among
them; and, shortly before each kill, what the sidecar's memory and its directory have come to. What grows shows in the
last quarter beside the first. Ends with 1 where a record was lost, came twice or early, or the audit finds a fault.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import machine, report
from benchmarks.process import Process
from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster
from connectors.embedded import EmbeddedKafka

RESULTS = Path(__file__).parent / "endurance.json"
PARTITIONS = 3
VALUE_BYTES = 100
BEFORE_KILL_S = 5.0
"""So long before each kill memory and directory are looked at."""
FAULTS = ("lost", "twice", "early")


class Looked(NamedTuple):
    """At the sidecar, shortly before it was killed."""

    rss_bytes: int
    disk_bytes: int
    ready_s: float
    """From the kill on, until the next one was ready."""


class Minute(NamedTuple):
    """What was due in one."""

    p50_ms: float
    p99_ms: float
    highest_ms: float


def main() -> None:
    arguments = _arguments()
    console = report.console()
    described = machine.describe()
    with EmbeddedKafka(heap="1g") as broker, tempfile.TemporaryDirectory() as directory:
        told, looks = _endure(Cluster(broker.bootstrap_servers), Path(directory), arguments)
        told["audit"] = _audit(broker.bootstrap_servers, Path(directory)) if arguments.audit else None
    minutes = [Minute(*each) for each in zip(*(_windows(told, name) for name in Minute._fields), strict=True)]
    console.print(_table(minutes, looks, arguments))
    faults = {name: int(told[name]) for name in FAULTS}
    console.print(", ".join(f"{name} {count}" for name, count in faults.items()), "·", f"audit: {told['audit']}")
    console.print(", ".join(f"{name} {value}" for name, value in described.items()))
    report.warn_if_busy(console, described)
    if arguments.save:
        whole = {"machine": described, "faults": faults, "audit": told["audit"], **quarters(minutes, looks)}
        whole |= {"minutes": arguments.minutes, "rate": arguments.rate, "kills": len(looks)}
        RESULTS.write_text(json.dumps(whole, indent=2) + "\n")
    sys.exit(any(faults.values()) or (told["audit"] or {"exit_code": 0})["exit_code"] != 0)


def _endure(cluster: Cluster, directory: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Looked]]:
    """Keep up the rate and kill; what the reader tells, and what was seen before each kill."""
    source = cluster.create("SCHEDULE_TOPIC_XXXX-wheel")
    destination = cluster.create("out", partitions=PARTITIONS)
    seconds, count = arguments.minutes * 60, int(arguments.rate * arguments.minutes * 60)
    looks: list[Looked] = []
    with (
        Sidecar(cluster.bootstrap_servers, directory, levels="1ms") as sidecar,
        Process("reader", cluster.bootstrap_servers, destination, PARTITIONS, count, 60) as reader,
        Process(
            "generator", cluster.bootstrap_servers, source, destination, arguments.rate, seconds, VALUE_BYTES
        ) as generator,
        Progress(console=Console(stderr=True)) as progress,
    ):
        sidecar.wait_until_ready()
        reader.wait_until_ready()
        generator.wait_until_ready()
        began_s = time.monotonic()
        for kill in progress.track(range(1, int(seconds // arguments.kill_every)), description="killed"):
            _sleep_until(began_s + kill * arguments.kill_every - BEFORE_KILL_S)
            rss_bytes, disk_bytes = sidecar.memory().rss, _used(sidecar.data_dir)
            _sleep_until(began_s + kill * arguments.kill_every)
            sidecar.kill()
            looks.append(Looked(rss_bytes, disk_bytes, -sidecar.start() + sidecar.wait_until_ready()))
        generator.result(timeout_s=seconds)
        return dict(reader.result(timeout_s=300)), looks


def _audit(bootstrap_servers: str, directory: Path) -> dict[str, Any]:
    """All that was scheduled and delivered, judged by Spark: its exit code, and how many of each verdict."""
    command = [sys.executable, "-m", "sidecar", "audit", "batch", "--bootstrap-servers", bootstrap_servers]
    command += ["--levels", "1ms", "--out", str(directory / "audit"), "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"the audit ended with {ended.returncode}")
    return {"exit_code": ended.returncode, "verdicts": json.loads(ended.stdout)["verdicts"]}


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def _used(directory: Path) -> int:
    """What a directory takes on disk, in bytes; holes in its files take nothing."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _windows(told: dict[str, Any], name: str) -> list[float]:
    return [told[key] for number in range(len(told)) if (key := f"{name}.{number}") in told]


def quarters(minutes: Sequence[Minute], looks: Sequence[Looked]) -> dict[str, list[float]]:
    """The median of the first quarter, and of the last."""
    figures: dict[str, list[float]] = {}
    for rows in (minutes, looks):
        if rows:
            many = max(1, len(rows) // 4)
            for number, name in enumerate(rows[0]._fields):
                first, last = ([float(row[number]) for row in part] for part in (rows[:many], rows[-many:]))
                figures[name] = [statistics.median(first), statistics.median(last)]
    return figures


def _table(minutes: Sequence[Minute], looks: Sequence[Looked], arguments: argparse.Namespace) -> Table:
    table = Table(
        title=f"{len(minutes)} minutes at {arguments.rate:,} records/s, {len(looks)} times SIGKILL: medians",
    )
    for column in ("", "first quarter", "last quarter"):
        table.add_column(column, justify="left" if not column else "right")
    shown = {
        "p50_ms": "late, p50 of a minute, ms",
        "p99_ms": "late, p99 of a minute, ms",
        "highest_ms": "late, highest of a minute, ms",
        "rss_bytes": "RSS, bytes",
        "disk_bytes": "directory, bytes",
        "ready_s": "ready after SIGKILL, s",
    }
    for name, (first, last) in quarters(minutes, looks).items():
        digits = 0 if name.endswith("bytes") else 1
        table.add_row(shown[name], f"{first:,.{digits}f}", f"{last:,.{digits}f}")
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make endurance", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long the rate is kept up (default 60)")
    parser.add_argument("--rate", type=int, default=3_000, help="records a second (default 3,000)")
    parser.add_argument("--kill-every", type=float, default=60, metavar="SECONDS", help="default 60")
    parser.add_argument("--no-audit", dest="audit", action="store_false", help="leave out the audit at the end")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}, which the documentation shows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
