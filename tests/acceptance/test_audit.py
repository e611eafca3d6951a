"""``timewheel audit``: a fault of every kind, planted behind a real sidecar's back on a real broker, is found."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command import timewheel
from tests.support.kafka import Kafka
from tests.support.planted import Planted, planted_faults
from tests.support.waiting import wait_until

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SPARK_S = 400.0
SMALL = ["--master", "local[2]"]
# For a few hundred records compiling the queries takes longer than all the rest.
for option in ("shuffle.partitions=2", "codegen.wholeStage=false", "codegen.factoryMode=NO_CODEGEN"):
    SMALL += ["--spark-conf", f"spark.sql.{option}"]


@pytest.fixture(scope="module")
def planted(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    with planted_faults(kafka, "audited.", tmp_path_factory.mktemp("sidecar")) as done:
        yield done


def test_a_batch_names_the_planted_faults_and_no_others(planted: Planted, tmp_path: Path) -> None:
    ended = timewheel(
        "audit", "batch", *planted.arguments, *planted.rules, *SMALL, "--out", str(tmp_path), timeout_s=SPARK_S
    )
    assert ended.stdout, ended.stderr
    assert ended.returncode == 1, ended.stderr
    printed = json.loads(ended.stdout)
    planted.assert_found(printed)
    where = {one["id"]: (one["topic"], one["partition"], one["offset"]) for one in printed["faulty"]}
    assert where["lost"] == (f"{planted.prefix}SCHEDULE_TOPIC_XXXX-3", 0, 0)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdicts"] == printed["verdicts"]
    rolled = {row["id"]: row["rolls"] for row in report["rolled"]["rows"]}
    assert rolled["rolled"] == 2
    assert [row["group"] for row in report["retries_by_group"]["rows"]] == ["billing"]
    assert (tmp_path / "report.prom").exists()
    assert "as_of" in printed
    assert "judging" in ended.stderr


@pytest.mark.slow
def test_a_stream_that_was_killed_again_and_again_finds_the_same(planted: Planted, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    stream = ["audit", "stream", *planted.arguments, *SMALL, "--facts", str(facts)]
    stream += ["--checkpoint", str(tmp_path / "checkpoint"), "--batch-records", "25"]
    for commits in (2, 4, 7):
        with streaming(stream) as process:
            wait_until(lambda commits=commits: len(commits_of(facts)) >= commits, f"{commits} commits", SPARK_S)
            # Spark runs in a process of its own: a machine that goes down takes both.
            os.killpg(process.pid, signal.SIGKILL)
    ended = timewheel(*stream, "--available-now", timeout_s=SPARK_S)
    assert ended.returncode == 0, ended.stderr
    batch = ["audit", "batch", *planted.arguments, *planted.rules, *SMALL]
    ended = timewheel(*batch, "--facts", str(facts), "--out", str(tmp_path / "out"), timeout_s=SPARK_S)
    assert ended.stdout, ended.stderr
    assert ended.returncode == 1, ended.stderr
    planted.assert_found(json.loads(ended.stdout))


@pytest.mark.slow
def test_a_stream_tells_how_far_it_has_read_where_nothing_is_written_and_ends_on_sigterm(
    planted: Planted, tmp_path: Path
) -> None:
    facts = tmp_path / "facts"
    # The table's log then tells what kinds of facts a file has.
    log = ["--spark-conf", "spark.databricks.delta.stats.collect=true"]
    stream = ["audit", "stream", *planted.arguments, *SMALL, *log, "--facts", str(facts)]
    stream += ["--checkpoint", str(tmp_path / "checkpoint")]
    assert timewheel(*stream, "--available-now", timeout_s=SPARK_S).returncode == 0
    read = len(commits_of(facts))
    with streaming(stream) as process:
        wait_until(lambda: len(commits_of(facts)) >= read + 2, "two marks", SPARK_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    added = [action["add"] for path in commits_of(facts)[read:] for action in actions_of(path) if "add" in action]
    assert {json.loads(one["stats"])["minValues"]["kind"] for one in added} == {"read_until"}


@pytest.mark.parametrize(
    ("step", "number"),
    [("starting Spark", signal.SIGTERM), ("reading", signal.SIGTERM), ("reading", signal.SIGINT)],
    ids=["starting", "reading", "Ctrl-C"],
)
def test_a_batch_that_is_told_to_end_says_so_in_a_line_and_leaves_no_java(
    planted: Planted, tmp_path: Path, step: str, number: int
) -> None:
    command = [sys.executable, "-m", "sidecar", "audit", "batch", *planted.arguments, *SMALL, "--out", str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, process_group=0, **pipes) as process:
        assert process.stderr is not None
        try:
            before = []
            while not before or f"timewheel: {step}" not in before[-1]:
                before.append(process.stderr.readline())
                assert before[-1], before
            started = psutil.Process(process.pid)
            wait_until(started.children, "Java")
            java = started.children(recursive=True)
            os.killpg(process.pid, number)
            told = process.stderr.read()  # to its end: Java has the same stderr
            assert process.wait(60) == 128 + number
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert f"timewheel: ended by {signal.Signals(number).name} before it was done; run it again" in told
    assert "Traceback" not in told
    assert "\tat " not in told
    assert not [one for one in java if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def streaming(stream: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """``audit stream``, for good, in a process group of its own; killed at the end."""
    command = [sys.executable, "-m", "sidecar", *stream, "--interval", "200ms"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, process_group=0)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def commits_of(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def actions_of(commit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.read_text().splitlines()]


def test_without_kafka_the_exit_code_is_3(tmp_path: Path) -> None:
    ended = timewheel("audit", "batch", "--bootstrap-servers", "127.0.0.1:1", "--out", str(tmp_path), timeout_s=90)
    assert ended.returncode == 3
    assert "127.0.0.1:1" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--from", "2030-01-31T09:00:00"], "--from '2030-01-31T09:00:00' has no time zone"),
        (["--as-of", "tomorrow"], "--as-of 'tomorrow' is not a time"),
        (["--grace", "5"], "--grace: '5' is not a duration"),
        (["--from", "2030-01-02T00:00:00Z", "--to", "2030-01-01T00:00:00Z"], "is not before --to"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_started(arguments: list[str], named: str) -> None:
    ended = timewheel("audit", "batch", "--out", "unused", *arguments)
    assert ended.returncode == 2
    assert named in ended.stderr
