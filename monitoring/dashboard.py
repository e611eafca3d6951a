"""The Grafana dashboard, as code: ``python -m monitoring`` writes grafana-dashboard.json from it.

Rows go from what users feel (lateness) to what an operator looks at when it is bad (Kafka, disk, the process).
"""

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

WIDTH = 24
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
LAST_TRANSACTION = "timewheel_last_transaction_timestamp_seconds"
ON = 'job=~"$job", instance=~"$instance"'
"""Every query is of the chosen instances."""

INSTANCE, WORKER = "job, instance", "job, instance, worker"
"""What is shown apart. Pods of two releases may have one name, in two namespaces: their jobs differ."""
OF_INSTANCE, OF_WORKER = "{{job}} {{instance}}", "{{job}} {{instance}} {{worker}}"


class Graph(NamedTuple):
    """A panel of lines. ``queries`` are (PromQL with ``ON`` filled in, legend)."""

    title: str
    description: str
    unit: str
    queries: Sequence[tuple[str, str]]
    stacked: bool = False


class Figure(NamedTuple):
    """A panel of one number; yellow and red from these values on."""

    title: str
    description: str
    unit: str
    query: str
    warn: float | None = None
    alarm: float | None = None


def rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{ON}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}')})"


def every(metric: str, by: str, how: str = "sum") -> str:
    return f"{how} by ({by}) ({metric}{{{ON}}})"


FIGURES = (
    Figure(
        "Behind",
        "How long the oldest due record has been due. Seconds mean a backlog, minutes a fault.",
        "s",
        f"max(timewheel_behind_seconds{{{ON}}})",
        5,
        60,
    ),
    Figure(
        "Late, p99",
        "99% of records were committed on their destination within this time after they were due.",
        "s",
        f"histogram_quantile(0.99, sum by (le) (rate(timewheel_lateness_seconds_bucket{{{ON}}}[$__rate_interval])))",
        0.5,
        5,
    ),
    Figure(
        "Delivered",
        "Records per second, all queues.",
        "reqps",
        f"sum(rate(timewheel_delivered_records_total{{{ON}}}[$__rate_interval]))",
    ),
    Figure(
        "Pending",
        "Messages that wait on the wheel.",
        "short",
        # While nothing waits there is no topic to count by: that is zero, not "no data".
        f"sum(timewheel_pending_messages{{{ON}}}) or 0 * sum(timewheel_ready{{{ON}}})",
    ),
    Figure(
        "Rejected, 1 h",
        "Records that could not be delivered in the last hour; timewheel dlq show says why.",
        "short",
        f"sum(increase(timewheel_rejected_records_total{{{ON}}}[1h]))",
        1,
    ),
    Figure(
        "Not ready",
        "Sidecars (or workers) whose /readyz is not 200.",
        "short",
        f"sum(1 - timewheel_ready{{{ON}}})",
        1,
        2,
    ),
    Figure(
        "Stopped partitions",
        "Partitions that wait for an operator: timewheel progress.",
        "short",
        f"sum(timewheel_stopped_partitions{{{ON}}})",
        None,
        1,
    ),
    Figure(
        "Kafka silent", "How long Kafka has not answered.", "s", f"max(timewheel_broker_silent_seconds{{{ON}}})", 10, 60
    ),
)

ROWS: Sequence[tuple[str, Sequence[Graph]]] = (
    (
        "Lateness",
        (
            Graph(
                "Lateness by queue",
                "From due to committed on the destination: p50 and p99.",
                "s",
                (
                    (quantile(0.5, "timewheel_lateness_seconds", "queue"), "p50 {{queue}}"),
                    (quantile(0.99, "timewheel_lateness_seconds", "queue"), "p99 {{queue}}"),
                ),
            ),
            Graph(
                "Behind",
                "How long the oldest due record has been due, by instance. It grows while nothing goes out.",
                "s",
                ((every("timewheel_behind_seconds", WORKER, "max"), OF_WORKER),),
            ),
        ),
    ),
    (
        "Rates",
        (
            Graph(
                "Taken in",
                "Records read from schedule topics.",
                "reqps",
                ((rate("timewheel_ingested_records_total", "queue"), "{{queue}}"),),
                stacked=True,
            ),
            Graph(
                "Delivered",
                "Records published, with retries and dead letters of the send-back topic.",
                "reqps",
                ((rate("timewheel_delivered_records_total", "queue"), "{{queue}}"),),
                stacked=True,
            ),
            Graph(
                "Cancels by outcome",
                "too_late and unknown found nothing to take back.",
                "reqps",
                ((rate("timewheel_cancels_total", "outcome"), "{{outcome}}"),),
            ),
            Graph(
                "Rolls",
                "Messages written to the end of the wheel topic: due beyond the roll window, or replaced.",
                "reqps",
                ((rate("timewheel_rolls_total", INSTANCE), OF_INSTANCE),),
            ),
        ),
    ),
    (
        "What waits",
        (
            Graph(
                "Pending by topic",
                "Messages on the wheel by destination; the 50 largest, the rest as other.",
                "short",
                ((every("timewheel_pending_messages", "topic"), "{{topic}}"),),
                stacked=True,
            ),
            Graph(
                "Pending by due range",
                "Messages on the wheel by how soon they are acted on, each counted once.",
                "short",
                ((every("timewheel_pending_due_messages", "within"), "{{within}}"),),
                stacked=True,
            ),
            Graph(
                "Backlog by queue",
                "Offsets from the committed one to the log's end. For a level, all that waits, due or not.",
                "short",
                ((every("timewheel_uncommitted_offsets", "queue"), "{{queue}}"),),
                stacked=True,
            ),
            Graph(
                "Unread by queue",
                "Offsets that intake has still to read. On a level a full read-ahead leaves some, by design.",
                "short",
                ((every("timewheel_unread_offsets", "queue"), "{{queue}}"),),
                stacked=True,
            ),
            Graph(
                "In memory or on the wheel",
                "Records accepted and not yet published.",
                "short",
                ((every("timewheel_waiting_records", "queue"), "{{queue}}"),),
                stacked=True,
            ),
            Graph(
                "Last due",
                "When the last message on the wheel is acted on.",
                "dateTimeAsIso",
                ((f"1000 * max by ({INSTANCE}) (timewheel_furthest_due_timestamp_seconds{{{ON}}} > 0)", OF_INSTANCE),),
            ),
        ),
    ),
    (
        "What failed",
        (
            Graph(
                "Rejected by code",
                "Records that went to the sidecar's own dead letters.",
                "reqps",
                ((rate("timewheel_rejected_records_total", "code"), "{{code}}"),),
                stacked=True,
            ),
            Graph(
                "Dead letters by group",
                "Records written to dead-letter topics.",
                "reqps",
                ((rate("timewheel_dead_letters_total", "group"), "{{group}}"),),
                stacked=True,
            ),
        ),
    ),
    (
        "Kafka",
        (
            Graph(
                "Transactions",
                "By outcome. Aborted ones are tried again; many mean faulty brokers, or a record that Kafka refuses.",
                "ops",
                ((rate("timewheel_transactions_total", "outcome"), "{{outcome}}"),),
            ),
            Graph(
                "Transaction duration",
                "From the first record to Kafka's answer.",
                "s",
                (
                    (quantile(0.5, "timewheel_transaction_duration_seconds", INSTANCE), "p50 {{job}} {{instance}}"),
                    (quantile(0.99, "timewheel_transaction_duration_seconds", INSTANCE), "p99 {{job}} {{instance}}"),
                ),
            ),
            Graph(
                "Since the last transaction",
                "Grows on an idle sidecar too; a fault only while something is due.",
                "s",
                ((f"time() - ({every(LAST_TRANSACTION, WORKER, 'max')} > 0)", OF_WORKER),),
            ),
            Graph(
                "Partitions",
                "Assigned, and those that are not fully at work.",
                "short",
                (
                    (every("timewheel_assigned_partitions", INSTANCE), "assigned {{job}} {{instance}}"),
                    (every("timewheel_stopped_partitions", INSTANCE), "stopped {{job}} {{instance}}"),
                    (every("timewheel_failing_partitions", INSTANCE), "failing {{job}} {{instance}}"),
                    (every("timewheel_recovering_partitions", INSTANCE), "recovering {{job}} {{instance}}"),
                    (every("timewheel_held_back_partitions", INSTANCE), "held back {{job}} {{instance}}"),
                    (
                        every("timewheel_paused_partitions", f"{INSTANCE}, reason"),
                        "paused {{job}} {{instance}}, {{reason}}",
                    ),
                ),
            ),
            Graph(
                "Rebalances and restarts",
                "In five minutes: partitions assigned, revoked, lost; clients replaced; workers restarted.",
                "short",
                (
                    (f"sum by (event) (increase(timewheel_rebalances_total{{{ON}}}[5m]))", "{{event}}"),
                    (f"sum(increase(timewheel_client_restarts_total{{{ON}}}[5m]))", "clients replaced"),
                    (f"sum(increase(timewheel_worker_restarts_total{{{ON}}}[5m]))", "workers restarted"),
                ),
            ),
            Graph(
                "Kafka silent",
                "How long Kafka has not answered, by instance.",
                "s",
                ((every("timewheel_broker_silent_seconds", WORKER, "max"), OF_WORKER),),
            ),
        ),
    ),
    (
        "Disk",
        (
            Graph(
                "Store",
                "Disk that the timer store takes.",
                "bytes",
                ((every("timewheel_store_bytes", WORKER), OF_WORKER),),
            ),
            Graph(
                "Quota used",
                "Share of disk_quota_bytes that the largest store of a partition takes; 0 without a quota.",
                "percentunit",
                ((every("timewheel_store_quota_used_ratio", WORKER, "max"), OF_WORKER),),
            ),
            Graph(
                "Room under data_dir",
                "Free bytes of its file system, and its size.",
                "bytes",
                (
                    (every("timewheel_data_dir_free_bytes", INSTANCE, "min"), "free {{job}} {{instance}}"),
                    (every("timewheel_data_dir_size_bytes", INSTANCE, "min"), "size {{job}} {{instance}}"),
                ),
            ),
            Graph(
                "Retention to spare",
                "How much longer than needed Kafka keeps schedule topics; below 0 an outage may cost records.",
                "s",
                (
                    (
                        f"{every('timewheel_topic_retention_seconds', 'queue', 'min')}"
                        f" - {every('timewheel_topic_retention_needed_seconds', 'queue', 'max')} < Inf",
                        "{{queue}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Process",
        (
            Graph(
                "CPU",
                "Cores used; one process can use only one.",
                "percentunit",
                ((f"sum by ({WORKER}) (rate(process_cpu_seconds_total{{{ON}}}[$__rate_interval]))", OF_WORKER),),
            ),
            Graph(
                "Memory",
                "Resident set; messages on the wheel wait on disk.",
                "bytes",
                ((every("process_resident_memory_bytes", WORKER), OF_WORKER),),
            ),
            Graph(
                "Garbage collections",
                "Python's collector of cycles runs only when nothing is due.",
                "ops",
                ((f"sum by ({WORKER}) (rate(python_gc_collections_total{{{ON}}}[$__rate_interval]))", OF_WORKER),),
            ),
            Graph(
                "Since the loop turned",
                "30 s and more: /healthz fails, and the orchestrator restarts the process.",
                "s",
                ((every("timewheel_loop_since_turn_seconds", WORKER, "max"), OF_WORKER),),
            ),
            Graph(
                "Ready, and switches",
                "1 while ready; stop_enqueue and stop_dequeue are 1 while they hold something up.",
                "short",
                (
                    (every("timewheel_ready", INSTANCE, "min"), "ready {{job}} {{instance}}"),
                    (every("timewheel_enqueue_stopped", INSTANCE, "max"), "stop_enqueue {{job}} {{instance}}"),
                    (every("timewheel_dequeue_stopped", INSTANCE, "max"), "stop_dequeue {{job}} {{instance}}"),
                ),
            ),
            Graph(
                "Clock steps",
                "Steps of the host's clock, in five minutes.",
                "short",
                (
                    (
                        f"sum by ({INSTANCE}, direction) (increase(timewheel_clock_steps_total{{{ON}}}[5m]))",
                        "{{direction}} {{job}} {{instance}}",
                    ),
                ),
            ),
            Graph(
                "Clock ahead of Kafka's",
                "At most, as the records that are read tell; below 0 it is behind, and messages are late by as much.",
                "s",
                ((every("timewheel_clock_ahead_seconds", WORKER, "min"), OF_WORKER),),
            ),
        ),
    ),
)


def grafana_dashboard() -> str:
    """The dashboard as Grafana imports it."""
    board = (
        dashboard.Dashboard("Timewheel")
        .uid("timewheel")
        .description("Scheduled delivery for Kafka: what is late, what waits, what failed, and why.")
        .tags(["timewheel", "kafka"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_choice("job", "Job", "label_values(timewheel_build_info, job)"))
        .with_variable(_choice("instance", "Instance", 'label_values(timewheel_build_info{job=~"$job"}, instance)'))
    )
    for figure in FIGURES:
        board.with_panel(_figure(figure))
    for number, (title, graphs) in enumerate(ROWS):
        board.with_row(dashboard.Row(title))
        if number == 0:
            board.with_panel(_lateness_map())
        for graph in graphs:
            board.with_panel(_graph(graph))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
    )


def _query(expression: str, legend: str = "") -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(expression).legend_format(legend or "__auto").range()


def _figure(figure: Figure) -> stat.Panel:
    steps = [Threshold(color="green")]
    steps += [Threshold(value=figure.warn, color="yellow")] if figure.warn is not None else []
    steps += [Threshold(value=figure.alarm, color="red")] if figure.alarm is not None else []
    return (
        stat.Panel()
        .title(figure.title)
        .description(figure.description)
        .datasource(DATASOURCE)
        .unit(figure.unit)
        .height(4)
        .span(WIDTH // len(FIGURES))
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(_query(figure.query).ref_id("A"))
    )


def _graph(graph: Graph) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(graph.title)
        .description(graph.description)
        .datasource(DATASOURCE)
        .unit(graph.unit)
        .height(8)
        .span(WIDTH // 2)
        .fill_opacity(20 if graph.stacked else 5)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL if graph.stacked else StackingMode.NONE))
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    for number, (expression, legend) in enumerate(graph.queries):
        panel.with_target(_query(expression, legend).ref_id(chr(ord("A") + number)))
    return panel


def _lateness_map() -> heatmap.Panel:
    return (
        heatmap.Panel()
        .title("Lateness")
        .description("How late how many records were: a column is a moment, a row a bucket of the histogram.")
        .datasource(DATASOURCE)
        .unit("s")
        .height(8)
        .span(WIDTH)
        .calculate(False)
        .with_target(
            _query(f"sum by (le) (increase(timewheel_lateness_seconds_bucket{{{ON}}}[$__rate_interval]))", "{{le}}")
            .format(PromQueryFormat.HEATMAP)
            .ref_id("A")
        )
    )
