"""Every state of health, from what really causes it; probes, API and command tell the same."""

import json
import os
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from connectors.embedded import EmbeddedKafka
from sidecar.observability.health import State
from tests.support.command import told
from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.small_disk import FileSizeLimit
from tests.support.waiting import wait_until
from tests.support.wheel import now_ms, timed

pytestmark = [pytest.mark.kafka, pytest.mark.long]


def readiness(sidecar: SidecarProcess) -> dict[str, Any]:
    """What ``/readyz`` tells; empty while nobody answers."""
    body = sidecar.get("/readyz")[1] if sidecar.http_address else ""
    answer: dict[str, Any] = json.loads(body) if body.startswith("{") else {}
    return answer


def wait_for(sidecar: SidecarProcess, state: State, timeout_s: float = 30.0) -> dict[str, Any]:
    """Until the sidecar tells this state; all of its faces tell it then."""
    wait_until(lambda: readiness(sidecar).get("state") == state, f"it tells {state}", timeout_s)
    answer = told("status", "--http-address", str(sidecar.http_address), "--json")
    if answer["state"] == state:  # else it has passed
        assert f"{state}: " in sidecar.get("/healthz")[1]
    return readiness(sidecar)


def level_1(prefix: str, destination: str, name: str) -> tuple[str, None, bytes, Headers]:
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", name.encode())]
    return f"{prefix}SCHEDULE_TOPIC_XXXX-1", None, b"v", headers


def test_starting_broker_away_idle_and_busy_and_stopping(prefix: str, sidecar: SidecarProcess) -> None:
    with EmbeddedKafka() as broker:
        kafka = Kafka(broker.bootstrap_servers)
        destination = kafka.create_topic(f"{prefix}orders")
        sidecar.settings |= {"bootstrap_servers": broker.bootstrap_servers, "levels": "1s", "transaction_timeout": "2s"}
        # 1. A broker that holds its breath: the start goes no further, and says how far it is.
        broker.suspend()
        sidecar.start(wait_ready=False)
        starting = wait_until(lambda: readiness(sidecar), "it answers")
        assert (starting["ready"], starting["state"]) == (False, "starting")
        assert "topics" in starting["words"]
        broker.resume()
        assert wait_for(sidecar, State.HEALTHY)["ready"]
        # 2. Idle, the broker goes and comes back: nothing is due, and the sidecar notices both by itself.
        broker.kill()
        away = wait_for(sidecar, State.BROKER_AWAY)
        assert away["words"].startswith("no broker has answered for ")
        assert (away["ready"], away["action"] != "") == (True, True), "a short outage leaves it ready"
        broker.restart()
        wait_for(sidecar, State.HEALTHY, 60)
        # 3. With something due meanwhile it tells how long that has waited.
        kafka.produce(level_1(prefix, destination, str(number)) for number in range(10))
        wait_until(lambda: sidecar.metric("timewheel_ingested_records_total") == 10, "they are read")
        broker.kill()
        wait_for(sidecar, State.BROKER_AWAY)
        wait_until(lambda: "what is due has waited for" in readiness(sidecar)["words"], "it tells of the delay")
        broker.restart()
        wait_for(sidecar, State.HEALTHY, 60)
        judge(map(str, range(10)), kafka.read([destination], 10)).assert_exactly_once()
        # 4. Told to stop with a transaction in hand that the broker does not answer.
        before = sidecar.metric("timewheel_ingested_records_total")
        kafka.produce([level_1(prefix, destination, "last")])
        wait_until(lambda: sidecar.metric("timewheel_ingested_records_total") > before, "it is read")
        broker.suspend()
        wait_until(lambda: json.loads(sidecar.get("/api/v1/status")[1])["behind_seconds"] > 1, "it is due and stuck")
        sidecar.process.terminate()
        wait_until(lambda: readiness(sidecar).get("state") == State.STOPPING, "it tells that it stops", 5)
        assert sidecar.process.wait(10) == 0
        broker.resume()


def test_recovering_tells_how_far_it_is(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    due_ms = now_ms() + 3_600_000
    names = [f"m{number}" for number in range(1_000)]
    records = [timed(prefix, destination, name, ("TIMER_DELIVER_MS", due_ms)) for name in names]
    kafka.produce(records, batch_num_messages=10)
    wait_until(lambda: kafka.lag(f"{prefix}timewheel", f"{prefix}SCHEDULE_TOPIC_XXXX-wheel") == 0, "all are stored", 60)
    sidecar.kill()
    for path in Path(sidecar.settings["data_dir"]).glob("wheel-*/**/*"):
        if path.is_file():
            path.unlink()
    # Read ten by ten, with a pause after each: it takes as long as many records would.
    slowly = {"max.partition.fetch.bytes": "1", "queued.min.messages": "1", "fetch.queue.backoff.ms": "100"}
    sidecar.start(wait_ready=False, env={"TIMEWHEEL_KAFKA": json.dumps(slowly)})
    seen: list[float] = []

    def is_through() -> bool:
        answer = readiness(sidecar)
        if answer.get("state") == State.RECOVERING:
            assert not answer["ready"]
            assert answer["words"].startswith(f"{answer['progress']:.0%} of what is committed is read again")
            seen.append(answer["progress"])
        return answer.get("state") == State.HEALTHY

    wait_until(is_through, "it has recovered", 60)
    assert len(seen) > 1, "nobody could have seen it"
    assert seen == sorted(seen)
    assert 0 <= seen[0] < seen[-1] <= 1
    wait_until(lambda: sidecar.pending() == len(names), "all of them wait again")


def test_behind_is_told_with_its_cause_until_it_has_caught_up(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings["batch_records"] = 1  # a transaction a record: so many cannot go out in a second
    sidecar.start()
    names = [str(number) for number in range(1_000)]
    kafka.produce(level_1(prefix, destination, name) for name in names)
    behind = wait_for(sidecar, State.BEHIND)
    assert re.match(r"behind by .+ s because more has fallen due than has gone out yet", behind["words"])
    assert behind["ready"]
    wait_for(sidecar, State.HEALTHY, 90)
    judge(names, kafka.read([destination], len(names))).assert_exactly_once()


def test_disk_full_is_told_and_passes(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings |= {"slots_total": 3_600, "roll_window": "30m"}
    sidecar.start()
    disk = FileSizeLimit(sidecar)
    due_ms = now_ms() + 1_800_000

    def batch(name: str, count: int) -> None:
        names = [f"{name}{number}" for number in range(count)]
        kafka.produce(
            timed(prefix, destination, one, ("TIMER_DELIVER_MS", due_ms), value=b"v" * 10_000) for one in names
        )

    batch("stored", 50)
    wait_until(lambda: sidecar.pending() == 50, "they are stored")
    disk.fill()
    batch("refused", 200)
    full = wait_for(sidecar, State.DISK_FULL)
    assert os.strerror(27) in full["words"]
    assert (full["ready"], "make room" in full["action"]) == (True, True)
    disk.make_room()
    wait_for(sidecar, State.HEALTHY)
    wait_until(lambda: sidecar.pending() == 250, "all are stored")


def test_a_hung_worker_is_told_by_the_others(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    sidecar.settings |= {"workers": 2, "partitions": 2, "levels": "1s"}
    sidecar.start()
    assert readiness(sidecar)["state"] == State.HEALTHY
    pid = next(int(event["pid"]) for event in sidecar.events() if event["event"] == "worker started")
    worker = psutil.Process(pid)
    worker.suspend()
    try:
        status = wait_until(
            lambda: (answer := json.loads(sidecar.get("/api/v1/status")[1]))["state"] == State.STARTING and answer,
            "the silence is told",
        )
        assert "does not answer" in status["words"]
        assert status["queues"], "what the other one knows is told"
        # The stream goes on, too.
        began = time.monotonic()
        assert "does not answer" in first_event(sidecar)
        assert time.monotonic() - began < 10
    finally:
        worker.resume()
    wait_for(sidecar, State.HEALTHY)


def first_event(sidecar: SidecarProcess) -> str:
    """The first status of the stream."""
    with urllib.request.urlopen(f"http://{sidecar.http_address}/api/v1/events", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        for line in response:
            if line.startswith(b"data: "):
                return str(json.loads(line[6:])["words"])
    raise AssertionError("the stream has ended")
