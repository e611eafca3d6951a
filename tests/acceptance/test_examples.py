"""The scripts in ``examples/``, as a user runs them: a Kafka of their own, and a sidecar with its defaults."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, SidecarProcess]]:
    """The examples have topics without a prefix, so they have a broker to themselves."""
    with (
        EmbeddedKafka() as broker,
        SidecarProcess(broker.bootstrap_servers, tmp_path_factory.mktemp("sidecar")) as sidecar,
    ):
        yield Kafka(broker.bootstrap_servers), sidecar


def run(name: str, kafka: Kafka, *arguments: str) -> list[str]:
    """What a script prints, line by line."""
    ended = subprocess.run(
        [sys.executable, f"examples/{name}.py", "--bootstrap-servers", kafka.bootstrap_servers, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_order_timeout(plain: tuple[Kafka, SidecarProcess]) -> None:
    lines = run("order_timeout", plain[0], "--timeout", "2s")
    assert "order-2 is paid" in lines
    assert sorted(line for line in lines if "not paid in time" in line) == [
        "order-1 was not paid in time, and is cancelled",
        "order-3 was not paid in time, and is cancelled",
    ]


def test_reminder(plain: tuple[Kafka, SidecarProcess]) -> None:
    kafka, sidecar = plain
    (line,) = run("reminder", kafka)
    assert re.match(r"scheduled for \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*; its receipt: [\w-]+$", line)
    wait_until(lambda: sidecar.pending() == 1, "it waits")
    assert len(run("reminder", kafka, "--delay", "1h", "--later", "1s")) == 2
    (record,) = kafka.read(["reminders"], 1)
    assert (record.key, record.value) == (b"guest-7", b"your table is booked for tonight")
    assert 0 <= record.lateness_ms < 5_000
    assert sidecar.pending() == 1


@pytest.mark.long
def test_payment_retry(plain: tuple[Kafka, SidecarProcess]) -> None:
    lines = run("payment_retry", plain[0])
    assert [line for line in lines if line.startswith("bob")] == [
        "bob: the bank is down (attempt 1)",
        "bob: the bank is down (attempt 2)",
        "bob: charged 17 EUR, from payments",
    ]
    assert lines[-1].startswith("bob: charged")


@pytest.mark.long
def test_poison_message(plain: tuple[Kafka, SidecarProcess]) -> None:
    lines = run("poison_message", plain[0])
    assert {"an invoice over 10", "an invoice over 20"} <= set(lines)
    assert [re.sub(r".*: attempt", "attempt", line) for line in lines if "attempt" in line] == [
        "attempt 1 failed",
        "attempt 2 failed",
    ]
    assert lines[-1] == "a dead letter: this is no JSON"


def test_every_example_is_tested() -> None:
    scripts = {f"test_{path.stem}" for path in (ROOT / "examples").glob("*.py")}
    assert scripts
    assert scripts <= set(globals())


@pytest.mark.long
def test_shop(plain: tuple[Kafka, SidecarProcess]) -> None:
    lines = run("shop", plain[0], "--orders", "4", "--every", "0", "--timeout", "2s")
    assert sorted(line for line in lines if "placed" not in line) == [
        "order-1: paid",
        "order-2: paid",
        "order-3: paid",
        "order-3: the bank is down, in a second again",
        "order-4: not paid in time, cancelled",
    ]
