"""docs/metrics.md, out of the registries: ``python -m monitoring`` writes it."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from connectors.contract import ErrorCode
from sidecar.dispatch.wheel_figures import DUE_WITHIN_MS
from sidecar.metrics import Metrics, TopicMetrics
from sidecar.settings import load_settings
from sidecar.workers.merge import worker_up
from sidecar.workers.supervisor_metrics import SupervisorMetrics

INTRODUCTION = """\
# Metrics

`/metrics` tells them to Prometheus, without a token. `monitoring/` has alert rules and a Grafana dashboard that use
them; [runbook.md](runbook.md) says what to do when an alert fires. This page is written by `python -m monitoring`.

"""

LABELS = """\
## Labels

| label | values | most |
| --- | --- | --- |
| `queue` | a level's number, `wheel`, `sendback` | levels + 2 |
| `topic` | destinations of what waits on the wheel; those with the most messages, the rest as `other` | 50 + 1 |
| `group` | consumer groups, in the order of their first dead letter; the rest as `other` | 100 + 1 |
| `code` | {codes} | {code_count} |
| `within` | {within}: not cumulative | {within_count} |
| `worker` | with `workers` above 1, on every sample of a worker; those of the supervisor have none | workers |

With workers, nothing is added up: each worker's samples are told with its number, so that the restart of one is no
reset of all. `sum without (worker) (…)` is the sidecar.

## RocketMQ's

RIP-43's metrics, and where they are found here:

| RocketMQ | here |
| --- | --- |
| `rocketmq_timing_messages{{topic}}` | `timewheel_pending_messages{{topic}}` |
| `rocketmq_timer_message_snapshot` | `timewheel_pending_due_messages{{within}}` |
| `rocketmq_timer_enqueue_total` | `timewheel_ingested_records_total{{queue="wheel"}}` |
| `rocketmq_timer_dequeue_total` | `timewheel_delivered_records_total{{queue="wheel"}}` |
| `rocketmq_timer_enqueue_lag` | `timewheel_unread_offsets{{queue="wheel"}}` |
| `rocketmq_timer_dequeue_lag`, `rocketmq_timer_dequeue_latency` | `timewheel_behind_seconds` |
| `rocketmq_delay_message_latency` | `timewheel_lateness_seconds` |
| `rocketmq_send_to_dlq_messages_total` | `timewheel_dead_letters_total{{group}}` |
"""


def metrics_page() -> str:
    """The page as it should be."""
    metrics, workers = Metrics("0"), SupervisorMetrics()
    metrics.tell_config(load_settings().told_in_metrics())
    labels_of = _labels_of(metrics, TopicMetrics(metrics.registry), workers)
    ours = [family for family in metrics.registry.collect() if family.name.startswith("timewheel_")]
    of_the_process = [family for family in metrics.registry.collect() if not family.name.startswith("timewheel_")]
    told = {family.name for family in metrics.registry.collect()}
    of_workers = [worker_up(), *(family for family in workers.registry.collect() if family.name not in told)]
    within = [*DUE_WITHIN_MS, "later"]
    labels = LABELS.format(
        codes=", ".join(f"`{code}`" for code in ErrorCode),
        code_count=len(ErrorCode),
        within=", ".join(f"`{one}`" for one in within),
        within_count=len(within),
    )
    return "\n".join(
        [
            INTRODUCTION + "## Ours\n",
            _table(ours, labels_of),
            "## With workers\n",
            _table(of_workers, labels_of),
            "## Of the process\n",
            "The client library's own, where the platform has them.\n",
            _table(of_the_process, labels_of),
            labels,
        ]
    )


def _labels_of(*holders: object) -> dict[str, list[str]]:
    """The labels of metrics that have no samples yet."""
    metrics = [
        metric for holder in holders for metric in vars(holder).values() if isinstance(metric, MetricWrapperBase)
    ]
    labels = {metric._name: list(metric._labelnames) for metric in metrics}
    return {**labels, "timewheel_lateness_seconds": ["queue"], "timewheel_worker_up": ["worker"]}


def _table(families: Iterable[Metric], labels_of: Mapping[str, Sequence[str]]) -> str:
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in sorted(families, key=lambda family: family.name):
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        names = labels_of.get(family.name) or dict.fromkeys(
            label for sample in family.samples for label in sample.labels if label != "le"
        )
        labels = ", ".join(f"`{label}`" for label in names)
        rows.append(f"| `{family.name}{suffix}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows) + "\n"
