"""Two replicas that share levels and send-backs: each in turn sleeps through its session and wakes up as a zombie."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka import Headers, Kafka, Record, judge
from tests.support.replicas import ASSIGNED, PARTITIONS, assigned, has_noticed, two_replicas, wait_shared
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

WAVE = 4_000
"""Messages on the level, and as many sent back: who is stopped while they are moved has a transaction in hand."""


@pytest.fixture
def replicas(kafka: Kafka, prefix: str, tmp_path: Path) -> Iterator[list[SidecarProcess]]:
    with two_replicas((kafka.bootstrap_servers,) * 2, prefix, tmp_path, batch_records=100) as processes:
        yield processes


def moved(replica: SidecarProcess) -> float:
    return replica.metric("timewheel_delivered_records_total")


@pytest.mark.slow
def test_zombies_neither_deliver_from_levels_nor_send_back_a_second_time(
    kafka: Kafka, prefix: str, replicas: list[SidecarProcess]
) -> None:
    one, other = replicas
    destination = kafka.create_topic(f"{prefix}orders", 3)
    retries = kafka.create_topic(f"{prefix}RETRY-billing", PARTITIONS)
    names: list[str] = []

    def wave() -> list[Produced]:
        new = [str(len(names) + number).encode() for number in range(WAVE)]
        names.extend(name.decode() for name in new)
        real: Headers = [("REAL_TOPIC", destination.encode())]
        failed: Headers = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", destination.encode()), ("DELAY", b"1")]
        topics = ((f"{prefix}SCHEDULE_TOPIC_XXXX-1", real), (f"{prefix}SCHEDULE_TOPIC_XXXX-sendback", failed))
        return [(topic, name, b"v" * 100, [*more, ("UNIQ_KEY", name)]) for name in new for topic, more in topics]

    wait_shared(replicas, 60)
    for sleeper, awake in ((one, other), (other, one)):
        before = moved(sleeper)
        kafka.produce(wave())
        wait_until(lambda s=sleeper, before=before: moved(s) > before + WAVE / 10, "the victim moves messages")
        sleeper.process.send_signal(signal.SIGSTOP)
        wait_until(lambda awake=awake: assigned(awake) == ASSIGNED, "the sleeper's partitions are taken over", 60)
        kafka.produce(wave())
        sleeper.process.send_signal(signal.SIGCONT)
        wait_until(lambda sleeper=sleeper: has_noticed(sleeper), "the sleeper notices", 60)
        wait_shared(replicas, 60)

    def read() -> dict[str, list[Record]]:
        return {topic: kafka.read([topic], len(names), 120) for topic in (destination, retries)}

    read()
    for replica in replicas:
        assert replica.terminate(30)[0] == 0
    for delivered in read().values():
        judge(names, delivered).assert_exactly_once()
    assert all(record.text("RECONSUME_TIME") == "1" for record in kafka.read([retries], len(names)))


@pytest.mark.long
def test_without_transactions_a_rebalance_neither_waits_nor_repeats(kafka: Kafka, prefix: str, tmp_path: Path) -> None:
    """A batch is in hand when another replica comes: the consumer, which tells of it, answers nothing meanwhile."""
    destination = kafka.create_topic(f"{prefix}orders", 3)
    names: list[str] = []
    level, headers = f"{prefix}SCHEDULE_TOPIC_XXXX-1", [("REAL_TOPIC", destination.encode())]
    servers = (kafka.bootstrap_servers,) * 2

    def schedule(count: int) -> None:
        new = [str(len(names) + number) for number in range(count)]
        names.extend(new)
        kafka.produce((level, name.encode(), b"v", [*headers, ("UNIQ_KEY", name.encode())]) for name in new)

    def more_until_both_work() -> bool:
        schedule(500)
        return moved(other) > 1_000

    with two_replicas(servers, prefix, tmp_path, guarantee="at_least_once", batch_records=20) as (one, other):
        assert other.terminate(30)[0] == 0
        wait_until(lambda: assigned(one) == ASSIGNED, "one has all partitions", 60)
        schedule(20_000)
        wait_until(lambda: moved(one) > 1_000, "it is at work")
        other.start()
        wait_until(more_until_both_work, "the other is at work, too", 60)
        judge(names, kafka.read([destination], len(names), 120)).assert_exactly_once()
        assert not has_noticed(one)
