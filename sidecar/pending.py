"""What is pending: asked for by web threads, answered by the loop, which owns the store, between two turns."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

LIMIT_MAX = 10_000


class PendingQuery(NamedTuple):
    """Which messages; times are when they are acted on, in ms, ``until_ms`` excluded."""

    id: str | None = None
    topic: str | None = None
    from_ms: int = 0
    until_ms: int = 2**62
    limit: int = 100


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


class Questions:
    """A box that any thread puts questions into and the loop empties."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()

    def ask(self, question: Callable[[], Any]) -> Future[Any]:
        """The answer comes with the loop's next turn, or an exception that the question raised."""
        future: Future[Any] = Future()
        self._asked.put((question, future))
        return future

    def answer(self, most: int = 10) -> None:
        """Answer what has been asked, at most so many: the loop has other things to do."""
        for _ in range(most):
            try:
                question, future = self._asked.get_nowait()
            except queue.Empty:
                return
            try:
                future.set_result(question())
            except Exception as error:  # noqa: BLE001
                future.set_exception(error)
