"""The commands that bring their own Kafka."""

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.support.kafka import Headers, Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.mark.long
def test_the_demo_shows_every_record_on_time_and_ends_by_itself() -> None:
    elsewhere = {"TIMEWHEEL_TOPIC_PREFIX": "theirs.", "TIMEWHEEL_STOP_DEQUEUE": "true"}  # settings of another sidecar
    demo = subprocess.run(
        [sys.executable, "-m", "sidecar", "demo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **elsewhere},
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "5 delivered, once each: 0 early" in demo.stdout
    assert "order-6 is paid: cancelled" in demo.stdout
    assert "✓ order-6" not in demo.stdout
    assert "UNKNOWN_DESTINATION" in demo.stdout


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_embedded_kafka_prints_its_address_and_stops_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "sidecar", "kafka", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        kafka = Kafka(address)
        topic = kafka.create_topic("kept")
        kafka.produce([(topic, b"k", b"v", [])])
        process.send_signal(number)
        assert process.wait(30) == 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        again = Kafka(process.stdout.readline().strip())
        assert [record.value for record in again.read([topic], 1)] == [b"v"]
        process.kill()
        process.wait(10)


def test_the_embedded_kafka_ends_with_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sidecar", "kafka", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        process.kill()
        process.wait(10)
    port = int(address.rpartition(":")[2])
    wait_until(lambda: not _listens(port), "the broker has ended", 10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.long
def test_what_is_sent_is_pending_and_can_be_rescheduled_and_cancelled(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings["partitions"] = 3
    sidecar.start()
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix]

    def timewheel(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "sidecar", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def pending(*arguments: str) -> dict[str, Any]:
        return timewheel("pending", "--http-address", str(sidecar.http_address), "--json", *arguments)

    send = ["send", *options, "--topic", destination]
    sent = timewheel(*send, "--key", "a", "--delay", "1h", "--header", "n=1", "first")
    later = timewheel(*send, "--key", "b", "--delay", "30d", "second")
    wait_until(lambda: pending()["total"] == 2, "both are pending")
    (first, second) = pending()["messages"]
    assert (first["id"], first["topic"], first["deliver_ms"]) == (sent["id"], destination, sent["deliver_ms"])
    assert (second["id"], second["deliver_ms"]) == (later["id"], later["deliver_ms"])
    assert [message["id"] for message in pending("--id", later["id"])["messages"]] == [later["id"]]
    assert pending("--topic", "another")["total"] == 0
    assert pending("--within", "2h")["total"] == 1
    due = datetime.fromtimestamp(later["deliver_ms"] / 1000, UTC)  # long after it rolls
    (found,) = pending("--from", str(due), "--to", str(due + timedelta(milliseconds=1)))["messages"]
    assert (found["id"], found["act_ms"] < found["deliver_ms"]) == (later["id"], True)
    assert pending("--from", str(due + timedelta(milliseconds=1)))["total"] == 0
    again = timewheel("reschedule", *options, sent["receipt"], "--delay", "2s")
    assert again["id"] == sent["id"]
    timewheel("cancel", *options, later["receipt"])
    (record,) = kafka.read([destination], 1)
    assert (record.key, record.value, record.text("n"), record.text("UNIQ_KEY")) == (b"a", b"first", "1", sent["id"])
    wait_until(lambda: pending()["total"] == 0, "nothing is pending")


def test_a_data_directory_at_rest_is_shown_and_verified(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    sidecar.start()
    headers: Headers = [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_SEC", b"3600")]
    kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", b"k", b"v", headers)] * 100)
    wait_until(lambda: sidecar.metric("timewheel_ingested_records_total", queue="wheel") == 100, "all are read")
    directory = str(sidecar.settings["data_dir"])

    def store(command: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "sidecar", "store", command, directory, "--json"]
        return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)

    assert store("inspect").returncode == 4  # in use
    assert sidecar.terminate()[0] == 0
    checkpoint = json.loads(store("inspect").stdout)["wheel-0"]["checkpoint"]
    assert checkpoint["complete_to_offset"] == 100
    assert checkpoint["wheel_crc"] == crc32((Path(directory) / "wheel-0" / "timerwheel").read_bytes())
    verified = store("verify")
    assert (verified.returncode, json.loads(verified.stdout)) == (0, {"wheel-0": []})
    (payload,) = (Path(directory) / "wheel-0" / "payload").iterdir()
    with payload.open("r+b") as file:
        file.seek(500)
        file.write(b"damage")
    damaged = store("verify")
    assert damaged.returncode == 1
    assert json.loads(damaged.stdout)["wheel-0"]
