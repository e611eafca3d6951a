"""Whoever asks over HTTP, and however badly, does not delay what is delivered."""

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.kafka import Kafka, Verdict, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(500)]

RATE = 2_000
"""Records a second."""
SECONDS = 8
ROUNDS = 3
WARM_UP_S = 40
GROWTH_MAX_MS = 20
TOKEN = "secret"

Counts = dict[str, dict[str, int]]


def stream(kafka: Kafka, prefix: str, destination: str, name: str, seconds: float) -> list[str]:
    """Schedule at the rate, each due at a random time 1 to 4 s later; their ids."""
    producer = kafka.producer(linger_ms=5)
    chance = random.Random(name)
    ids: list[str] = []
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        while len(ids) < RATE * elapsed_s:
            ids.append(f"{name}-{len(ids)}")
            record = timed(prefix, destination, ids[-1], ("TIMER_DELAY_MS", chance.randrange(1_000, 4_000)))
            topic, key, value, headers = record
            producer.produce(topic, value, key, headers=headers)
        producer.poll(0.005)
    assert producer.flush(30) == 0
    return ids


@contextmanager
def flood(sidecar: SidecarProcess, topic: str) -> Iterator[Counts]:
    """Five hundred clients at once; what they were answered stands in the map at the end."""
    command = [sys.executable, "-m", "tests.support.flood", str(sidecar.http_address), TOKEN, topic]
    answers: Counts = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield answers
        told, _ = process.communicate(timeout=90)
    answers.update(json.loads(told))


def test_a_flood_of_requests_does_not_delay_deliveries(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    sidecar.settings["http_token"] = TOKEN
    destination = kafka.create_topic(f"{prefix}orders", 3)
    other = kafka.create_topic(f"{prefix}other")
    sidecar.start()
    scheduled: list[str] = []

    def lateness(name: str, seconds: float = SECONDS) -> Verdict:
        """Of one stretch, judged when all of it is delivered."""
        ids = stream(kafka, prefix, destination, name, seconds)
        scheduled.extend(ids)
        wanted = set(ids)
        # Nothing is read before all is delivered: the processors are few.
        delivered_total = "timewheel_delivered_records_total"
        wait_until(lambda: sidecar.metric(delivered_total) >= len(scheduled), "all is delivered", 60, poll_s=0.5)
        records = kafka.read([destination], len(scheduled), 60)
        delivered = [record for record in records if record.text("UNIQ_KEY") in wanted]
        verdict = judge(ids, delivered)
        verdict.assert_exactly_once()
        return verdict

    with flood(sidecar, other):  # the broker compiles itself meanwhile, for which it takes a core of the two
        lateness("warm-up", WARM_UP_S)
    quiet, loaded = [], []
    for number in range(ROUNDS):
        quiet.append(lateness(f"quiet-{number}").percentile(0.99))
        with flood(sidecar, other) as answers:
            wait_until(
                lambda: sidecar.metric("timewheel_ingested_records_total", queue="wheel") > len(scheduled), "it floods"
            )
            loaded.append(lateness(f"loaded-{number}").percentile(0.99))
        print(f"p99 {quiet[-1]} ms, under load {loaded[-1]} ms: {answers}")
        assert set(answers["wrong_token"]) == {"401"}
        assert set(answers["oversized"]) <= {"413", "closed"}
        assert answers["oversized"]["413"] > 10
        assert set(answers["slow_head"]) <= {"closed"}
        assert set(answers["slow_body"]) <= {"408", "503"}
        for kind, good in (("pending", "200"), ("send", "202")):
            assert set(answers[kind]) <= {good, "503"}
            assert answers[kind][good] > 10
    growth_ms = statistics.median(loaded) - statistics.median(quiet)
    assert growth_ms < GROWTH_MAX_MS, f"p99 in ms: {quiet}, under load {loaded}"
