"""The findings as Prometheus text, for the node exporter's textfile collector or a push gateway.

Labels are verdicts, quantiles, and at most `MAX_ROWS` names of topics and groups; ids are never labels.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from spark.report.model import AuditReport, Lateness, Verdict

_QUANTILES = (("0.5", "p50_ms"), ("0.9", "p90_ms"), ("0.99", "p99_ms"), ("0.999", "p999_ms"), ("1", "max_ms"))


def prometheus_text(report: AuditReport) -> str:
    """Every figure with its help and type."""
    registry = CollectorRegistry()
    registry.register(_Findings(report))
    return generate_latest(registry).decode()


class _Findings:
    def __init__(self, report: AuditReport) -> None:
        self._report = report

    def collect(self) -> Iterable[Metric]:
        report = self._report
        yield _gauge("as_of_timestamp_seconds", "The time as of which was judged.", report.as_of.timestamp())
        yield _gauge(
            "promise_kept", "1 where no message is missing, duplicate, early or ignored its cancel.", report.is_kept
        )
        yield _gauge(
            "notes", "What is to be known before the figures are relied on, such as topics not seen.", len(report.notes)
        )
        counts = GaugeMetricFamily("timewheel_audit_messages", "Messages by verdict.", labels=["verdict"])
        for verdict in Verdict:
            counts.add_metric([verdict.value], report.verdicts[verdict])
        yield counts
        yield from self._lateness()
        yield from self._retries()
        yield _gauge(
            "rolled_messages",
            "Messages that waited longer than the roll window.",
            len(report.rolled.rows) + report.rolled.left_out,
        )
        forecast = sum(point.pending for point in report.forecast if point.at_ms < report.as_of_ms + 3_600_000)
        yield _gauge("due_within_an_hour", "Pending messages that fall due within an hour.", forecast)

    def _lateness(self) -> Iterable[Metric]:
        overall = GaugeMetricFamily(
            "timewheel_audit_lateness_seconds",
            "Publish time less due time, by quantile; 1 is the worst.",
            labels=["quantile"],
        )
        for quantile, seconds in _quantiles(self._report.lateness):
            overall.add_metric([quantile], seconds)
        yield overall
        by_topic = GaugeMetricFamily(
            "timewheel_audit_topic_lateness_seconds",
            "Publish time less due time, by destination and quantile.",
            labels=["topic", "quantile"],
        )
        for row in self._report.lateness_by_topic.rows:
            for quantile, seconds in _quantiles(row):
                by_topic.add_metric([row.name, quantile], seconds)
        yield by_topic

    def _retries(self) -> Iterable[Metric]:
        messages = GaugeMetricFamily(
            "timewheel_audit_group_failed_messages", "Messages a group sent back at least once.", labels=["group"]
        )
        dead = GaugeMetricFamily("timewheel_audit_group_dead_letters", "Messages a group gave up.", labels=["group"])
        for row in self._report.retries_by_group.rows:
            messages.add_metric([row.group], row.messages)
            dead.add_metric([row.group], row.dead_lettered)
        yield messages
        yield dead


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"timewheel_audit_{name}", text, value=value)


def _quantiles(lateness: Lateness) -> Iterable[tuple[str, float]]:
    for quantile, field in _QUANTILES:
        value_ms = getattr(lateness, field)
        if value_ms is not None:
            yield quantile, value_ms / 1000
