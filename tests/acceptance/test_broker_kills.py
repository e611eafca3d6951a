"""The broker killed over and over, each time while it is asked to commit."""

import random
import threading
import time

import pytest

from connectors.embedded import EmbeddedKafka
from tests.acceptance.test_levels import scheduled
from tests.support.kafka import Kafka, judge
from tests.support.proxy import END_TXN, Fate, KafkaProxy
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import is_drained, now_ms, timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(500)]

KILLS = 6
RECORDS = 10_000
"""On the wheel, and as many on the levels."""
DUE_FOR_MS = 60_000
"""For so long records of the wheel fall due."""


def test_a_broker_that_is_killed_in_the_middle_of_commits_costs_nothing(prefix: str, sidecar: SidecarProcess) -> None:
    chance = random.Random(5)
    with EmbeddedKafka() as broker, KafkaProxy(broker.bootstrap_servers) as proxy:
        kafka = Kafka(broker.bootstrap_servers)
        destination = kafka.create_topic(f"{prefix}orders", 3)
        sidecar.settings |= {"bootstrap_servers": proxy.bootstrap_servers, "batch_records": 50, "levels": "1s 25s 50s"}
        sidecar.settings |= {"slots_total": 3_600, "roll_window": "20s"}
        sidecar.start()
        pid = sidecar.process.pid
        begin_ms = now_ms() + 5_000
        names = [f"w{number}" for number in range(RECORDS)]
        due_ms = {name: begin_ms + chance.randrange(DUE_FOR_MS) for name in names}
        kafka.produce(timed(prefix, destination, name, ("TIMER_DELIVER_MS", due_ms[name])) for name in names)
        kafka.produce(scheduled(prefix, destination, RECORDS))
        is_committing = threading.Event()

        def strike_when_committing(api: int) -> Fate:
            if api == END_TXN:
                is_committing.set()
            return Fate.ANSWERED

        proxy.decide = strike_when_committing
        unanswered = 0
        for _ in range(KILLS):
            goal = sidecar.metric("timewheel_delivered_records_total") + 300
            wait_until(
                lambda goal=goal: sidecar.metric("timewheel_delivered_records_total") > goal, "deliveries go on", 60
            )
            is_committing.clear()
            assert is_committing.wait(30), "no commit comes by"
            time.sleep(chance.uniform(0, 0.6 * proxy.took_s[END_TXN]))  # waking up and killing takes the rest of it
            broker.kill()
            unanswered += proxy.met[END_TXN, Fate.ANSWERED] > proxy.answered[END_TXN]
            proxy.answered[END_TXN] = proxy.met[END_TXN, Fate.ANSWERED]
            broker.restart()
        kafka.read([destination], 2 * RECORDS, 180)
        wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 60, poll_s=0.5)
        assert sidecar.process.pid == pid
        assert sidecar.terminate(30)[0] == 0
        judge([*names, *map(str, range(RECORDS))], kafka.read([destination], 2 * RECORDS)).assert_exactly_once()
        assert unanswered >= KILLS // 2, f"{unanswered} of {KILLS} kills have met a commit: the test proves little"
