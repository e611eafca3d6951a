"""What is pending: asked for by web threads, answered by the loop, which owns the store, between two turns."""

import queue
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple

LIMIT_MAX = 10_000
LIMIT_DEFAULT = 100
TIME_MAX_MS = 10**15
"""Beyond any time that a message can wait for."""


class Cursor(NamedTuple):
    """A message's place in the order of all: by time, then by partition, then by offset."""

    act_ms: int
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """What `str` writes."""
        return cls(*map(int, text.split("-")))

    def __str__(self) -> str:
        return "-".join(map(str, self))


CURSOR_PATTERN = r"^[0-9]{1,18}-[0-9]{1,10}-[0-9]{1,18}$"


class PendingQuery(NamedTuple):
    """Which messages; ``until_ms`` is excluded."""

    id: str | None = None
    """As `PendingMessage.id`."""
    topic: str | None = None
    from_ms: int = 0
    until_ms: int = TIME_MAX_MS
    limit: int = LIMIT_DEFAULT
    after: Cursor | None = None
    """Only what comes after this."""
    by_act: bool = False
    """Whether the bounds are of `PendingMessage.act_ms`. Else they are of `PendingMessage.out_ms`: what whoever waits
    for a message means, and all that rolls before has to be read for it."""

    @property
    def is_by_out(self) -> bool:
        """Whether it asks for what is delivered at some times only."""
        return not self.by_act and (self.from_ms > 0 or self.until_ms < TIME_MAX_MS)

    def spans(self, time_ms: int) -> bool:
        """Whether a time is within the bounds."""
        return self.from_ms <= time_ms < self.until_ms

    def means(self, message: "PendingMessage") -> bool:
        """Whether a message has the id and the topic that are asked for."""
        return self.id in (None, message.id) and self.topic in (None, message.topic)


class PendingMessage(NamedTuple):
    """A message that waits; ``partition`` and ``offset`` are those of its scheduled record.

    It is acted on at ``act_ms``: delivered, or, where that is earlier than ``deliver_ms``, rolled.
    """

    id: str
    """Bytes that are not UTF-8 text stand in it as surrogates, so that no other message's id looks like it."""
    topic: str
    deliver_ms: int
    partition: int
    offset: int
    act_ms: int

    @property
    def out_ms(self) -> int:
        """When it will be delivered: not before it is acted on, which is later where its destination was away."""
        return max(self.act_ms, self.deliver_ms)

    @property
    def has_text_id(self) -> bool:
        """Whether a receipt, which is text, can name it."""
        return self.shown_id == self.id

    @property
    def shown_id(self) -> str:
        """The id as a text; of one that is none, the bytes that are not as ``\\xhh``."""
        return id_bytes(self.id).decode(errors="backslashreplace")

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.act_ms, self.partition, self.offset)


class PendingAnswer(NamedTuple):
    """How many there are, and the first of them by time."""

    total: int
    """Where there is a cursor, from it on."""
    messages: list[PendingMessage]

    @property
    def next(self) -> Cursor | None:
        """Where the next page begins; None: there is none."""
        return self.messages[-1].cursor if self.messages and self.total > len(self.messages) else None


def id_text(uniq_key: bytes) -> str:
    """A message's id, as `PendingMessage.id` and `PendingQuery.id` have it."""
    return uniq_key.decode(errors="surrogateescape")


def id_bytes(text: str) -> bytes:
    """What `id_text` was given."""
    return text.encode(errors="surrogateescape")


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
        """Go a step on with every question, also with those that have been asked since the last call."""
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
