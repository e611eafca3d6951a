"""What the page reads: ``/api/v1/status``, ``/api/v1/history`` and ``/api/v1/wheel``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import APIRouter, Query, Response

from sidecar.clock import Clock
from sidecar.dispatch.wheel.time_counts import BUCKETS_MAX, TimeCounts, Window
from sidecar.observability.history import History, Point
from sidecar.settings import Settings
from sidecar.status import Part, Reporter
from sidecar.store.timer_store import quota_of
from sidecar.web.problems import Kind, ProblemError, described

ANSWER_TIMEOUT_S = 5.0
"""How long the loop has for an answer."""

AskWheel = Callable[[Window], Awaitable[tuple[TimeCounts, list[int]]]]
"""Asks the loop what waits when; tells the wheel partitions that it has, too."""


class Live(Protocol):
    """What a sidecar shows of itself, be it one process or several."""

    async def status(self) -> dict[str, Any]:
        """See `status.present`."""

    async def history(self) -> dict[str, Any]:
        """See `status.present_history`."""

    async def wheel(self, window: Window) -> dict[str, Any]:
        """What waits on the wheel, by when it is acted on.

        Raises:
            ProblemError: the loop does not answer.
        """


class OneProcess:
    """A process that delivers: its part of what is shown."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        reporter: Reporter,
        history: History,
        ask_wheel: AskWheel,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._reporter = reporter
        self._history = history
        self._ask_wheel = ask_wheel
        self._one_at_a_time = asyncio.Lock()

    def part(self) -> Part:
        """What this process has to tell."""
        settings = self._settings
        quota_bytes = quota_of(settings.disk_quota_bytes or None, settings.slots_total) or 0
        return self._reporter.part(settings.topic_names.wheel, quota_bytes, self._clock.now_ms())

    def points(self) -> list[Point]:
        """The last hour."""
        return self._history.points

    async def wheel(self, window: Window) -> dict[str, Any]:
        """See `Live.wheel`."""
        # One after the other: however many ask, the loop counts one of them between two of its turns.
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._one_at_a_time:
                counts, partitions = await self._ask_wheel(window)
        except TimeoutError:
            raise ProblemError(Kind.UNAVAILABLE, "the loop is busy, or Kafka is away; ask again") from None
        return wheel_answer(window, counts, partitions)


def topics_by_queue(settings: Settings) -> dict[str, str]:
    """The schedule topics, in the order in which they are shown."""
    names = settings.topic_names
    levels = {str(level): names.level(level) for level in settings.levels}
    return {**levels, "wheel": names.wheel, "sendback": names.send_back}


def wheel_answer(window: Window, counts: TimeCounts, partitions: list[int]) -> dict[str, Any]:
    """As HTTP tells it."""
    return {
        "from_ms": window.from_ms,
        "to_ms": window.until_ms,
        "bucket_ms": window.bucket_ms,
        **counts._asdict(),
        "partitions": partitions,
    }


def live_router(live: Live) -> APIRouter:
    """For whoever shows a sidecar."""
    router = APIRouter()

    @router.get("/api/v1/status", summary="How the sidecar is, what waits where, and how late deliveries are")
    async def status() -> Response:
        return _json(await live.status())

    @router.get("/api/v1/history", summary="Rates and lateness of the last hour, in points of five seconds")
    async def history() -> Response:
        return _json(await live.history())

    _add_wheel(router, live.wheel)
    return router


def part_router(live: OneProcess) -> APIRouter:
    """For the process that faces the world, which makes one answer of all parts."""
    router = APIRouter(include_in_schema=False)

    @router.get("/api/v1/status/part")
    async def part() -> Response:
        return _json(live.part())

    @router.get("/api/v1/history/part")
    async def points() -> Response:
        return _json(live.points())

    _add_wheel(router, live.wheel)
    return router


def _add_wheel(router: APIRouter, answer: Callable[[Window], Awaitable[dict[str, Any]]]) -> None:
    @router.get(
        "/api/v1/wheel",
        summary="How many messages on the wheel are acted on when",
        responses=described(Kind.INVALID, Kind.UNAVAILABLE),
    )
    async def wheel(
        from_ms: Annotated[int, Query(alias="from", ge=0, lt=2**53, description="Epoch ms.")],
        until_ms: Annotated[int, Query(alias="to", ge=0, lt=2**53, description="Epoch ms, excluded.")],
        bucket_ms: Annotated[int, Query(alias="bucket", ge=1, lt=2**40, description="How long a stretch is, in ms.")],
    ) -> Response:
        window = Window(from_ms, until_ms, bucket_ms)
        if not 0 < window.buckets <= BUCKETS_MAX:
            told = f"makes {max(0, window.buckets)} stretches of 'from' to 'to'; ask for 1 to {BUCKETS_MAX}"
            raise ProblemError.of_fields([("bucket", told)])
        return _json(await answer(window))


def _json(told: Any) -> Response:
    return Response(msgspec.json.encode(told), media_type="application/json")
