"""Schemathesis against a live sidecar: what the OpenAPI document describes is what is answered, and never a 5xx."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http_api import HttpApi
from tests.support.kafka import Headers, Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
TOKEN = "secret"


def fuzz(sidecar: SidecarProcess, directory: Path, *options: str) -> None:
    """Run it to its end; everything that it finds fails."""
    command = [
        *(str(Path(sys.executable).parent / "schemathesis"), "run"),
        f"http://{sidecar.http_address}/api/v1/openapi.json",
        *("--header", f"Authorization:Bearer {TOKEN}"),
        *("--checks", ",".join(CHECKS)),
        *("--exclude-path-regex", "^(/(healthz|readyz|metrics)?|/api/v1/events)$"),  # events go on for ever
        *("--seed", "1", "--request-timeout", "30", "--no-color", "--warnings", "off"),
        *options,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, timeout=400)
    assert ended.returncode == 0, ended.stdout[-8_000:] + ended.stderr[-2_000:]


@pytest.fixture
def fuzzed(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> SidecarProcess:
    """A sidecar with something to find in it."""
    origin = kafka.create_topic(f"{prefix}orders")
    dead = kafka.create_topic(f"{prefix}DLQ-billing")
    headers: Headers = [("RETRY_TOPIC", origin.encode()), ("RECONSUME_TIME", b"16")]
    kafka.produce([(dead, b"k", b"\xff", headers), (dead, None, None, [("a", None)])])
    sidecar.settings["http_token"] = TOKEN
    sidecar.start()
    api = HttpApi(sidecar, TOKEN)
    assert api.post("/messages", {"topic": origin, "value": "v", "delay": "1h"}, "k").status == 202
    return sidecar


def still_delivers(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    """Whatever has been asked of it."""
    api = HttpApi(sidecar, TOKEN)
    assert api.ask("PUT", "/switches", {"stop_enqueue": False, "stop_dequeue": False}).status == 200
    destination = kafka.create_topic(f"{prefix}after")
    assert api.post("/messages", {"topic": destination, "value": "after", "delay": "10ms"}).status == 202
    wait_until(lambda: len(kafka.read([destination], 1)) == 1, "it is delivered")
    assert not [event for event in sidecar.events() if event["level"] == "error"]


@pytest.mark.long
def test_examples_and_edge_cases_of_every_operation(
    kafka: Kafka, prefix: str, fuzzed: SidecarProcess, tmp_path: Path
) -> None:
    fuzz(fuzzed, tmp_path, "--phases", "examples,fuzzing", "--max-examples", "3")
    still_delivers(kafka, prefix, fuzzed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_anything(kafka: Kafka, prefix: str, fuzzed: SidecarProcess, tmp_path: Path) -> None:
    fuzz(fuzzed, tmp_path, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "60")
    still_delivers(kafka, prefix, fuzzed)
