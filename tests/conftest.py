"""Fixtures: a real broker for the session, and names of its own for every test.

The broker is the one that TIMEWHEEL_TEST_BOOTSTRAP names, else one in a container where a Docker engine answers and has
the image, else the embedded one. Tests that kill the broker start an embedded one for themselves.
"""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from playwright.sync_api import Browser

from connectors.embedded import EmbeddedKafka
from connectors.event_log import begin_anew
from tests.support.browser import browser_path, running_browser
from tests.support.containers import has_kafka_image, kafka_container
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.tools import find_tool, missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A shell that puts the run into the background has it ignored, and a child inherits that: its Ctrl-C would go unheard.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("without deadline", deadline=None)  # how long an example takes tells of the machine
settings.load_profile("without deadline")


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


@pytest.fixture(autouse=True)
def _log_lines_of_their_own() -> None:
    """What one test has logged does not count against the lines of the next."""
    begin_anew()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser; skipped by name where there is none, not in CI. Of a module: it keeps asyncio to itself."""
    program = browser_path()
    if program is None:
        missing("chromium")
    with running_browser(program) as running:
        yield running


@pytest.fixture
def tool(request: pytest.FixtureRequest) -> str:
    """The path of a program named by ``indirect`` parametrisation; skipped by name where it is missing, not in CI."""
    return find_tool(request.param)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A small Spark of this process, with the audit's jars."""
    from spark.session import spark_session

    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
    }
    session = spark_session("timewheel-tests", master="local[2]", conf=conf)
    yield session
    session.stop()
