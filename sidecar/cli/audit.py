"""``timewheel audit``: the Spark jobs that prove what has been delivered, and when."""

import typer

from sidecar.cli import audit_alert, audit_batch, audit_demo, audit_report, audit_stream


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="Prove from Kafka's own records that every message arrived once and on time (needs the extra spark).",
        epilog="Example: timewheel audit batch --bootstrap-servers localhost:9092 --out audit",
    )
    audit_batch.register(group)
    audit_stream.register(group)
    audit_alert.register(group)
    audit_report.register(group)
    audit_demo.register(group)
    app.add_typer(group, name="audit")
