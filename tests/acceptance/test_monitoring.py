"""What monitoring/ names is told by a sidecar that runs and to which everything has happened once."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.kafka import Kafka
from tests.support.promql import OF_PROMETHEUS, TARGET_LABELS, Exposition, Query, grouping, queries, selectors
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import cancel, timed

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def exposition(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exposition]:
    """``/metrics`` of two workers: deliveries, a roll, a cancel, a rejection, a dead letter, a restart."""
    prefix = f"t{uuid4().hex[:10]}."
    orders = kafka.create_topic(f"{prefix}orders", 2)
    sidecar = SidecarProcess(
        kafka.bootstrap_servers,
        tmp_path_factory.mktemp("monitoring"),
        topic_prefix=prefix,
        group_id=f"{prefix}timewheel",
        levels="1s 2s",
        partitions=2,
        workers=2,
        slots_total=60,
        roll_window="3s",
    )
    with sidecar:
        kafka.produce(
            [
                (f"{prefix}SCHEDULE_TOPIC_XXXX-1", b"k", b"v", [("REAL_TOPIC", orders.encode())]),
                (f"{prefix}SCHEDULE_TOPIC_XXXX-1", b"k", b"v", []),
                timed(prefix, orders, "soon", ("TIMER_DELAY_MS", 100)),
                timed(prefix, orders, "rolls", ("TIMER_DELAY_MS", DAY_MS)),
                timed(prefix, orders, "waits", ("TIMER_DELAY_MS", DAY_MS)),
                cancel(prefix, "waits"),
                (
                    f"{prefix}SCHEDULE_TOPIC_XXXX-sendback",
                    b"k",
                    b"v",
                    [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", orders.encode()), ("DELAY", b"-1")],
                ),
            ]
        )
        wait_until(lambda: sidecar.metric("timewheel_rolls_total") > 0, "a message has rolled")
        wait_until(lambda: sidecar.metric("timewheel_dead_letters_total", group="billing") == 1, "a dead letter")
        wait_until(lambda: sidecar.metric("timewheel_cancels_total", outcome="cancelled") == 1, "a cancel")
        wait_until(lambda: sidecar.metric("timewheel_delivered_records_total", queue="1") == 1, "a delivery")
        assert sidecar.metric("timewheel_rejected_records_total", code="MISSING_REAL_TOPIC") == 1
        assert sidecar.metric("timewheel_dead_letters_total", group=f"{prefix}timewheel") == 1
        wait_until(lambda: sidecar.metric("timewheel_pending_messages", topic=orders) == 1, "one waits")
        pid = next(event["pid"] for event in sidecar.events() if event["event"] == "worker started")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: sidecar.metric("timewheel_worker_restarts_total") == 1, "a worker is started anew")
        wait_until(lambda: sidecar.metric("timewheel_worker_up") == 2, "both answer")
        # The rolled message is somebody's again, and what comes for it now is told by whoever has it.
        wait_until(lambda: sidecar.metric("timewheel_pending_messages", topic=orders) == 1, "it still waits")
        # Each worker has delivered something since the restart, for histograms are told with their first observation.
        kafka.produce(
            [timed(prefix, orders, f"late-{number}", ("TIMER_DELAY_MS", 0)) for number in range(20)]
            + [(f"{prefix}SCHEDULE_TOPIC_XXXX-sendback", b"k", b"v", [])]
        )
        wait_until(lambda: sidecar.metric("timewheel_delivered_records_total", queue="wheel") >= 20, "late ones")
        wait_until(lambda: sidecar.metric("timewheel_dead_letters_total") >= 1, "a rejected one")
        wait_until(
            lambda: sidecar.metric("timewheel_topic_retention_seconds", queue="wheel") > 0, "topics are looked at"
        )
        status, text = sidecar.get("/metrics")
        assert status == 200
        yield Exposition(text)


@pytest.mark.parametrize("query", queries(), ids=lambda query: query.where)
def test_what_a_query_names_is_told(exposition: Exposition, query: Query) -> None:
    expression = query.expression
    for selector in selectors(expression):
        assert selector.metric in OF_PROMETHEUS or exposition.has(selector), f"{selector} is not told"
    for labels, below, made in grouping(expression):
        told = {label for selector in below for label in exposition.labels_of(selector.metric)}
        assert set(labels) <= told | TARGET_LABELS | made, f"{set(labels) - told} is no label of {below}"


def test_a_family_is_told_once_and_the_supervisors_own_have_no_worker(exposition: Exposition) -> None:
    types = re.findall(r"^# TYPE (\S+)", exposition.text, re.MULTILINE)
    assert len(set(types)) == len(types)
    resident = re.findall(r"^process_resident_memory_bytes(\S*) ", exposition.text, re.MULTILINE)
    assert sorted(resident) == ["", '{worker="1"}', '{worker="2"}']
    assert "_created" not in exposition.text


@pytest.mark.parametrize("tool", ["promtool"], indirect=True)
def test_prometheus_finds_nothing_wrong_with_the_metrics(tool: str, exposition: Exposition) -> None:
    answer = subprocess.run(
        [tool, "check", "metrics"], input=exposition.text, capture_output=True, text=True, check=False
    )
    complaints = [line for line in answer.stderr.splitlines() if line.startswith("timewheel_")]
    assert not complaints
    assert answer.returncode in (0, 3), answer.stderr
