"""What is pending: asked for by web threads, answered by the loop, which owns the store, between two turns."""

import queue
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple

LIMIT_MAX = 10_000
LIMIT_DEFAULT = 100


class PendingQuery(NamedTuple):
    """Which messages; times are when they are acted on, in ms, ``until_ms`` excluded."""

    id: str | None = None
    topic: str | None = None
    from_ms: int = 0
    until_ms: int = 2**62
    limit: int = LIMIT_DEFAULT

    def means(self, message: "PendingMessage") -> bool:
        """Whether a message has the id and the topic that are asked for."""
        return self.id in (None, message.id) and self.topic in (None, message.topic)


class PendingMessage(NamedTuple):
    """A message that waits; ``partition`` and ``offset`` are those of its scheduled record."""

    id: str
    topic: str
    deliver_ms: int
    partition: int
    offset: int


class PendingAnswer(NamedTuple):
    """How many there are, and the first of them by time."""

    total: int
    messages: list[PendingMessage]


Question = Callable[[], Generator[None, None, Any]]
"""A generator that yields between steps of some ms and returns the answer."""


class Questions:
    """A box that any thread puts questions into; the loop answers them between its turns, a step at a time."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Question, Future[Any]]] = queue.SimpleQueue()
        self._under_way: deque[tuple[Generator[None, None, Any], Future[Any]]] = deque()

    def ask(self, question: Question) -> Future[Any]:
        """The answer, or what the question raised; cancel it where nobody waits any more."""
        future: Future[Any] = Future()
        self._asked.put((question, future))
        return future

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do."""
        return bool(self._under_way) or not self._asked.empty()

    def answer(self) -> None:
        """One step of every question, and the first of those that have been asked since."""
        while not self._asked.empty():
            question, future = self._asked.get_nowait()
            self._under_way.append((question(), future))
        for _ in range(len(self._under_way)):
            steps, future = self._under_way.popleft()
            if future.cancelled():
                steps.close()
                continue
            with suppress(InvalidStateError):  # nobody waits any more, since just now
                try:
                    next(steps)
                except StopIteration as end:
                    future.set_result(end.value)
                except Exception as error:  # noqa: BLE001
                    future.set_exception(error)
                else:
                    self._under_way.append((steps, future))
