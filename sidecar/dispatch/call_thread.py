"""Runs Kafka's blocking transaction calls beside the loop, one at a time, and notices one that never returns.

librdkafka's ``send_offsets_to_transaction`` can wait for ever for a coordinator that went away, whatever its time-out
(confluentinc/librdkafka issues 5456 and 5511; seen with 2.16 whenever a broker restarts in that moment). A call that is
stuck cannot be ended. It is left behind with its producer, and new clients take over: Kafka fences the old ones.
"""

import queue
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from sidecar.errors import ClientsLostError

STUCK_AFTER_S = 5.0
"""Kafka's calls are given 1 s each; a call without an answer for this long is left behind."""

SWITCH_INTERVAL_S = 0.0005

_GIVE_UP_AFTER_S = 1.0
_LOOK_S = 0.1

Call = Callable[[], None]


class Caller(Protocol):
    """Runs one call at a time."""

    def submit(self, call: Call) -> None:
        """Begin a call; `result` must follow before the next."""

    def result(self, give_up: Callable[[], bool]) -> None:
        """Wait for the call; raises what it raised.

        Args:
            give_up: asked now and then while waiting; when it says so, the call is left behind as if it were stuck.

        Raises:
            ClientsLostError: the call does not return.
        """

    def close(self) -> None:
        """End the thread as soon as its call returns."""


class CallThread:
    """Runs each call in one daemon thread.

    Args:
        progress: the count of Kafka's answers so far; a call that gets answers, even "try again", is not stuck.
        stuck_after_s: how long a call may be without an answer.
    """

    def __init__(self, progress: Callable[[], int], stuck_after_s: float = STUCK_AFTER_S) -> None:
        self._progress = progress
        self._stuck_after_s = stuck_after_s
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._failure: BaseException | None = None
        # Between two of Kafka's calls this thread wants the interpreter, while the loop parses the next batch: with
        # Python's 5 ms every commit would wait for it that long, several times.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        threading.Thread(target=self._work, name="transactions", daemon=True).start()

    def submit(self, call: Call) -> None:
        self._done.clear()
        self._failure = None
        self._calls.put(call)

    def result(self, give_up: Callable[[], bool]) -> None:
        waited_s, seen = 0.0, self._progress()
        while not self._done.wait(_LOOK_S):
            waited_s = waited_s + _LOOK_S if self._progress() == seen else 0.0
            seen = self._progress()
            if waited_s >= self._stuck_after_s or (give_up() and waited_s >= _GIVE_UP_AFTER_S):
                raise ClientsLostError(f"a call to Kafka has not returned for {waited_s:.0f} s")
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001
                self._failure = error
            self._done.set()
