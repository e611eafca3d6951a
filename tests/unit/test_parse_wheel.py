"""When a record of the wheel topic asks to be delivered: by which of its headers, and how far ahead it may be."""

import pytest

from connectors.contract import ErrorCode, TopicNames
from sidecar.intake.parse import Parser
from sidecar.intake.parse_wheel import Cancel, WheelParser
from sidecar.records import Rejection
from tests.support.one_wheel import COPIES, NOW_MS, PLAN, REAL_TOPIC, WHEEL

TIMES = [
    ("DELAY", b"2", NOW_MS + 5_000),
    ("TIMER_DELAY_SEC", b"3", NOW_MS + 3_000),
    ("TIMER_DELAY_MS", b"7", NOW_MS + 7),
    ("TIMER_DELIVER_MS", b"%d" % (NOW_MS + 11), NOW_MS + 11),
]
"""In the order in which they count."""


def due_ms(*headers: tuple[str, bytes | None]) -> int | ErrorCode:
    """Or why it is rejected."""
    parser = WheelParser(Parser(TopicNames()), WHEEL, 0, COPIES)
    parsed = parser.parse([REAL_TOPIC, *headers], 0, NOW_MS, PLAN)
    assert parser.strange_copies == 0
    if isinstance(parsed, Rejection):
        return parsed.code
    found = parsed[4]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("number", range(len(TIMES)))
def test_of_several_times_the_first_counts_as_in_rocketmq(number: int) -> None:
    headers = [(name, value) for name, value, _ in TIMES]
    assert due_ms(headers[number]) == TIMES[number][2]
    assert due_ms(*reversed(headers[number:])) == TIMES[number][2]


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_record_may_be_due_as_far_ahead_as_the_longest_delay(name: str) -> None:
    from_ms = NOW_MS if name == "TIMER_DELIVER_MS" else 0
    assert due_ms((name, b"%d" % (from_ms + PLAN.max_delay_ms))) == NOW_MS + PLAN.max_delay_ms
    assert due_ms((name, b"%d" % (from_ms + PLAN.max_delay_ms + 1))) is ErrorCode.DELAY_TOO_LONG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DELAY", b"0"),
        ("TIMER_DELAY_SEC", b"-1"),
        ("TIMER_DELAY_MS", b"-1"),
        *((name, b"soon") for name, _, _ in TIMES),
    ],
)
def test_what_is_no_time_is_not_passed_over_for_the_next(name: str, value: bytes) -> None:
    others = [(other, told) for other, told, _ in TIMES if other != name]
    later = others[[other for other, _, _ in TIMES].index(name) :]
    assert due_ms((name, value), *later) is ErrorCode.ILLEGAL_DELIVERY_TIME


def test_a_record_that_says_no_time_is_rejected() -> None:
    assert due_ms() is ErrorCode.NO_DELIVERY_TIME


@pytest.mark.parametrize(("name", "value"), [("DELAY", b"1"), ("TIMER_DELAY_SEC", b"0"), ("TIMER_DELAY_MS", b"0")])
def test_the_least_that_may_be_asked_for(name: str, value: bytes) -> None:
    assert due_ms((name, value)) == (NOW_MS + 1_000 if name == "DELAY" else NOW_MS)


@pytest.mark.parametrize("topic", [b"", None])
def test_a_cancel_whose_destination_is_empty_takes_nothing_back(topic: bytes | None) -> None:
    """Without that header it would be for whatever topic."""
    parser = WheelParser(Parser(TopicNames()), WHEEL, 0, COPIES)
    cancel = ("TIMER_DEL_UNIQKEY", b"m")
    assert parser.parse([cancel], 0, NOW_MS, PLAN) == Cancel(b"m", None, None)
    rejected = parser.parse([cancel, ("REAL_TOPIC", topic)], 0, NOW_MS, PLAN)
    assert isinstance(rejected, Rejection)
    assert rejected.code is ErrorCode.MISSING_REAL_TOPIC
