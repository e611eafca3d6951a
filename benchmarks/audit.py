"""The audit beside its floor: ingest against a bare read of the same topics by the same Spark, and how fast it judges.

Messages are scheduled on the wheel and delivered by a real sidecar, beside topics for all the levels. Then, in one
Spark on this machine:

    floor       the same topics, read and counted, with the read options that the audit has found to be fastest
    default     the same with Spark's own, what a plain job gets
    ingest      the same topics, decoded and written to a table of facts
    reconcile   verdicts of all of them, of a quarter and of the whole, written to a table: none may be faulty

Floors and ingest take turns. Memory is the highest that Spark's process has had.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.table import Table

from benchmarks import machine, report
from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster, Headers
from connectors.contract import DEFAULT_LEVELS, DelayLevels, TopicNames
from connectors.embedded import EmbeddedKafka
from spark.batch import Job
from spark.cluster import Cluster as AuditedCluster
from spark.facts import to_facts
from spark.reconcile import Rules, reconcile
from spark.session import spark_session
from spark.sources import read_ranges, read_ranges_by_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVELS = DelayLevels.parse(DEFAULT_LEVELS)
VALUE_BYTES = 200
PARTITIONS, WHEEL_PARTITIONS = 3, 6
DELAY_MS = 2_000


def main() -> None:
    arguments = _arguments()
    console = report.console()
    described = machine.describe()
    with EmbeddedKafka(heap="1g") as broker, tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(broker.bootstrap_servers)
        with cluster.room() as prefix:
            _deliver(cluster, prefix, Path(directory), arguments.messages)
            audited = AuditedCluster({"bootstrap.servers": broker.bootstrap_servers})
            spark = spark_session("timewheel bench", conf={"spark.ui.showConsoleProgress": "false"})
            try:
                job = Job(TopicNames(prefix), LEVELS, Rules(time.time_ns() // 1_000_000 + 3_600_000))
                rows = _measure(spark, audited, job, Path(directory), arguments.runs)
            finally:
                spark.stop()
    table = Table(
        "", "figure", "", title=f"audit of {arguments.messages:,} messages, each delivered", show_header=False
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in described.items()))
    report.warn_if_busy(console, described)


def _deliver(cluster: Cluster, prefix: str, directory: Path, messages: int) -> None:
    """Have a sidecar deliver so many."""
    names = TopicNames(prefix)
    for level in LEVELS:
        cluster.create(names.level(level), partitions=PARTITIONS)
    source = cluster.create(names.wheel, partitions=WHEEL_PARTITIONS)
    destination = cluster.create(f"{prefix}orders", partitions=PARTITIONS).encode()

    def headers_of(number: int) -> Headers:
        return [("REAL_TOPIC", destination), ("UNIQ_KEY", b"order-%d" % number), ("TIMER_DELAY_MS", b"%d" % DELAY_MS)]

    with Sidecar(cluster.bootstrap_servers, directory, topic_prefix=prefix) as sidecar:
        cluster.fill(source, messages, VALUE_BYTES, headers_of)
        sidecar.wait_for("timewheel_delivered_records_total", messages, 120 + messages / 5_000)


def _measure(
    spark: "SparkSession", cluster: AuditedCluster, job: Job, directory: Path, runs: int
) -> list[tuple[str, str, str]]:
    from spark import tables

    topics = [topic for topic in cluster.topics() if topic.startswith(job.names.prefix)]
    ranges = cluster.ranges((topic, number) for topic in topics for number in cluster.topics()[topic])
    facts_path, quarter_path = str(directory / "facts"), str(directory / "quarter")

    def floor() -> int:
        return read_ranges(spark, cluster.options, ranges).count()

    def default() -> int:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.options["bootstrap.servers"])
        reader = reader.option("kafka.isolation.level", "read_committed").option("includeHeaders", "true")
        return reader.option("subscribe", ",".join(topics)).load().count()

    def ingest() -> int:
        records = read_ranges_by_kind(spark, cluster.options, ranges, job.names)
        facts = to_facts(records, job.names, job.levels)
        tables.write_facts(facts, facts_path, "overwrite")
        return tables.read(spark, facts_path).count()

    records = floor()  # the first of everything compiles
    if default() != records:
        raise RuntimeError("the floors do not read the same records")
    facts = ingest()
    turns = [tuple(_rate(work, records) for work in (floor, default, ingest)) for _ in range(runs)]
    whole = tables.read(spark, facts_path)
    whole.where("pmod(hash(id), 4) = 0").write.format("delta").save(quarter_path)
    quarter = tables.read(spark, quarter_path).count()

    verdicts_path = str(directory / "verdicts")

    def judge(path: str, count: int) -> float:
        """Facts a second."""
        began_s = time.monotonic()
        tables.write(reconcile(tables.read(spark, path), job.names, job.rules), verdicts_path)
        spark.catalog.clearCache()
        took_s = time.monotonic() - began_s
        rows = tables.read(spark, verdicts_path).groupBy("verdict").count().collect()
        found = {row["verdict"]: row["count"] for row in rows}
        if set(found) - {"on_time", "late"} or sum(found.values()) * 2 != count:
            raise RuntimeError(f"the audit finds faults where there are none: {found}")
        return count / took_s

    judge(quarter_path, quarter)
    small = statistics.median(judge(quarter_path, quarter) for _ in range(runs))
    large = statistics.median(judge(facts_path, facts) for _ in range(runs))
    floor_rate, default_rate, ingest_rate = (statistics.median(rates) for rates in zip(*turns, strict=True))
    beside_floor, beside_default = (statistics.median(turn[2] / turn[number] for turn in turns) for number in (0, 1))
    return [
        ("floor: read and count", f"{floor_rate:,.0f} records/s", f"{records:,} records"),
        ("the same as Spark is set", f"{default_rate:,.0f} records/s", ""),
        ("ingest", f"{ingest_rate:,.0f} records/s", f"{beside_floor:.2f} of the floor, {beside_default:.2f} as set"),
        (f"reconcile {quarter:,} facts", f"{small:,.0f} facts/s", ""),
        (f"reconcile {facts:,} facts", f"{large:,.0f} facts/s", f"{small / large:.2f} times as long a fact"),
        ("highest memory of Spark", f"{_peak_mb():,.0f} MB", ""),
        ("faults", "0", ""),
    ]


def _rate(work: Callable[[], int], count: int) -> float:
    began_s = time.monotonic()
    work()
    return count / (time.monotonic() - began_s)


def _peak_mb() -> float:
    """Of the Java process under this one."""
    peaks = []
    for child in psutil.Process().children(recursive=True):
        if child.status() == psutil.STATUS_ZOMBIE:
            continue
        status = Path("/proc", str(child.pid), "status").read_text()
        if "org.apache.spark.deploy.SparkSubmit" in " ".join(child.cmdline()):
            peaks += [int(line.split()[1]) / 1_000 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-audit", description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000, help="scheduled and delivered (default 500,000)")
    parser.add_argument("--runs", type=int, default=3, help="of each figure; the median counts (default 3)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
