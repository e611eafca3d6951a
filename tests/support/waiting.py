"""Waiting for a condition with a deadline; no test waits by the clock alone."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 30.0, poll_s: float = 0.02) -> T:
    """The first true value of ``condition``.

    Raises:
        AssertionError: it has not become true in time; names ``what`` and the last value.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what} (last seen: {value!r})")
        time.sleep(poll_s)
