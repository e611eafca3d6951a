"""What the sidecar tells Prometheus."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from connectors.testing import ManualClock
from sidecar.observability.health import WAITS_FOR_DELIVERY, Cause, Health
from sidecar.observability.metric_types import LABELS_MAX, BatchHistogram
from sidecar.observability.metrics import LATENESS_BUCKETS_S, Metrics
from sidecar.settings import load_settings

# Sums of these are exact in any order.
SIXTEENTHS = st.integers(-(2**20), 2**20).map(lambda number: number / 16)
LATENESS = SIXTEENTHS | st.sampled_from([bound for bound in LATENESS_BUCKETS_S if (16 * bound).is_integer()])


def text_of(registry: CollectorRegistry) -> str:
    """The exposition, but for the times at which series were made."""
    lines = generate_latest(registry).decode().splitlines()
    return "\n".join(line for line in lines if "_created" not in line)


@given(st.lists(st.tuples(st.sampled_from(["1", "wheel"]), st.lists(LATENESS, max_size=6)), max_size=8))
def test_a_batch_counts_like_as_many_single_observations(batches: list[tuple[str, list[float]]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    batch_histogram = BatchHistogram("lateness_seconds", "Help.", "queue", LATENESS_BUCKETS_S)
    ours.register(batch_histogram)
    histogram = Histogram("lateness_seconds", "Help.", ["queue"], buckets=LATENESS_BUCKETS_S, registry=theirs)
    for label, values in batches:
        batch_histogram.observe(label, np.array(values, dtype=np.float64))
        for value in values:
            histogram.labels(label).observe(value)
        histogram.labels(label)
    assert text_of(ours) == text_of(theirs)


@pytest.mark.parametrize("bound", LATENESS_BUCKETS_S)
def test_a_value_on_a_bound_belongs_to_it(bound: float) -> None:
    histogram = BatchHistogram("h", "Help.", "queue", LATENESS_BUCKETS_S)
    histogram.observe("1", np.array([bound, np.nextafter(bound, np.inf)]))
    (family,) = histogram.collect()
    counts = {sample.labels["le"]: sample.value for sample in family.samples if sample.name == "h_bucket"}
    below = [float(le) for le, count in counts.items() if count >= 1]
    assert min(below) == bound
    assert counts[str(float(bound))] == 1
    assert counts["+Inf"] == 2


def test_a_histogram_without_observations_has_no_series() -> None:
    (family,) = BatchHistogram("h", "Help.", "queue", LATENESS_BUCKETS_S).collect()
    assert family.samples == []


def test_every_metric_begins_with_our_name_and_is_explained() -> None:
    metrics = Metrics("1.2.3")
    metrics.lateness.observe("1", np.array([0.5]))
    families = list(metrics.registry.collect())
    assert len(families) >= 40
    assert all(family.documentation for family in families)
    others = {family.name.split("_")[0] for family in families} - {"timewheel"}
    assert others == {"process", "python"}, "ours, and the client library's own of the process"


def test_the_exposition_is_what_prometheus_reads() -> None:
    metrics = Metrics("1.2.3")
    metrics.delivered.labels("1").inc(3)
    metrics.lateness.observe("1", np.array([0.0005, 0.3]))
    text = generate_latest(metrics.registry).decode()
    assert re.search(
        r'timewheel_build_info\{librdkafka="2\.[0-9.]+",python="3\.[0-9.]+",version="1\.2\.3"\} 1\.0', text
    )
    assert 'timewheel_delivered_records_total{queue="1"} 3.0' in text
    assert 'timewheel_lateness_seconds_bucket{le="0.5",queue="1"} 2.0' in text
    assert 'timewheel_lateness_seconds_sum{queue="1"} 0.3005' in text
    assert generate_openmetrics(metrics.registry).endswith(b"# EOF\n")


def test_what_an_alert_watches_is_there_from_the_start() -> None:
    text = generate_latest(Metrics("1.2.3").registry).decode()
    for series in (
        'timewheel_transactions_total{outcome="aborted"}',
        'timewheel_clock_steps_total{direction="back"}',
        "timewheel_stopped_partitions",
        "timewheel_behind_seconds",
    ):
        assert f"\n{series} 0.0\n" in text


def test_two_sidecars_in_a_process_share_no_metric() -> None:
    one, other = Metrics("a"), Metrics("b")
    one.client_restarts.inc()
    assert "timewheel_client_restarts_total 0.0" in generate_latest(other.registry).decode()


def value_of(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_how_far_behind_is_told_as_it_is_when_it_is_asked() -> None:
    clock = ManualClock()
    health, metrics = Health(clock), Metrics("1")
    metrics.observe_health(health)
    assert value_of(metrics, "timewheel_behind_seconds") == 0
    health.knows_due(0)
    clock.advance(90_000)
    assert value_of(metrics, "timewheel_behind_seconds") == 90, "the loop, stuck since, has said nothing new"
    health.partitions_revoked()
    health.knows_due(None)
    assert value_of(metrics, "timewheel_behind_seconds") == 90, "in a rebalance nobody has what waits"
    health.partitions_assigned()
    health.knows_due(10)
    assert value_of(metrics, "timewheel_behind_seconds") == 0
    health.knows_due(None)
    assert value_of(metrics, "timewheel_behind_seconds") == 0


def test_health_is_told_as_it_is_when_it_is_asked(tmp_path: Path) -> None:
    clock = ManualClock()
    health, metrics = Health(clock), Metrics("1")
    metrics.observe_health(health)
    metrics.observe_disk(tmp_path)
    assert value_of(metrics, "timewheel_ready") == 0
    health.assigned = True
    assert value_of(metrics, "timewheel_ready") == 1
    clock.advance(31_000)
    health.broker_is_silent("why")
    clock.advance(2_000)
    health.failing = dict.fromkeys(["t-0", "t-1"], Cause("why", "do this"))
    health.recovering = {"t-2": "how far"}
    health.troubled = {"t-3": "disk full"}
    told = {
        "timewheel_loop_since_turn_seconds": 33,
        "timewheel_broker_silent_seconds": 2,
        "timewheel_failing_partitions": 2,
        "timewheel_recovering_partitions": 1,
        "timewheel_ready": 0,
    }
    assert {name: value_of(metrics, name) for name in told} == told
    assert value_of(metrics, "timewheel_paused_partitions", reason="other") == 1
    health.broker_answers()
    assert value_of(metrics, "timewheel_broker_silent_seconds") == 0
    free, size = (value_of(metrics, f"timewheel_data_dir_{name}_bytes") or 0 for name in ("free", "size"))
    assert 0 < free <= size
    metrics.observe_disk(tmp_path / "gone")
    assert "timewheel_data_dir_free_bytes NaN" in generate_latest(metrics.registry).decode()


def test_what_pauses_intake_is_told_by_reason() -> None:
    """The disk was blamed for what a switch, or a record due beyond the wheel's span, had stopped."""
    health, metrics = Health(ManualClock()), Metrics("1")
    metrics.observe_health(health)

    def paused() -> dict[str, float | None]:
        reasons = ("disk", "delivery_stopped", "other")
        return {reason: value_of(metrics, "timewheel_paused_partitions", reason=reason) for reason in reasons}

    assert paused() == {"disk": 0, "delivery_stopped": 0, "other": 0}
    full = {"wheel-0": "No space left on device", "wheel-4": "No space left on device"}
    health.troubled = {**full, "wheel-1": "due beyond the span", "wheel-3": WAITS_FOR_DELIVERY}
    health.disk_full = frozenset([*full, "wheel-2"])  # the last is closed, and told as failing
    assert paused() == {"disk": 2, "delivery_stopped": 1, "other": 1}


def test_groups_beyond_the_first_are_counted_together() -> None:
    metrics = Metrics("1")
    for number in range(LABELS_MAX + 50):
        metrics.count_dead_letters(f"group-{number}", 2)
    metrics.count_dead_letters("group-0", 1)
    series = generate_latest(metrics.registry).decode().count("timewheel_dead_letters_total{")
    assert series == LABELS_MAX + 1
    assert value_of(metrics, "timewheel_dead_letters_total", group="group-0") == 3
    assert value_of(metrics, "timewheel_dead_letters_total", group="other") == 100


def test_config_is_told_without_secrets() -> None:
    metrics = Metrics("1")
    settings = load_settings({"http_token": "hunter2", "kafka": {"sasl.password": "hunter2"}, "group_id": "billing"})
    metrics.tell_config(settings.told_in_metrics())
    text = generate_latest(metrics.registry).decode()
    assert re.search(r'^timewheel_config_info\{.*group_id="billing".*\} 1\.0$', text, re.MULTILINE)
    assert "hunter2" not in text


def test_no_series_tells_when_it_was_made() -> None:
    assert "_created" not in generate_latest(Metrics("1").registry).decode()
