"""Redrives that the API begins, where they cannot be carried out: what is told of them, and what they leave behind."""

import asyncio
import threading
import weakref
from typing import Any

import httpx
import pytest

from connectors.dead_letters import DeadLetters, Filter
from connectors.dead_letters.errors import NotAnsweredError
from connectors.testing import InMemoryKafka
from sidecar.front.app import make_api
from sidecar.front.kafka import FrontKafka
from sidecar.front.redrives import RUNNING_MAX, Job, Jobs, RedriveRequest, State
from sidecar.front.threads import Threads
from sidecar.settings import Settings
from sidecar.web.problems import Kind, ProblemError

NO_THREAD = "can't start new thread"


@pytest.fixture
def kafka() -> FrontKafka:
    """A group with a dead letter."""
    clients = InMemoryKafka()
    for topic in ("orders", "DLQ-billing"):
        clients.create_topic(topic, 1)
    producer = clients.producer({})
    producer.produce("DLQ-billing", b"v", headers=[("RETRY_TOPIC", b"orders"), ("UNIQ_KEY", b"a")])
    producer.flush(1)
    return FrontKafka(Settings(bootstrap_servers="in-memory"), clients)


@pytest.fixture
def starved(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the threads that the system does not give."""
    names, start = set[str](), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name in names:
            raise RuntimeError(NO_THREAD)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return names


def test_a_redrive_that_gets_no_thread_has_failed_and_keeps_none_from_the_next(
    kafka: FrontKafka, starved: set[str]
) -> None:
    async def main() -> None:
        transport = httpx.ASGITransport(make_api(Settings(), kafka))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
            starved.add("redrives")
            for _ in range(RUNNING_MAX + 1):
                told = (await client.post("/dead-letters/billing/redrive")).json()
                assert (told["state"], told["reason"]) == ("failed", NO_THREAD)
            starved.clear()
            told = (await client.post("/dead-letters/billing/redrive")).json()
            assert (told["state"], told["redriven"]) == ("done", 1)

    asyncio.run(main())


def test_a_call_that_gets_no_thread_gives_its_place_to_the_next(starved: set[str]) -> None:
    async def main() -> None:
        threads = Threads("calls", 1)
        starved.add("calls")
        for _ in range(2):
            with pytest.raises(RuntimeError, match=NO_THREAD):
                await threads.run(lambda: 1)
        starved.clear()
        assert await threads.run(lambda: 2) == 2

    asyncio.run(main())


def test_a_redrive_that_has_failed_holds_none_of_its_clients(
    kafka: FrontKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Producers:
        """With the threads and connections that each has."""

    held: list[weakref.ref[Producers]] = []

    def fail(*_: Any, **__: Any) -> None:
        producers = Producers()
        held.append(weakref.ref(producers))
        raise OSError("no")

    monkeypatch.setattr(DeadLetters, "redrive", fail)
    job = a_job("billing")
    job.run(kafka)
    assert (job.state, job.answer().reason, job.has_ended.is_set()) == (State.FAILED, "no", True)
    assert [one() for one in held] == [None]


@pytest.mark.parametrize(("is_dry", "kind"), [(False, "unknown-outcome"), (True, "unavailable")])
def test_a_redrive_that_ends_for_want_of_answers_does_not_say_that_nothing_was_done(
    kafka: FrontKafka, monkeypatch: pytest.MonkeyPatch, is_dry: bool, kind: str
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise NotAnsweredError("run it again, and it goes on where it stopped")

    monkeypatch.setattr(DeadLetters, "redrive", silent)

    async def main() -> None:
        transport = httpx.ASGITransport(make_api(Settings(), kafka))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
            answer = await client.post("/dead-letters/billing/redrive", json={"dry_run": is_dry})
            assert (answer.status_code, answer.json()["type"]) == (503, f"/api/v1/problems/{kind}")

    asyncio.run(main())


def test_no_redrive_begins_once_all_have_been_asked_to_stop() -> None:
    jobs = Jobs()
    first = a_job("billing")
    jobs.add(first)
    jobs.ask_to_stop()
    with pytest.raises(ProblemError) as caught:
        jobs.add(a_job("orders"))
    assert caught.value.kind is Kind.UNAVAILABLE
    assert (jobs.all(), first.is_to_stop.is_set()) == ([first], True)


def a_job(group: str) -> Job:
    return Job(group, RedriveRequest(), Filter())
