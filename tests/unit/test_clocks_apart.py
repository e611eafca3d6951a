"""What the timestamps of the records that are read say of this host's clock."""

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from connectors.testing import ManualClock
from sidecar.intake.clocks_apart import WINDOW_MS, ClocksApart
from tests.support.logged import logged


class Reading:
    """Records that are read as they come."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.apart = ClocksApart(self.clock)

    def read(self, age_ms: int, kind: int = TIMESTAMP_LOG_APPEND_TIME, end_offset: int | None = 8) -> None:
        now_ms = self.clock.now_ms()
        self.apart.read(Message(topic="t", offset=7, timestamp=(kind, now_ms - age_ms)), now_ms, end_offset)


def test_the_youngest_record_tells() -> None:
    reading = Reading()
    assert reading.apart.ahead_ms is None
    for age_ms, ahead_ms in ((90, 90), (20, 20), (50, 20), (-1_500, -1_500), (-300, -1_500)):
        reading.read(age_ms)
        assert reading.apart.ahead_ms == ahead_ms


def test_what_stands_before_others_is_old_and_tells_of_the_future_alone() -> None:
    """A partition that is read as its records fall due is never at its end."""
    reading = Reading()
    for end_offset in (None, 10, 16_000):
        reading.read(7_200_000, end_offset=end_offset)
        assert reading.apart.ahead_ms is None
    reading.read(30_000, end_offset=9)  # the marker of its transaction
    assert reading.apart.ahead_ms == 30_000
    reading.read(-4_000, end_offset=16_000)
    assert reading.apart.ahead_ms == -4_000


def test_what_producers_say_of_the_time_tells_nothing() -> None:
    reading = Reading()
    reading.read(-5_000, TIMESTAMP_CREATE_TIME)
    assert reading.apart.ahead_ms is None


def test_it_is_known_of_one_minute_and_the_next() -> None:
    reading = Reading()
    reading.read(-4_000)
    reading.clock.advance(WINDOW_MS)
    reading.read(7)
    assert reading.apart.ahead_ms == -4_000
    reading.clock.advance(WINDOW_MS)
    reading.read(8)
    assert reading.apart.ahead_ms == 7


def test_a_backlog_read_and_nothing_since_does_not_make_the_clock_look_ahead_for_long() -> None:
    reading = Reading()
    reading.clock.advance(WINDOW_MS)
    reading.read(3_600_000)
    assert reading.apart.ahead_ms == 3_600_000
    reading.clock.advance(2 * WINDOW_MS)
    assert reading.apart.ahead_ms is None


def test_a_clock_that_is_behind_is_so_until_records_say_otherwise_or_it_is_set() -> None:
    reading = Reading()
    reading.read(-2_000)
    reading.clock.advance(100 * WINDOW_MS)
    assert reading.apart.ahead_ms == -2_000
    reading.apart.forget()
    assert reading.apart.ahead_ms is None


@pytest.mark.parametrize(
    ("age_ms", "words"),
    [
        (40_000, ""),
        (-999, ""),
        (-1_000, "this host's clock is 1s behind Kafka's: by Kafka's, messages are delivered late by as much"),
        (-90_750, "this host's clock is 1m31s behind Kafka's: by Kafka's, messages are delivered late by as much"),
    ],
)
def test_words_are_said_of_a_clock_that_is_behind(age_ms: int, words: str) -> None:
    reading = Reading()
    reading.read(age_ms)
    assert reading.apart.in_words == words


def test_it_is_logged_when_it_begins_and_when_it_is_over() -> None:
    reading = Reading()
    with logged() as lines:
        for age_ms in (5, -40_000, -41_000):
            reading.read(age_ms)
            reading.apart.tell()
        reading.apart.forget()
        reading.read(5)
        reading.apart.tell()
        reading.apart.tell()
    assert [(line["event"], line.get("behind_ms")) for line in lines] == [
        ("clock behind kafka", 40_000),
        ("clock no longer behind kafka", None),
    ]
