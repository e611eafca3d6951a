"""Asks the processes that deliver no more than they can answer beside that."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

REST_MAX_S = 1.0


class Pace(Generic[T]):
    """One question at a time, with a rest after each, and one answer for all who ask the same.

    Who asks gets what was asked for after that: no answer is older than its question.

    Args:
        rest: how long, in multiples of the time that the answer took.
    """

    def __init__(self, rest: float) -> None:
        self._rest = rest
        self._rests_until_s = 0.0
        self._turn = asyncio.Lock()
        self._waiting: dict[Hashable, asyncio.Task[T]] = {}

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question.

        Args:
            key: the same for questions that have the same answer.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.create_task(self._ask(key, question))
        return await asyncio.shield(waiting)  # others wait for it, too

    async def _ask(self, key: Hashable, question: Callable[[], Awaitable[T]]) -> T:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rests_until_s - clock()))
            del self._waiting[key]
            began_s = clock()
            try:
                return await question()
            finally:
                self._rests_until_s = clock() + min(REST_MAX_S, self._rest * (clock() - began_s))
