"""``timewheel status --watch`` and long lists, on a real terminal."""

import json
import subprocess
import sys

import pytest

from tests.support.command import timewheel
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until
from tests.support.wheel import timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_watch_is_live_survives_the_sidecar_fits_the_window_and_ends_with_ctrl_c(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    address = str(sidecar.http_address)
    with Terminal("status", "--watch", "--http-address", address) as terminal:
        wait_until(lambda: "HEALTHY" in terminal.text, "it shows the state")
        kafka.produce([timed(prefix, destination, str(number), ("TIMER_DELAY_SEC", 3_600)) for number in range(37)])
        terminal.forget()
        wait_until(lambda: "37" in terminal.text, "what is scheduled shows")
        wait_until(lambda: destination in terminal.text, "and where it goes")
        # A smaller window: less is shown, none of it beyond the last line.
        terminal.resize(8, 60)
        terminal.forget()
        screens = wait_until(lambda: terminal.screens if len(terminal.screens) > 3 else None, "it is drawn anew")
        assert screens[-2].count("\n") < 8, screens[-2]
        assert max(map(len, screens[-2].splitlines())) <= 60, screens[-2]
        assert terminal.process.poll() is None
        terminal.resize(30, 100)
        sidecar.kill()
        wait_until(lambda: "NO ANSWER" in terminal.text, "it says that nobody answers")
        sidecar.settings["http_address"] = address
        sidecar.start()
        terminal.forget()
        wait_until(lambda: "HEALTHY" in terminal.text, "it goes on")
        assert terminal.interrupt() == 0
        assert "Traceback" not in terminal.text


def test_watch_elsewhere_is_a_line_a_second(sidecar: SidecarProcess) -> None:
    sidecar.start()
    command = [
        sys.executable,
        "-m",
        "sidecar",
        "status",
        "--watch",
        "--json",
        "--http-address",
        str(sidecar.http_address),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.kill()
    assert [one["state"] for one in told] == ["healthy", "healthy"]
    assert told[0]["at_ms"] < told[1]["at_ms"]


def test_long_lists_page_on_a_terminal_and_nowhere_else(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    hostile = "\x1b]0;mine\x07[red]x"
    names = [*(f"m{number}" for number in range(60)), hostile]
    kafka.produce([timed(prefix, destination, name, ("TIMER_DELAY_SEC", 3_600)) for name in names])
    wait_until(lambda: sidecar.pending() == 61, "they wait")
    arguments = ["pending", "--http-address", str(sidecar.http_address)]
    plain = timewheel(*arguments).stdout
    assert plain.count(destination) == 61
    assert plain.splitlines()[-1] == "61 pending on wheel partitions 0; 61 shown"
    assert "\x1b" not in plain
    assert "\\x1b]0;mine\\x07[red]x" in plain, "a command to the terminal is shown, not carried out"
    with Terminal(*arguments, rows=20) as terminal:
        wait_until(lambda: destination in terminal.text, "the first page")
        assert terminal.text.count(destination) < 61
        assert terminal.process.poll() is None, "it waits for the reader"
        terminal.type("q")
        assert terminal.process.wait(10) == 0
    with Terminal(*arguments, "--limit", "3", rows=20) as terminal:
        assert terminal.process.wait(20) == 0, "what fits is shown at once"
        wait_until(lambda: "61 pending on wheel partitions 0; 3 shown" in terminal.text, "the list")
