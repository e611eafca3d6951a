"""The rows of the table: for each, the product's run and the floor's, over the same records."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster, Run

PAST_MS = 1_700_000_000_000
BURST_AHEAD_S = 12
"""How long after it is scheduled a burst falls due: time enough to take it in."""

Measure = Callable[[Cluster, int], Run]


class Row(NamedTuple):
    """One figure and what it is held against."""

    product: Measure
    floor: Measure
    floor_name: str
    goal: float
    expected_floor: int
    """Below this the floor is slow, or the machine busy; seen on two cores."""


def level_backlog(cluster: Cluster, count: int) -> Run:
    """Due records of one level partition, drained."""
    return _drain(cluster, count, "1", lambda _: [], "timewheel_delivered_records_total")


def straight_through(cluster: Cluster, count: int) -> Run:
    """Records of one wheel partition that are due when they are read."""
    deliver = ("TIMER_DELIVER_MS", b"%d" % PAST_MS)
    return _drain(cluster, count, "wheel", lambda _: [deliver], "timewheel_delivered_records_total")


def burst(cluster: Cluster, count: int) -> Run:
    """Records that wait in the wheel and fall due at one instant."""
    deliver = ("TIMER_DELIVER_MS", b"%d" % (time.time_ns() // 1_000_000 + BURST_AHEAD_S * 1_000))
    return _drain(cluster, count, "wheel", lambda _: [deliver], "timewheel_delivered_records_total")


def intake(cluster: Cluster, count: int) -> Run:
    """Records for the next hour, to disk."""
    now_ms = time.time_ns() // 1_000_000

    def headers(number: int) -> Sequence[tuple[str, bytes]]:
        return [("TIMER_DELIVER_MS", b"%d" % (now_ms + 600_000 + number * 7_919 % 3_000_000))]

    return _drain(cluster, count, "wheel", headers, "timewheel_ingested_records_total", delivers=False)


def _drain(
    cluster: Cluster,
    count: int,
    queue: str,
    headers: Callable[[int], Sequence[tuple[str, bytes]]],
    metric: str,
    *,
    delivers: bool = True,
) -> Run:
    prefix = f"b{time.time_ns()}."
    source, destination = f"{prefix}SCHEDULE_TOPIC_XXXX-{queue}", f"{prefix}out"
    cluster.create(source, config={"message.timestamp.type": "LogAppendTime"})
    cluster.create(destination)
    cluster.fill(source, count, lambda number: [("REAL_TOPIC", destination.encode()), *headers(number)])
    with tempfile.TemporaryDirectory() as directory:
        with Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1ms") as sidecar:
            sidecar.wait_for("timewheel_assigned_partitions", 1, poll_s=0.01)
            before_s = sidecar.cpu_s()
            began_s = sidecar.wait_for(metric, 1, poll_s=0.01)
            ended_s = sidecar.wait_for(metric, count, poll_s=0.01 if not delivers else 0.1)
            cpu_s = sidecar.cpu_s() - before_s
        per_second = cluster.rate(destination, count) if delivers else count / (ended_s - began_s)
    return Run(per_second, cpu_s / count * 1e6)


def floor(kind: str, headers: Sequence[tuple[str, bytes]] = ()) -> Measure:
    """A plain loop of `benchmarks.floors` over the same records."""

    def measure(cluster: Cluster, count: int) -> Run:
        name = f"floor{time.time_ns()}"
        source, destination = f"{name}-in", f"{name}-out"
        cluster.create(source, destination)
        if kind != "produce":
            cluster.fill(source, count, lambda _: [("REAL_TOPIC", destination.encode()), *headers])
        command = [sys.executable, "-m", "benchmarks.floors", kind, cluster.bootstrap_servers, source, destination]
        done = subprocess.run([*command, str(count)], check=True, capture_output=True, text=True)
        told = dict(re.findall(r"(\w+)=([0-9.]+)", done.stdout))
        per_second = float(told["per_second"]) if "per_second" in told else cluster.rate(destination, count)
        return Run(per_second, float(told["cpu_s"]) / count * 1e6)

    return measure


_DELIVER = ("TIMER_DELIVER_MS", b"%d" % PAST_MS)

ROWS = {
    "level backlog": Row(level_backlog, floor("relay"), "raw transactional relay", 0.9, 100_000),
    "straight through the wheel": Row(
        straight_through, floor("relay", [_DELIVER]), "raw transactional relay", 0.85, 100_000
    ),
    "burst, all due at once": Row(burst, floor("produce"), "raw transactional produce", 0.85, 200_000),
    "intake to disk": Row(intake, floor("consume", [_DELIVER]), "raw consume", 0.75, 150_000),
}
