"""A thread that looks again and again until it is left, beside the loop: neither waits for the other."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class WatchThread(ABC):
    """Looks from entering to leaving.

    Args:
        stop_timeout_s: how long leaving waits for a look that is under way.
    """

    def __init__(self, name: str, stop_timeout_s: float) -> None:
        self._left = threading.Event()
        self._stop_timeout_s = stop_timeout_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join(self._stop_timeout_s)

    @abstractmethod
    def _run(self) -> None:
        """Look until ``_left`` is set."""
