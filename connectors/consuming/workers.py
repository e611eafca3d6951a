"""Who calls the listener: threads, an event loop, or whoever calls `RetryingConsumer.poll`.

What they work on is a lane: a source of batches that the listener has to be called with one after the other. Lanes run
beside each other, `concurrency` at a time.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from connectors.consuming.listener import Listener
from connectors.consuming.message import ConsumeContext, ConsumedMessage
from connectors.event_log import EventLog

_log = EventLog(logging.getLogger(__name__))


class Batch:
    """Messages that the listener is given together."""

    __slots__ = ("cancel", "context", "is_abandoned", "messages", "started_ms", "unanswered")

    def __init__(self, messages: Sequence[ConsumedMessage]) -> None:
        self.messages = tuple(messages)  # the listener is given them: what it does to a list of ours would be ours
        self.context = ConsumeContext()
        self.started_ms = 0.0
        self.is_abandoned = False
        """Its outcome has been decided without the listener."""
        self.cancel: Callable[[], object] | None = None
        """Ends the listener's call, where that is possible."""
        self.unanswered = 0
        """How many of the batch's messages are being sent back."""


class Lane(Protocol):
    """Called by one worker at a time."""

    def next(self) -> Batch | None:
        """The batch to call the listener with; None: no more for now."""

    def finish(self, batch: Batch, answer: object, error: BaseException | None) -> bool:
        """The listener's answer; whether the lane goes on at once."""


class Workers(Protocol):
    """Runs lanes."""

    def submit(self, lane: Lane) -> None: ...

    def close(self) -> None:
        """Nothing new is begun. What a listener is in the middle of is left to itself."""

    def is_called_here(self) -> bool:
        """Whether the listener is called by this very thread."""


class InlineWorkers:
    """The caller's thread, at once."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def submit(self, lane: Lane) -> None:
        _work(self._listener, lane)

    def close(self) -> None:
        pass

    def is_called_here(self) -> bool:
        return True


class ThreadWorkers:
    """Daemon threads: a listener that never returns must not keep the process from ending."""

    def __init__(self, listener: Listener, concurrency: int) -> None:
        self._listener = listener
        self._lanes: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"listener-{number}", daemon=True) for number in range(concurrency)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, lane: Lane) -> None:
        self._lanes.put(lane)

    def close(self) -> None:
        for _ in self._threads:
            self._lanes.put(None)

    def is_called_here(self) -> bool:
        return threading.current_thread() in self._threads

    def _work(self) -> None:
        while (lane := self._lanes.get()) is not None:
            try:
                _work(self._listener, lane)
            except BaseException as error:  # noqa: BLE001
                # SystemExit, most likely. Its batch counts as failed; the others shall not lose their worker.
                _log_exit(self._listener, error)


class AsyncWorkers:
    """Coroutines in an event loop that runs in another thread than the one that submits."""

    def __init__(self, listener: Listener, concurrency: int, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._room = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.current_thread()

    def submit(self, lane: Lane) -> None:
        self._loop.call_soon_threadsafe(self._start, lane)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def is_called_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _start(self, lane: Lane) -> None:
        task = self._loop.create_task(self._work(lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _work(self, lane: Lane) -> None:
        async with self._room:
            while (batch := lane.next()) is not None:
                try:
                    answer, error = await self._call(batch)
                except asyncio.CancelledError as cancelled:  # the whole event loop ends
                    lane.finish(batch, None, cancelled)
                    raise
                except BaseException as exit_error:  # noqa: BLE001
                    lane.finish(batch, None, exit_error)
                    _log_exit(self._listener, exit_error)
                    return
                if not lane.finish(batch, answer, error):
                    return

    async def _call(self, batch: Batch) -> tuple[object, BaseException | None]:
        """In a task of its own, so that a time-out ends the call and not the worker."""
        call = self._loop.create_task(_awaited(self._listener, batch))
        batch.cancel = lambda: self._loop.call_soon_threadsafe(call.cancel)
        try:
            answer, exit_error = await call
        except asyncio.CancelledError as cancelled:
            worker = asyncio.current_task()
            if worker is not None and worker.cancelling():
                raise
            return None, cancelled
        except Exception as error:  # noqa: BLE001
            return None, error
        if exit_error is not None:
            raise exit_error
        return answer, None


def _log_exit(listener: Listener, error: BaseException) -> None:
    _log.error(
        "listener raised an exit",
        "the listener %s raised what only a process should",
        listener.name,
        operator_action="its messages come again; have it raise an Exception, or return RECONSUME_LATER",
        exc_info=error,
    )


def _work(listener: Listener, lane: Lane) -> None:
    while (batch := lane.next()) is not None:
        answer: object = None
        error: Exception | None = None
        try:
            answer = _called(listener, batch)
        except Exception as exception:  # noqa: BLE001
            error = exception
        except BaseException as exception:
            lane.finish(batch, None, exception)
            raise
        if not lane.finish(batch, answer, error):
            return


def _called(listener: Listener, batch: Batch) -> object:
    answer = listener.call(batch.messages, batch.context)
    # A plain function may return what is to be awaited, too: a lambda that calls a coroutine.
    return asyncio.run(_outcome(answer)) if isinstance(answer, Awaitable) else answer


async def _awaited(listener: Listener, batch: Batch) -> tuple[object, BaseException | None]:
    """The answer, or the exit that was raised, which as a task's own would end the whole event loop."""
    try:
        answer = listener.call(batch.messages, batch.context)
        return (await answer if isinstance(answer, Awaitable) else answer), None
    except (SystemExit, KeyboardInterrupt) as exit_error:
        return None, exit_error


async def _outcome(answer: Awaitable[object]) -> object:
    return await answer
