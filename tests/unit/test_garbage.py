"""When cycles are collected: seldom, and only while there is time for it."""

import pytest

from connectors.testing import ManualClock
from sidecar import garbage
from sidecar.garbage import ENOUGH, TOO_MANY, USUALLY_MS, IdleCollector


class Interpreter:
    """In place of ``gc``: collections take as long as is said, by the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
        self.clock = clock
        self.young = 0
        self.takes_ms = 0
        self.collections = 0
        monkeypatch.setattr(garbage.gc, "get_count", lambda: (self.young, 0, 0))
        monkeypatch.setattr(garbage.gc, "collect", self._collect)

    def _collect(self) -> None:
        self.collections += 1
        self.clock.advance(self.takes_ms)


def an_interpreter(monkeypatch: pytest.MonkeyPatch) -> tuple[Interpreter, IdleCollector]:
    clock = ManualClock()
    return Interpreter(monkeypatch, clock), IdleCollector(clock)


def test_a_collection_waits_until_it_is_worth_it_and_nothing_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    python, collector = an_interpreter(monkeypatch)
    for python.young, idle_ms in ((ENOUGH, 10_000), (ENOUGH + 1, USUALLY_MS - 1)):
        collector.collect_when_idle(idle_ms)
    assert python.collections == 0
    collector.collect_when_idle(USUALLY_MS)
    assert python.collections == 1


def test_a_slow_collection_is_followed_by_none_for_long_and_wants_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of cancels is millions of objects, and nothing is due while it is read."""
    python, collector = an_interpreter(monkeypatch)
    python.young, python.takes_ms = ENOUGH + 1, 300
    while python.clock.monotonic_ms() < 60_000:
        collector.collect_when_idle(1_000)
        python.clock.advance(5)
    assert python.collections == 10  # every 6.3 s
    python.clock.advance(10_000)
    collector.collect_when_idle(299)
    assert python.collections == 10
    collector.collect_when_idle(300)
    assert python.collections == 11


def test_too_many_objects_are_collected_whatever_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    python, collector = an_interpreter(monkeypatch)
    python.young = TOO_MANY + 1
    collector.collect_when_idle(0)
    assert python.collections == 1
