"""What is told between one session with Kafka and the next."""

from pathlib import Path

import pytest

from sidecar import daemon
from sidecar.daemon import Daemon
from sidecar.errors import FencedError, KafkaUnreachableError
from sidecar.health import State
from sidecar.settings import Settings


@pytest.fixture
def sidecar(tmp_path: Path) -> Daemon:
    return Daemon(Settings(data_dir=tmp_path, instance_id="twin"))


def connection_fails_of(error: Exception, sidecar: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise error

    monkeypatch.setattr(daemon, "connect", connect)
    with pytest.raises(type(error)):
        sidecar._run_session()


def test_what_kafka_does_not_answer_is_told(sidecar: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    connection_fails_of(KafkaUnreachableError("the logs' offsets are not to be had: timed out"), sidecar, monkeypatch)
    verdict = sidecar._health.verdict()
    assert (verdict.state, verdict.words) == (State.STARTING, "the logs' offsets are not to be had: timed out")
    assert sidecar._metrics.client_restarts._value.get() == 1


def test_ids_that_are_taken_twice_make_it_look_for_another_process(
    sidecar: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = FencedError("commit_transaction: fenced")
    connection_fails_of(fenced, sidecar, monkeypatch)
    assert sidecar._advice("nothing") == "nothing"
    connection_fails_of(fenced, sidecar, monkeypatch)
    assert "look for a second sidecar" in sidecar._advice("nothing")
    assert "'twin'" in sidecar._advice("nothing")
