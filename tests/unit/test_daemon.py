"""What is told between one session with Kafka and the next."""

import asyncio
import gc
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from connectors.receipt import Receipt
from sidecar import daemon, garbage
from sidecar.daemon import Daemon
from sidecar.errors import FencedError, KafkaUnreachableError
from sidecar.observability.health import State
from sidecar.pending import PendingAnswer, PendingMessage, PendingQuery, id_text
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


class Held:
    """What a cycle holds."""


def test_cycles_are_collected_while_kafka_is_waited_for(sidecar: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop does not turn, and requests come meanwhile."""
    monkeypatch.setattr(garbage, "ENOUGH", 1_000)
    cycle: list[object] = []
    cycle.append(cycle)
    held = weakref.ref(kept := Held())
    cycle.append(kept)
    gc.disable()
    try:
        del cycle, kept
        made = [[] for _ in range(2_000)]
        assert not sidecar._is_stopping()
    finally:
        gc.enable()
    assert held() is None
    assert made


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


def test_what_is_pending_has_a_receipt_unless_its_id_is_no_text(sidecar: Daemon) -> None:
    """A receipt is text: that of the bytes would be that of another message, which is called as they are shown."""
    keys = [b"\xff\xfe", rb"\xff\xfe", b"", "é".encode()]
    waiting = [
        PendingMessage(id_text(key), "orders", deliver_ms=9, partition=0, offset=offset, act_ms=9)
        for offset, key in enumerate(keys)
    ]
    sidecar._loop = Answering(PendingAnswer(len(waiting), waiting))  # type: ignore[assignment]
    told = asyncio.run(answered(sidecar, PendingQuery()))["messages"]
    assert [each["id"] for each in told] == [r"\xff\xfe", r"\xff\xfe", "", "é"]
    assert [each["receipt"] and Receipt.decode(each["receipt"]).offset for each in told] == [None, 1, 2, 3]


class Answering:
    """A loop that has this one answer."""

    def __init__(self, answer: PendingAnswer) -> None:
        self._answer = answer

    def pending(self, _query: PendingQuery) -> Generator[None, None, tuple[PendingAnswer, list[int]]]:
        yield
        return self._answer, [0]


async def answered(sidecar: Daemon, query: PendingQuery) -> dict[str, Any]:
    asking = asyncio.ensure_future(sidecar._ask(query))
    while not asking.done():
        await asyncio.sleep(0)
        sidecar._questions.answer()
    return asking.result()
