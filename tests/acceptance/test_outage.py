"""A destination partition without a leader: its records wait, everybody else's go on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from connectors.murmur2 import partition_of_key
from tests.support.http_api import Answer, HttpApi
from tests.support.kafka import Headers, Kafka, Record, judge
from tests.support.second_broker import FIRST, SECOND, two_brokers
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, cancel, is_drained, now_ms, timed

pytestmark = pytest.mark.kafka

COUNT, ON_LEVEL = 2_000, 100
"""Records for each destination, and how many of them by a delay level."""
LATE_WHILE_AWAY_MS = 12_000
"""A record for somebody else, due while the outage is not known yet, waits for the transaction that finds it out."""


def on_level(prefix: str, destination: str, name: str, qid: int | None = None) -> Produced:
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", name.encode())]
    headers += [("REAL_QID", b"%d" % qid)] if qid is not None else []
    return f"{prefix}SCHEDULE_TOPIC_XXXX-1", name.encode(), b"v", headers


@pytest.mark.slow
def test_a_partition_without_a_leader_holds_up_nobody_else(
    prefix: str, sidecar: SidecarProcess, tmp_path: Path
) -> None:
    with two_brokers(tmp_path / "second") as (first, second):
        kafka = Kafka(first.bootstrap_servers)
        orders = kafka.create_topic(f"{prefix}orders", 3)
        sidecar.settings |= {"bootstrap_servers": first.bootstrap_servers, "levels": "1s 5s", "partitions": 2}
        sidecar.start()
        pid = sidecar.process.pid
        second.start()
        away = second.create_topic(f"{prefix}away", SECOND)
        half = second.create_topic(f"{prefix}half", FIRST, SECOND)
        second.kill()
        wait_until(lambda: _leader(kafka, away) < 0, "the partition has no leader", 30, poll_s=0.2)
        began_ms = now_ms()
        # 1. For everybody, on the wheel by key, and on a level by key or by partition.
        names = [(topic, number, f"{topic}-{number}") for number in range(COUNT) for topic in (orders, away, half)]
        kafka.produce(
            on_level(prefix, topic, name, number % 2 if topic == half else None)
            if number < ON_LEVEL
            else timed(prefix, topic, name, ("TIMER_DELIVER_MS", began_ms + 1_000 + 10 * number))
            for topic, number, name in names
        )
        # 2. The others go on, while theirs wait.
        kafka.read([orders], COUNT, 90)
        assert sidecar.metric("timewheel_unavailable_destination_partitions") == 2
        assert sidecar.metric("timewheel_postponed_total") > 0
        assert f"{away}-0: takes no records (no leader)" in sidecar.get("/readyz")[1]
        # 3. What waits can be cancelled, also after the sidecar was killed.
        sidecar.kill()
        sidecar.start()
        doomed = [f"{away}-{number}" for number in range(COUNT - 50, COUNT)]
        kafka.produce(cancel(prefix, name) for name in doomed)
        wait_until(
            lambda: sidecar.metric("timewheel_cancels_total", outcome="cancelled") == len(doomed), "cancelled", 60
        )
        # 4. It comes back.
        second.start()
        wait_until(lambda: is_drained(kafka, prefix, sidecar), "all is delivered", 120, poll_s=0.5)
        delivered = kafka.read([orders, away, half], len(names) - len(doomed))
        judge({name for _, _, name in names} - set(doomed), delivered).assert_exactly_once()
        punctual = [record for record in delivered if record.topic == orders]
        assert max(record.lateness_ms for record in punctual) < LATE_WHILE_AWAY_MS
        assert sidecar.process.pid != pid
        _are_in_their_partitions(delivered, half)


def _leader(kafka: Kafka, topic: str, partition: int = 0) -> int:
    return int(kafka.admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)


def _are_in_their_partitions(delivered: list[Record], half: str) -> None:
    named = {f"{half}-{number}": number % 2 for number in range(ON_LEVEL)}
    found = {record.text("UNIQ_KEY"): record.partition for record in delivered if record.text("UNIQ_KEY") in named}
    assert found == named


@pytest.mark.slow
def test_a_schedule_partition_without_a_leader_holds_up_no_other_at_a_start(
    prefix: str, sidecar: SidecarProcess, tmp_path: Path
) -> None:
    with two_brokers(tmp_path / "second") as (first, second):
        kafka = Kafka(first.bootstrap_servers)
        orders = kafka.create_topic(f"{prefix}orders", 3)
        # Dynamic: a static member would come back to the partitions that the topic had before.
        sidecar.settings |= {"bootstrap_servers": first.bootstrap_servers, "levels": "1s 2s", "membership": "dynamic"}
        sidecar.start()
        assert sidecar.terminate()[0] == 0
        second.start()
        level = f"{prefix}SCHEDULE_TOPIC_XXXX-1"
        kafka.admin.delete_topics([level])[level].result(30)
        wait_until(lambda: level not in kafka.admin.list_topics(timeout=10).topics, "the topic is gone", 30)
        second.create_topic(level, FIRST, SECOND)
        names = [str(number) for number in range(200)]
        kafka.produce(on_level(prefix, orders, name) for name in names)
        held = kafka.ends(level)[1]
        assert 0 < held < len(names)
        second.kill()
        wait_until(lambda: _leader(kafka, level, 1) < 0, "the partition has no leader", 30, poll_s=0.2)
        # 1. A start without it: the other partitions are read, and what is missing is told.
        sidecar.start(wait_ready=False)
        kafka.read([orders], len(names) - held, 30)
        kafka.produce([timed(prefix, orders, "on the wheel", ("TIMER_DELAY_MS", 500))])
        kafka.read([orders], len(names) - held + 1, 30)
        assert f"{level}-1 failed: no broker leads the partition" in sidecar.get("/readyz")[1]
        assert sidecar.get("/healthz")[0] == 200
        # 2. Its broker is back.
        second.start()
        delivered = kafka.read([orders], len(names) + 1, 90)
        judge([*names, "on the wheel"], delivered).assert_exactly_once()
        wait_until(lambda: sidecar.get("/readyz")[0] == 200, "it is ready", 30)
        assert not [event for event in sidecar.events() if event["event"] == "no session with kafka"]
        # 3. It is lost once more, while its partition is read.
        second.kill()
        wait_until(lambda: f"{level}-1: no broker leads it" in sidecar.get("/readyz")[1], "it is told", 60)
        kafka.produce([timed(prefix, orders, "still on the wheel", ("TIMER_DELAY_MS", 500))])
        kafka.read([orders], len(names) + 2, 30)


@pytest.mark.slow
def test_a_schedule_partition_without_a_leader_fails_the_requests_alone_that_it_would_take(
    prefix: str, sidecar: SidecarProcess, tmp_path: Path
) -> None:
    with two_brokers(tmp_path / "second") as (first, second):
        kafka = Kafka(first.bootstrap_servers)
        orders = kafka.create_topic(f"{prefix}orders", 3)
        level = f"{prefix}SCHEDULE_TOPIC_XXXX-2"
        sidecar.settings |= {"bootstrap_servers": first.bootstrap_servers, "levels": "1s"}
        sidecar.start()
        second.start()
        second.create_topic(level, FIRST, SECOND)
        sidecar.settings |= {"levels": "1s 2s"}
        assert sidecar.terminate()[0] == 0
        sidecar.start()
        second.kill()
        wait_until(lambda: _leader(kafka, level, 1) < 0, "the partition has no leader", 30, poll_s=0.2)
        api = HttpApi(sidecar)

        def ask(number: int) -> Answer:
            return api.post(
                "/messages", {"topic": orders, "key": str(number), "value": "v", "level": 2}, f"key-{number}"
            )

        # 1. Several at a time, so that they share transactions: whoever is not in that partition is scheduled.
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(ask, range(40)))
        in_reach = [number for number in range(40) if partition_of_key(str(number).encode(), 2) == 0]
        assert 10 < len(in_reach) < 30
        assert [number for number in range(40) if answers[number].status == 202] == in_reach
        refused = [answer for number, answer in enumerate(answers) if number not in in_reach]
        assert {answer.status for answer in refused} == {503}
        assert all(f"'{level}' does not take the record" in answer.body["detail"] for answer in refused)
        # 2. It comes back, and the same requests are made again: each message is there once.
        second.start()
        wait_until(lambda: _leader(kafka, level, 1) >= 0, "the partition has a leader", 30, poll_s=0.2)
        wait_until(lambda: ask(next(n for n in range(40) if n not in in_reach)).status == 202, "it is taken", 30)
        with ThreadPoolExecutor(4) as threads:
            again = list(threads.map(ask, range(40)))
        assert {answer.status for answer in again} == {202}
        delivered = kafka.read([orders], 40, 60)
        judge([answer.body["id"] for answer in again], delivered).assert_exactly_once()
