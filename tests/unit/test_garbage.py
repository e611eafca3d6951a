"""When cycles are collected: seldom, and only while there is time for it."""

import pytest

from sidecar import garbage
from sidecar.garbage import ENOUGH, TOO_MANY, USUALLY_MS, IdleCollector


class Interpreter:
    """In place of ``gc`` and of the clock: collections take as long as is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.young = 0
        self.now_ms = 1_000_000.0
        self.takes_ms = 0.0
        self.collections = 0
        monkeypatch.setattr(garbage.gc, "get_count", lambda: (self.young, 0, 0))
        monkeypatch.setattr(garbage.gc, "collect", self._collect)
        monkeypatch.setattr(garbage, "_now_ms", lambda: self.now_ms)

    def _collect(self) -> None:
        self.collections += 1
        self.now_ms += self.takes_ms


def test_a_collection_waits_until_it_is_worth_it_and_nothing_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    python, collector = Interpreter(monkeypatch), IdleCollector()
    for python.young, idle_ms in ((ENOUGH, 10_000), (ENOUGH + 1, USUALLY_MS - 1)):
        collector.collect_when_idle(idle_ms)
    assert python.collections == 0
    collector.collect_when_idle(USUALLY_MS)
    assert python.collections == 1


def test_a_slow_collection_is_followed_by_none_for_long_and_wants_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of cancels is millions of objects, and nothing is due while it is read."""
    python, collector = Interpreter(monkeypatch), IdleCollector()
    python.young, python.takes_ms = ENOUGH + 1, 300
    began_ms = python.now_ms
    while python.now_ms < began_ms + 60_000:
        collector.collect_when_idle(1_000)
        python.now_ms += 5
    assert python.collections == 10  # every 6.3 s
    python.now_ms += 10_000
    collector.collect_when_idle(299)
    assert python.collections == 10
    collector.collect_when_idle(300)
    assert python.collections == 11


def test_too_many_objects_are_collected_whatever_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    python, collector = Interpreter(monkeypatch), IdleCollector()
    python.young = TOO_MANY + 1
    collector.collect_when_idle(0)
    assert python.collections == 1
