"""``timewheel audit alert``: what is overdue and has not been delivered, told within a minute."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, start_http_server

from sidecar.cli.audit_options import (
    SETTINGS,
    Master,
    SparkConf,
    Step,
    audit_errors,
    check_apart,
    check_named,
    cluster,
    session,
)
from sidecar.cli.audit_options import topic as alerts_topic
from sidecar.cli.options import with_settings
from sidecar.cli.times import duration_ms
from sidecar.errors import TimewheelError, UsageError
from sidecar.settings import Settings

ALERTS_TOPIC = "TIMEWHEEL-ALERTS"


def register(group: typer.Typer) -> None:
    group.command(
        epilog="Example: timewheel audit alert --bootstrap-servers localhost:9092 --facts facts --checkpoint alerts"
    )(alert)


@with_settings(only=(*SETTINGS, "replication_factor"))
def alert(
    settings: Settings,
    facts: Annotated[str, typer.Option(help="The table that 'audit stream' writes, meanwhile.", metavar="DIR")],
    checkpoint: Annotated[str, typer.Option(help="A directory for what this command keeps.", metavar="DIR")],
    topic: Annotated[
        str | None,
        typer.Option(help=f"Where alerts go, made if it is missing. Default: {ALERTS_TOPIC} after the topic prefix."),
    ] = None,
    grace: Annotated[str, typer.Option(help="How long after its due time a message counts as overdue.")] = "10s",
    interval: Annotated[str, typer.Option(help="How often to look.")] = "5s",
    metrics_file: Annotated[
        Path | None, typer.Option(help="Write Prometheus text here after each look.", metavar="FILE")
    ] = None,
    metrics_address: Annotated[
        str | None, typer.Option(help="Serve Prometheus text at this address.", metavar="HOST:PORT")
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
) -> None:
    """Raise an alert for every message that is overdue and has not been delivered, once, within a minute.

    Alerts are JSON records keyed by the message's id, exactly once for read_committed readers, restarts included. Needs
    'audit stream' at work on the same table. A message that was cancelled, replaced or rejected is not overdue. What
    fell due more than an hour ago is left to 'audit batch'. Ends on SIGTERM.
    """
    grace_ms, interval_ms = duration_ms("--grace", grace), duration_ms("--interval", interval)
    if interval_ms < 100:
        raise UsageError(f"--interval {interval} is too short; the least is 100ms")
    place = None if metrics_address is None else _host_and_port(metrics_address)
    name = settings.topic_names.physical(topic) if topic else settings.topic_prefix + ALERTS_TOPIC
    alerts_topic("--topic", topic or ALERTS_TOPIC, name)
    check_named("--facts", facts)
    check_named("--checkpoint", checkpoint)
    check_apart("--checkpoint", checkpoint, facts)
    if metrics_file is not None and not metrics_file.parent.is_dir():
        raise UsageError(f"--metrics-file {metrics_file}: {metrics_file.parent} is not a directory; make it first")
    with audit_errors():
        from spark.packages import check_pyspark

        check_pyspark()
        from spark.alert_sink import AlertMetrics, KafkaAlerts
        from spark.alerts import AlertStream, Watch, survey_of

        cluster(settings, is_read_by_spark=False)
        metrics = AlertMetrics(metrics_file)
        if place is not None:
            _serve(metrics.registry, *place)
        options = {"bootstrap.servers": settings.bootstrap_servers, **settings.kafka}
        with Step("starting Spark"):
            spark = session("alert", master, spark_conf)
        stopped: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: stopped.append(received))
        sink = KafkaAlerts(options, name, f"{name}.progress", metrics, replication_factor=settings.replication_factor)
        try:
            watch = Watch(spark, settings.topic_names, facts, survey_of(checkpoint), grace_ms, sink, _tell)
            alerts = AlertStream(spark, facts, watch, interval_ms)
            _tell(f"alerts go to {name}")
            while not stopped:
                alerts.wait(1.0)
            alerts.stop()
        finally:
            sink.close()
            spark.stop()


def _host_and_port(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--metrics-address '{address}' is not HOST:PORT, such as 127.0.0.1:9101")
    return host.strip("[]"), int(port)


def _serve(registry: CollectorRegistry, host: str, port: int) -> None:
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise TimewheelError(f"--metrics-address {host}:{port} cannot be used: {error.strerror}") from error


def _tell(line: str) -> None:
    print(f"timewheel: {line}", file=sys.stderr, flush=True)
