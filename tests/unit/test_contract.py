"""The words everybody shares: levels, topic names, groups inside topic names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.contract import (
    CONTROL_HEADERS,
    DEFAULT_LEVELS,
    ERROR_HEADERS,
    GENERATED_HEADERS,
    DelayLevels,
    Header,
    LevelsError,
    TopicKind,
    TopicNames,
    decode_group,
    encode_group,
    is_legal_topic_name,
)

NAMES = TopicNames()

# RocketMQ's default table (MessageStoreConfig.messageDelayLevel), counted from 1.
DEFAULT_LEVELS_MS = {
    1: 1_000,
    2: 5_000,
    3: 10_000,
    4: 30_000,
    5: 60_000,
    6: 120_000,
    7: 180_000,
    8: 240_000,
    9: 300_000,
    10: 360_000,
    11: 420_000,
    12: 480_000,
    13: 540_000,
    14: 600_000,
    15: 1_200_000,
    16: 1_800_000,
    17: 3_600_000,
    18: 7_200_000,
}


# --- levels -----------------------------------------------------------------------------------------------------------


def test_the_default_levels_are_those_of_rocketmq() -> None:
    assert DEFAULT_LEVELS == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    levels = DelayLevels.parse(DEFAULT_LEVELS)
    assert {level: levels.delay_ms(level) for level in levels} == DEFAULT_LEVELS_MS
    assert len(levels) == 18


@pytest.mark.parametrize(
    ("text", "levels_ms"),
    [
        ("1s 5s 10s", {1: 1_000, 2: 5_000, 3: 10_000}),
        ("1s 2m 3h 4d", {1: 1_000, 2: 120_000, 3: 10_800_000, 4: 345_600_000}),
        ("5s 8s", {1: 5_000, 2: 8_000}),
        ("  1s   5s ", {1: 1_000, 2: 5_000}),
        ("3h", {1: 10_800_000}),
        ("250ms 1h30m", {1: 250, 2: 5_400_000}),
        ("3s 1s 3s", {1: 3_000, 2: 1_000, 3: 3_000}),
    ],
)
def test_levels_are_read_from_blank_separated_durations(text: str, levels_ms: dict[int, int]) -> None:
    levels = DelayLevels.parse(text)
    assert {level: levels.delay_ms(level) for level in levels} == levels_ms


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1", "level 1 is '1'"),
        ("s", "level 1 is 's'"),
        ("1x", "level 1 is '1x'"),
        ("1.5s", "level 1 is '1.5s'"),
        ("-1s", "level 1 is '-1s'"),
        ("0s", "level 1 is '0s'"),
        ("1s,5s", "level 1 is '1s,5s'"),
        ("1s 5s 10", "level 3 is '10'"),
        ("1s 0ms", "level 2 is '0ms'"),
        ("", "there is no level"),
        ("   ", "there is no level"),
    ],
)
def test_a_level_that_is_no_duration_is_named(text: str, told: str) -> None:
    with pytest.raises(LevelsError, match=told):
        DelayLevels.parse(text)


@pytest.mark.parametrize(("level", "count", "becomes"), [(19, 18, 18), (3, 2, 2), (1, 18, 1), (18, 18, 18)])
def test_a_level_beyond_the_table_is_the_last_one(level: int, count: int, becomes: int) -> None:
    levels = DelayLevels(tuple(1_000 * number for number in range(1, count + 1)))
    assert levels.clamp(level) == becomes
    assert levels.delay_ms(level) == 1_000 * becomes


@pytest.mark.parametrize("level", [0, -1])
def test_there_is_no_level_below_one(level: int) -> None:
    with pytest.raises(LevelsError, match="counted from 1"):
        DelayLevels((1_000,)).delay_ms(level)


# --- headers ----------------------------------------------------------------------------------------------------------


def test_headers_are_of_one_kind_at_most() -> None:
    assert not CONTROL_HEADERS & GENERATED_HEADERS
    assert not (CONTROL_HEADERS | GENERATED_HEADERS) & ERROR_HEADERS
    delays = ["DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"]
    assert sorted(CONTROL_HEADERS) == sorted(["REAL_TOPIC", "REAL_QID", *delays])


def test_a_header_is_called_what_rocketmq_calls_it() -> None:
    assert all(header.name == header.value for header in Header)


# --- topic names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logical", "physical", "kind"),
    [
        ("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX-wheel", TopicKind.WHEEL),
        ("CONSUMER_SEND_MSG_BACK", "SCHEDULE_TOPIC_XXXX-sendback", TopicKind.SEND_BACK),
        ("%RETRY%billing", "RETRY-billing", TopicKind.RETRY),
        ("%DLQ%billing", "DLQ-billing", TopicKind.DEAD_LETTER),
        ("%RETRY%orders/eu", "RETRY-enc--orders.2Feu", TopicKind.RETRY),
        ("SCHEDULE_TOPIC_XXXX-redriven", "SCHEDULE_TOPIC_XXXX-redriven", TopicKind.REDRIVEN),
        ("%DLQ%billing.parked", "DLQ-billing.parked", TopicKind.DEAD_LETTER),
        ("orders", "orders", TopicKind.OTHER),
    ],
)
def test_a_logical_name_has_a_physical_one_and_back(logical: str, physical: str, kind: TopicKind) -> None:
    assert NAMES.physical(logical) == physical
    assert NAMES.physical(physical) == physical
    assert NAMES.logical(physical) == logical
    assert NAMES.kind(physical) is kind


@pytest.mark.parametrize("name", ["%RETRY%", "%DLQ%"])
def test_a_prefix_without_a_group_names_no_topic(name: str) -> None:
    assert NAMES.physical(name) == name
    assert not is_legal_topic_name(name)


def test_every_level_has_a_topic_and_all_of_them_one_logical_name() -> None:
    levels = DelayLevels.parse("1s 5s")
    assert NAMES.schedule_topics(levels) == [
        "SCHEDULE_TOPIC_XXXX-1",
        "SCHEDULE_TOPIC_XXXX-2",
        "SCHEDULE_TOPIC_XXXX-wheel",
        "SCHEDULE_TOPIC_XXXX-sendback",
    ]
    assert NAMES.logical("SCHEDULE_TOPIC_XXXX-2") == "SCHEDULE_TOPIC_XXXX"
    assert NAMES.level_of("SCHEDULE_TOPIC_XXXX-2") == 2
    assert NAMES.level_of("SCHEDULE_TOPIC_XXXX-wheel") is None
    assert NAMES.level_of("orders") is None


def test_the_prefix_goes_before_every_name_of_ours_and_no_other() -> None:
    names = TopicNames(prefix="eu.")
    assert names.level(1) == "eu.SCHEDULE_TOPIC_XXXX-1"
    assert names.physical("rmq_sys_wheel_timer") == "eu.SCHEDULE_TOPIC_XXXX-wheel"
    assert names.physical("%RETRY%g") == "eu.RETRY-g"
    assert names.dead_letter("g") == "eu.DLQ-g"
    assert names.physical("orders") == "orders"
    assert names.kind("RETRY-g") is TopicKind.OTHER
    assert names.group_of("eu.DLQ-g") == "g"


def test_templates_may_put_the_name_first() -> None:
    names = TopicNames(retry_template="{group}.retry", dead_letter_template="{group}.dlq")
    assert names.retry("g") == "g.retry"
    assert names.group_of("g.retry") == "g"
    assert names.kind("g.dlq") is TopicKind.DEAD_LETTER


@pytest.mark.parametrize(
    "templates",
    [
        {"schedule_template": "WAIT"},
        {"schedule_template": "{queue}{queue}"},
        {"schedule_template": "WAIT-{group}"},
        {"retry_template": "RETRY"},
        {"retry_template": "%RETRY%{group}"},
        {"dead_letter_template": "DLQ/{group}"},
        {"prefix": "a b"},
        {"prefix": "é."},
        {"prefix": "x" * 240},
    ],
)
def test_a_template_that_makes_no_legal_topic_is_refused(templates: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="topic"):
        TopicNames(**templates)


@pytest.mark.parametrize(
    "templates",
    [
        {"retry_template": "X-{group}", "dead_letter_template": "X-{group}"},
        {"retry_template": "RETRY-{group}", "dead_letter_template": "RETRY-DLQ-{group}"},
        {"retry_template": "{group}"},
        {"dead_letter_template": "SCHEDULE_TOPIC_XXXX-{group}"},
        {"schedule_template": "RETRY-{queue}"},
    ],
)
def test_templates_that_could_name_the_same_topic_are_refused(templates: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="make equal names"):
        TopicNames(**templates)


@pytest.mark.parametrize("name", ["orders", "a.b_c-D9", "x" * 249, "...", "%RETRY%g".replace("%", "")])
def test_kafka_takes_letters_digits_dot_underscore_and_hyphen(name: str) -> None:
    assert is_legal_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "%RETRY%g", "a b", "a/b", "é", "orders\n", "a:b", "²"])
def test_kafka_takes_no_other_topic_name(name: str) -> None:
    assert not is_legal_topic_name(name)


def test_a_group_of_plain_letters_stands_as_it_is() -> None:
    assert encode_group("orders.eu_1-a") == "orders.eu_1-a"


@pytest.mark.parametrize(
    ("group", "encoded"), [("a/b", "enc--a.2Fb"), ("a.b/c", "enc--a.2Eb.2Fc"), ("é", "enc--.C3.A9"), ("", "enc--")]
)
def test_other_groups_are_encoded_byte_by_byte(group: str, encoded: str) -> None:
    assert encode_group(group) == encoded
    assert decode_group(encoded) == group


@pytest.mark.parametrize("text", ["enc--orders", "enc--a.2fb", "enc--.FF", "enc--.41", "enc--a.zz"])
def test_a_text_that_encoding_never_writes_stands_for_itself(text: str) -> None:
    assert decode_group(text) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_group_survives_its_topic_names(group: str) -> None:
    assert decode_group(encode_group(group)) == group
    retry = NAMES.retry(group)
    assert is_legal_topic_name(retry) == (len(retry) <= 249)
    assert NAMES.group_of(retry) == group
    assert NAMES.logical(NAMES.dead_letter(group)) == f"%DLQ%{group}"


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_two_groups_never_share_a_topic(one: str, other: str) -> None:
    assert (encode_group(one) == encode_group(other)) == (one == other)
