"""Dead letters: why they are dead, which ones a filter means, and what becomes of them when they are redriven."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.contract import Headers, TopicNames
from connectors.dead_letters import DeadLetter, Filter, FilterError, Move
from connectors.dead_letters.offsets import Offsets, runs
from connectors.dead_letters.plan import BY_KEY, Planner

TOPICS = {"orders": 3, "other": 1, "SCHEDULE_TOPIC_XXXX-2": 1, "SCHEDULE_TOPIC_XXXX-sendback": 1, "RETRY-billing": 2}
TOPICS |= {"SCHEDULE_TOPIC_XXXX-wheel": 1}

FAILED: Headers = [
    ("TAGS", b"a"),
    ("CONSUMER_GROUP", b"billing"),
    ("RETRY_TOPIC", b"orders"),
    ("RECONSUME_TIME", b"17"),
    ("UNIQ_KEY", b"one"),
    ("ORIGIN_MESSAGE_ID", b"one"),
    ("TIMER_OUT_MS", b"5"),
]
ERRORS: Headers = [
    ("ERROR_CODE", b"UNKNOWN_DESTINATION"),
    ("ERROR_MESSAGE", b"no"),
    ("ERROR_TOPIC", b"SCHEDULE_TOPIC_XXXX-2"),
    ("ERROR_PARTITION", b"4"),
    ("ERROR_OFFSET", b"7"),
]
REJECTED: Headers = [("TAGS", b"a"), ("REAL_TOPIC", b"orders"), ("TIMER_DELAY_SEC", b"5"), ("TAGS", None), *ERRORS]
REJECTED_SEND_BACK: Headers = [
    ("RECONSUME_TIME", b"2"),
    ("DELAY", b"soon"),
    *((name, b"SCHEDULE_TOPIC_XXXX-sendback" if name == "ERROR_TOPIC" else value) for name, value in ERRORS),
]


def without(headers: Headers, *names: str) -> Headers:
    return [header for header in headers if header[0] not in names]


def a_planner(to: str | None = None, topic: str = "DLQ-billing", **options: int) -> Planner:
    parked = "DLQ-billing.parked" if topic == "DLQ-billing" else None
    return Planner(
        TopicNames(),
        topic,
        to=to,
        parked=parked,
        look_up=lambda name: TOPICS.get(name) or f"there is no topic '{name}'",
        **{"max_redrives": 3, **options},
    )


def plan(headers: Headers, to: str | None = None, topic: str = "DLQ-billing", **options: int) -> Move | str:
    return a_planner(to, topic, **options).plan(headers)


def moved(headers: Headers, to: str | None = None, **options: int) -> Move:
    move = plan(headers, to, **options)
    assert isinstance(move, Move), move
    return move


# --- why --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "reason", "uniq_key"),
    [
        (FAILED, "RETRIES_EXHAUSTED", "one"),
        ([*FAILED, ("RECONSUME_TIME", b"16")], "GIVEN_UP", "one"),
        ([*FAILED, ("RECONSUME_TIME", b"4"), ("MAX_RECONSUME_TIMES", b"3")], "RETRIES_EXHAUSTED", "one"),
        ([*FAILED, ("RECONSUME_TIME", b"3"), ("MAX_RECONSUME_TIMES", b"3")], "GIVEN_UP", "one"),
        (REJECTED, "UNKNOWN_DESTINATION", "SCHEDULE_TOPIC_XXXX-2-4-7"),
        ([("UNIQ_KEY", b"mine"), *REJECTED], "UNKNOWN_DESTINATION", "mine"),
        ([*FAILED, ("ERROR_CODE", b"E42"), ("ERROR_MESSAGE", b"the application's")], "RETRIES_EXHAUSTED", "one"),
        ([*ERRORS, *FAILED], "RETRIES_EXHAUSTED", "one"),
        ([*FAILED, *ERRORS], "UNKNOWN_DESTINATION", "one"),
        ([*without(FAILED, "RECONSUME_TIME"), ("RECONSUME_TIME", b"1" * 5_000)], "UNKNOWN", "one"),
        ([*FAILED, ("MAX_RECONSUME_TIMES", b"1" * 5_000)], "RETRIES_EXHAUSTED", "one"),
        ([], "UNKNOWN", ""),
    ],
)
def test_a_dead_letter_says_why_it_is_dead_and_which_message_it_is(
    headers: Headers, reason: str, uniq_key: str
) -> None:
    letter = DeadLetter(0, 0, 0, None, None, headers, False)
    assert (letter.reason, letter.id) == (reason, uniq_key)


# --- which ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ([], True),
        (["reason=retries_exhausted"], True),
        (["reason=GIVEN_UP"], False),
        (["key=k"], True),
        (["key="], False),
        (["id=one"], True),
        (["id=two"], False),
        (["header.TAGS=a"], True),
        (["header.TAGS=b"], False),
        (["header.X-Y=a=b"], True),
        (["header.TAGS=a", "header.RETRY_TOPIC=orders", "key=k"], True),
        (["header.TAGS=a", "key=x"], False),
        (["from=1970-01-01T00:00:01Z"], True),
        (["from=1970-01-01T00:00:01.001+00:00"], False),
        (["to=1970-01-01T01:00:01.001+01:00"], True),
        (["to=1970-01-01T00:00:01Z"], False),
        (["key=k", "key=k"], True),
        (["from=1970-01-01T00:00:02Z", "from=1970-01-01T00:00:01Z"], False),
        (["to=1970-01-01T00:00:01Z", "to=1970-01-01T00:00:02Z"], False),
        (["header.TAGS=a", "header.TAGS=b"], False),
    ],
)
def test_a_filter_means_those_that_meet_every_condition(conditions: list[str], *, matches: bool) -> None:
    assert Filter.parse(conditions).matches(1_000, b"k", [*FAILED, ("X-Y", b"a=b")]) is matches


def test_a_key_or_header_that_is_no_text_is_met_as_it_stands_on_the_command_line() -> None:
    chosen = Filter.parse([os.fsdecode(b"key=\xff"), os.fsdecode(b"header.X-Y=\xfe")])
    assert (chosen.key, chosen.headers) == (b"\xff", (("X-Y", b"\xfe"),))


@pytest.mark.parametrize(
    "condition", ["reason", "colour=red", "header.=x", "from=now", "from=2030-01-01T00:00:00", "to="]
)
def test_a_filter_that_cannot_be_read_is_named(condition: str) -> None:
    with pytest.raises(FilterError, match=f"'{condition}'"):
        Filter.parse([condition])


@pytest.mark.parametrize("name", ["reason", "key", "id"])
def test_conditions_that_no_letter_can_meet_together_are_a_mistake(name: str) -> None:
    with pytest.raises(FilterError, match=f"'{name}=b': {name}= stands there already"):
        Filter.parse([f"{name}=a", f"{name}=b"])


# --- what becomes of it -----------------------------------------------------------------------------------------------


def test_a_failed_message_goes_to_its_first_topic_and_its_retries_begin_anew() -> None:
    assert moved(FAILED) == Move(
        "orders", BY_KEY, [*without(FAILED, "RECONSUME_TIME", "TIMER_OUT_MS"), ("REDRIVE_COUNT", b"1")]
    )


def test_a_number_of_redrives_that_is_none_counts_as_none() -> None:
    assert moved([*FAILED, ("REDRIVE_COUNT", b"9" * 5_000)]).headers[-1] == ("REDRIVE_COUNT", b"1")


def test_a_letter_of_a_consumer_of_dead_letters_goes_back_with_the_errors_that_it_was_about() -> None:
    move = moved([*ERRORS, *FAILED])
    assert (move.topic, move.headers[: len(ERRORS)]) == ("orders", ERRORS)


def test_a_failed_message_may_go_elsewhere() -> None:
    assert moved(FAILED, "RETRY-billing").topic == "RETRY-billing"


def test_a_rejected_record_goes_where_it_was_to_go_as_if_it_had_been_delivered() -> None:
    assert moved(REJECTED) == Move(
        "orders",
        BY_KEY,
        [("TAGS", b"a"), ("TAGS", None), ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-2-4-7"), ("REDRIVE_COUNT", b"1")],
    )


def test_a_rejected_record_goes_to_the_partition_that_it_names() -> None:
    assert moved([("REAL_QID", b"2"), *REJECTED]).partition == 2
    assert "REAL_QID" in str(plan([("REAL_QID", b"3"), *REJECTED]))
    assert "REAL_QID" in str(plan([("REAL_QID", b""), *REJECTED]))
    assert moved([("REAL_QID", b"3"), *REJECTED], "other").partition == BY_KEY


def test_a_rejected_record_that_is_sent_to_a_schedule_topic_keeps_its_instructions() -> None:
    move = moved(REJECTED, "SCHEDULE_TOPIC_XXXX-wheel")
    assert move.headers == [
        *without(REJECTED, *dict(ERRORS)),
        ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-2-4-7"),
        ("REDRIVE_COUNT", b"1"),
    ]


def test_a_rejected_retry_is_still_the_retry_it_was() -> None:
    headers = [*FAILED, ("REAL_TOPIC", b"RETRY-billing"), *ERRORS]
    assert dict(moved(headers).headers)["RECONSUME_TIME"] == b"17"


def test_what_was_rejected_on_the_send_back_topic_goes_back_there() -> None:
    move = moved(REJECTED_SEND_BACK)
    assert move.topic == "SCHEDULE_TOPIC_XXXX-sendback"
    assert move.headers[:2] == [("RECONSUME_TIME", b"2"), ("DELAY", b"soon")]


def test_a_failed_message_that_is_sent_to_a_level_is_delivered_to_its_first_topic() -> None:
    assert dict(moved(FAILED, "SCHEDULE_TOPIC_XXXX-2").headers)["REAL_TOPIC"] == b"orders"
    assert "REAL_TOPIC" not in dict(moved(FAILED, "SCHEDULE_TOPIC_XXXX-sendback").headers)
    assert "no delivery time" in str(plan(FAILED, "SCHEDULE_TOPIC_XXXX-wheel"))


@pytest.mark.parametrize("to", [None, "other", "SCHEDULE_TOPIC_XXXX-2"])
def test_the_way_of_one_letter_does_not_depend_on_those_before_it(to: str | None) -> None:
    letters = [FAILED, REJECTED, [*FAILED, ("REDRIVE_COUNT", b"1")], without(FAILED, "UNIQ_KEY"), [*FAILED, *ERRORS]]
    letters += [[*FAILED, ("RETRY_TOPIC", b"missing")], REJECTED_SEND_BACK, [*FAILED, ("REDRIVE_COUNT", b"9")], FAILED]
    alone = [plan(headers, to) for headers in letters]
    planner = a_planner(to)
    for _ in range(2):
        assert [planner.plan(headers) for headers in letters] == alone


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "does not say where it belongs; name a destination with 'to'"),
        ([("RETRY_TOPIC", b"no such/name")], "does not say where it belongs"),
        (ERRORS, "does not say where it belongs"),
        ([("RETRY_TOPIC", b"missing")], "there is no topic 'missing'"),
        ([("RETRY_TOPIC", b"%DLQ%billing")], "the very dead letters it is among"),
        ([*REJECTED, ("TIMER_DEL_UNIQKEY", b"one")], "a cancel or a replacement"),
        ([*REJECTED, ("ERROR_OMITTED", b"value")], "its value was too large"),
    ],
)
def test_what_has_no_way_out_stays_and_says_why(headers: Headers, why: str) -> None:
    assert why in str(plan(headers))


def test_a_message_is_redriven_so_often_and_then_parked_as_it_is() -> None:
    headers = FAILED
    for count in (b"1", b"2", b"3"):
        move = moved([*without(headers, "RECONSUME_TIME"), ("RECONSUME_TIME", b"17")])
        assert [value for name, value in move.headers if name == "REDRIVE_COUNT"] == [count]
        headers = move.headers
    assert moved(headers) == Move("DLQ-billing.parked", BY_KEY, headers, is_parked=True)
    assert moved(headers, max_redrives=4).topic == "orders"
    assert "redriven 3 times" in str(plan(headers, topic="DLQ-billing.parked"))


# --- offsets ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9))))
def test_ranges_hold_the_offsets_that_were_put_in(found: list[tuple[int, int]]) -> None:
    ranges = [(first, first + more) for first, more in found]
    wanted = {offset for first, last in ranges for offset in range(first, last + 1)}
    offsets = Offsets(ranges)
    assert {offset for offset in range(80) if offset in offsets} == wanted
    assert all(before[1] + 1 < after[0] for before, after in zip(list(offsets), list(offsets)[1:], strict=False))
    assert bool(offsets) is bool(wanted)


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans())))
def test_runs_hold_what_was_chosen_and_nothing_that_was_not(steps: list[tuple[int, bool]]) -> None:
    offset, chosen = 0, []
    for step, is_chosen in steps:
        offset += step
        chosen.append((offset, is_chosen))
    found = Offsets(runs(chosen))
    assert all((number in found) is is_chosen for number, is_chosen in chosen)
