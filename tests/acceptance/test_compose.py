"""The images and docker-compose.yml on a Docker engine, driven as the README says: ``make test-compose``.

Without an engine the tests are skipped in so many words; with ``TIMEWHEEL_TEST_COMPOSE=required`` they fail.
"""

import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.embedded.ports import any_free
from tests.support.kafka import Kafka, judge
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
AUDIT = ("audit", "batch", "--bootstrap-servers", "kafka:19092", "--out", "/var/lib/timewheel/audit")


def run(*command: str, stdin: str | None = None, timeout_s: float = 120, env: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
    )
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout


def engine_answers() -> bool:
    try:
        return subprocess.run(["docker", "compose", "ls"], capture_output=True, check=False, timeout=30).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


class Stack:
    """The stack of docker-compose.yml under a name and on ports of its own."""

    def __init__(self) -> None:
        self.project = f"timewheel-test-{uuid.uuid4().hex[:8]}"
        self.kafka_port, self.http_port = any_free(), any_free()
        self._env = {"KAFKA_PORT": str(self.kafka_port), "HTTP_PORT": str(self.http_port)}

    def compose(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120) -> str:
        command = ["docker", "compose", "--project-name", self.project, "--profile", "*"]
        return run(*command, *arguments, stdin=stdin, timeout_s=timeout_s, env=self._env)

    def up(self, *services: str) -> None:
        self.compose("up", "--build", "--detach", "--wait", *services, timeout_s=900)

    def logs(self, service: str) -> str:
        return self.compose("logs", "--no-log-prefix", service)

    def container(self, service: str) -> str:
        return self.compose("ps", "--all", "--quiet", service).strip()

    @property
    def kafka(self) -> Kafka:
        return Kafka(f"localhost:{self.kafka_port}")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    if not engine_answers():
        message = "no Docker engine with compose answers"
        if os.environ.get("TIMEWHEEL_TEST_COMPOSE") == "required":
            pytest.fail(f"{message}, and there has to be one")
        pytest.skip(message)
    stack = Stack()
    try:
        stack.up("kafka", "sidecar", "app")
        yield stack
    except BaseException:
        print(stack.compose("logs", "--tail", "50"))
        raise
    finally:
        stack.compose("down", "--volumes", "--remove-orphans", "--timeout", "10")


def as_in_the_readme(stack: Stack, pattern: str) -> str:
    """The command of the README that matches, for this stack's port."""
    text = (ROOT / "README.md").read_text()
    (block,) = [
        match
        for match in re.findall(r"^(?:echo|kafka-console|kcat).*?[^\\|]\n", text, re.M | re.S)
        if re.search(pattern, match)
    ]
    return block.replace("localhost:9092", f"localhost:{stack.kafka_port}")


def test_what_the_readme_schedules_with_kcat_and_the_console_producer_arrives(stack: Stack) -> None:
    run("bash", "-ec", as_in_the_readme(stack, "XXXX-3 -k 17 -H REAL_TOPIC"))
    console = as_in_the_readme(stack, "kafka-console-producer").replace(
        f"localhost:{stack.kafka_port}", "localhost:19092"
    )
    stack.compose("exec", "-T", "kafka", "bash", "-ec", f'PATH="$PATH:/opt/kafka/bin"\n{console}')
    delivered = stack.kafka.read(["orders"], 2, timeout_s=60)
    assert {record.value for record in delivered} == {b"order 17 is unpaid", b"order 18 is unpaid"}
    assert all(0 <= record.lateness_ms < 5_000 for record in delivered)


def test_a_killed_sidecar_loses_nothing_and_sends_nothing_twice(stack: Stack) -> None:
    kafka, destination = stack.kafka, "payments-later"
    kafka.create_topic(destination, 3)
    names = [f"compose-{number}" for number in range(600)]
    lines = [f"{name}:{name}\n" for name in names]  # each one's key is its value
    target = ["kcat", "-b", f"localhost:{stack.kafka_port}", "-P", "-K", ":", "-H", f"REAL_TOPIC={destination}"]
    run(*target, "-t", "SCHEDULE_TOPIC_XXXX-2", stdin="".join(lines[:300]))
    wheel = ["-t", "SCHEDULE_TOPIC_XXXX-wheel", "-H", "TIMER_DELAY_SEC=6"]
    run(*target, *wheel, stdin="".join(lines[300:]))
    run(*target, "-t", "SCHEDULE_TOPIC_XXXX-1", stdin="first:first\n")
    kafka.read([destination], 1, timeout_s=30)
    stack.compose("kill", "--signal", "SIGKILL", "sidecar")
    stack.up("sidecar")
    delivered = kafka.read([destination], 601, timeout_s=60)
    assert sorted((record.value or b"").decode() for record in delivered) == sorted([*names, "first"])
    assert not [record for record in delivered if record.lateness_ms < 0]
    judge([record.text("UNIQ_KEY") for record in delivered], delivered).assert_exactly_once()


def test_a_stopped_sidecar_exits_0_within_two_seconds_and_says_so(stack: Stack) -> None:
    container = stack.container("sidecar")
    began = time.monotonic()
    stack.compose("stop", "sidecar")
    took_s = time.monotonic() - began
    state = json.loads(run("docker", "inspect", container))[0]["State"]
    assert state["ExitCode"] == 0
    assert took_s < 3, f"{took_s:.1f} s, the command's own time included"
    assert '"stopped"' in stack.logs("sidecar")
    stack.up("sidecar")


def test_the_application_schedules_fails_and_retries(stack: Stack) -> None:
    def done() -> bool:
        log = stack.logs("app")
        return "not paid in time" in log and "order-3: the bank is down" in log and "order-3: paid" in log

    wait_until(done, "an order is cancelled, another one paid at the second attempt", 90, poll_s=1)


def test_the_token_masks_nothing_else_in_the_log(stack: Stack) -> None:
    starting = next(line for line in stack.logs("sidecar").splitlines() if '"starting"' in line)
    assert json.loads(starting)["logger"] == json.loads(starting)["group_id"] == "timewheel"


def test_a_message_goes_round(stack: Stack) -> None:
    told = json.loads(stack.compose("exec", "-T", "sidecar", "timewheel", "roundtrip", "--json"))
    assert {each["via"] for each in told["delivered"]} == {"level 1", "wheel"}
    assert "ready" in stack.compose("exec", "-T", "sidecar", "timewheel", "status", "--http-address", "127.0.0.1:8080")


def test_the_image_is_small_and_has_no_more_rights_than_it_needs(stack: Stack) -> None:
    container = json.loads(run("docker", "inspect", stack.container("sidecar")))[0]
    assert container["Config"]["User"] == "10001:10001"
    assert container["HostConfig"]["ReadonlyRootfs"] is True
    assert container["Config"]["Entrypoint"] == ["timewheel"], "in exec form, so that it hears SIGTERM"
    assert container["State"]["Health"]["Status"] == "healthy"
    labels = container["Config"]["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    own = run(
        "docker",
        "run",
        "--rm",
        "--entrypoint",
        "sh",
        "timewheel:latest",
        "-c",
        "du -sm /opt/timewheel; command -v java curl || true",
    )
    size, *programs = own.split()
    assert programs == ["/opt/timewheel"]
    assert int(size) < 150, f"{size} MB beside Python itself"


def test_the_image_holds_its_bill_of_materials(stack: Stack) -> None:
    bill = json.loads(stack.compose("exec", "-T", "sidecar", "cat", "/usr/share/timewheel/sbom.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "timewheel"
    assert {"confluent-kafka", "opentelemetry-sdk", "uvicorn"} <= {part["name"] for part in bill["components"]}


def test_the_audit_finds_each_message_once_and_no_fault(stack: Stack) -> None:
    stack.compose("build", "audit", timeout_s=1000)
    told = json.loads(stack.compose("run", "--rm", "-T", "audit", *AUDIT, "--json", timeout_s=300))
    verdicts = told["verdicts"]
    assert {verdict for verdict, count in verdicts.items() if count} <= {"on_time", "late", "cancelled", "pending"}
    assert verdicts["on_time"] + verdicts["late"] > 600  # what waited for the killed sidecar was late
    user = json.loads(run("docker", "inspect", "timewheel-audit:latest"))[0]["Config"]["User"]
    assert user == "10001:10001"
