"""Every figure beside its floor: product and floor in turn, several times, on a Kafka of its own on this machine.

Run it on an idle machine, for half an hour or so. What is measured only where --only names it (how it scales:
straight-*, burst-*; beside larger transactions: *-as-large) takes about as much again. A ratio stands when both slow
down together, but a busy machine widens the spread, and a lateness does not scale at all.
"""

import argparse
import json
import signal
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from benchmarks import machine, report, results
from benchmarks.figures import Result, Row
from benchmarks.generator import HEAD
from benchmarks.rows import ROWS
from benchmarks.throughput import DUE_LONG_AGO, floor
from benchmarks.workload import BYTES_AT_MOST, Cluster, Load
from connectors.embedded import EmbeddedKafka

OUT = Path(__file__).parent / "out"
WARM_UP_S = 30.0
"""How long a broker that has just started relays before anything is measured: till then its JVM interprets, or compiles
on one of the cores."""


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what has been started ends, too
    console = report.console()
    load = _load(arguments)
    described = machine.describe()
    if arguments.save and (why := results.why_not_saved(described)):
        sys.exit(why)
    measured: dict[str, Result] = {}
    failed = False
    properties = {"log.segment.delete.delay.ms": "1000"}
    with EmbeddedKafka(heap="1g", server_properties=properties) as broker:
        cluster = Cluster(broker.bootstrap_servers)
        _warm_up(cluster, load, console)
        for name in arguments.only or (name for name, row in ROWS.items() if not row.is_extra):
            try:
                measured[name] = _measure(cluster, ROWS[name], load, arguments.runs)
            except RuntimeError as error:  # the other rows stand
                failed = True
                console.print(f"[red]{ROWS[name].name}:[/] {escape(str(error))}")
    console.print(report.table(measured, load, described))
    report.warn_if_busy(console, described)
    out: Path = arguments.out or OUT / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    told = report.as_json(measured, load, described)
    out.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    console.print(f"every run: {out}")
    if arguments.save:
        larger = results.save(told)
        console.print(f"saved: {results.PATH}; `make docs` brings it into the documentation")
        if larger:
            console.print(f"not saved, for it has them with more records pending: {', '.join(larger)}")
    sys.exit(failed)


def _measure(cluster: Cluster, row: Row, load: Load, runs: int | None) -> Result:
    """Raises RuntimeError for a run that does not get through, or in which a record came early, twice or never."""
    warm_ups = 0 if row.is_long else 1
    count = runs or (1 if row.is_long else 5)
    pairs = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for number in progress.track(range(warm_ups + count), description=row.name):
            pair = row.measure(cluster, row.load(load))
            if number >= warm_ups:
                pairs.append(pair)
    return Result(row, pairs)


def _warm_up(cluster: Cluster, load: Load, console: Console) -> None:
    relay = floor("relay", DUE_LONG_AGO)
    began_s = time.monotonic()
    with console.status("the broker warms up"):
        while time.monotonic() - began_s < WARM_UP_S:
            relay(cluster, load)


def _load(arguments: argparse.Namespace) -> Load:
    records = arguments.records or min(300_000, BYTES_AT_MOST // arguments.value_bytes)
    pending = arguments.pending or (10_000_000 if arguments.only == ["pending"] else 1_000_000)
    return Load(records, arguments.value_bytes, arguments.seconds, pending)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    names = f"these rows, by name or pattern (such as 'burst*'); repeat for more: {', '.join(ROWS)}"
    parser.add_argument("--only", type=_rows, metavar="ROW", action="extend", help=names)
    parser.add_argument(
        "--runs", type=_positive, help="pairs of runs a row (default 5, of pending and burst-beside-10m 1)"
    )
    parser.add_argument("--records", type=_positive, help="records of a run that measures a rate (default 300,000)")
    parser.add_argument("--value-bytes", type=_value_bytes, default=200, help="size of their values (default 200)")
    parser.add_argument("--seconds", type=_seconds, default=20, help="how long a steady rate is kept up (default 20)")
    parser.add_argument(
        "--pending", type=_positive, help="records that wait (default 1,000,000; with --only pending ten times that)"
    )
    parser.add_argument("--out", type=Path, help="where the JSON goes (default benchmarks/out/TIME.json)")
    parser.add_argument(
        "--save", action="store_true", help=f"into {results.PATH.name} too, in place of what it has of the same rows"
    )
    return parser.parse_args()


def _rows(pattern: str) -> list[str]:
    names = [name for name in ROWS if fnmatchcase(name, pattern)]
    if not names:
        raise argparse.ArgumentTypeError(f"{pattern} is none of {', '.join(ROWS)}")
    return names


def _positive(text: str) -> int:
    return _at_least(1, int(text.replace(",", "").replace("_", "")))


def _value_bytes(text: str) -> int:
    return _at_least(HEAD.size, int(text))


def _seconds(text: str) -> int:
    return _at_least(8, int(text))  # the first and last 3 are no steady rate


def _at_least(least: int, number: int) -> int:
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {least}")
    return number


if __name__ == "__main__":
    main()
