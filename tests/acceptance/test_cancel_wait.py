"""``timewheel cancel --wait``: what became of cancels, as the sidecar that decided tells it."""

import json
from pathlib import Path

import pytest

from tests.support.command import Ended, timewheel, told, told_lines
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


class Scheduling:
    """The commands of one sidecar's user."""

    def __init__(self, kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
        self.options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix]
        self._sidecar = sidecar

    def send(self, topic: str, *arguments: str) -> str:
        return str(told("send", *self.options, "--topic", topic, *arguments, "v")["receipt"])

    def cancel(self, *arguments: str, stdin: str = "") -> Ended:
        address = ["--http-address", str(self._sidecar.http_address)]
        return timewheel("cancel", *self.options, *address, "--wait", *arguments, stdin=stdin)


@pytest.fixture
def scheduling(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> Scheduling:
    return Scheduling(kafka, prefix, sidecar)


@pytest.mark.long
def test_the_outcome_is_told_in_a_word_and_by_the_exit_code(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, scheduling: Scheduling
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    pending = scheduling.send(destination, "--key", "a", "--delay", "1h")
    gone = scheduling.send(destination, "--key", "b", "--delay", "1ms")
    kafka.read([destination], 1)
    ended = scheduling.cancel(pending)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "cancelled\n", "")
    ended = scheduling.cancel(gone)
    assert (ended.returncode, ended.stdout) == (1, "too_late\n")
    ended = scheduling.cancel(pending)
    assert (ended.returncode, ended.stdout) == (1, "unknown\n")


def test_many_are_cancelled_at_once_as_send_has_printed_them(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, scheduling: Scheduling
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings["partitions"] = 3
    sidecar.start()
    lines = [{"topic": destination, "key": str(n), "value": "v", "delay": "1h"} for n in range(200)]
    sent = timewheel("send", *scheduling.options, "--file", "-", stdin="\n".join(map(json.dumps, lines)))
    assert sent.returncode == 0, sent.stderr
    assert len({receipt["partition"] for receipt in told_lines(sent.stdout)}) == 3
    ended = scheduling.cancel("--json", "-", stdin=sent.stdout)
    assert ended.returncode == 0, ended.stderr
    outcomes = told_lines(ended.stdout)
    assert [outcome["id"] for outcome in outcomes] == [receipt["id"] for receipt in told_lines(sent.stdout)]
    assert {outcome["outcome"] for outcome in outcomes} == {"cancelled"}


@pytest.mark.long
def test_without_a_sidecar_nothing_is_decided_in_time(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, scheduling: Scheduling
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    receipt = scheduling.send(destination, "--delay", "1h")
    sidecar.kill()
    ended = scheduling.cancel(receipt, "--timeout", "1s")
    assert (ended.returncode, ended.stdout) == (1, "undecided\n")
    assert "no sidecar has decided yet on 1 of 1 cancels: no sidecar answers at" in ended.stderr


@pytest.mark.long
def test_a_sidecar_without_the_partition_says_so(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, scheduling: Scheduling, tmp_path: Path
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings["partitions"] = 2
    sidecar.start()
    (tmp_path / "other").mkdir()
    settings = {
        name: value for name, value in sidecar.settings.items() if name not in ("bootstrap_servers", "data_dir")
    }
    wheel = f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"

    def partitions(process: SidecarProcess) -> list[int]:
        answer = json.loads(process.get("/api/v1/cancels/99/0")[1])
        assert (answer["reason"], answer["topic"]) == ("not_assigned", wheel)
        return list(answer["partitions"])

    with SidecarProcess(kafka.bootstrap_servers, tmp_path / "other", **settings) as other:
        wait_until(lambda: len(partitions(sidecar)) == 1 and len(partitions(other)) == 1, "each has one partition")
        (mine,), (theirs,) = partitions(sidecar), partitions(other)
        keys = iter(map(str, range(100)))
        receipt = json.dumps({})
        while json.loads(receipt).get("partition") != theirs:
            sent = timewheel(
                "send", *scheduling.options, "--topic", destination, "--key", next(keys), "--delay", "1h", "v"
            )
            receipt = sent.stdout
        ended = scheduling.cancel("-", stdin=receipt)
        assert (ended.returncode, ended.stdout) == (1, "undecided\n")
        assert f"this sidecar does not read {wheel}-{theirs}; it has the wheel partitions {mine}" in ended.stderr
        assert "--http-address" in ended.stderr
        asked = json.loads(receipt)["receipt"]
        elsewhere = ["--http-address", str(other.http_address)]
        ended = timewheel("cancel", *scheduling.options, *elsewhere, "--wait", asked)
        assert ended.stdout == "unknown\n", ended.stderr  # the first cancel has taken it
