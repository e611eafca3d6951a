"""How late records come at a steady rate, beside a bare echo at the same rate.

    generator ──► wheel topic ──► sidecar ──► three partitions ──► reader    due: a random time, 1 to 4 s ahead
    generator ──► a topic     ──► echo    ──► three partitions ──► reader    due: when the source was appended

The same generator, partitions and reader; what the product takes beyond the echo is its own. It is held against
receiving as well as sending: the echo has a fetch to wait for that a timer has not, so a little below zero is possible.
"""

import tempfile
from pathlib import Path

from benchmarks.figures import CPU, Measure, Values
from benchmarks.process import Process
from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster, Load

P50, P99, HIGHEST, HELD = "p50, ms", "p99, ms", "highest, ms", "rate of the generator, records/s"
PARTITIONS = 3


def timer(rate: int) -> Measure:
    """The product: records due at random times, through the wheel."""

    def measure(cluster: Cluster, load: Load) -> Values:
        with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
            source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
            destination = cluster.create(f"{prefix}out", partitions=PARTITIONS)
            with Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1ms") as sidecar:
                sidecar.wait_until_ready()
                before_s = sidecar.cpu_s()
                values = trickle(cluster, load, rate, source, destination)
                return {**values, CPU: (sidecar.cpu_s() - before_s) / (rate * load.seconds) * 1e6}

    return measure


def echo(rate: int) -> Measure:
    """The floor: receive, send in a transaction, read."""

    def measure(cluster: Cluster, load: Load) -> Values:
        count = int(rate * load.seconds)
        with cluster.room() as prefix:
            source = cluster.create(f"{prefix}in")
            destination = cluster.create(f"{prefix}out", partitions=PARTITIONS)
            arguments = ("echo", cluster.bootstrap_servers, source, destination, count, load.value_bytes)
            with Process("floors", *arguments) as process:
                process.wait_until_ready()
                values = trickle(cluster, load, rate, source, destination)
                return {**values, CPU: process.result()["cpu_s"] / count * 1e6}

    return measure


def trickle(cluster: Cluster, load: Load, rate: int, source: str, destination: str) -> Values:
    """Records into the source at a rate, and what the reader of the destination says of them."""
    servers = cluster.bootstrap_servers
    with (
        Process("reader", servers, destination, PARTITIONS, int(rate * load.seconds)) as reader,
        Process("generator", servers, source, destination, rate, load.seconds, load.value_bytes) as generator,
    ):
        reader.wait_until_ready()
        generator.wait_until_ready()
        held = generator.result()["per_second"]
        return {**judged(reader.result(), rate, destination), HELD: held}


def judged(told: dict[str, float], rate: int, destination: str) -> Values:
    """What a reader has told; raises RuntimeError for a record that is early, lost or there twice."""
    faults = {name: int(told[name]) for name in ("early", "lost", "twice")}
    if any(faults.values()):
        raise RuntimeError(f"at {rate:,} records/s, records to {destination}: {faults}")
    return {P50: told["p50_ms"], P99: told["p99_ms"], HIGHEST: told["highest_ms"]}
