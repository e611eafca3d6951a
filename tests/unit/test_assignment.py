"""Partitions as they come, go, fail and stop: what the consumer is told of each, and what the status says."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from connectors.contract import Place
from connectors.testing import ManualClock
from sidecar.clock import HighWaterClock
from sidecar.errors import ClientsLostError
from sidecar.intake.assignment import Assignment
from sidecar.intake.progress import LastRead, Mark, NoLeader, ProgressError, Start, Stop, Verdict
from sidecar.intake.reopening import WAIT_MS_MIN
from sidecar.intake.start_finder import StartFinder
from sidecar.observability.health import BROKER_AWAY_GRACE_MS, CHOOSE_PROGRESS, Cause, Health, State
from sidecar.observability.metrics import Metrics
from sidecar.source import Source

A, B = ("wheel", 0), ("wheel", 1)
START = Start(5, "{}", 20, 3, Mark("topic", LastRead(4, 100, 2)))


class Partition:
    """A source that knows where it is read from."""

    is_recovering = False

    def __init__(self, bench: "Bench", place: Place, position: int) -> None:
        self.topic, self.partition = place
        self.position = position
        self._close = lambda: bench.calls.append(("close", [place]))

    def close(self) -> None:
        self._close()


class Bench:
    """An assignment whose consumer, starts and sources are looked over."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        """What was called, in order, with the places that it was about."""
        self.starts: dict[Place, Verdict] = {A: START, B: START}
        self.failures: dict[Place, Exception] = {}
        self.failed_before: list[Exception | None] = []
        self.position = START.offset
        self.clock = ManualClock()
        clock = HighWaterClock(self.clock)
        self.health, self.metrics = Health(clock), Metrics("0")
        self.assignment = Assignment(
            cast(Consumer, self),
            ["wheel"],
            cast(StartFinder, self),
            self._make_source,
            lambda **how: self.calls.append(("settle", sorted(how))),
            clock=clock,
            health=self.health,
            metrics=self.metrics,
        )

    def find(self, places: list[Place]) -> dict[Place, Verdict]:
        self.calls.append(("find", places))
        return {place: self.starts[place] for place in places}

    def _make_source(self, topic: str, partition: int, start: Start, error: Exception | None) -> Source:
        self.failed_before.append(error)
        if (topic, partition) in self.failures:
            raise self.failures[topic, partition]
        return cast(Source, Partition(self, (topic, partition), self.position))

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[TopicPartition]], None]) -> None:
        self._callbacks = callbacks

    def rebalance(self, callback: str, *places: Place) -> None:
        self.calls.clear()
        self._callbacks[callback](self, [TopicPartition(*place) for place in places])

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assign", [(partition.partition, partition.offset) for partition in partitions]))

    def unassign(self) -> None:
        self.calls.append(("unassign", []))

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("pause", [(partition.topic, partition.partition) for partition in partitions]))

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("resume", [(partition.topic, partition.partition) for partition in partitions]))

    def seek(self, partition: TopicPartition) -> None:
        self.calls.append(("seek", [(partition.partition, partition.offset)]))

    def source(self, place: Place) -> Source:
        return self.assignment.readings[place].source

    def fails(self, place: Place) -> None:
        self.calls.clear()
        self.assignment.fail(self.source(place), OSError("broken"))

    def count(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name)


def test_partitions_are_opened_and_read_from_where_they_stand() -> None:
    bench = Bench()
    assert bench.assignment.places is None
    bench.rebalance("on_assign", A, B)
    assert bench.calls == [("find", [A, B]), ("assign", [(0, 5), (1, 5)])]
    assert bench.assignment.places == [A, B]
    assert bench.assignment.since_call == {A, B}
    bench.assignment.begin_call()
    assert not bench.assignment.since_call
    assert bench.health.assigned
    assert bench.health.places == {A, B}
    assert bench.health.topic_ids == {"wheel": "topic"}
    assert bench.count("timewheel_assigned_partitions") == 2


def test_an_assignment_that_fails_is_none() -> None:
    bench = Bench()
    del bench.starts[B]
    bench.rebalance("on_assign", A, B)
    assert bench.assignment.places is None
    assert not bench.health.assigned
    with pytest.raises(KeyError):
        bench.assignment.check()
    bench.assignment.check()  # it is told once


def test_what_cannot_be_opened_yet_is_assigned_and_paused_and_what_is_stopped_is_neither() -> None:
    bench = Bench()
    bench.starts |= {A: NoLeader(7), B: Stop("who knows", "ask somebody")}
    bench.rebalance("on_assign", A, B)
    assert bench.calls == [("find", [A, B]), ("assign", [(0, 7)]), ("pause", [A])]
    assert list(bench.health.failing) == ["wheel-0"]
    assert bench.health.stopped == {"wheel-1": Cause("who knows", "ask somebody")}
    assert bench.count("timewheel_stopped_partitions") == 1
    assert bench.assignment.sources == []


def test_while_the_group_is_in_a_rebalance_nothing_is_told_to_be_well() -> None:
    bench = Bench()
    health, clock = bench.health, bench.clock
    bench.rebalance("on_assign", A)
    health.knows_due(-5_000)
    bench.rebalance("on_revoke", A)
    health.knows_due(None)  # by this sidecar, which has no partition now
    assert (health.verdict().state, health.behind_ms) == (State.STARTING, 5_000)
    assert "the group is in a rebalance" in health.verdict().words
    assert "kafka-consumer-groups.sh" in health.verdict().action
    assert health.unready_reasons() == [], "most take a second"
    clock.advance(BROKER_AWAY_GRACE_MS + 1_000)
    health.turned()
    (reason,) = health.unready_reasons()
    assert reason.startswith("no partitions have been assigned again for 61 s: the group is in a rebalance")
    bench.rebalance("on_assign")
    health.knows_due(None)
    assert (health.verdict().state, health.unready_reasons(), health.behind_ms) == (State.HEALTHY, [], 0)


def test_a_session_that_ends_in_a_rebalance_has_lost_its_partitions_since_that_began() -> None:
    bench = Bench()
    bench.rebalance("on_assign", A)
    bench.rebalance("on_revoke", A)
    bench.clock.advance(BROKER_AWAY_GRACE_MS)
    bench.health.session_ended()
    bench.health.phase = "connects"
    bench.health.turned()
    bench.clock.advance(1_000)
    assert bench.health.unready_reasons() == ["no partitions have been assigned again for 61 s: connects"]


def test_a_partition_that_failed_and_then_has_to_stop_is_not_read() -> None:
    bench = Bench()
    bench.rebalance("on_assign", A)
    bench.fails(A)
    bench.starts[A] = Stop("who knows")
    bench.rebalance("on_assign", A)
    assert bench.calls == [("find", [A]), ("assign", [])]
    bench.clock.advance(WAIT_MS_MIN)
    bench.calls.clear()
    bench.assignment.reopen()
    assert bench.calls == []
    assert (list(bench.health.stopped), bench.health.failing) == (["wheel-0"], {})


@pytest.mark.parametrize("error", [ProgressError("not ours"), OSError("broken")])
def test_a_partition_whose_progress_is_not_ours_stops_and_one_whose_disk_fails_is_tried_again(error: Exception) -> None:
    bench = Bench()
    bench.failures[A] = error
    bench.rebalance("on_assign", A, B)
    is_stopped = isinstance(error, ProgressError)
    assert bench.health.stopped == ({"wheel-0": Cause("not ours", CHOOSE_PROGRESS)} if is_stopped else {})
    assert list(bench.health.failing) == ([] if is_stopped else ["wheel-0"])
    assert list(bench.assignment.readings) == [B]


def test_a_partition_whose_store_fails_is_closed_and_opened_again_from_the_committed_progress() -> None:
    bench = Bench()
    bench.rebalance("on_assign", A, B)
    failed = bench.source(A)
    bench.fails(A)
    assert bench.calls == [("close", [A]), ("pause", [A])]
    assert bench.health.places == {B}
    assert list(bench.health.failing) == ["wheel-0"]
    bench.assignment.reopen()
    assert list(bench.assignment.readings) == [B]
    bench.clock.advance(WAIT_MS_MIN)
    bench.calls.clear()
    bench.assignment.reopen()
    assert bench.calls == [("settle", []), ("find", [A]), ("seek", [(0, 5)]), ("resume", [A])]
    assert [str(error) for error in bench.failed_before] == ["None", "None", "broken"]
    assert bench.health.places == {A, B}
    assert bench.health.failing == {}
    # What the source of before still says is of no interest.
    assert not bench.assignment.is_open(failed)
    assert bench.assignment.mark_of(failed) == Mark()
    assert bench.assignment.mark_of(bench.source(A)) == START.mark
    bench.calls.clear()
    bench.assignment.fail(failed, OSError("broken"))
    bench.clock.advance(WAIT_MS_MIN)
    bench.assignment.reopen()
    assert bench.calls == []


def test_partitions_stop_one_by_one_and_each_is_told_until_it_goes() -> None:
    bench = Bench()
    bench.rebalance("on_assign", A, B)
    bench.fails(A)
    bench.calls.clear()
    bench.assignment.stop(A, "first")
    bench.assignment.stop(B, "second")
    assert bench.calls == [("close", [B]), ("pause", [B])]
    assert [cause.words for cause in bench.health.stopped.values()] == ["first", "second"]
    assert (bench.health.places, bench.health.failing) == (frozenset(), {})
    assert bench.count("timewheel_stopped_partitions") == 2
    bench.clock.advance(WAIT_MS_MIN)
    bench.assignment.reopen()
    assert bench.assignment.readings == {}
    bench.rebalance("on_revoke", A)
    assert list(bench.health.stopped) == ["wheel-1"]
    assert bench.count("timewheel_stopped_partitions") == 1


def test_what_lies_before_the_log_is_closed_before_it_stops() -> None:
    bench = Bench()
    bench.position = START.begin_offset - 1
    bench.rebalance("on_assign", A)
    assert bench.calls == [("find", [A]), ("close", [A]), ("assign", [])]
    assert list(bench.health.stopped) == ["wheel-0"]


def test_partitions_that_go_are_settled_then_closed_and_come_back_unpaused() -> None:
    bench = Bench()
    bench.rebalance("on_assign", A, B)
    bench.fails(B)
    bench.rebalance("on_revoke", A, B)
    assert bench.calls == [("settle", ["in_rebalance"]), ("close", [A]), ("resume", [A, B]), ("unassign", [])]
    assert (bench.health.places, bench.health.failing) == (frozenset(), {})
    assert bench.count("timewheel_assigned_partitions") == 0
    bench.assignment.check()
    bench.clock.advance(WAIT_MS_MIN)
    bench.calls.clear()
    bench.assignment.reopen()
    assert bench.calls == [], "it is another sidecar's"


def test_partitions_that_are_lost_are_closed_without_a_commit_and_end_the_session() -> None:
    bench = Bench()
    bench.rebalance("on_assign", A)
    bench.rebalance("on_lost", A)
    assert bench.calls == [("close", [A])]
    assert bench.health.places == frozenset()
    with pytest.raises(ClientsLostError, match="given this sidecar's partitions away"):
        bench.assignment.check()


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke", "on_lost"])
def test_what_the_consumer_tells_once_the_session_is_over_is_of_no_interest(callback: str) -> None:
    bench = Bench()
    bench.starts[B] = Stop("who knows")
    bench.rebalance("on_assign", A, B)
    bench.health.held_back = frozenset([A])
    bench.assignment.close()
    assert bench.calls[-1] == ("close", [A])
    assert (bench.health.stopped, bench.health.held_back, bench.health.places) == ({}, frozenset(), frozenset())
    bench.rebalance(callback, A, B)
    assert bench.calls == []
    bench.assignment.check()


def test_opening_and_closing_take_long_and_the_loop_is_alive_meanwhile() -> None:
    bench = Bench()
    for callback in ("on_assign", "on_lost"):
        bench.clock.advance(60_000)
        bench.rebalance(callback, A)
        assert bench.health.turned_ms == bench.clock.monotonic_ms()
