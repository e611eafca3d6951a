"""``timewheel roundtrip``: whether delivery is alive, from outside."""

import json

import pytest

from tests.support.command import timewheel
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess

pytestmark = pytest.mark.kafka


@pytest.mark.long
def test_a_message_by_a_level_and_one_by_the_wheel_come_back_or_not(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    topic = f"{prefix}roundtrip"
    where = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix, "--levels", "1s 2s 3s"]
    command = ["roundtrip", *where, "--topic", topic]
    sidecar.start()
    # The topic is made the first time, and what is in it already is not mistaken for an answer.
    for _ in range(2):
        ended = timewheel(*command, "--json")
        assert ended.returncode == 0, ended.stderr
        told = json.loads(ended.stdout)
        assert told["topic"] == topic
        assert {each["via"] for each in told["delivered"]} == {"level 1", "wheel"}
        assert all(0 <= each["lateness_ms"] < 5_000 for each in told["delivered"])
    sidecar.terminate()
    ended = timewheel(*command, "--timeout", "1s")
    assert ended.returncode == 1
    assert "nothing came back by level 1 and wheel within 1s of its time" in ended.stderr
