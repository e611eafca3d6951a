"""What the audit reads in a record, held against what the sidecar reads in it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import DelayLevels, ErrorCode, Headers, TopicNames, decode_group, encode_group
from sidecar.intake.copies import Copies
from sidecar.intake.parse import Parser, whole_number
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.intake.parse_wheel import Cancel, Replace, WheelParser
from sidecar.plan import Plan
from sidecar.records import Rejection
from spark import headers as columns
from spark import tables, topic_kinds
from spark.batch import named_destinations
from tests.support.audit_story import LEVELS, NAMES, SEND_BACK, WHEEL, Read, facts_of

pytestmark = pytest.mark.slow

AT_MS = 1_700_000_000_123
PLAN = Plan(roll_window_ms=2_000, precision_ms=1_000, max_delay_ms=2**63, levels="1s 5s 10s 30s 1m")

HEADER_NAMES = [
    "REAL_TOPIC", "REAL_QID", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "UNIQ_KEY",
    "TIMER_DEL_UNIQKEY", "TIMER_REPLACE_UNIQKEY", "CONSUMER_GROUP", "RETRY_TOPIC", "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES", "ORIGIN_MESSAGE_ID", "REDRIVE_COUNT", "TIMER_OUT_MS", "TAGS", "real_topic",
]  # fmt: skip
VALUES: list[bytes | None] = [
    None, b"", b" ", b"0", b"1", b"3", b"-1", b"-0", b"007", b"17", b"99", b"2147483647", b"2147483648", b"1.5", b" 1",
    b"1 ", b"1\n", b"+1", b"1_0", b"\xd9\xa1", b"9" * 18, b"9" * 19, b"-" + b"9" * 18, b"1700000100000", b"orders",
    b"or ders", b"orders\n", b".", b"..", b"a" * 249, b"a" * 250, "größe".encode(), b"\xff\xfe", b"id-\xc3(", b"id-1",
    b"0" * 20 + b"5", b"-" + b"0" * 30 + b"7", b"-" + b"9" * 19, b"9" * 200, b"0" * 40, b"-",
    b"%RETRY%billing", b"%RETRY%bill ing", b"%RETRY%", b"%DLQ%a/b", b"%DLQ%", b"RETRY-billing", b"RETRY-enc--a.2Fb",
    b"DLQ-billing", b"rmq_sys_wheel_timer", b"CONSUMER_SEND_MSG_BACK", b"SCHEDULE_TOPIC_XXXX-3",
    b"SCHEDULE_TOPIC_XXXX-wheel", b"SCHEDULE_TOPIC_XXXX-", b"SCHEDULE_TOPIC_XXXX-x", b"billing", b"enc--x",
    "gr ü*+%.".encode(), b"timewheel", b"x" * 245, b"__consumer_offsets", b"SCHEDULE_TOPIC_XXXX-redriven",
]  # fmt: skip


def sidecar_reads(record: Read) -> dict[str, Any]:
    """Kind, id, destination, due time and reason, as the sidecar's own parsers have it."""
    parser = Parser(NAMES)
    coordinates = f"{record.topic}-{record.partition}-{record.offset}"
    if record.topic == SEND_BACK:
        return _sent_back(record)
    if record.topic == WHEEL:
        wheel = WheelParser(parser, WHEEL, record.partition, Copies(b"key"))
        asked = wheel.parse(record.headers, record.offset, record.at_ms, PLAN)
        if isinstance(asked, Rejection):
            return {"kind": "invalid", "why": asked.code.value}
        if isinstance(asked, Cancel):
            return {"kind": "cancel", "id": _id(asked.uniq_key), "destination": asked.real_topic}
        replaces = None
        kind = "scheduled"
        if isinstance(asked, Replace):
            kind, replaces, asked = "replace", _id(asked.uniq_key), asked.schedule
        return {
            "kind": kind, "id": _id(asked[3]), "destination": asked[0], "due_ms": asked[4], "replaces": replaces,
        }  # fmt: skip
    found = parser.parse(record.headers)
    if isinstance(found, Rejection):
        return {"kind": "invalid", "why": found.code.value}
    topic, _, _, uniq_key = found
    level = NAMES.level_of(record.topic)
    assert level is not None
    retries = dict(record.headers).get("RECONSUME_TIME")
    is_hop = (whole_number(retries) or 0) > 0 and NAMES.kind(topic) == "retry"
    return {
        "kind": "retry" if is_hop and (whole_number(retries) or 0) <= 2**31 - 1 else "scheduled",
        "id": _id(uniq_key or coordinates.encode()),
        "destination": topic,
        "due_ms": record.at_ms + LEVELS.delay_ms(level),
    }


def _sent_back(record: Read) -> dict[str, Any]:
    parser = SendBackParser(NAMES, LEVELS, own_group="the sidecar's own")
    found = parser.parse(record.headers, f"{record.topic}-{record.partition}-".encode(), record.offset)
    if isinstance(found, Rejection):
        return {"kind": "invalid", "why": found.code.value}
    topic, retry_topic, carried = found
    told = dict(carried)
    level = NAMES.level_of(topic)
    return {
        "kind": "send_back",
        "id": _id(told["UNIQ_KEY"] or b""),
        "destination": retry_topic or topic,
        "retries": int(told["RECONSUME_TIME"] or b""),
        "due_ms": record.at_ms + (0 if level is None else LEVELS.delay_ms(level)),
        "group": (told["CONSUMER_GROUP"] or b"").decode(),
    }


def _id(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02X}" for byte in raw)


def assert_agreed(spark: SparkSession, records: Sequence[Read]) -> set[tuple[str, str | None]]:
    """Every record is read alike; kinds and reasons that came up."""
    rows = {(row["topic"], row["offset"]): row.asDict() for row in facts_of(spark, records).collect()}
    seen = set()
    for record in records:
        expected = sidecar_reads(record)
        row = rows[record.topic, record.offset]
        assert {name: row[name] for name in expected} == expected, record
        seen.add((row["kind"], row["why"]))
    return seen


def a_record(rng: random.Random, topic: str, offset: int) -> Read:
    """With a good record's headers nearly always, and some odd ones."""
    good: Headers = {
        SEND_BACK: [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders"), ("UNIQ_KEY", b"id-1")],
        WHEEL: [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_MS", b"500"), ("UNIQ_KEY", b"id-1")],
    }.get(topic, [("REAL_TOPIC", b"orders"), ("UNIQ_KEY", b"id-1")])
    headers = [header for header in good if rng.random() < 0.85]
    odd = [(rng.choice(HEADER_NAMES), rng.choice(VALUES)) for _ in range(rng.choice([0, 1, 1, 2, 3, 6]))]
    headers += odd
    if rng.random() < 0.3:
        rng.shuffle(headers)
    return Read(topic, headers, AT_MS + rng.randrange(10_000), offset)


TOPICS = [NAMES.level(1), NAMES.level(5), WHEEL, SEND_BACK]


def test_every_combination_of_odd_headers_is_read_as_the_sidecar_reads_it(spark: SparkSession) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    singles = [
        Read(
            topic, [("REAL_TOPIC", b"orders"), ("CONSUMER_GROUP", b"g"), ("RETRY_TOPIC", b"t"), (name, value)], AT_MS, 0
        )
        for topic in TOPICS
        for name in HEADER_NAMES
        for value in VALUES
    ]
    singles += [
        Read(topic, [("REAL_TOPIC", destination), ("RECONSUME_TIME", retries)], AT_MS, 0)
        for topic in TOPICS
        for destination in (b"%RETRY%billing", b"RETRY-billing", b"%DLQ%billing", b"orders")
        for retries in (b"0", b"2", b"2147483647")
    ]
    records = [record._replace(offset=offset) for offset, record in enumerate(singles)]
    records += [a_record(rng, rng.choice(TOPICS), len(records) + number) for number in range(4_000)]
    seen = assert_agreed(spark, records)
    decided_elsewhere = {
        "DESTINATION_REFUSED",
        "UNKNOWN_DESTINATION",
        "RECORD_TOO_LARGE",
        "TOO_MANY_GROUP_TOPICS",
        "UNREADABLE_HEADERS",
    }
    assert {why for _, why in seen} == {None, *(code.value for code in ErrorCode)} - decided_elsewhere
    assert {kind for kind, _ in seen} == {"scheduled", "cancel", "replace", "send_back", "retry", "invalid"}


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(HEADER_NAMES),
        st.one_of(st.none(), st.sampled_from(VALUES), st.binary(max_size=12), st.integers().map(lambda n: b"%d" % n)),
    ),
    max_size=7,
)


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(many=st.lists(st.tuples(st.sampled_from(TOPICS), HEADERS), min_size=50, max_size=150))
def test_headers_that_nobody_thought_of_are_read_as_the_sidecar_reads_them(
    spark: SparkSession, many: list[tuple[str, Headers]]
) -> None:
    assert_agreed(spark, [Read(topic, headers, AT_MS, offset) for offset, (topic, headers) in enumerate(many)])


def test_arrivals_copies_and_dead_letters_are_told_apart(spark: SparkSession) -> None:
    copy = [("REAL_TOPIC", b"orders"), ("TIMER_DELIVER_MS", b"1700000100000"), ("UNIQ_KEY", b"a")]
    redriven = [("UNIQ_KEY", b"e"), ("RETRY_TOPIC", b"%RETRY%mails"), ("CONSUMER_GROUP", b"billing")]
    letter = [("ERROR_CODE", b"NO_DELIVERY_TIME"), ("ERROR_TOPIC", WHEEL.encode()), ("ERROR_PARTITION", b"2")]
    records = [
        Read("orders", [("UNIQ_KEY", b"a"), ("TIMER_OUT_MS", b"17"), ("REDRIVE_COUNT", b"2")], AT_MS, 0),
        Read("orders", [("TAGS", b"none of ours")], AT_MS, 1),
        Read("orders", [("UNIQ_KEY", b"b"), ("UNIQ_KEY", b"c")], AT_MS, 2),
        Read("RETRY-enc--a.2Fb", [("UNIQ_KEY", b"a"), ("RECONSUME_TIME", b"3")], AT_MS, 3),
        Read("DLQ-billing", [("UNIQ_KEY", b"a"), ("RECONSUME_TIME", b"17")], AT_MS, 4),
        Read("DLQ-timewheel", [*letter, ("ERROR_OFFSET", b"5")], AT_MS, 5),
        Read("DLQ-billing", [*letter, ("UNIQ_KEY", b"app")], AT_MS, 6),
        Read(WHEEL, [*copy, ("TIMER_ORIGIN_OFFSET", b"3"), ("TIMER_ROLL_TIMES", b"1")], AT_MS, 7),
        Read(WHEEL, [*copy, ("TIMER_ORIGIN_OFFSET", b"8"), ("TIMER_ROLL_TIMES", b"1")], AT_MS, 8),
        Read(WHEEL, [*copy, ("TIMER_NOT_BEFORE_MS", b"99")], AT_MS, 9),
        Read("DLQ-ops", [*letter, ("ERROR_OFFSET", b"5"), ("RECONSUME_TIME", b"1"), ("UNIQ_KEY", b"d")], AT_MS, 10),
        Read("DLQ-timewheel", [("RECONSUME_TIME", b"1"), *letter, ("ERROR_OFFSET", b"5")], AT_MS, 11),
        Read("orders", [*redriven, ("REDRIVE_COUNT", b"1")], AT_MS, 12),
        Read("orders", redriven, AT_MS, 13),
    ]
    facts = {row["offset"]: row.asDict() for row in facts_of(spark, records).collect()}
    told = {offset: (row["kind"], row["id"], row["destination"], row["retries"]) for offset, row in facts.items()}
    assert told == {
        0: ("delivered", "a", "orders", 0),
        2: ("delivered", "c", "orders", 0),
        3: ("delivered", "a", "RETRY-enc--a.2Fb", 3),
        4: ("dead_letter", "a", "DLQ-billing", 17),
        5: ("rejected", f"{WHEEL}-2-5", "DLQ-timewheel", 0),
        6: ("dead_letter", "app", "DLQ-billing", 0),
        7: ("rolled", "a", "orders", 0),
        8: ("scheduled", "a", "orders", 0),
        9: ("postponed", "a", "orders", 0),
        10: ("dead_letter", "d", "DLQ-ops", 1),
        11: ("rejected", f"{WHEEL}-2-5", "DLQ-timewheel", 1),
        12: ("delivered", "e", "orders", 0),
        13: ("delivered", "e", "orders", 0),
    }
    assert (facts[0]["due_ms"], facts[0]["redrives"]) == (17, 2)
    assert facts[3]["group"] == "a/b"
    whose = {offset: (facts[offset]["group"], facts[offset]["of_topic"]) for offset in (0, 12, 13)}
    assert whose == {0: (None, None), 12: ("billing", "RETRY-mails"), 13: (None, None)}
    assert (facts[5]["of_topic"], facts[5]["of_partition"], facts[5]["of_offset"]) == (WHEEL, 2, 5)
    assert (facts[7]["of_topic"], facts[7]["of_partition"], facts[7]["of_offset"]) == (WHEEL, 0, 3)


def test_destinations_are_those_asked_for_and_those_that_dead_letters_may_go_back_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    origins = [b"payments", b"%RETRY%other", b"__consumer_offsets", b"no topic", b"\xff", None]
    records = [
        Read("DLQ-billing", [("UNIQ_KEY", b"a"), ("RETRY_TOPIC", origin)], AT_MS, offset)
        for offset, origin in enumerate(origins)
    ]
    records.append(Read(WHEEL, [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_MS", b"1")], AT_MS, 0))
    records.append(Read(SEND_BACK, [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"not dead")], AT_MS, 0))
    tables.write_facts(facts_of(spark, records), str(tmp_path), "overwrite")
    assert named_destinations(spark, str(tmp_path), NAMES) == {"orders", "payments"}


def test_a_huge_id_is_cut_and_still_its_own(spark: SparkSession) -> None:
    records = [Read("orders", [("UNIQ_KEY", b"x" * 500_000 + end)], AT_MS, n) for n, end in enumerate([b"1", b"2"])]
    ids = [row["id"] for row in facts_of(spark, records).collect()]
    assert len(set(ids)) == 2
    assert max(map(len, ids)) < columns.ID_MAX_BYTES


def test_bytes_that_are_no_text_are_not_taken_for_the_text_that_they_are_shown_as(spark: SparkSession) -> None:
    given = [b"\xff", b"\\xFF", b"\\x5C\\x78\\x46\\x46", b"\\xff", b"\\xFF.", b"\xff\\xFF"]
    records = [Read("orders", [("UNIQ_KEY", uniq_key)], AT_MS, offset) for offset, uniq_key in enumerate(given)]
    ids = {row["offset"]: row["id"] for row in facts_of(spark, records).collect()}
    assert [ids[offset] for offset in (0, 1, 3, 4)] == ["\\xFF", "\\x5C\\x78\\x46\\x46", "\\xff", "\\xFF."]
    assert len(set(ids.values())) == len(given)


GROUPS = [
    "billing",
    "a/b",
    "enc--x",
    "enc--a.2Fb",
    "ü*+ %.",
    "ends.",
    "-_.",
    "a b",
    "x" * 240,
    "%2F",
    "enc--",
    "\U0001f600",
]


@pytest.mark.parametrize(
    "names",
    [TopicNames(), TopicNames("p.", "s.{queue}.q", "{group}.retry", "dead-{group}-letters")],
    ids=["default", "templates"],
)
def test_topic_names_are_read_and_written_as_the_contract_does(spark: SparkSession, names: TopicNames) -> None:
    given = [*GROUPS, *map(encode_group, GROUPS)]
    topics = [*names.schedule_topics(LEVELS), names.redriven, "orders", names.level(0) + "x", names.prefix]
    topics += ["%RETRY%", "%DLQ%"]
    topics += [name for group in given for name in (names.retry(group), names.dead_letter(group), f"%RETRY%{group}")]
    frame = spark.createDataFrame([(text,) for text in [*given, *topics]], "name string")
    rows = frame.select(
        "name",
        columns.encode_group(F.col("name")).alias("encoded"),
        columns.decode_group(F.col("name")).alias("decoded"),
        columns.physical(F.col("name"), names).alias("physical"),
        topic_kinds.kind(F.col("name"), names).alias("kind"),
        topic_kinds.group(F.col("name"), names).alias("group"),
        topic_kinds.level(F.col("name"), names).alias("level"),
    ).collect()
    for row in rows:
        name = row["name"]
        assert row["encoded"] == encode_group(name)
        assert row["decoded"] == decode_group(name)
        assert row["physical"] == names.physical(name)
        assert (row["kind"], row["group"], row["level"]) == (
            names.kind(name).value, names.group_of(name), names.level_of(name)
        ), name  # fmt: skip


def test_the_level_table_is_the_one_that_is_given(spark: SparkSession) -> None:
    records = [Read(NAMES.level(2), [("REAL_TOPIC", b"orders")], AT_MS, 0)]
    facts = facts_of(spark, records, levels=DelayLevels.parse("1s 3h")).collect()
    assert [row["due_ms"] for row in facts] == [AT_MS + 3 * 3_600_000]
