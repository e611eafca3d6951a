"""``timewheel audit alert``: an undelivered message is told once, within a minute, restarts included."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.embedded.ports import any_free
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import cancel, timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1_500)]

SPARK_S = 500.0
LEVELS = "1s 2s 3s"
SMALL = [
    "--master",
    "local[2]",
    "--spark-conf",
    "spark.sql.shuffle.partitions=2",
    "--spark-conf",
    "spark.driver.memory=1g",
]


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the background, with the Spark it starts; killed at the end, as a machine that goes down does."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", *arguments], stdout=out, stderr=out, process_group=0
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_what_is_overdue_is_told_once_through_a_kill_and_what_came_is_not(
    kafka: Kafka, prefix: str, tmp_path: Path
) -> None:
    destination, topic = kafka.create_topic(f"{prefix}orders"), f"{prefix}TIMEWHEEL-ALERTS"
    common = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix, "--levels", LEVELS, *SMALL]
    stream = ["audit", "stream", *common, "--facts", str(tmp_path / "facts"), "--interval", "2s"]
    stream += ["--checkpoint", str(tmp_path / "checkpoint")]
    address = f"127.0.0.1:{any_free()}"
    alert = ["audit", "alert", *common, "--facts", str(tmp_path / "facts"), "--checkpoint", str(tmp_path / "alerts")]
    alert += ["--grace", "5s", "--interval", "1s", "--metrics-address", address]
    log = tmp_path / "audit.log"

    def schedule(name: str, delay_ms: int) -> None:
        kafka.produce([timed(prefix, destination, name, ("TIMER_DELAY_MS", delay_ms))])

    def alerts(count: int) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in kafka.read([topic], count)]

    def metric(name: str) -> float:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
                lines = response.read().decode().splitlines()
        except OSError:
            return 0.0
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))

    def has_judged(until_s: float) -> bool:
        return metric("timewheel_audit_watched_until_timestamp_seconds") > until_s

    settings = {"topic_prefix": prefix, "group_id": f"{prefix}timewheel", "levels": LEVELS}
    with SidecarProcess(kafka.bootstrap_servers, tmp_path, **settings):
        for number in range(20):
            schedule(f"good-{number}", 300)
        kafka.read([destination], 20)
    # Nobody delivers from here on.
    schedule("cancelled", 8_000)
    kafka.produce([cancel(prefix, "cancelled")])
    schedule("lost", 100)
    try:
        with running(log, *stream):
            wait_until(lambda: (tmp_path / "facts" / "_delta_log").is_dir(), "the table is there", SPARK_S)
            begin_s = time.time()
            with running(log, *alert):
                wait_until(lambda: has_judged(begin_s + 8), "what was due has been judged", SPARK_S)
                (one,) = alerts(1)
                assert (one["alert"], one["id"], one["destination"]) == ("overdue", "lost", destination)
                assert (one["topic"], one["partition"]) == (f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", 0)
                assert metric("timewheel_audit_overdue_total") == 1

            # Killed, and Spark with it: what it has told it does not tell again, and what is new it tells soon.
            with running(log, *alert):
                wait_until(lambda: has_judged(begin_s), "it looks again", SPARK_S)
                due_ms = time.time_ns() // 1_000_000 + 100
                schedule("lost as well", 100)
                wait_until(lambda: metric("timewheel_audit_overdue_total") > 0, "the next one is told", SPARK_S)
                assert [one["id"] for one in alerts(2)] == ["lost", "lost as well"]
                told_ms = kafka.read([topic], 2)[-1].timestamp_ms
                assert told_ms - due_ms < 60_000, "within a minute"
    except BaseException:
        print(log.read_text()[-6_000:])
        raise
