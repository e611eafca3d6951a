"""Blocking calls beside the event loop, in threads that do not keep the process from ending."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """So many calls at a time; others wait.

    A call goes on when nobody waits for it any more, and keeps its place until it ends.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._room = asyncio.Semaphore(most)

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises; RuntimeError where there may be no more threads."""
        await self._room.acquire()
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        ended = asyncio.wrap_future(future)
        ended.add_done_callback(self._on_end)

        def work() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError as error:
            future.set_exception(error)
        return await asyncio.shield(ended)

    def _on_end(self, ended: "asyncio.Future[T]") -> None:
        self._room.release()
        if not ended.cancelled():
            ended.exception()  # somebody has looked at it
