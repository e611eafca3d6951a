"""Calls into librdkafka that may never return."""

import threading
from collections.abc import Callable


def ends_within(timeout_s: float, call: Callable[[], object], name: str) -> bool:
    """Run a call that may hang in a daemon thread of that name, and wait for it, but no longer.

    Raises:
        BaseException: what the call raised in time.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failures:
        raise failures[0]
    return not thread.is_alive()
