"""What the page asks for, of one process and of several."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from sidecar.clock import SystemClock
from sidecar.dispatch.wheel.time_counts import BUCKETS_MAX, TimeCounts, Window
from sidecar.kafka.backlog import Backlog, PlaceBacklog
from sidecar.observability.health import Health
from sidecar.observability.history import History
from sidecar.observability.metrics import Metrics
from sidecar.settings import Settings
from sidecar.status import Reporter
from sidecar.switches import Switches
from sidecar.told import Told
from sidecar.web.listening import listen
from sidecar.web.live import OneProcess, live_router, part_router
from sidecar.web.problems import add_problems
from sidecar.web.server import WebServer
from sidecar.workers.live import SeveralProcesses


class NoBacklog(Backlog):
    async def known(self) -> list[PlaceBacklog] | None:
        return None


@dataclass
class Process:
    """One that delivers, and answers on a socket; silent after `close`."""

    number: int
    settings: Settings

    def __post_init__(self) -> None:
        self.health, self.asked = Health(SystemClock()), list[Window]()
        self.health.assigned, self.health.places = True, frozenset([(self.settings.topic_names.wheel, self.number)])
        metrics, clock = Metrics("1.2.3"), SystemClock()
        history = History(metrics, clock)
        reporter = Reporter("1.2.3", "g", self.health, metrics, Switches(), Told(), history)
        app = FastAPI()
        add_problems(app)
        app.include_router(part_router(OneProcess(self.settings, clock, reporter, history, self.ask)))
        app.openapi()  # makes its routes here: made in two threads at once, one undoes the other's filter of warnings
        self.server = WebServer(lambda: app, listen("127.0.0.1", 0))
        self.address: str | None = self.server.address
        self.server.__enter__()

    async def ask(self, window: Window) -> tuple[TimeCounts, list[int]]:
        self.asked.append(window)
        return TimeCounts(10, 1, [self.number] * window.buckets), [self.number]

    def close(self) -> None:
        self.server.__exit__(None, None, None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, levels="1s 2s")  # type: ignore[arg-type]


@asynccontextmanager
async def front(settings: Settings, *processes: Process) -> AsyncIterator[httpx.AsyncClient]:
    """Whoever faces the world."""
    clock = SystemClock()
    app = FastAPI()
    add_problems(app)
    app.include_router(live_router(SeveralProcesses(settings, processes, clock, NoBacklog(settings, clock))))
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar") as client:
            yield client
    finally:
        for process in processes:
            process.close()


def test_several_processes_are_shown_as_one(settings: Settings) -> None:
    async def run() -> None:
        async with front(settings, Process(1, settings), Process(2, settings)) as client:
            status = (await client.get("/api/v1/status")).json()
            assert (status["state"], status["partitions"]["assigned"], status["version"]) == ("healthy", 2, "1.2.3")
            history = (await client.get("/api/v1/history")).json()
            assert (history["points"], history["hour"]["deliveries"]) == ([], 0)
            wheel = (await client.get("/api/v1/wheel?from=0&to=30&bucket=10")).json()
            assert (wheel["counts"], wheel["total"], wheel["overdue"]) == ([3, 3, 3], 20, 2)
            assert wheel["partitions"] == [1, 2]

    asyncio.run(run())


def test_the_silence_of_one_is_told_and_no_half_of_the_wheel_is(settings: Settings) -> None:
    async def run() -> None:
        one, other = Process(1, settings), Process(2, settings)
        async with front(settings, one, other) as client:
            other.address = None
            status = (await client.get("/api/v1/status")).json()
            assert (status["state"], status["ready"]) == ("starting", False)
            assert status["words"].startswith("worker 2: does not answer")
            wheel = await client.get("/api/v1/wheel?from=0&to=30&bucket=10")
            assert wheel.status_code == 503
            assert "worker 2" in wheel.json()["detail"]

    asyncio.run(run())


def test_many_who_ask_the_same_ask_once(settings: Settings) -> None:
    async def run() -> None:
        process = Process(1, settings)
        async with front(settings, process) as client:
            answers = await asyncio.gather(*(client.get("/api/v1/wheel?from=0&to=30&bucket=10") for _ in range(50)))
            assert {answer.status_code for answer in answers} == {200}
            assert len(process.asked) <= 2

    asyncio.run(run())


@pytest.mark.parametrize(
    "query",
    [
        "from=0&to=10",
        "from=10&to=10&bucket=1",
        "from=11&to=10&bucket=1",
        f"from=0&to={BUCKETS_MAX + 1}&bucket=1",
        "from=-1&to=10&bucket=1",
        "from=0&to=10&bucket=0",
        f"from=0&to={2**60}&bucket=1",
        "from=a&to=10&bucket=1",
    ],
)
def test_a_window_that_makes_no_sense_reaches_nobody(settings: Settings, query: str) -> None:
    async def run() -> Any:
        process = Process(1, settings)
        async with front(settings, process) as client:
            answer = await client.get(f"/api/v1/wheel?{query}")
        assert process.asked == []
        return answer

    answer = asyncio.run(run())
    assert answer.status_code == 422
    assert json.loads(answer.content)["title"]
