"""An application with a `RetryingConsumer` is killed in the middle of its work: nothing is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from connectors import TopicNames
from tests.support.consuming_app import fails
from tests.support.kafka import Kafka
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

RECORDS = 10_000


class App:
    """The application as a process of its own."""

    def __init__(self, kafka: Kafka, prefix: str, directory: Path, *mode: str) -> None:
        self._notes = directory / "handled"
        self._arguments = [kafka.bootstrap_servers, prefix, str(self._notes), *mode]
        self._log = directory / "app.log"

    def start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.support.consuming_app", *self._arguments], stdout=log, stderr=log
            )

    @property
    def handled(self) -> list[bytes]:
        """What the listener has noted; a line that was cut off by a kill does not count."""
        text = self._notes.read_bytes() if self._notes.exists() else b""
        return text[: text.rfind(b"\n") + 1].split()


@pytest.mark.long
@pytest.mark.parametrize(("kills", "mode"), [(3, ()), (1, ("orderly",))], ids=["concurrently", "orderly"])
def test_no_record_is_lost_through_kills(
    kafka: Kafka, prefix: str, tmp_path: Path, kills: int, mode: tuple[str, ...]
) -> None:
    names, group = TopicNames(prefix), f"{prefix}g"
    topic = kafka.create_topic(f"{prefix}payments", 3)
    kafka.create_topic(names.send_back)
    kafka.create_topic(names.retry(group))
    values = [b"%d" % number for number in range(RECORDS)]
    kafka.produce((topic, value, value, []) for value in values)
    app = App(kafka, prefix, tmp_path, *mode)
    for kill in range(1, kills + 1):
        process = app.start()
        enough = kill * RECORDS // (kills + 1)
        try:
            wait_until(lambda enough=enough: len(app.handled) >= enough, f"{enough} have been handled", 60)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(10)
        assert kafka.lag(group, topic) > 0, "it was killed after its work"
    process = app.start()
    try:
        wait_until(lambda: kafka.lag(group, topic) == 0, "everything is committed", 90)
    finally:
        process.terminate()
        assert process.wait(30) == 0
    handled = app.handled
    assert set(handled) == set(values)
    failed = {value for value in values if fails(value)}
    sent_back = [record.value or b"" for record in kafka.read([names.send_back], len(failed))]
    assert set(sent_back) == failed
    # Seen again is at most what was in flight, and what was done within a second and not yet committed.
    assert len(handled) < 2 * RECORDS


def test_a_termination_repeats_nothing(kafka: Kafka, prefix: str, tmp_path: Path) -> None:
    names, group = TopicNames(prefix), f"{prefix}g"
    topic = kafka.create_topic(f"{prefix}payments", 3)
    kafka.create_topic(names.send_back)
    kafka.create_topic(names.retry(group))
    kafka.produce((topic, b"%d" % number, b"%d" % (number * 10 + 1), []) for number in range(RECORDS))
    app = App(kafka, prefix, tmp_path)
    process = app.start()
    wait_until(lambda: len(app.handled) >= RECORDS // 3, "a third has been handled", 60)
    process.terminate()
    assert process.wait(30) == 0
    assert len(app.handled) < RECORDS, "it was terminated after its work"
    process = app.start()
    wait_until(lambda: kafka.lag(group, topic) == 0, "everything is committed", 60)
    process.terminate()
    assert process.wait(30) == 0
    assert len(app.handled) == len(set(app.handled)) == RECORDS
