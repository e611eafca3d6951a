"""``timewheel audit stream``: facts of every message into a table, as they come."""

import signal
import sys
import time
from typing import Annotated

import typer

from sidecar.cli.audit_options import (
    SETTINGS,
    Destinations,
    Master,
    SparkConf,
    Step,
    audit_errors,
    check_apart,
    check_named,
    cluster,
    destinations,
    session,
)
from sidecar.cli.options import with_settings
from sidecar.cli.times import duration_ms
from sidecar.errors import UsageError
from sidecar.settings import Settings


def register(group: typer.Typer) -> None:
    group.command(
        epilog="Example: timewheel audit stream --bootstrap-servers localhost:9092 --facts facts "
        "--checkpoint checkpoint"
    )(stream)


@with_settings(only=SETTINGS)
def stream(
    settings: Settings,
    checkpoint: Annotated[str, typer.Option(help="Where progress is kept; it belongs to the table.", metavar="DIR")],
    facts: Annotated[
        str | None, typer.Option("--facts", "--out", help="The table that is written.", metavar="DIR")
    ] = None,
    interval: Annotated[str, typer.Option(help="How often what is new is read.")] = "10s",
    batch_records: Annotated[
        int, typer.Option(min=1, help="Most records in one commit; a backlog is read in steps of this size.")
    ] = 2_000_000,
    available_now: Annotated[bool, typer.Option("--available-now", help="Read what there is, and end.")] = False,
    destination: Destinations = None,
    master: Master = None,
    spark_conf: SparkConf = None,
) -> None:
    """Stream all schedule, retry, dead-letter and destination topics into a table, exactly once, restarts included.

    Destinations are found from what is scheduled. Read the table with 'audit batch --facts DIR'. Ends on SIGTERM;
    killed or stopped, it goes on where it was when it is started again with the same table and checkpoint.
    """
    if facts is None:
        raise UsageError("say with --facts where the table is to be")
    interval_ms = duration_ms("--interval", interval)
    if interval_ms < 100:
        raise UsageError(f"--interval {interval} is too short; the least is 100ms")
    topics = destinations(settings, destination)
    check_named("--facts", facts)
    check_named("--checkpoint", checkpoint)
    check_apart("--checkpoint", checkpoint, facts)
    with audit_errors():
        from spark.packages import check_pyspark

        check_pyspark()
        from spark.batch import Job
        from spark.reconcile import Rules
        from spark.stream import Ingest

        kafka = cluster(settings)
        with Step("starting Spark"):
            spark = session("stream", master, spark_conf)
        stopped: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: stopped.append(received))
        try:
            job = Job(settings.topic_names, settings.levels, Rules(0, destinations=topics))
            ingest = Ingest(spark, kafka, job, facts, checkpoint, batch_records, _tell, _now_ms)
            if available_now:
                with Step("reading what there is"):
                    ingest.run_available(lambda: bool(stopped))
            else:
                ingest.run(interval_ms, lambda: bool(stopped))
        finally:
            spark.stop()


def _tell(line: str) -> None:
    print(f"timewheel: {line}", file=sys.stderr, flush=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
