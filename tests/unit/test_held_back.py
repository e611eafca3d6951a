"""What an open transaction of a producer holds back is told, once it has lasted."""

from typing import cast

import pytest

from sidecar.intake.held_back import HELD_BACK_AFTER_MS, HeldBack
from sidecar.intake.progress import Start
from sidecar.intake.reading import Reading
from sidecar.source import Source
from tests.support.logged import logged
from tests.unit.test_health import a_health
from tests.unit.test_reading import Asking, Fetched, reading

PLACE = ("SCHEDULE_TOPIC_XXXX-wheel", 0)
LOOK_EVERY_MS = 1_000
"""How often the loop asks."""


class Log:
    """One partition that has been read to offset 10; looked at each second."""

    def __init__(self) -> None:
        _, self.clock = a_health()
        self.end: int | None = 10
        self.held_back = HeldBack()
        self.held_back.reached_end(10)

    def is_held_back(self, after_ms: int, *, paused: bool = False) -> bool:
        for _ in range(after_ms // LOOK_EVERY_MS):
            self.clock.advance(LOOK_EVERY_MS)
            found = self.held_back.look(None if paused else self.end, self.clock.monotonic_ms())
        return found


def test_a_log_that_goes_on_behind_what_can_be_read_is_told_after_a_while() -> None:
    log = Log()
    assert not log.is_held_back(10 * HELD_BACK_AFTER_MS)  # idle, for however long
    log.end = 12
    assert not log.is_held_back(HELD_BACK_AFTER_MS)
    assert log.is_held_back(LOOK_EVERY_MS)
    log.end = 15  # others write on
    assert log.is_held_back(LOOK_EVERY_MS)


def test_it_is_over_once_something_is_read_or_the_end_is_elsewhere() -> None:
    for ends in (
        lambda log: log.held_back.reads_on(),
        lambda log: log.held_back.reached_end(12),  # aborted: there is nothing to read
    ):
        log = Log()
        log.end = 12
        assert log.is_held_back(2 * HELD_BACK_AFTER_MS)
        ends(log)
        assert not log.is_held_back(2 * HELD_BACK_AFTER_MS)


def test_what_is_paused_or_not_known_is_not_held_back() -> None:
    log = Log()
    log.end = 12
    assert not log.is_held_back(2 * HELD_BACK_AFTER_MS, paused=True)
    log.end = None
    assert not log.is_held_back(2 * HELD_BACK_AFTER_MS)


def test_transactions_one_after_another_are_no_single_long_one() -> None:
    log = Log()
    for offset in range(12, 60, 2):
        log.end = offset
        assert not log.is_held_back(LOOK_EVERY_MS)
        log.held_back.reached_end(offset)


def test_the_log_and_the_status_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = reading(Fetched(fetched=0))
    intake._readings[PLACE] = Reading(cast(Source, Asking()), Start(0, ""), is_paused=True)
    found = True
    monkeypatch.setattr(HeldBack, "look", lambda *_: found)
    with logged() as lines:
        intake.tell_held_back()
        (warning,) = intake._health.warnings()
        intake.tell_held_back()
        found = False
        intake.tell_held_back()
    assert warning.startswith("SCHEDULE_TOPIC_XXXX-wheel-0: a producer's transaction is open")
    assert [line["event"] for line in lines] == ["records held back", "records no longer held back"]
    assert intake._health.warnings() == []
