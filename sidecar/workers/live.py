"""What a sidecar of several processes shows of itself: each is asked for its part, and one answer is made of them."""

import asyncio
import urllib.parse
from collections.abc import Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from sidecar.clock import Clock
from sidecar.dispatch.wheel.time_counts import TimeCounts, Window
from sidecar.kafka.backlog import Backlog
from sidecar.observability.history import Point
from sidecar.settings import Settings
from sidecar.status import Part, present, present_history, silent_part
from sidecar.web.live import topics_by_queue, wheel_answer
from sidecar.web.problems import Kind, ProblemError
from sidecar.workers.merge import SILENT, WorkerAddress, name_of
from sidecar.workers.pace import Pace

STATUS_REST = 4.0
"""What is told without asking a loop gets a fifth of a process's time at most, however many ask."""
WHEEL_REST = 1.0

PART_TIMEOUT_S = 2.0
WHEEL_TIMEOUT_S = 6.0

T = TypeVar("T")


class _Wheel(msgspec.Struct):
    total: int
    overdue: int
    counts: list[int]
    partitions: list[int]


class SeveralProcesses:
    """Implements `web.live.Live`.

    Args:
        processes: their addresses change as they are started anew.
    """

    def __init__(self, settings: Settings, processes: Sequence[WorkerAddress], clock: Clock, backlog: Backlog) -> None:
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._backlog = backlog
        self._topics = topics_by_queue(settings)
        self._status_pace = Pace[dict[str, Any]](STATUS_REST)
        self._history_pace = Pace[dict[str, Any]](STATUS_REST)
        self._wheel_pace = Pace[dict[str, Any]](WHEEL_REST)
        token = settings.http_token
        self._client = httpx.AsyncClient(
            trust_env=False,  # a proxy would not find our loopback address
            headers={"Authorization": f"Bearer {token.get_secret_value()}"} if token is not None else {},
        )

    async def status(self) -> dict[str, Any]:
        return await self._status_pace.ask("status", self._status)

    async def history(self) -> dict[str, Any]:
        return await self._history_pace.ask("history", self._history)

    async def wheel(self, window: Window) -> dict[str, Any]:
        return await self._wheel_pace.ask(window, lambda: self._wheel(window))

    async def _status(self) -> dict[str, Any]:
        asking = asyncio.create_task(self._backlog.known())
        parts = await asyncio.gather(*map(self._part, self._processes))
        backlog = await asking
        return present(parts, self._settings.levels, self._topics, backlog)

    async def _history(self) -> dict[str, Any]:
        asked = (self._ask(one, "/api/v1/history/part", PART_TIMEOUT_S, list[Point]) for one in self._processes)
        return present_history([points for points in await asyncio.gather(*asked) if points is not None])

    async def _wheel(self, window: Window) -> dict[str, Any]:
        query = {"from": window.from_ms, "to": window.until_ms, "bucket": window.bucket_ms}
        path = f"/api/v1/wheel?{urllib.parse.urlencode(query)}"
        answers = await asyncio.gather(*(self._ask(one, path, WHEEL_TIMEOUT_S, _Wheel) for one in self._processes))
        told = [answer for answer in answers if answer is not None]
        if len(told) < len(answers):  # nothing by halves
            silent = next(one.number for one, answer in zip(self._processes, answers, strict=True) if answer is None)
            raise ProblemError(Kind.UNAVAILABLE, f"{name_of(silent, len(self._processes))} {SILENT}; ask again")
        counts = TimeCounts.added((TimeCounts(one.total, one.overdue, one.counts) for one in told), window.buckets)
        return wheel_answer(window, counts, sorted(number for one in told for number in one.partitions))

    async def _part(self, process: WorkerAddress) -> Part:
        part = await self._ask(process, "/api/v1/status/part", PART_TIMEOUT_S, Part)
        number = process.number if len(self._processes) > 1 else None
        if part is None:
            return silent_part(number, SILENT, self._clock.now_ms())
        return msgspec.structs.replace(part, worker=number)

    async def _ask(self, process: WorkerAddress, path: str, timeout_s: float, kind: type[T]) -> T | None:
        """None where it does not answer."""
        address = process.address
        if address is None:
            return None
        try:
            answer = await self._client.get(f"http://{address}{path}", timeout=timeout_s)
            return msgspec.json.decode(answer.raise_for_status().content, type=kind)
        except (httpx.HTTPError, msgspec.MsgspecError):
            return None
