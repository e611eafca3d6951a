"""Headers of a scheduled record: where it goes, what it carries, why it is rejected."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.contract import CONTROL_HEADERS, GENERATED_HEADERS, ErrorCode, Headers, TopicNames
from connectors.kafka import BY_KEY
from sidecar.intake.parse import Parser, show, whole_number
from sidecar.records import Rejection

CANCELS = ("TIMER_DEL_UNIQKEY", "TIMER_REPLACE_UNIQKEY")
TAKEN_OFF = sorted(CONTROL_HEADERS | GENERATED_HEADERS)
NAMES_OF_OTHERS = [
    "TAGS",
    "KEYS",
    "RECONSUME_TIME",
    "CONSUMER_GROUP",
    "ERROR_CODE",
    "",
    "real_topic",
    "REAL_TOPIC ",
    "é",
]

values = st.none() | st.binary(max_size=8)
other_headers = st.lists(st.tuples(st.sampled_from(NAMES_OF_OTHERS) | st.text(max_size=5), values), max_size=8)


def parse(*headers: tuple[str, bytes | None]) -> tuple[str, int, Headers, bytes | None]:
    parsed = Parser(TopicNames()).parse(list(headers))
    assert not isinstance(parsed, Rejection), parsed
    return parsed


def rejected(*headers: tuple[str, bytes | None]) -> Rejection:
    parsed = Parser(TopicNames()).parse(list(headers))
    assert isinstance(parsed, Rejection), parsed
    return parsed


# --- what is carried --------------------------------------------------------------------------------------------------


def test_a_record_needs_no_more_than_its_topic() -> None:
    assert parse(("REAL_TOPIC", b"orders")) == ("orders", BY_KEY, [], None)


@given(other_headers, st.lists(st.tuples(st.sampled_from(TAKEN_OFF), values), max_size=4), st.randoms())
def test_carried_headers_are_exactly_the_others_in_order(
    others: Headers, instructions: Headers, random: Random
) -> None:
    instructions = [header for header in instructions if header[0] not in ("REAL_TOPIC", "REAL_QID")]
    mixed = [*others]
    for instruction in [*instructions, ("REAL_TOPIC", b"orders")]:
        mixed.insert(random.randint(0, len(mixed)), instruction)
    before = list(mixed)
    parsed = Parser(TopicNames()).parse(mixed)
    assert not isinstance(parsed, Rejection)
    assert parsed[2] == others
    assert mixed == before


def test_duplicates_nulls_and_empty_values_of_others_are_carried() -> None:
    others: Headers = [("TAGS", b"a"), ("KEYS", None), ("TAGS", b""), ("TAGS", b"a"), ("KEYS", b"\xff")]
    assert parse(*others[:2], ("REAL_TOPIC", b"orders"), *others[2:])[2] == others


def test_the_record_keeps_its_own_headers() -> None:
    headers: Headers = [("REAL_TOPIC", b"orders"), ("TAGS", b"a")]
    parsed = Parser(TopicNames()).parse(headers)
    assert not isinstance(parsed, Rejection)
    parsed[2].append(("TIMER_OUT_MS", b"1"))
    assert headers == [("REAL_TOPIC", b"orders"), ("TAGS", b"a")]


@pytest.mark.parametrize("name", sorted(GENERATED_HEADERS))
def test_what_only_the_sidecar_writes_is_dropped_from_others(name: str) -> None:
    assert parse(("REAL_TOPIC", b"orders"), (name, b"1"), (name, None))[2] == []


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", [b"5", b"soon", b"", None])
def test_on_a_level_topic_the_level_alone_says_when(name: str, value: bytes | None) -> None:
    assert parse(("REAL_TOPIC", b"orders"), (name, value)) == ("orders", BY_KEY, [], None)


# --- ours, more than once ---------------------------------------------------------------------------------------------


def test_of_a_repeated_instruction_the_last_one_counts() -> None:
    assert parse(("REAL_TOPIC", b"a"), ("REAL_QID", b"x"), ("REAL_TOPIC", b"b"), ("REAL_QID", b"2"))[:2] == ("b", 2)
    assert rejected(("REAL_TOPIC", b"a"), ("REAL_TOPIC", None)).code is ErrorCode.MISSING_REAL_TOPIC
    assert rejected(("REAL_TOPIC", b"a"), ("REAL_QID", b"1"), ("REAL_QID", b"")).code is ErrorCode.ILLEGAL_REAL_QID


def test_an_id_stays_where_it_stands() -> None:
    _, _, carried, uniq_key = parse(("TAGS", b"a"), ("UNIQ_KEY", b"id"), ("REAL_TOPIC", b"t"), ("KEYS", b"b"))
    assert carried == [("TAGS", b"a"), ("UNIQ_KEY", b"id"), ("KEYS", b"b")]
    assert uniq_key == b"id"


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ([b"a", b"b"], b"b"),
        ([b"a", b"a"], b"a"),
        ([None, b"b"], b"b"),
        ([b"a", None], None),
        ([b"a", b""], None),
        ([b""], None),
        ([None], None),
        ([b"\xff"], b"\xff"),
    ],
)
def test_of_repeated_ids_the_last_one_stays_alone(ids: list[bytes | None], kept: bytes | None) -> None:
    headers = [("UNIQ_KEY", value) for value in ids]
    _, _, carried, uniq_key = parse(("TAGS", b"a"), *headers, ("REAL_TOPIC", b"t"))
    assert uniq_key == kept
    assert [value for name, value in carried if name == "UNIQ_KEY"] == ([] if kept is None else [kept])
    assert ("TAGS", b"a") in carried


@pytest.mark.parametrize(
    "real_topic",
    [b"rmq_sys_wheel_timer", b"CONSUMER_SEND_MSG_BACK", b"SCHEDULE_TOPIC_XXXX-3", b"SCHEDULE_TOPIC_XXXX-wheel"],
)
def test_a_schedule_topic_is_no_destination(real_topic: bytes) -> None:
    assert rejected(("REAL_TOPIC", real_topic)).code is ErrorCode.DESTINATION_NOT_ALLOWED


# --- the destination --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("real_topic", "topic"),
    [
        (b"orders", "orders"),
        (b"%RETRY%g", "RETRY-g"),
        (b"RETRY-g", "RETRY-g"),
        (b"%DLQ%g/eu", "DLQ-enc--g.2Feu"),
        ("%RETRY%é".encode(), "RETRY-enc--.C3.A9"),
        (b"x" * 249, "x" * 249),
    ],
)
def test_the_topic_may_have_either_kind_of_name(real_topic: bytes, topic: str) -> None:
    assert parse(("REAL_TOPIC", real_topic))[0] == topic


@pytest.mark.parametrize("headers", [(), (("REAL_TOPIC", None),), (("REAL_TOPIC", b""),), (("real_topic", b"a"),)])
def test_a_record_without_a_topic_is_rejected(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert rejected(*headers).code is ErrorCode.MISSING_REAL_TOPIC


def test_an_empty_destination_is_not_called_absent() -> None:
    assert rejected(("REAL_TOPIC", b"")).message == "REAL_TOPIC is empty; it names the destination"
    assert "no REAL_TOPIC header" in rejected(("TAGS", b"a")).message


@pytest.mark.parametrize(
    ("real_topic", "shown"),
    [
        (b"\xff\xfe", r"'\xff\xfe'"),
        (b"a b", "'a b'"),
        (b"orders\n", r"'orders\n'"),
        (b" orders", "' orders'"),
        (b".", "'.'"),
        (b"..", "'..'"),
        ("é".encode(), "'é'"),
        (b"a\x00", r"'a\x00'"),
        (b"x" * 250, "'" + "x" * 100 + "'…"),
        (b"%RETRY%" + b"g" * 250, "'%RETRY%" + "g" * 93 + "'…"),
        (b"%OTHER%g", "'%OTHER%g'"),
    ],
)
def test_a_topic_that_kafka_cannot_have_is_rejected_and_shown(real_topic: bytes, shown: str) -> None:
    rejection = rejected(("REAL_TOPIC", real_topic))
    assert rejection.code is ErrorCode.ILLEGAL_REAL_TOPIC
    assert f"REAL_TOPIC is {shown}, " in rejection.message


@pytest.mark.parametrize(("qid", "partition"), [(b"0", 0), (b"7", 7), (b"0007", 7), (b"2147483647", 2**31 - 1)])
def test_a_partition_may_be_named(qid: bytes, partition: int) -> None:
    assert parse(("REAL_TOPIC", b"orders"), ("REAL_QID", qid))[1] == partition


@pytest.mark.parametrize(
    "qid",
    [
        None,
        b"",
        b"-1",
        b"+1",
        b"1.0",
        b" 1",
        b"1\n",
        b"0x1",
        b"1_0",
        "²".encode(),
        b"\xff",
        b"2147483648",
        b"9" * 5_000,
    ],
)
def test_what_is_no_partition_number_is_rejected_in_few_words(qid: bytes | None) -> None:
    rejection = rejected(("REAL_TOPIC", b"orders"), ("REAL_QID", qid))
    assert rejection.code is ErrorCode.ILLEGAL_REAL_QID
    assert len(rejection.message) < 250


@pytest.mark.parametrize("name", CANCELS)
@pytest.mark.parametrize("value", [b"id", b"", None])
def test_nothing_is_cancelled_on_a_level_topic(name: str, value: bytes | None) -> None:
    rejection = rejected((name, value), ("REAL_TOPIC", b"orders"))
    assert rejection.code is ErrorCode.NOT_CANCELLABLE
    assert rejection.message.startswith(name)
    assert rejected((name, value)).code is ErrorCode.NOT_CANCELLABLE


# --- the parser -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([*TAKEN_OFF, "UNIQ_KEY", *CANCELS, "TAGS"]), values), max_size=6))
def test_parsing_again_gives_the_same_answer(headers: Headers) -> None:
    parser = Parser(TopicNames())
    assert parser.parse(headers) == parser.parse(headers) == Parser(TopicNames()).parse(headers)


def test_remembered_destinations_stay_right_when_there_are_many() -> None:
    parser = Parser(TopicNames())
    for number in [*range(10_050), *range(20)]:
        parsed = parser.parse([("REAL_TOPIC", b"%%RETRY%%%d" % number)])
        assert not isinstance(parsed, Rejection)
        assert parsed[0] == f"RETRY-{number}"
    assert len(parser.known_topics) <= 10_000


def test_the_prefix_goes_before_logical_names_alone() -> None:
    parser = Parser(TopicNames(prefix="eu."))
    topics = [parser.parse([("REAL_TOPIC", name)])[0] for name in (b"%RETRY%g", b"orders")]
    assert topics == ["eu.RETRY-g", "orders"]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"17", 17),
        (b"-17", -17),
        (b"-0", 0),
        (b"0" * 30 + b"7", 7),
        (b"-" + b"0" * 30 + b"7", -7),
        (b"9" * 18, 10**18 - 1),
        (b"1" + b"0" * 18, 10**18 - 1),
        (b"9" * 10_000, 10**18 - 1),
        (b"-" + b"9" * 10_000, 1 - 10**18),
        *((value, None) for value in (None, b"", b"-", b"+1", b" 1", b"1 ", b"1.0", b"1_0", b"1e3", b"\xd9\xa1")),
    ],
)
def test_a_whole_number_may_have_any_number_of_digits(value: bytes | None, number: int | None) -> None:
    assert whole_number(value) == number


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), (b"", "''"), (b"a'b", '"a\'b"'), (b"x" * 101, "'" + "x" * 100 + "'…")]
)
def test_a_value_is_shown_printable_and_short(value: bytes | None, text: str) -> None:
    assert show(value) == text
