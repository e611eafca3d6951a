"""Rates: what the sidecar gets through, and what a plain loop gets through, over the same records."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import CPU, RATE, Measure, Values
from benchmarks.pending import fill_waiting
from benchmarks.process import Process
from benchmarks.sidecar import Sidecar
from benchmarks.workload import FLOOR_BATCH, Cluster, Header, Headers, Load

RATE_BESIDE_DEFAULTS = "records/s, beside default options"
RATE_BESIDE_TWO_HEADERS = "records/s, beside two headers"
INGESTED = "timewheel_ingested_records_total"
BURST_AHEAD_S = 5.0
BURST_REST_S = 0.5
"""Before it falls due the CPU is not counted: it is that of taking in, and of waiting."""
SLOWEST_INTAKE, SLOWEST_INTAKE_BYTES = 25_000, 25_000_000
"""Per second: what a burst is given to be written and taken in before it falls due."""

DUE_LONG_AGO = ("TIMER_DELIVER_MS", b"1700000000000")
DEAD = (
    ("CONSUMER_GROUP", b"billing"),
    ("RECONSUME_TIME", b"17"),
    ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-sendback-0-1234567"),
    ("ORIGIN_MESSAGE_ID", b"SCHEDULE_TOPIC_XXXX-sendback-0-1234567"),
    ("TIMER_OUT_MS", b"1700000000000"),
)
FAILED = (("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders"))


def level_backlog(cluster: Cluster, load: Load) -> Values:
    """Due records of one level partition, drained."""
    return _delivered(cluster, load, "1")


def straight_through(cluster: Cluster, load: Load) -> Values:
    """Records of one wheel partition that are due when they are read."""
    return _delivered(cluster, load, "wheel", DUE_LONG_AGO)


def send_back(cluster: Cluster, load: Load) -> Values:
    """Failed messages on their way to the level of their first retry, where they stay."""
    with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
        waiting = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-1")
        source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-sendback")
        cluster.fill(source, load.records, load.value_bytes, lambda _: list(FAILED))
        with Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1h") as sidecar:
            sidecar.wait_until_assigned()
            values = _drained(cluster, load, sidecar, waiting)
    return {**values, RATE_BESIDE_TWO_HEADERS: values[RATE]}


def redrive(cluster: Cluster, load: Load) -> Values:
    """Dead letters on their way to the topic that they first came from."""
    with cluster.room() as prefix:
        letters, destination = cluster.create(f"{prefix}DLQ-billing"), cluster.create(f"{prefix}out")
        headers: Headers = [*DEAD, ("RETRY_TOPIC", destination.encode())]
        cluster.fill(letters, load.records, load.value_bytes, lambda _: headers)
        before_s = _children_s()
        command = [sys.executable, "-m", "sidecar", "dlq", "redrive", "billing", "--topic-prefix", prefix]
        subprocess.run([*command, "--bootstrap-servers", cluster.bootstrap_servers], check=True, capture_output=True)
        cpu_s = _children_s() - before_s
        return {RATE: cluster.rate(destination, load.records), CPU: cpu_s / load.records * 1e6}


def _children_s() -> float:
    """CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def burst(waiting: int = 0, *, partitions: int = 1, workers: int = 1, times: int = 1) -> Measure:
    """Records that fall due at one instant, out of the wheel; the CPU is that of releasing them.

    Args:
        waiting: so many others wait there, for later.
        partitions: of the wheel topic and of the destinations.
        workers: of the sidecar.
        times: so many bursts, one after the other, each to a topic of its own; the values are their medians.
    """

    def measure(cluster: Cluster, load: Load) -> Values:
        with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
            source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", partitions=partitions)
            destinations = [cluster.create(f"{prefix}out-{number}", partitions=partitions) for number in range(times)]
            fill_waiting(cluster, source, waiting, destinations[0])
            settings = {"topic_prefix": prefix, "levels": "1ms", "workers": workers}
            with Sidecar(cluster.bootstrap_servers, Path(directory), **settings) as sidecar:
                sidecar.wait_until_ready()
                sidecar.wait_for(INGESTED, waiting, 60 + waiting / SLOWEST_INTAKE)
                bursts = []
                for number, destination in enumerate(destinations):
                    if waiting:
                        os.sync()  # else the kernel brings to the disk meanwhile what was taken in
                    before = waiting + number * load.records
                    bursts.append(_released(cluster, load, sidecar, source, destination, before))
                return {name: statistics.median(values[name] for values in bursts) for name in bursts[0]}

    return measure


def _released(
    cluster: Cluster, load: Load, sidecar: Sidecar, source: str, destination: str, ingested_before: int
) -> Values:
    """One burst."""
    due_s = time.time() + BURST_AHEAD_S
    due_s += load.records / SLOWEST_INTAKE + load.records * load.value_bytes / SLOWEST_INTAKE_BYTES
    _fill(cluster, load, source, destination, ("TIMER_DELIVER_MS", b"%d" % (due_s * 1_000)))
    sidecar.wait_for(INGESTED, ingested_before + load.records)
    if time.time() > due_s:
        raise RuntimeError("the burst fell due before it was taken in: a busy machine? fewer --records?")
    time.sleep(max(0.0, due_s - BURST_REST_S - time.time()))
    return _drained(cluster, load, sidecar, destination)


def intake(cluster: Cluster, load: Load) -> Values:
    """Records for the next hour, to disk: from the assignment to the last, as the floor counts."""
    return _taken_in(cluster, longer(load), lambda number, real_topic, later: [real_topic, later])


def orders(cluster: Cluster, load: Load) -> Values:
    """In turns an order's time-out, and the cancel of one that was scheduled a thousand records before."""

    def headers(number: int, real_topic: Header, later: Header) -> Headers:
        if number % 2:
            return [("TIMER_DEL_UNIQKEY", b"order-%d" % max(0, number - 1_001))]
        return [real_topic, later, ("UNIQ_KEY", b"order-%d" % number)]

    return _taken_in(cluster, longer(load), headers)


def _taken_in(cluster: Cluster, load: Load, headers_of: Callable[[int, Header, Header], Headers]) -> Values:
    now_ms = time.time_ns() // 1_000_000

    with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
        real_topic = ("REAL_TOPIC", cluster.create(f"{prefix}out").encode())

        def headers(number: int) -> Headers:
            later = ("TIMER_DELIVER_MS", b"%d" % (now_ms + 600_000 + number * 7_919 % 3_000_000))
            return headers_of(number, real_topic, later)

        cluster.fill(cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"), load.records, load.value_bytes, headers)
        with Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1ms") as sidecar:
            began_s = sidecar.wait_until_assigned()
            before_s = sidecar.cpu_s()
            rate = sidecar.intake_rate(began_s, load.records, timeout_s=120)
            cpu_s = sidecar.cpu_s() - before_s
    return {RATE: rate, RATE_BESIDE_DEFAULTS: rate, CPU: cpu_s / load.records * 1e6}


def longer(load: Load) -> Load:
    """For what is so fast that the usual number of records is over before it has got going."""
    return load._replace(records=3 * load.records)


def consume_floors(cluster: Cluster, load: Load) -> Values:
    """Raw consume: with the sidecar's options, and with librdkafka's own."""
    load = longer(load)
    values = floor("consume", DUE_LONG_AGO)(cluster, load)
    values[RATE_BESIDE_DEFAULTS] = floor("consume-default", DUE_LONG_AGO)(cluster, load)[RATE]
    return values


def retry_floors(cluster: Cluster, load: Load) -> Values:
    """Raw relay: with a retry's headers, and with the two that the other relays write."""
    values = floor("relay-retry", *FAILED)(cluster, load)
    values[RATE_BESIDE_TWO_HEADERS] = floor("relay", *FAILED)(cluster, load)[RATE]
    return values


def floor(
    kind: str,
    *headers: tuple[str, bytes],
    partitions: int = 1,
    processes: int = 1,
    batch_records: int = FLOOR_BATCH,
) -> Measure:
    """A plain loop of `benchmarks.floors`, or several side by side, each with its share of the records.

    Args:
        headers: of its source, beside REAL_TOPIC.
        partitions: of its destination.
        batch_records: most in one transaction.
    """

    def measure(cluster: Cluster, load: Load) -> Values:
        share = load.records // processes
        with cluster.room() as prefix, ExitStack() as running:
            source = cluster.create(f"{prefix}in")
            destination = cluster.create(f"{prefix}out", partitions=partitions)
            if kind != "produce":
                _fill(cluster, load, source, destination, *headers)
            arguments = (kind, cluster.bootstrap_servers, source, destination, share, load.value_bytes, batch_records)
            loops = [running.enter_context(Process("floors", *arguments)) for _ in range(processes)]
            told = [loop.result() for loop in loops]
            rate = told[0].get("per_second") or cluster.rate(destination, share * processes)
        return {RATE: rate, CPU: sum(each["cpu_s"] for each in told) / (share * processes) * 1e6}

    return measure


def _delivered(cluster: Cluster, load: Load, queue: str, *headers: tuple[str, bytes]) -> Values:
    """Schedule records, start the sidecar, and let it deliver them all."""
    with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
        source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-{queue}")
        destination = cluster.create(f"{prefix}out")
        _fill(cluster, load, source, destination, *headers)
        with Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1ms") as sidecar:
            sidecar.wait_until_assigned()
            return _drained(cluster, load, sidecar, destination)


def _drained(cluster: Cluster, load: Load, sidecar: Sidecar, destination: str) -> Values:
    before_s = sidecar.cpu_s()
    with cluster.watched(destination) as end_offset:  # not by its metrics: nobody asks the floor anything meanwhile
        sidecar.wait_until(end_offset, load.records, f"the end of {destination}")
    cpu_s = sidecar.cpu_s() - before_s
    return {RATE: cluster.rate(destination, load.records), CPU: cpu_s / load.records * 1e6}


def _fill(cluster: Cluster, load: Load, source: str, destination: str, *headers: tuple[str, bytes]) -> None:
    all_headers: Headers = [("REAL_TOPIC", destination.encode()), *headers]
    cluster.fill(source, load.records, load.value_bytes, lambda _: all_headers)
