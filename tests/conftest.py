"""Fixtures: a real broker for the session, and names of its own for every test.

The broker is the one that TIMEWHEEL_TEST_BOOTSTRAP names, else one in a container where a Docker engine answers and has
the image, else the embedded one. Tests that kill the broker start an embedded one for themselves.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka
from tests.support.containers import has_kafka_image, kafka_container
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.tools import find_tool


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A running broker."""
    if named := os.environ.get("TIMEWHEEL_TEST_BOOTSTRAP"):
        yield Kafka(named)
        return
    if has_kafka_image():
        with kafka_container() as bootstrap_servers:
            yield Kafka(bootstrap_servers)
        return
    with EmbeddedKafka() as broker:
        yield Kafka(broker.bootstrap_servers)


@pytest.fixture
def prefix() -> str:
    """A topic prefix and group id that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}."


@pytest.fixture
def sidecar(kafka: Kafka, prefix: str, tmp_path: Path) -> Iterator[SidecarProcess]:
    """A sidecar with short levels, not yet started; killed at the end."""
    process = SidecarProcess(
        kafka.bootstrap_servers, tmp_path, topic_prefix=prefix, group_id=f"{prefix}timewheel", levels="1s 2s 3s"
    )
    try:
        yield process
    finally:
        process.__exit__(None, None, None)


@pytest.fixture
def tool(request: pytest.FixtureRequest) -> str:
    """The path of a program named by ``indirect`` parametrisation; skipped by name where it is missing, not in CI."""
    return find_tool(request.param)
