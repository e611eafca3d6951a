"""``timewheel audit batch``: verdicts on every message, as of a time."""

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    check_output,
    cluster,
    destinations,
    is_uri,
    session,
)
from sidecar.cli.options import with_settings
from sidecar.cli.pager import one_line
from sidecar.cli.times import duration_ms, time_ms
from sidecar.errors import UsageError
from sidecar.settings import Settings
from spark.report import REPORT_HTML, REPORT_JSON, REPORT_PROMETHEUS, AuditReport, ReportError, write_report
from spark.report.model import Verdict
from spark.report.words import headline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(group: typer.Typer) -> None:
    group.command(epilog="Example: timewheel audit batch --bootstrap-servers localhost:9092 --out audit --grace 5s")(
        batch
    )


@with_settings(only=SETTINGS)
def batch(
    settings: Settings,
    out: Annotated[str, typer.Option(help="Where facts, verdicts and report are written.", metavar="DIR")],
    since: Annotated[
        str | None, typer.Option("--from", help="Only messages asked for at this time or later.", metavar="ISO8601")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Only messages asked for before this time.", metavar="ISO8601")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(help="Judge as of this time. Default: now, or as far as the table goes.", metavar="ISO8601"),
    ] = None,
    grace: Annotated[str, typer.Option(help="How long after its due time a message counts as missing.")] = "5s",
    late_after: Annotated[str, typer.Option(help="How long after its due time a message counts as late.")] = "1s",
    destination: Destinations = None,
    facts: Annotated[
        str | None,
        typer.Option(help="Read no topics, but the table that 'audit stream' writes.", metavar="DIR"),
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge every message by Kafka's own records: on time, late, missing, duplicate, early, cancelled, and more.

    Nothing is taken from the sidecar: when a message was due follows from the record that asked for it. Ends with exit
    code 1 where a promise is broken (missing, duplicate, early, cancel ignored), so that a cron job alerts.
    """
    began_ms = time.time_ns() // 1_000_000
    given_ms = time_ms("--as-of", as_of)
    since_ms, until_ms = time_ms("--from", since), time_ms("--to", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise UsageError(f"--from {since} is not before --to {until}")
    grace_ms, late_after_ms = duration_ms("--grace", grace), duration_ms("--late-after", late_after)
    if since_ms is not None and given_ms is not None and since_ms >= given_ms:
        raise UsageError(f"--from {since} is not before --as-of {as_of}")
    topics = destinations(settings, destination)
    check_output("--out", out)
    if facts is not None:
        check_named("--facts", facts)
        check_apart("--out", out, facts)
    with audit_errors():
        from spark.packages import check_pyspark

        check_pyspark()
        from spark.batch import Job, audit, failures_read, letters_lost, read_facts, shortened
        from spark.reconcile import Rules
        from spark.stream import failures_streamed
        from spark.tables import read_facts as read_table

        kafka = cluster(settings) if facts is None else None
        with Step("starting Spark"):
            spark = session("batch", master, spark_conf)
        try:
            as_of_ms = given_ms if given_ms is not None else _read_until_ms(spark, facts, began_ms)
            if facts is not None:
                topics = _kept(spark, facts, topics)
            is_whole = kafka is None or since_ms is None
            rules = Rules(as_of_ms, grace_ms, late_after_ms, since_ms, until_ms, is_whole, topics)
            job = Job(settings.topic_names, settings.levels, rules)
            path, notes = facts or f"{out}/facts", list[str]()
            written = [f"{out}/verdicts", *([] if kafka is None else [path])]
            _check_may_be_written(spark, out, written)
            if kafka is not None:
                notes = read_facts(spark, kafka, job, path, Step)
                failures_ms = failures_read(kafka, job, began_ms)
                if lost := letters_lost(kafka, job):
                    rules = rules._replace(are_letters_whole=False)
                    notes.append(
                        f"{shortened(lost)}: its first records are gone, and what was redriven is held against those "
                        "dead letters alone that say where which group failed."
                    )
            else:
                failures_ms = failures_streamed(read_table(spark, path), settings.levels, grace_ms)
            job = job._replace(rules=rules._replace(failures_ms=failures_ms))
            report = audit(spark, job, path, out, notes, Step, kafka)
            with Step("writing the report"):
                files = _write(spark, report, out)
            _vacuum(spark, written)
        finally:
            spark.stop()
    if as_json:
        typer.echo(json.dumps(_told(report), indent=2))
    else:
        typer.echo(headline(report).sentence)
        _print(report, files)
    if not report.is_kept:
        raise typer.Exit(1)


def _read_until_ms(spark: "SparkSession", facts: str | None, now_ms: int) -> int:
    if facts is None:
        return now_ms
    from spark import tables
    from spark.stream import read_until_ms

    until_ms = read_until_ms(tables.read_facts(spark, facts))
    if until_ms is None:
        raise UsageError(f"nobody has said how far {facts} goes: the stream has not caught up yet; give --as-of")
    return until_ms


def _check_may_be_written(spark: "SparkSession", out: str, paths: list[str]) -> None:
    """These tables are written anew: what a stream has read would be gone, and it does not read it again."""
    from spark.stream import is_streamed

    for path in paths:
        if is_streamed(spark, path):
            raise UsageError(
                f"--out {out}: {path} is the table of an 'audit stream', and would be overwritten; "
                "give another --out, and --facts to audit that table"
            )


def _kept(spark: "SparkSession", facts: str, topics: tuple[str, ...]) -> tuple[str, ...]:
    """The destinations asked for, or those that the table alone is of."""
    from spark import tables
    from spark.stream import kept_destinations

    kept = kept_destinations(tables.read_facts(spark, facts))
    left_out = sorted(set(topics).difference(kept)) if kept else []
    if left_out:
        raise UsageError(f"--destination {left_out[0]}: {facts} was begun for {', '.join(kept)} alone")
    return topics or kept


def _vacuum(spark: "SparkSession", paths: list[str]) -> None:
    """What batches of more than a week ago have left in the tables that this one has written anew."""
    from spark import tables

    for path in paths:
        tables.vacuum_daily(spark, path)


def _write(spark: "SparkSession", report: AuditReport, out: str) -> list[str]:
    """The report's files; beside tables that are elsewhere, they are copied there."""
    if not is_uri(out):
        return [str(path) for path in _written(report, Path(out))]
    with tempfile.TemporaryDirectory() as directory:
        jvm: Any = spark.sparkContext._jvm
        there = jvm.org.apache.hadoop.fs.Path(out)
        system = there.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        paths = _written(report, Path(directory))
        for path in paths:
            system.copyFromLocalFile(False, True, jvm.org.apache.hadoop.fs.Path(str(path)), there)
        return [f"{out}/{path.name}" for path in paths]


def _written(report: AuditReport, directory: Path) -> list[Path]:
    try:
        write_report(report, directory)
    except ReportError as error:  # the others are there
        typer.echo(f"timewheel: {error}", err=True)
    paths = (directory / name for name in (REPORT_JSON, REPORT_PROMETHEUS, REPORT_HTML))
    return [path for path in paths if path.exists()]


def _told(report: AuditReport) -> dict[str, Any]:
    return report.model_dump(mode="json", include={"as_of", "verdicts", "faulty", "faulty_left_out", "notes"})


def _print(report: AuditReport, files: list[str]) -> None:
    counts = ((verdict.value.replace("_", " "), report.verdicts[verdict]) for verdict in Verdict)
    typer.echo(", ".join(f"{count:,} {name}" for name, count in counts if count))
    for message in report.faulty[:20]:
        place = f"{message.topic}, partition {message.partition}, offset {message.offset}"
        why = f": {message.why}" if message.why else ""
        typer.echo(one_line(f"  {message.verdict.value}  {message.id}  ({place}){why}"))
    more = len(report.faulty) - 20 + report.faulty_left_out
    if more > 0:
        typer.echo(f"  and {more:,} more")
    for note in report.notes:
        typer.echo(note)
    typer.echo("\n".join(files))
