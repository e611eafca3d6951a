"""Server-sent events: computed once for all, never waiting for anybody."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Message

from sidecar.web import events as events_module
from sidecar.web.events import BEGIN, HEARTBEAT, Events, EventStream
from sidecar.web.problems import ProblemError

TICK_S = 0.01


class Counted:
    """A status that counts how often it was made."""

    def __init__(self) -> None:
        self.times = 0
        self.fails = False

    async def __call__(self) -> dict[str, Any]:
        self.times += 1
        if self.fails:
            raise ValueError("nobody answers")
        return {"number": self.times}


async def next_number(stream: AsyncIterator[bytes]) -> int:
    while not (event := await anext(stream)).startswith(b"event: status\ndata: "):
        pass
    assert event.endswith(b"\n\n")
    number: int = json.loads(event.removeprefix(b"event: status\ndata: "))["number"]
    return number


def test_one_computation_serves_all_listeners() -> None:
    async def run() -> None:
        compute = Counted()
        events = Events(compute, every_s=TICK_S)
        streams = [events.listen() for _ in range(10)]
        told = [[await next_number(stream) for stream in streams] for _ in range(5)]
        assert compute.times <= told[-1][-1] + 1
        assert [len(set(numbers)) for numbers in told] == [1] * 5

    asyncio.run(run())


def test_nobody_listens_and_nothing_is_computed() -> None:
    async def run() -> None:
        compute = Counted()
        events = Events(compute, every_s=TICK_S)
        stream = events.listen()
        await next_number(stream)
        stream.close()
        assert events.listeners == 0
        for _ in range(3):
            await asyncio.sleep(TICK_S)
        before = compute.times
        for _ in range(10):
            await asyncio.sleep(TICK_S)
        assert compute.times == before
        assert await next_number(events.listen()) == before + 1, "the next listener starts it again"

    asyncio.run(run())


def test_a_slow_listener_misses_events_and_gets_the_newest() -> None:
    async def run() -> None:
        events = Events(Counted(), every_s=TICK_S)
        slow, quick = events.listen(), events.listen()
        assert await anext(slow) == BEGIN
        first = await next_number(slow)
        for _ in range(20):
            last = await next_number(quick)
        assert await next_number(slow) >= last > first + 10

    asyncio.run(run())


def test_there_is_a_most_of_listeners() -> None:
    async def run() -> None:
        events = Events(Counted(), every_s=TICK_S, listeners_max=2)
        streams = [events.listen(), events.listen()]
        with pytest.raises(ProblemError, match="2 listeners are the most"):
            events.listen()
        await next_number(streams[0])
        streams[0].close()
        await next_number(events.listen())

    asyncio.run(run())


def test_a_status_that_cannot_be_made_is_a_heartbeat_and_the_next_is_told() -> None:
    async def run() -> None:
        compute = Counted()
        compute.fails = True
        events = Events(compute, every_s=TICK_S)
        stream = events.listen()
        assert await anext(stream) == BEGIN
        assert await anext(stream) == HEARTBEAT
        compute.fails = False
        assert await next_number(stream) > 1

    asyncio.run(run())


def test_a_stop_ends_all_streams_at_once_from_another_thread() -> None:
    async def run() -> None:
        events = Events(Counted(), every_s=3_600)
        streams = [events.listen() for _ in range(3)]
        for stream in streams:
            await next_number(stream)
        await asyncio.to_thread(events.close)
        async with asyncio.timeout(5):
            for stream in streams:
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
        with pytest.raises(ProblemError):
            events.listen()

    asyncio.run(run())


def test_a_stop_that_comes_while_the_status_is_computed_ends_the_streams_all_the_same() -> None:
    class Stopping(Counted):
        async def __call__(self) -> dict[str, Any]:
            events.close()
            await asyncio.sleep(0)  # the end is told
            return await super().__call__()

    async def run() -> list[bytes]:
        async with asyncio.timeout(5):
            return [event async for event in events.listen()]

    events = Events(Stopping(), every_s=3_600)
    assert asyncio.run(run()) == [BEGIN]


def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "SEND_TIMEOUT_S", 0.05)

    async def run() -> None:
        events = Events(Counted(), every_s=TICK_S)
        sent: list[Any] = []

        async def stalled(message: Any) -> None:
            sent.append(message)
            if len(sent) > 2:
                await asyncio.Event().wait()

        async with asyncio.timeout(5):
            await EventStream(events.listen())({"type": "http"}, never, stalled)
        assert events.listeners == 0

    asyncio.run(run())


def test_a_client_that_has_gone_before_it_is_answered_is_no_listener() -> None:
    async def run() -> None:
        events = Events(Counted(), every_s=TICK_S)

        async def gone() -> Message:
            await asyncio.sleep(TICK_S)
            return {"type": "http.disconnect"}

        async def stalled(_message: Message) -> None:
            await asyncio.Event().wait()  # it has not read the answer before

        async with asyncio.timeout(5):
            await EventStream(events.listen())({"type": "http"}, gone, stalled)
        assert events.listeners == 0

    asyncio.run(run())


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError
