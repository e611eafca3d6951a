"""Several workers, driven as users drive them: they deliver as one, answer as one and end as one."""

import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from tests.support.command import timewheel, told
from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

Produced = tuple[str, bytes | None, bytes | None, Headers]

ASSIGNED = 20
"""Three levels, the wheel and the send-back topic, of four partitions each."""


@pytest.fixture
def two(sidecar: SidecarProcess) -> SidecarProcess:
    """A sidecar of two workers, not yet started; four partitions a topic."""
    sidecar.settings |= {"workers": 2, "partitions": 4, "batch_records": 500}
    return sidecar


def spread(prefix: str, destination: str, count: int, within_ms: int = 6_000) -> list[Produced]:
    """Records with their number as key and id: two of three on the wheel, at random times, the others on the levels."""
    chance = random.Random(11)
    batch = []
    for number in range(count):
        name = b"%d" % number
        headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", name)]
        queue = str(number % 9 + 1)
        if number % 9 > 2:
            queue = "wheel"
            headers.append(("TIMER_DELAY_MS", b"%d" % chance.randrange(within_ms)))
        batch.append((f"{prefix}SCHEDULE_TOPIC_XXXX-{queue}", name, b"v" * 100, headers))
    return batch


def ids(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def pids(sidecar: SidecarProcess) -> dict[int, int]:
    """The process of each worker, as the log tells it."""
    return {event["worker"]: event["pid"] for event in sidecar.events() if event["event"] == "worker started"}


def runs(pid: int) -> bool:
    """Whether the process does anything yet; one that nobody has waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pending(sidecar: SidecarProcess, **query: Any) -> dict[str, Any]:
    status, body = sidecar.get(f"/api/v1/pending?{urlencode(query)}")
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer


def delivered(sidecar: SidecarProcess, worker: int) -> float:
    return sidecar.metric("timewheel_delivered_records_total", worker=str(worker))


def share_everything(sidecar: SidecarProcess) -> None:
    """Wait until the last worker to come has its share of the partitions."""

    def shared() -> bool:
        shares = [sidecar.metric("timewheel_assigned_partitions", worker=str(worker)) for worker in (1, 2)]
        return min(shares) > 0 and sum(shares) == ASSIGNED

    wait_until(shared, "both workers have partitions")


@pytest.mark.long
def test_two_workers_share_the_work_and_deliver_everything_once(kafka: Kafka, prefix: str, two: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    two.start()
    share_everything(two)
    kafka.produce(spread(prefix, destination, 12_000))
    judge(ids(12_000), kafka.read([destination], 12_000, 60)).assert_exactly_once()
    wait_until(lambda: delivered(two, 1) + delivered(two, 2) == 12_000, "all deliveries counted")
    assert delivered(two, 1) > 1_000
    assert delivered(two, 2) > 1_000


@pytest.mark.long
def test_what_is_pending_is_told_as_by_one(kafka: Kafka, prefix: str, two: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    two.start()
    share_everything(two)
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    topic = f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"
    batch: list[Produced] = []
    for number in range(200):
        headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"%d" % number)]
        batch.append((topic, b"%d" % number, b"v", [*headers, ("TIMER_DELIVER_MS", b"%d" % (due_ms + number))]))
    kafka.produce(batch)
    wait_until(lambda: pending(two)["total"] == 200, "everything is pending")
    listed = pending(two, limit=150)
    assert listed["partitions"] == [0, 1, 2, 3]
    assert listed["total"] == 200
    assert [message["id"] for message in listed["messages"]] == ids(150)
    assert {message["partition"] for message in listed["messages"]} == {0, 1, 2, 3}
    assert len(pending(two)["messages"]) == 100
    assert [message["id"] for message in pending(two, id="7")["messages"]] == ["7"]
    assert two.get("/api/v1/pending?limit=0")[0] == 422


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_anew_and_everything_arrives_once(
    kafka: Kafka, prefix: str, two: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    two.start()
    share_everything(two)
    kafka.produce(spread(prefix, destination, 20_000, within_ms=12_000))
    for kill in range(4):
        worker = kill % 2 + 1
        before, pid = delivered(two, worker), pids(two)[worker]
        wait_until(lambda w=worker, b=before: delivered(two, w) > b, f"worker {worker} delivers before kill {kill}")
        psutil.Process(pid).kill()
        wait_until(lambda w=worker, p=pid: pids(two)[w] != p, f"worker {worker} is started anew")
        two.wait_ready()
    judge(ids(20_000), kafka.read([destination], 20_000, 90)).assert_exactly_once()
    assert [two.metric("timewheel_worker_restarts_total", worker=str(worker)) for worker in (1, 2)] == [2, 2]
    assert [event["end"] for event in two.events() if event["event"] == "worker ended"] == ["SIGKILL"] * 4


@pytest.mark.long
def test_sigterm_ends_all_of_them_with_0_within_two_seconds(kafka: Kafka, prefix: str, two: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    two.start()
    share_everything(two)
    kafka.produce(spread(prefix, destination, 20_000))
    wait_until(lambda: delivered(two, 1) > 0 and delivered(two, 2) > 0, "the first deliveries")
    workers = pids(two).values()
    code, took_s = two.terminate()
    assert code == 0
    assert took_s < 2, f"{took_s:.1f} s"
    assert not any(map(runs, workers))
    assert [event["worker"] for event in two.events() if event["event"] == "stopped" and "worker" in event]
    two.start()
    judge(ids(20_000), kafka.read([destination], 20_000, 60)).assert_exactly_once()


@pytest.mark.slow
def test_sigkill_of_the_supervisor_leaves_no_worker_and_the_next_goes_on(
    kafka: Kafka, prefix: str, two: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    two.start()
    share_everything(two)
    kafka.produce(spread(prefix, destination, 20_000))
    for _ in range(2):
        wait_until(lambda: delivered(two, 1) > 0 and delivered(two, 2) > 0, "deliveries")
        workers = pids(two).values()
        two.kill()
        # At once: the successors meet neither a lock nor an identity that is taken.
        two.start(wait_ready=False)
        wait_until(lambda workers=workers: not any(map(runs, workers)), "no worker is left", 5)
        two.wait_ready()
    judge(ids(20_000), kafka.read([destination], 20_000, 60)).assert_exactly_once()


@pytest.mark.slow
def test_the_number_of_workers_may_change_at_a_restart(kafka: Kafka, prefix: str, two: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    # Members that will not come back are out of the group after this time.
    two.settings |= {"session_timeout": "6s"}
    two.start()
    kafka.produce(spread(prefix, destination, 12_000, within_ms=40_000))
    for workers, others in ((3, []), (1, ["worker-1", "worker-2", "worker-3"]), (2, ["wheel-", "worker-3"])):
        before = two.metric("timewheel_delivered_records_total")
        wait_until(lambda b=before: two.metric("timewheel_delivered_records_total") > b, "delivery")
        two.terminate()
        two.settings["workers"] = workers
        two.start()
        named = [Path(event["directory"]).name for event in two.events() if event["event"] == "directory not used"]
        assert sorted({"wheel-" if name.startswith("wheel-") else name for name in named}) == others
    judge(ids(12_000), kafka.read([destination], 12_000, 120)).assert_exactly_once()


@pytest.mark.slow
def test_an_identity_that_is_taken_ends_all_of_them_with_4(two: SidecarProcess, tmp_path: Path) -> None:
    two.settings |= {"instance_id": "twin"}
    two.start()
    workers = pids(two).values()
    (tmp_path / "b").mkdir()
    settings = {name: value for name, value in two.settings.items() if name not in ("bootstrap_servers", "data_dir")}
    with SidecarProcess(str(two.settings["bootstrap_servers"]), tmp_path / "b", **settings):
        assert two.process.wait(30) == 4
    assert not any(map(runs, workers))
    (event, *_) = [event for event in two.events() if event["event"] == "worker cannot go on"]
    assert event["worker"] in (1, 2)
    assert "identity" in event["reason"]


@pytest.mark.slow
def test_a_worker_that_does_not_answer_leaves_nothing_told_by_halves(two: SidecarProcess) -> None:
    two.start()
    share_everything(two)
    assert (two.get("/healthz")[0], two.get("/readyz")[0]) == (200, 200)
    worker = psutil.Process(pids(two)[2])
    worker.suspend()
    assert two.get("/healthz") == (
        503,
        "worker 2 does not answer: it hangs, starts, or has ended and is started anew\n",
    )
    assert two.get("/readyz")[0] == 503
    assert two.metric("timewheel_worker_up", worker="1") == 1
    assert two.metric("timewheel_worker_up", worker="2") == 0
    worker.resume()
    wait_until(lambda: two.get("/readyz")[0] == 200, "the worker answers again")
    assert pending(two)["total"] == 0


@pytest.mark.long
def test_a_directory_that_a_worker_cannot_use_ends_all_of_them_with_4(two: SidecarProcess) -> None:
    two.start()
    data = Path(two.settings["data_dir"])
    (data / "worker-2").rename(data / "moved")
    (data / "worker-2").write_text("in the way")
    psutil.Process(pids(two)[2]).kill()
    assert two.process.wait(30) == 4
    assert "name a directory that this user may write" in two.log_text()
    assert not any(map(runs, pids(two).values()))


@pytest.mark.long
def test_a_token_is_asked_for_as_by_one(two: SidecarProcess) -> None:
    two.settings["http_token"] = "secret"
    two.start()
    assert two.get("/api/v1/pending")[0] == 401
    assert two.get("/api/v1/absent")[0] == 401
    assert two.get("/absent")[0] == 404
    assert two.get("/metrics")[0] == 200
    assert "secret" not in two.log_text()
    command_lines = [psutil.Process(pid).cmdline() for pid in pids(two).values()]
    assert not any("secret" in " ".join(command_line) for command_line in command_lines)


@pytest.mark.slow
def test_switches_cancels_and_status_are_those_of_one(kafka: Kafka, prefix: str, two: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    two.start()
    share_everything(two)
    address = ["--http-address", str(two.http_address)]
    told("switch", *address, "--json", "--stop-dequeue")
    before = pids(two)[1]
    psutil.Process(before).kill()
    wait_until(lambda: pids(two)[1] != before, "the worker is started anew")
    two.wait_ready()
    assert json.loads(two.get("/readyz")[1])["stop_dequeue"] is True
    assert two.metric("timewheel_dequeue_stopped", worker="1") == 1
    kafka.produce(spread(prefix, destination, 900, within_ms=1))
    wait_until(lambda: told("status", *address, "--json")["behind_seconds"] > 2, "all is overdue")
    status = told("status", *address, "--json")
    assert status["partitions"] == {"assigned": ASSIGNED, "stopped": 0}
    assert status["pending"]["partitions"] == [0, 1, 2, 3]
    assert status["delivered"] == {}
    told("switch", *address, "--json", "--start-dequeue")
    judge(ids(900), kafka.read([destination], 900)).assert_exactly_once()
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix]
    for number in range(4):
        sent = told("send", *options, "--topic", destination, "--key", str(number), "--delay", "1h", "v")
        ended = timewheel("cancel", *options, *address, "--wait", str(sent["receipt"]))
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "cancelled\n", "")
