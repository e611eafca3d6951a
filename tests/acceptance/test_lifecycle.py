"""Stops and rolling restarts, as an orchestrator makes them."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka
from connectors.embedded.ports import any_free
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

STOP_S = 2.0
"""A native sidecar has about so long, where its application has used up the whole grace period."""


@pytest.mark.parametrize("membership", ["static", "dynamic"])
def test_static_members_keep_their_place_and_dynamic_ones_leave(
    kafka: Kafka, sidecar: SidecarProcess, membership: str
) -> None:
    sidecar.settings |= {"membership": membership, "session_timeout": "60s"}
    group = str(sidecar.settings["group_id"])

    def members() -> list[str | None]:
        told = kafka.admin.describe_consumer_groups([group])[group].result(10)
        return [member.group_instance_id for member in told.members]

    sidecar.start()
    (identity,) = members()
    code, took_s = sidecar.terminate()
    assert (code, took_s < STOP_S) == (0, True), f"exit code {code} after {took_s:.1f} s"
    if membership == "static":
        assert members() == [identity]
        assert identity
    else:
        assert members() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_is_heard_while_kafka_does_not_answer(tmp_path: Path, workers: int) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()  # takes connections, and never says a word
        sidecar = SidecarProcess(f"127.0.0.1:{nobody.getsockname()[1]}", tmp_path, workers=workers)
        try:
            sidecar.start(wait_ready=False)
            wait_until(lambda: sidecar.http_address is not None, "it has begun to start")
            code, took_s = sidecar.terminate()
        finally:
            sidecar.__exit__(None, None, None)
    assert (code, took_s < STOP_S) == (0, True), f"exit code {code} after {took_s:.1f} s"
    assert sidecar.events()[-1]["event"] == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_start_may_wait_for_kafka_as_long_as_it_takes(tmp_path: Path, workers: int) -> None:
    """As a native sidecar does: it is alive, not ready, says why, and goes on when Kafka is there."""
    port = any_free()
    sidecar = SidecarProcess(f"127.0.0.1:{port}", tmp_path, start_timeout="0s", workers=workers)

    def told() -> list[str]:
        return [event["reason"] for event in sidecar.events() if event["event"] == "waits for kafka"]

    try:
        sidecar.start(wait_ready=False)
        (reason,) = wait_until(told, "it says what it waits for")
        assert str(port) in reason
        wait_until(lambda: sidecar.get("/healthz")[0] == 200, "it is alive")
        assert sidecar.get("/readyz")[0] == 503
        with EmbeddedKafka(port=port):
            sidecar.wait_ready(60)
            assert sidecar.terminate()[0] == 0
    finally:
        sidecar.__exit__(None, None, None)


def test_a_rolling_restart_of_three_replicas_delivers_everything_once(
    kafka: Kafka, prefix: str, tmp_path: Path
) -> None:
    """One after the other is stopped and started under load, each once the one before is ready again."""
    destination = kafka.create_topic(f"{prefix}orders", 3)
    replicas = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        replicas.append(
            SidecarProcess(
                kafka.bootstrap_servers,
                tmp_path / str(number),
                topic_prefix=prefix,
                group_id=f"{prefix}timewheel",
                instance_id=f"replica-{number}",
                levels="1s 2s 3s",
                partitions=3,
            )
        )
    names: list[str] = []
    done = threading.Event()

    def load() -> None:
        """About 300 records a second, by levels and by the wheel."""
        while not done.is_set():
            batch = [f"id-{len(names) + number}" for number in range(30)]
            kafka.produce(
                (
                    f"{prefix}SCHEDULE_TOPIC_XXXX-{1 + number % 3}"
                    if number % 2
                    else f"{prefix}SCHEDULE_TOPIC_XXXX-wheel",
                    name.encode(),
                    b"v",
                    [
                        ("REAL_TOPIC", destination.encode()),
                        ("UNIQ_KEY", name.encode()),
                        *([] if number % 2 else [("TIMER_DELAY_MS", b"1500")]),
                    ],
                )
                for number, name in enumerate(batch)
            )
            names.extend(batch)
            done.wait(0.1)

    try:
        for replica in replicas:
            replica.start()
        producing = threading.Thread(target=load)
        producing.start()
        kafka.read([destination], 500, 60)
        began = time.monotonic()
        for replica in replicas:
            code, took_s = replica.terminate()
            assert (code, took_s < STOP_S) == (0, True), f"exit code {code} after {took_s:.1f} s"
            replica.start()
        took_s = time.monotonic() - began
        done.set()
        producing.join()
        verdict = judge(names, kafka.read([destination], len(names), 60))
    finally:
        done.set()
        for replica in replicas:
            replica.__exit__(None, None, None)
    verdict.assert_exactly_once()
    print(f"{len(names)} records, restarts took {took_s:.1f} s, lateness p99 {verdict.percentile(0.99)} ms")
    # Nobody else takes over the partitions of a static member: they wait for as long as it takes to start.
    assert verdict.percentile(0.99) < 15_000


def test_a_stop_while_nobody_reads_the_log_is_not_forgotten(kafka: Kafka, prefix: str, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while os.write(write_end, b"\n" * 512):
            pass
    os.set_blocking(write_end, True)
    settings = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix, "--log-format", "json"]
    settings += ["--data-dir", str(tmp_path / "data"), "--http-address", "127.0.0.1:0"]
    command = [sys.executable, "-m", "sidecar", "run", *settings]
    with subprocess.Popen(command, stderr=write_end, stdout=subprocess.DEVNULL) as process:
        os.close(write_end)
        wait_until(lambda: _writes_to(process.pid, 2), "it waits for somebody to read its first line", 30)
        process.terminate()
        wait_until(lambda: _signals_pending(process.pid) == 0, "it has been interrupted", 10)
        with os.fdopen(read_end, "rb") as log:
            told = [json.loads(line)["event"] for line in log.read().splitlines() if line.strip()]
        assert process.wait(30) == 0
    assert told[0] == "starting"
    assert told[-2:] == ["stopping", "stopped"]


def _writes_to(pid: int, descriptor: int) -> bool:
    """Whether the main thread is blocked in a write: on x86-64, or on ARM."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    return call[0] in ("1", "64") and int(call[1], 16) == descriptor


def _signals_pending(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd")))
