"""The short way through the wheel's parser: either it has no answer, or the one that the long way gives."""

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from connectors.contract import CONTROL_HEADERS, GENERATED_HEADERS, ErrorCode, Headers, TopicNames
from connectors.kafka import BY_KEY
from sidecar.intake.copies import Copied, Copies
from sidecar.intake.parse import Parser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.plan import Plan
from sidecar.records import Rejection

WHEEL = "SCHEDULE_TOPIC_XXXX-wheel"
AT_MS, MAX_DELAY_MS = 1_000_000, 500_000
PLAN = Plan(roll_window_ms=100_000, precision_ms=1_000, max_delay_ms=MAX_DELAY_MS, levels="1s 5s")

names = st.sampled_from([*sorted(CONTROL_HEADERS | GENERATED_HEADERS), "UNIQ_KEY", "TIMER_DEL_UNIQKEY", "TAGS", "é"])
numbers = st.integers(0, 2 * (AT_MS + MAX_DELAY_MS)).map(lambda number: b"%d" % number)
values = (
    st.none() | st.binary(max_size=4) | numbers | st.sampled_from([b"orders", b"0012", b"+12", b"1" * 30, b"", b"0"])
)
COPIES = Copies(b"key")

usual: st.SearchStrategy[Headers] = st.lists(
    st.sampled_from([("REAL_TOPIC", b"orders"), ("TAGS", b"a"), ("UNIQ_KEY", b"u")])
    | st.tuples(st.sampled_from(["TIMER_DELIVER_MS", "TIMER_DELAY_MS"]), numbers),
    max_size=5,
)
anything: st.SearchStrategy[Headers] = st.lists(st.tuples(names, values), max_size=6)


def make() -> WheelParser:
    parser = WheelParser(Parser(TopicNames()), WHEEL, 3, COPIES)
    parser.parse([("REAL_TOPIC", b"orders"), ("TIMER_DELIVER_MS", b"1")], 0, AT_MS, PLAN)  # it knows the topic now
    return parser


@given(usual | anything, st.integers(0, 10**12))
def test_a_plain_record_is_what_the_long_way_makes_of_it(headers: Headers, offset: int) -> None:
    parser, before = make(), list(headers)
    plain = parser.plain(headers, offset, AT_MS, MAX_DELAY_MS)
    assert headers == before
    if plain is not None:
        topic, delivered, uniq_key, due_ms = plain
        told: Headers = [("UNIQ_KEY", uniq_key), ("TIMER_OUT_MS", b"%d" % due_ms)]
        assert delivered[-2:] == told
        parsed = parser.parse(headers, offset, AT_MS, PLAN)
        assert parsed == (topic, BY_KEY, delivered[:-2], uniq_key, due_ms, 0, offset, 0, 0)


def test_what_nearly_everybody_sends_is_plain() -> None:
    headers: Headers = [("REAL_TOPIC", b"orders"), ("TAGS", b"a"), ("TIMER_DELIVER_MS", b"1234567")]
    plain = make().plain(headers, 17, AT_MS, 234_567)
    assert plain == (
        "orders",
        [("TAGS", b"a"), ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-wheel-3-17"), ("TIMER_OUT_MS", b"1234567")],
        b"SCHEDULE_TOPIC_XXXX-wheel-3-17",
        1_234_567,
    )
    assert make().plain(headers, 17, AT_MS, 234_566) is None


def test_a_delay_in_milliseconds_is_plain_and_counts_before_a_time() -> None:
    headers: Headers = [("REAL_TOPIC", b"orders"), ("TIMER_DELIVER_MS", b"5"), ("TIMER_DELAY_MS", b"0500")]
    plain = make().plain(headers, 17, AT_MS, 500)
    due_ms = AT_MS + 500
    own_id = b"SCHEDULE_TOPIC_XXXX-wheel-3-17"
    assert plain == ("orders", [("UNIQ_KEY", own_id), ("TIMER_OUT_MS", b"%d" % due_ms)], own_id, due_ms)
    assert make().plain(headers, 17, AT_MS, 499) is None
    for unreadable in (None, b"", b"-1", b"1s", b"1" * 19):
        assert make().plain([*headers, ("TIMER_DELAY_MS", unreadable)], 17, AT_MS, MAX_DELAY_MS) is None


def test_a_message_that_was_accepted_is_not_too_far_ahead_when_it_comes_back() -> None:
    """An operator has lowered max_delay since."""
    parser, due_ms = make(), AT_MS + MAX_DELAY_MS + 1
    headers: Headers = [("REAL_TOPIC", b"orders"), *COPIES.headers(b"u", due_ms, Copied(7, 1))]
    assert parser.parse(headers, 9, AT_MS, PLAN) == ("orders", BY_KEY, [], b"u", due_ms, 1, 7, 0, 0)
    others = headers[:-1]
    rejected = parser.parse(others, 9, AT_MS, PLAN)
    assert isinstance(rejected, Rejection)
    assert rejected.code is ErrorCode.DELAY_TOO_LONG


def assert_too_far_ahead(headers: Headers, timestamp_ms: int) -> None:
    """However it is read: among others that are alike, by itself, or with all that may be in it."""
    parser = make()
    batch = [Message(offset=n, headers=headers, timestamp=(1, timestamp_ms)) for n in range(2)]  # type: ignore[arg-type]
    assert parser.alike(batch, [headers, headers]) is None
    assert parser.plain(headers, 9, timestamp_ms, MAX_DELAY_MS) is None
    rejected = parser.parse(headers, 9, timestamp_ms, PLAN)
    assert isinstance(rejected, Rejection)
    assert rejected.code is ErrorCode.DELAY_TOO_LONG


@pytest.mark.parametrize("times", [[("TIMER_DELAY_MS", b"1000")], [("TIMER_DELIVER_MS", b"9" * 18)]])
def test_a_timestamp_that_leads_beyond_all_calendars_is_rejected(times: Headers) -> None:
    """Brokers that set no limit take any timestamp from a producer."""
    assert_too_far_ahead([("REAL_TOPIC", b"orders"), *times], 2**63 - 1)


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("digits", [19, 5_000])
def test_a_time_of_any_number_of_digits_is_too_far_ahead(name: str, digits: int) -> None:
    """Python refuses to read a number of more than 4,300."""
    assert_too_far_ahead([("REAL_TOPIC", b"orders"), (name, b"9" * digits)], AT_MS)
