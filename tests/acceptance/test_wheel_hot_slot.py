"""A second in which hundreds of thousands fall due, and what that costs the others."""

import pytest

from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import now_ms, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

HOT_RECORDS = 200_000
OTHERS_EVERY_MS = 10


def test_a_hot_second_on_one_partition_does_not_hold_up_the_others(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    other_destination = kafka.create_topic(f"{prefix}others", 3)
    sidecar.settings |= {"levels": "2s", "partitions": 2}
    sidecar.start()
    producer = kafka.producer(linger_ms=5, queue_buffering_max_messages=1_000_000)
    failures: list[str] = []

    def send(topic: str, partition: int, real_topic: str, name: str, *when: tuple[str, bytes]) -> None:
        headers: Headers = [("REAL_TOPIC", real_topic.encode()), ("UNIQ_KEY", name.encode()), *when]
        producer.produce(
            topic,
            b"v" * 100,
            name.encode(),
            partition,
            lambda error, _: failures.append(str(error)) if error else None,
            headers=list(headers),
        )
        producer.poll(0)

    # 1. Two hundred thousand for one instant, on one partition; on the other some all through that time and after.
    hot_ms = now_ms() + 20_000
    for number in range(HOT_RECORDS):
        send(wheel_topic(prefix), 0, destination, f"hot{number}", ("TIMER_DELIVER_MS", b"%d" % hot_ms))
    others = [f"other{number}" for number in range(5_000 // OTHERS_EVERY_MS)]
    for number, name in enumerate(others):
        due = b"%d" % (hot_ms - 1_000 + number * OTHERS_EVERY_MS)
        send(wheel_topic(prefix), 1, other_destination, name, ("TIMER_DELIVER_MS", due))
    assert producer.flush(30) == 0
    wait_until(lambda: sidecar.pending() == HOT_RECORDS + len(others), "all are stored", 15)
    assert now_ms() < hot_ms - 2_000, "the machine is too slow: not all were stored before they were due"
    # 2. And on a level, as they come.
    levels = [f"level{number}" for number in range(5_000 // OTHERS_EVERY_MS)]
    for number, name in enumerate(levels):
        wait_until(
            lambda number=number: now_ms() >= hot_ms - 3_000 + number * OTHERS_EVERY_MS, "its time", poll_s=0.001
        )
        send(f"{prefix}SCHEDULE_TOPIC_XXXX-1", 0, other_destination, name)
    assert producer.flush(10) == 0
    assert not failures, failures[:3]
    # 3. All arrive, once, and the others as if nothing were.
    verdict = judge([*others, *levels], kafka.read([other_destination], len(others) + len(levels)))
    verdict.assert_exactly_once()
    hot = judge((f"hot{number}" for number in range(HOT_RECORDS)), kafka.read([destination], HOT_RECORDS, 60))
    hot.assert_exactly_once()
    figures = f"p50 {verdict.percentile(0.5)} ms, p99 {verdict.percentile(0.99)} ms, hot {hot.percentile(1)} ms at most"
    print(figures)
    assert hot.percentile(1) > 500, f"the hot second was over at once, and proves nothing: {figures}"
    assert verdict.percentile(0.99) < 500, figures
