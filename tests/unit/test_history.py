"""The last hour, of counters that are counted anyway."""

import numpy as np
import pytest

from connectors.testing import ManualClock
from sidecar.observability.history import BOUNDS_MS, POINT_MS, POINTS_MAX, RATE_OVER, History, Lateness, dense, sparse
from sidecar.observability.metrics import LATENESS_BUCKETS_S, BatchHistogram, Metrics
from sidecar.status import present_history


def deliver(metrics: Metrics, queue: str, late_ms: list[int]) -> None:
    metrics.delivered.labels(queue).inc(len(late_ms))
    metrics.lateness.observe_ms(queue, np.array(late_ms, np.int64))


def test_percentiles_are_true_to_a_tenth() -> None:
    late_ms = np.random.default_rng(1).lognormal(4, 1.5, 50_000).astype(np.int64)
    histogram = Metrics("1").lateness
    histogram.observe_ms("1", late_ms)
    told = Lateness.of(sparse(histogram.counts()["1"]))
    assert told.deliveries == 50_000
    for value, share in ((told.p50_ms, 50), (told.p99_ms, 99)):
        true_ms = float(np.percentile(late_ms, share))
        assert value == pytest.approx(true_ms, rel=0.12)
    assert told.max_ms is not None
    assert told.max_ms >= late_ms.max()


def test_nothing_delivered_has_no_percentile() -> None:
    assert Lateness.of([]) == (0, None, None, None)


def test_buckets_of_others_are_left_out() -> None:
    assert dense([(3, 2), (-1, 5), (len(BOUNDS_MS) + 1, 5)]).sum() == 2


def test_whole_milliseconds_are_counted_as_seconds_are() -> None:
    late_ms = np.array([0, 1, 2, 3, 5, 10, 999, 1_000, 16_383, 16_384, 600_000, 3_600_000, 9_999_999], np.int64)
    one, other = Metrics("1").lateness, Metrics("1").lateness
    one.observe("1", late_ms / 1000)
    other.observe_ms("1", late_ms)
    other.observe_ms("1", np.empty(0, np.int64))
    assert (one.counts()["1"] == other.counts()["1"]).all()


def test_prometheus_is_told_the_buckets_that_it_was_told_before() -> None:
    late_ms = np.arange(0, 5_000_000, 997, dtype=np.int64)
    plain = BatchHistogram("timewheel_lateness_seconds", "", "queue", LATENESS_BUCKETS_S)
    plain.observe("1", late_ms / 1000)
    finer = Metrics("1").lateness
    finer.observe_ms("1", late_ms)
    (one,), (other,) = plain.collect(), finer.collect()
    told = [(sample.name, sample.labels, round(sample.value, 6)) for sample in one.samples]
    assert told == [(sample.name, sample.labels, round(sample.value, 6)) for sample in other.samples]
    assert len(told) == len(LATENESS_BUCKETS_S) + 3


def test_after_a_clock_that_was_set_back_each_moment_is_told_once() -> None:
    clock, metrics = ManualClock(), Metrics("1")
    history = History(metrics, clock)

    def pass_seconds(count: int) -> None:
        for _ in range(count):
            clock.advance(1_000)
            metrics.delivered.labels("wheel").inc(100)
            history.tick(0)

    pass_seconds(300)
    clock.step_wall(-100_000)
    pass_seconds(200)
    told = [point.at_ms for point in history.points]
    assert told == sorted(set(told))
    assert {point["delivered"] for point in present_history([history.points])["points"][:-1]} <= {400, 500, 600}


def test_a_point_is_five_seconds_and_points_add_up_over_workers() -> None:
    clock, metrics = ManualClock(), [Metrics("1"), Metrics("1")]
    histories = [History(one, clock) for one in metrics]
    for second in range(1, 11):
        clock.advance(1_000)
        deliver(metrics[0], "1", [10] * 10)
        deliver(metrics[1], "wheel", [1_000])
        for history in histories:
            history.tick(behind_ms=float(second))
    told = present_history([history.points for history in histories])
    assert told["every_ms"] == POINT_MS
    first, second_point = told["points"]
    assert (first["at_ms"] % POINT_MS, second_point["at_ms"] - first["at_ms"]) == (0, POINT_MS)
    assert (first["delivered"], second_point["delivered"]) == (55, 55)
    assert first["behind_ms"] == 5
    assert 9 <= first["p50_ms"] <= 11
    assert 900 <= first["max_ms"] <= 1_100
    assert told["hour"]["deliveries"] == 110


@pytest.mark.parametrize("step_ms", [30 * 86_400_000, -86_400_000])
def test_a_clock_that_steps_stops_no_points(step_ms: int) -> None:
    clock, metrics = ManualClock(), Metrics("1")
    clock.advance(10 * 86_400_000)
    history = History(metrics, clock)
    for step in (step_ms, -step_ms, 0):
        clock.step_wall(step)
        for _ in range(120):
            clock.advance(1_000)
            deliver(metrics, "1", [1])
            history.tick(0)
    stretches = 2 if step_ms > 0 else 3  # what was told of a time to come is told when it comes
    assert stretches * 24 <= len(history.points) <= stretches * 24 + 3
    assert sum(count for _, count in history.minute()["1"]) <= 65


def test_it_keeps_an_hour_and_no_more() -> None:
    clock, metrics = ManualClock(), Metrics("1")
    history = History(metrics, clock)
    for _ in range(POINTS_MAX + 10):
        clock.advance(POINT_MS)
        history.tick(0)
    points = history.points
    assert len(points) == POINTS_MAX
    assert points[-1].at_ms - points[0].at_ms < 3_600_000


def test_rates_are_those_of_the_last_seconds() -> None:
    clock, metrics = ManualClock(), Metrics("1")
    history = History(metrics, clock)
    for _ in range(RATE_OVER):
        clock.advance(1_000)
        metrics.ingested.labels("1").inc(100)
        metrics.rejected.labels("CODE").inc(2)
        history.tick(0)
    assert history.rates() == {"ingested": {"1": 100}, "delivered": {}, "rejected": {"": 2}}
    for _ in range(RATE_OVER + 1):
        clock.advance(1_000)
        history.tick(0)
    assert history.rates()["ingested"] == {"1": 0}


def test_a_minute_by_queue_forgets_what_is_older() -> None:
    clock, metrics = ManualClock(), Metrics("1")
    history = History(metrics, clock)
    deliver(metrics, "1", [5_000])
    history.tick(0)
    assert set(history.minute()) == {"1"}
    for _ in range(13):
        clock.advance(POINT_MS)
        history.tick(0)
    deliver(metrics, "wheel", [3])
    assert set(history.minute()) == {"wheel"}
