"""The wish to stop, as a signal handler may tell it."""

import queue
import signal
from contextlib import suppress


class Stop:
    """A flag that one thread waits for, and a signal handler may set in the midst of anything that thread does.

    A `threading.Event` is none: set while its own thread is entering or leaving ``wait``, it waits for a lock that this
    thread holds, for ever. ``SimpleQueue.put`` is reentrant.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """What has asked for it."""
        self._is_set = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        self._is_set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Return once it is set, or after that time; whether it is set."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._wake.get(timeout=timeout_s)
        return self._is_set
