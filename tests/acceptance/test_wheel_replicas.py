"""Two replicas that share the wheel's partitions: one is killed, one sleeps through its session and wakes up."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka import Kafka, judge
from tests.support.replicas import ASSIGNED, assigned, has_noticed, two_replicas, wait_shared
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, cancel, is_drained, now_ms, timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

HOT_RECORDS = 6_000
"""Due in one second: who is stopped then has a transaction in hand."""


@pytest.fixture
def replicas(kafka: Kafka, prefix: str, tmp_path: Path) -> Iterator[list[SidecarProcess]]:
    with two_replicas((kafka.bootstrap_servers,) * 2, prefix, tmp_path) as processes:
        yield processes


def delivered(replica: SidecarProcess) -> float:
    return replica.metric("timewheel_delivered_records_total", queue="wheel")


def test_a_replica_that_dies_and_one_that_wakes_as_a_zombie_lose_nothing_and_repeat_nothing(
    kafka: Kafka, prefix: str, replicas: list[SidecarProcess]
) -> None:
    one, other = replicas
    chance = random.Random(11)
    destination = kafka.create_topic(f"{prefix}orders", 3)
    expected: list[str] = []

    def at(due_ms: int) -> Produced:
        expected.append(f"m{len(expected)}")
        return timed(prefix, destination, expected[-1], ("TIMER_DELIVER_MS", due_ms))

    def hot() -> list[Produced]:
        slot_ms = now_ms() // 1_000 * 1_000 + 2_000
        return [at(slot_ms + chance.randrange(1_000)) for _ in range(HOT_RECORDS)]

    def strike_in_dispatch(victim: SidecarProcess, number: int) -> None:
        before = delivered(victim)
        kafka.produce(hot())
        wait_until(lambda: delivered(victim) > before + HOT_RECORDS / 10, "the victim sends the hot slot")
        victim.process.send_signal(number)

    wait_shared(replicas)
    began_ms = now_ms()
    kafka.produce(at(began_ms + chance.randrange(60_000)) for _ in range(10_000))
    doomed_ms = began_ms + 85_000
    kafka.produce(at(doomed_ms + chance.randrange(1_000)) for _ in range(300))
    doomed = expected[-300:]
    cancelled: set[str] = set()

    # 1. One dies; the other takes over; the one comes back.
    strike_in_dispatch(one, signal.SIGKILL)
    one.process.wait(10)
    wait_until(lambda: assigned(other) == ASSIGNED, "the other takes over")
    one.start()
    wait_shared(replicas)
    # 2. Each in turn sleeps until its session is over and all it had is the other's, and wakes up in the middle of it.
    for sleeper, awake in ((other, one), (one, other)):
        strike_in_dispatch(sleeper, signal.SIGSTOP)
        wait_until(lambda awake=awake: assigned(awake) == ASSIGNED, "the sleeper's partitions are taken over")
        cancelled.update(chance.sample(doomed, 100))
        kafka.produce(cancel(prefix, name) for name in cancelled)
        assert now_ms() < doomed_ms - 10_000, "the machine is too slow for cancels in good time"
        sleeper.process.send_signal(signal.SIGCONT)
        wait_until(lambda sleeper=sleeper: has_noticed(sleeper), "the sleeper notices")
        wait_shared(replicas)

    wait_until(lambda: is_drained(kafka, prefix, *replicas), "nothing is pending", 90, poll_s=0.5)
    judge(set(expected) - cancelled, kafka.read([destination], len(expected) - len(cancelled))).assert_exactly_once()
