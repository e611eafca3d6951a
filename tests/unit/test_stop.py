"""The wish to stop, told by a signal in the midst of whatever its thread does."""

import signal
import time
from types import FrameType

from sidecar.stop import Stop


def test_a_wait_ends_with_the_wish_or_with_its_time() -> None:
    stop = Stop()
    began_s = time.monotonic()
    stop.wait(0.05)
    assert 0.05 <= time.monotonic() - began_s < 5
    assert not stop.is_set()
    for _ in range(2):
        stop.set()
    for _ in range(3):
        stop.wait(60)
    assert stop.is_set()
    assert time.monotonic() - began_s < 10


def test_a_handler_may_tell_it_wherever_its_own_thread_is() -> None:
    told = 0
    current = Stop()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        told += 1
        current.set()

    before = signal.signal(signal.SIGALRM, on_signal)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.000_2, 0.000_2)
        deadline_s = time.monotonic() + 1
        while time.monotonic() < deadline_s:
            current = Stop()
            current.wait(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert told > 100
