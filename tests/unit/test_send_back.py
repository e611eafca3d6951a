"""The send-back topic: where a failed message goes, what it carries, and how a partition of them makes progress."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from connectors.contract import DEFAULT_LEVELS, DelayLevels, ErrorCode, Headers, TopicNames, retry_level
from connectors.dead_letters.letter import Reason, reason_of
from connectors.kafka import BY_KEY
from sidecar.dispatch.send_back import SendBackPartition
from sidecar.intake.parse import Parser
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.records import Outgoing, Rejection

TOPIC, PARTITION, NOW_MS, MANY = "SCHEDULE_TOPIC_XXXX-sendback", 2, 1_000_000, 10**9
LEVELS = DelayLevels.parse(DEFAULT_LEVELS)
GROUP: Headers = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders")]

# RocketMQ's table: retried so far, at most, the consumer's DELAY -> level (None: dead).
SEND_BACK = [
    (0, 16, 0, 3),
    (1, 16, 0, 4),
    (15, 16, 0, 18),
    (16, 16, 0, None),
    (40, 16, 0, None),
    (0, 16, -1, None),
    (0, 16, 5, 5),
    (0, 16, 99, 18),
    (0, 0, 0, None),
    (2, 3, 0, 5),
    (3, 3, 0, None),
    (17, 30, 0, 18),
    (0, 2**31 - 2, 0, 3),
]


def parse(headers: Headers, levels: DelayLevels = LEVELS) -> tuple[str, str | None, Headers]:
    parsed = SendBackParser(TopicNames(), levels, "timewheel").parse(headers, b"sb-0-", 7)
    assert not isinstance(parsed, Rejection), parsed
    return parsed


def rejected(*headers: tuple[str, bytes | None]) -> Rejection:
    parsed = SendBackParser(TopicNames(), LEVELS, "timewheel").parse(list(headers), b"sb-0-", 7)
    assert isinstance(parsed, Rejection)
    return parsed


def only(headers: Headers, name: str) -> bytes | None:
    (value,) = [value for header, value in headers if header == name]
    return value


# --- where it goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reconsume", "most", "delay", "level"), SEND_BACK)
def test_the_next_attempt_is_rocketmqs(reconsume: int, most: int, delay: int, level: int | None) -> None:
    assert retry_level(reconsume, most, delay, LEVELS) == level
    asked = {"RECONSUME_TIME": reconsume, "MAX_RECONSUME_TIMES": most, "DELAY": delay}
    topic, retry_topic, carried = parse([*GROUP, *((name, b"%d" % number) for name, number in asked.items())])
    if level is None:
        assert (topic, retry_topic) == ("DLQ-billing", None)
        assert "REAL_TOPIC" not in dict(carried)
    else:
        assert (topic, retry_topic) == (f"SCHEDULE_TOPIC_XXXX-{level}", "RETRY-billing")
        assert only(carried, "REAL_TOPIC") == b"RETRY-billing"
    assert only(carried, "RECONSUME_TIME") == b"%d" % (reconsume + 1)
    assert "DELAY" not in dict(carried), "a leftover DELAY would delay a dead letter"


def test_sixteen_retries_take_as_long_as_rocketmqs() -> None:
    levels = [retry_level(reconsume, 16, 0, LEVELS) for reconsume in range(16)]
    assert sum(LEVELS.delay_ms(level) for level in levels if level is not None) == 17_140_000


def test_without_numbers_it_is_the_first_of_sixteen_retries() -> None:
    topic, _, carried = parse([*GROUP, ("DELAY", None), ("RECONSUME_TIME", None), ("MAX_RECONSUME_TIMES", None)])
    assert topic == "SCHEDULE_TOPIC_XXXX-3"
    assert only(carried, "RECONSUME_TIME") == b"1"
    assert parse([*GROUP, ("RECONSUME_TIME", b"15")])[0] == "SCHEDULE_TOPIC_XXXX-18"
    assert parse([*GROUP, ("RECONSUME_TIME", b"16")])[0] == "DLQ-billing"


def test_a_short_table_of_levels_ends_at_its_last() -> None:
    assert parse(GROUP, DelayLevels.parse("1s 5s"))[0] == "SCHEDULE_TOPIC_XXXX-2"


def test_a_group_that_is_no_topic_name_is_encoded() -> None:
    topic, retry_topic, carried = parse([("CONSUMER_GROUP", b"billing/eu"), ("RETRY_TOPIC", b"orders")])
    assert (topic, retry_topic) == ("SCHEDULE_TOPIC_XXXX-3", "RETRY-enc--billing.2Feu")
    assert only(carried, "CONSUMER_GROUP") == b"billing/eu"


# --- what it carries --------------------------------------------------------------------------------------------------


def test_the_message_keeps_its_own_headers_in_order_and_loses_all_instructions() -> None:
    own: Headers = [("TAGS", b"a"), ("x", None), ("TAGS", b"b"), ("KEYS", b"")]
    spent = ("REAL_QID", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "REAL_TOPIC")
    _, _, carried = parse([*own[:2], *((name, b"1") for name in spent), *GROUP, *own[2:]])
    assert carried == [
        *own,
        ("REAL_TOPIC", b"RETRY-billing"),
        *GROUP,
        ("RECONSUME_TIME", b"1"),
        ("UNIQ_KEY", b"sb-0-7"),
        ("ORIGIN_MESSAGE_ID", b"sb-0-7"),
    ]


@pytest.mark.parametrize(
    ("given", "uniq_key", "origin_id"),
    [
        ({}, b"sb-0-7", b"sb-0-7"),
        ({"UNIQ_KEY": b"one"}, b"one", b"one"),
        ({"ORIGIN_MESSAGE_ID": b"orders-0-3"}, b"orders-0-3", b"orders-0-3"),
        ({"UNIQ_KEY": b"one", "ORIGIN_MESSAGE_ID": b"first"}, b"one", b"first"),
        ({"UNIQ_KEY": b"", "ORIGIN_MESSAGE_ID": None}, b"sb-0-7", b"sb-0-7"),
    ],
)
def test_its_ids_are_those_of_the_first_failure(given: dict[str, bytes], uniq_key: bytes, origin_id: bytes) -> None:
    _, _, carried = parse([*given.items(), *GROUP])
    assert (only(carried, "UNIQ_KEY"), only(carried, "ORIGIN_MESSAGE_ID")) == (uniq_key, origin_id)


def test_of_a_header_that_comes_twice_the_last_one_counts() -> None:
    twice: Headers = [("RECONSUME_TIME", b"1"), ("RECONSUME_TIME", b"2"), ("UNIQ_KEY", b"a"), ("UNIQ_KEY", b"b")]
    topic, _, carried = parse([("CONSUMER_GROUP", b"other"), ("RETRY_TOPIC", b"bills"), *twice, *GROUP])
    assert topic == "SCHEDULE_TOPIC_XXXX-5"
    assert [only(carried, name) for name in ("CONSUMER_GROUP", "RETRY_TOPIC", "RECONSUME_TIME", "UNIQ_KEY")] == [
        b"billing",
        b"orders",
        b"3",
        b"b",
    ]


@pytest.mark.parametrize("added", [b"RETRY-billing", b"%RETRY%billing"])
def test_the_origin_stays_the_first_topic_where_a_consumer_adds_the_one_it_read_from(added: bytes) -> None:
    assert only(parse([*GROUP, ("RETRY_TOPIC", added)])[2], "RETRY_TOPIC") == b"orders"
    assert only(parse([("RETRY_TOPIC", added), *GROUP])[2], "RETRY_TOPIC") == b"orders"


@pytest.mark.parametrize("adds", [True, False], ids=["consumer adds headers", "consumer replaces headers"])
def test_after_sixteen_hops_there_are_as_many_headers_as_after_one(*, adds: bool) -> None:
    names = TopicNames()
    headers: Headers = [("TAGS", b"a"), ("UNIQ_KEY", b"one"), ("TIMER_OUT_MS", b"1")]
    counts = []
    for hop in range(17):
        headers = [*headers, *GROUP] if adds or hop == 0 else headers
        topic, retry_topic, carried = parse(headers)
        if retry_topic is None:
            headers = [*carried, ("TIMER_OUT_MS", b"2")]
        else:  # as the level topic delivers it
            delivered = Parser(names).parse(carried)
            assert not isinstance(delivered, Rejection)
            assert delivered[0] == "RETRY-billing"
            headers = [*delivered[2], ("TIMER_OUT_MS", b"2")]
        counts.append(len(headers))
    assert topic == "DLQ-billing"
    assert only(headers, "RECONSUME_TIME") == b"17"
    assert only(headers, "UNIQ_KEY") == only(headers, "ORIGIN_MESSAGE_ID") == b"one"
    assert set(counts) == {7}


def test_a_consumer_of_dead_letters_has_its_retries_with_the_errors_they_are_about_and_its_letter_is_its_own() -> None:
    headers: Headers = [("ERROR_CODE", b"E"), ("ERROR_TOPIC", b"t"), ("ERROR_OFFSET", b"5")]
    counts = []
    for delay in (b"0", b"0", b"-1"):
        _, retry_topic, carried = parse([*headers, *GROUP, ("DELAY", delay)])
        assert carried[:3] == [("ERROR_CODE", b"E"), ("ERROR_TOPIC", b"t"), ("ERROR_OFFSET", b"5")]
        headers = [header for header in carried if header[0] != "REAL_TOPIC"]
        counts.append(len(headers))
    assert retry_topic is None
    assert reason_of(dict(headers)) == Reason.GIVEN_UP
    assert set(counts) == {8}


# --- what is rejected -------------------------------------------------------------------------------------------------

ORDERS = ("RETRY_TOPIC", b"orders")
BILLING = ("CONSUMER_GROUP", b"billing")


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        (ErrorCode.MISSING_CONSUMER_GROUP, [ORDERS]),
        (ErrorCode.MISSING_CONSUMER_GROUP, [ORDERS, ("CONSUMER_GROUP", b"")]),
        (ErrorCode.ILLEGAL_CONSUMER_GROUP, [ORDERS, ("CONSUMER_GROUP", b"\xff")]),
        (ErrorCode.ILLEGAL_CONSUMER_GROUP, [ORDERS, ("CONSUMER_GROUP", b"timewheel")]),
        (ErrorCode.ILLEGAL_CONSUMER_GROUP, [ORDERS, ("CONSUMER_GROUP", b"g" * 250)]),
        (ErrorCode.ILLEGAL_CONSUMER_GROUP, [ORDERS, ("CONSUMER_GROUP", b"/" * 90)]),
        (ErrorCode.MISSING_RETRY_TOPIC, [BILLING]),
        (ErrorCode.MISSING_RETRY_TOPIC, [BILLING, ("RETRY_TOPIC", None)]),
        (ErrorCode.ILLEGAL_RETRY_TOPIC, [BILLING, ("RETRY_TOPIC", b"no such/name")]),
        (ErrorCode.ILLEGAL_RETRY_TOPIC, [BILLING, ("RETRY_TOPIC", b"\xff")]),
        *(
            (ErrorCode.DESTINATION_NOT_ALLOWED, [BILLING, ("RETRY_TOPIC", topic)])
            for topic in (b"__consumer_offsets", b"SCHEDULE_TOPIC_XXXX-redriven", b"SCHEDULE_TOPIC_XXXX-idempotency")
        ),
        *(
            (ErrorCode.ILLEGAL_RECONSUME_TIMES, [BILLING, ORDERS, (name, value)])
            for name in ("RECONSUME_TIME", "MAX_RECONSUME_TIMES")
            for value in (b"", b"one", b"-1", b"1.5", b"2147483648", b"9" * 30)
        ),
        *((ErrorCode.ILLEGAL_DELIVERY_TIME, [BILLING, ORDERS, ("DELAY", value)]) for value in (b"", b"10s")),
    ],
)
def test_what_cannot_be_retried_is_rejected(code: ErrorCode, headers: Headers) -> None:
    assert rejected(*headers).code is code
    assert rejected(*headers).message


def test_what_is_remembered_of_routes_is_bounded_in_bytes_too() -> None:
    """Of a header that comes twice the last counts: before it anything may stand."""
    parser = SendBackParser(TopicNames(), LEVELS, "timewheel")
    headers: Headers = [("DELAY", b"1" * 10**6), ("DELAY", b"0"), ("CONSUMER_GROUP", b"g"), ("RETRY_TOPIC", b"orders")]
    for number in range(3):
        headers[0] = ("DELAY", b"%d" % number * 10**6)
        assert parser.parse(headers, b"sb-0-", 7)[:2] == ("SCHEDULE_TOPIC_XXXX-3", "RETRY-g")
    assert not parser._routes
    parser.parse(headers[1:], b"sb-0-", 7)
    assert len(parser._routes) == 1


# --- a partition ------------------------------------------------------------------------------------------------------


def a_partition(
    judge: Callable[[str], int | Rejection] = lambda _: 1, *, trace: bool = False, **limits: int
) -> SendBackPartition:
    def judge_all(topics: Collection[str]) -> dict[str, int | Rejection]:
        return {topic: judge(topic) for topic in topics}

    return SendBackPartition(
        TOPIC,
        PARTITION,
        start_offset=5,
        parser=SendBackParser(TopicNames(), LEVELS, "timewheel"),
        judge_all=judge_all,
        trace=trace,
        **{"max_records": MANY, "max_bytes": MANY, **limits},
    )


def a_message(
    offset: int, *headers: tuple[str, bytes | None], timestamp_ms: int = NOW_MS - 10, **parts: Any
) -> Message:
    return Message(
        topic=TOPIC,
        partition=PARTITION,
        offset=offset,
        headers=[*GROUP, *headers],
        timestamp=(2, timestamp_ms),
        **{"key": b"k", "value": b"v%d" % offset, **parts},
    )


@pytest.mark.parametrize("count", [1, 200])  # each by itself, and as records that are alike
@pytest.mark.parametrize("trace", [False, True])
def test_what_is_given_up_says_when_it_was_read_where_that_is_asked_for(count: int, trace: bool) -> None:
    partition = a_partition(trace=trace)
    partition.offer([a_message(5 + number, ("DELAY", b"-1")) for number in range(count)], NOW_MS)
    for _, _, _, _, headers, *_ in partition.take(NOW_MS, count, MANY):
        told = dict(headers)
        assert told["TIMER_OUT_MS"] == b"%d" % (NOW_MS - 10)
        assert told.get("TIMER_ENQUEUE_MS") == (b"%d" % NOW_MS if trace else None)


def offsets(records: list[Outgoing]) -> list[int]:
    return [record[6] for record in records]


def test_what_has_been_read_goes_on_at_once_in_order_and_the_offset_follows() -> None:
    partition = a_partition()
    assert partition.next_due_ms is None
    assert not partition.has_progress
    partition.offer([a_message(offset) for offset in range(3, 9)], NOW_MS)
    assert (partition.next_due_ms, partition.waiting, partition.position) == (NOW_MS, 4, 9)
    for expected, done in (([5, 6], 7), ([7, 8], 9), ([], 9)):
        taken = partition.take(NOW_MS, 2, MANY)
        assert (offsets(taken), partition.progress) == (expected, (done, ""))
        partition.confirm()
    assert partition.next_due_ms is None


def test_what_was_read_piece_by_piece_goes_on_in_one_transaction() -> None:
    partition = a_partition()
    for offset in range(5, 9):
        partition.offer([a_message(offset)], NOW_MS + offset)
    for most, expected in ((3, [5, 6, 7]), (1, [8])):
        assert offsets(partition.take(NOW_MS + 9, most, MANY)) == expected
        partition.confirm()
    partition.offer([a_message(9)], NOW_MS)
    partition.offer([a_message(10)], NOW_MS)
    assert offsets(partition.take(NOW_MS, MANY, 1)) == [9]  # by bytes one is enough


def test_an_aborted_transaction_is_taken_again() -> None:
    partition = a_partition()
    partition.offer([a_message(offset) for offset in range(5, 9)], NOW_MS)
    first = partition.take(NOW_MS, 3, MANY)
    partition.put_back()
    assert partition.progress == (5, "")
    assert partition.take(NOW_MS, 3, MANY) == first


def test_the_end_of_the_log_is_progress() -> None:
    partition = a_partition()
    partition.reached_end(11)
    assert partition.has_progress
    assert partition.take(NOW_MS, 0, 0) == []
    assert partition.progress == (11, "")
    partition.confirm()
    assert not partition.has_progress


def test_what_is_read_while_a_transaction_commits_is_not_committed_with_it() -> None:
    partition = a_partition()
    partition.offer([a_message(5)], NOW_MS)
    partition.take(NOW_MS, MANY, MANY)
    assert partition.progress == (6, "")
    partition.reached_end(7)
    partition.confirm()
    assert partition.has_progress
    partition.take(NOW_MS, 0, 0)
    assert partition.progress == (7, "")
    partition.confirm()
    assert not partition.has_progress


def test_a_partition_is_full_and_has_room_again_at_half() -> None:
    partition = a_partition(max_records=4)
    partition.offer([a_message(offset) for offset in range(5, 9)], NOW_MS)
    assert partition.is_full
    assert not partition.has_room
    partition.take(NOW_MS, 2, MANY)
    assert not partition.is_full
    assert partition.has_room


def test_a_dead_letter_says_since_when_it_has_been_dead_and_its_key_and_value_are_untouched() -> None:
    partition = a_partition()
    partition.offer([a_message(5, ("DELAY", b"-1"), key=None, value=b"\x00\xff")], NOW_MS)
    ((topic, number, key, value, headers, due_ms, offset, _),) = partition.take(NOW_MS, 1, MANY)
    assert (topic, number, key, value, due_ms, offset) == ("DLQ-billing", BY_KEY, None, b"\x00\xff", NOW_MS - 10, 5)
    assert only(headers, "TIMER_OUT_MS") == b"%d" % (NOW_MS - 10)


def test_a_bad_record_stands_in_its_place_with_its_reason_and_its_headers() -> None:
    partition = a_partition()
    bad = a_message(6, ("DELAY", b"soon"))
    partition.offer([a_message(5), bad, a_message(7)], NOW_MS)
    good, record, _ = partition.take(NOW_MS, 9, MANY)
    assert good[0] == "SCHEDULE_TOPIC_XXXX-3"
    assert isinstance(record[0], Rejection)
    assert record[0].code is ErrorCode.ILLEGAL_DELIVERY_TIME
    assert record[7] == [*GROUP, ("DELAY", b"soon")]


def test_only_the_records_of_a_group_that_may_have_no_topic_are_rejected() -> None:
    no = Rejection(ErrorCode.DESTINATION_NOT_ALLOWED, "no")
    partition = a_partition(lambda topic: no if topic == "RETRY-other" else 1)
    other = ("CONSUMER_GROUP", b"other")
    partition.offer([a_message(5), a_message(6, other), a_message(7)], NOW_MS)
    assert [record[0] for record in partition.take(NOW_MS, 9, MANY)] == [
        "SCHEDULE_TOPIC_XXXX-3",
        no,
        "SCHEDULE_TOPIC_XXXX-3",
    ]


def test_without_a_verdict_nothing_is_taken() -> None:
    verdicts: list[int | Exception] = [KafkaException(KafkaError(KafkaError._TIMED_OUT)), 1]

    def judge(_: str) -> int:
        verdict = verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    partition = a_partition(judge)
    partition.offer([a_message(5)], NOW_MS)
    with pytest.raises(KafkaException):
        partition.take(NOW_MS, 9, MANY)
    assert (partition.waiting, partition.progress) == (1, (5, ""))
    assert offsets(partition.take(NOW_MS, 9, MANY)) == [5]


def test_retry_topics_are_judged_as_long_as_something_waits_for_them() -> None:
    judged: list[str] = []

    def judge(topic: str) -> int:
        judged.append(topic)
        return 1

    partition = a_partition(judge)
    partition.offer([a_message(5), a_message(6, ("DELAY", b"-1"))], NOW_MS)
    partition.take(NOW_MS, 9, MANY)
    partition.confirm()
    assert judged == ["RETRY-billing"]
    partition.offer([a_message(7, ("DELAY", b"-1"))], NOW_MS)
    partition.take(NOW_MS, 9, MANY)
    assert judged == ["RETRY-billing"]


def test_a_retry_topic_that_is_not_created_in_time_holds_up_nothing() -> None:
    """Whether it can be had is asked again when the retry is due."""
    partition = a_partition()
    partition._judge_all = lambda topics: dict.fromkeys(topics - {"RETRY-new"}, 1)
    partition.offer([a_message(5, ("CONSUMER_GROUP", b"new")), a_message(6)], NOW_MS)
    assert [record[0] for record in partition.take(NOW_MS, 9, MANY)] == ["SCHEDULE_TOPIC_XXXX-3"] * 2


def test_nobody_asks_for_the_retry_topics_of_what_has_gone_on_while_more_comes() -> None:
    """Groups that come and go would be asked for, each of them, as long as something waits."""
    asked: list[set[str]] = []
    partition = a_partition()
    partition._judge_all = lambda topics: asked.append(set(topics)) or {}  # type: ignore[func-returns-value]
    partition.offer([a_message(5, ("CONSUMER_GROUP", b"0"))], NOW_MS)
    for number in range(1, 4):
        partition.offer([a_message(5 + number, ("CONSUMER_GROUP", b"%d" % number))], NOW_MS)
        assert offsets(partition.take(NOW_MS, 1, MANY)) == [4 + number]
        partition.confirm()
    assert asked == [{"RETRY-0", "RETRY-1"}, {"RETRY-1", "RETRY-2"}, {"RETRY-2", "RETRY-3"}]


def test_a_retry_topic_that_cannot_be_had_is_that_of_its_own_retries_alone() -> None:
    """Whatever else names it: a message's own headers are its producer's."""
    refusal = Rejection(ErrorCode.DESTINATION_REFUSED, "no")
    partition = a_partition(lambda topic: refusal if topic == "RETRY-billing" else 1)
    named = ("note", b"RETRY-billing")
    partition.offer([a_message(5), a_message(6, ("CONSUMER_GROUP", b"shipping"), named)], NOW_MS)
    assert [record[0] for record in partition.take(NOW_MS, 9, MANY)] == [refusal, "SCHEDULE_TOPIC_XXXX-3"]
