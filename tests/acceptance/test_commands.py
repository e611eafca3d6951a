"""The commands that bring their own Kafka."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kafka import Kafka
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


def test_the_demo_shows_every_record_on_time_and_ends_by_itself() -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "sidecar", "demo"], capture_output=True, text=True, check=False, timeout=120
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "9 delivered, once each: 0 early" in demo.stdout
    assert "UNKNOWN_DESTINATION" in demo.stdout


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
