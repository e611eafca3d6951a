"""Asks the processes that deliver no more than they can answer beside that."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

REST_MAX_S = 1.0


@dataclass
class _Asked(Generic[T]):
    """A question whose turn has not come."""

    task: asyncio.Task[T]
    waiters: int = 0


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
        self._waiting: dict[Hashable, _Asked[T]] = {}

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question.

        Args:
            key: the same for questions that have the same answer.
        """
        asked = self._waiting.get(key)
        if asked is None:
            asked = self._waiting[key] = _Asked(asyncio.create_task(self._ask(key, question)))
        asked.waiters += 1
        try:
            return await asyncio.shield(asked.task)  # others wait for it, too
        finally:
            asked.waiters -= 1
            if not asked.waiters and self._waiting.get(key) is asked:  # all have given up before its turn has come
                del self._waiting[key]
                asked.task.cancel()

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
