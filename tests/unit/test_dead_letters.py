"""Rejected records: as they came, with the reason and where it is to be found."""

from confluent_kafka import KafkaError

from connectors.contract import ERROR_HEADERS, ErrorCode, Headers
from connectors.kafka import BY_KEY
from sidecar.dispatch.dead_letters import Size, dead_letter, too_large
from sidecar.dispatch.refusals import rejection_of
from sidecar.records import Outgoing, Rejection

REJECTION = Rejection(ErrorCode.UNKNOWN_DESTINATION, "there is no topic 'orders' — create it")


def a_letter(
    headers: Headers, key: bytes | None = b"k", value: bytes | None = b"v", size: Size = Size.WHOLE
) -> Outgoing:
    record: Outgoing = ("orders", BY_KEY, key, value, [("CARRIED", b"not this")], 7, 2**40, headers)
    return dead_letter(
        "DLQ-timewheel", REJECTION, record, source_topic="SCHEDULE_TOPIC_XXXX-3", source_partition=4, size=size
    )


ERRORS: Headers = [
    ("ERROR_CODE", b"UNKNOWN_DESTINATION"),
    ("ERROR_MESSAGE", "there is no topic 'orders' — create it".encode()),
    ("ERROR_TOPIC", b"SCHEDULE_TOPIC_XXXX-3"),
    ("ERROR_PARTITION", b"4"),
    ("ERROR_OFFSET", b"1099511627776"),
]


def test_a_dead_letter_is_the_record_as_it_came_and_the_reason_behind_it() -> None:
    headers: Headers = [("REAL_TOPIC", b"orders"), ("TAGS", None), ("REAL_QID", b"3"), ("TAGS", b"")]
    before = list(headers)
    topic, partition, key, value, carried, due_ms, offset, source_headers = a_letter(headers)
    assert (topic, partition, key, value) == ("DLQ-timewheel", BY_KEY, b"k", b"v")
    assert carried == [*before, *ERRORS]
    assert (due_ms, offset) == (7, 2**40)
    assert source_headers == headers == before


def test_the_reason_replaces_that_of_an_earlier_life() -> None:
    earlier: Headers = [(name, b"old") for name in sorted(ERROR_HEADERS)]
    headers: Headers = [*earlier, ("A", b"1"), *earlier, ("ERROR_CODES", b"kept"), ("A", b"2")]
    assert a_letter(headers)[4] == [("A", b"1"), ("ERROR_CODES", b"kept"), ("A", b"2"), *ERRORS]


def test_a_record_without_headers_key_or_value_becomes_a_letter_too() -> None:
    letter = a_letter([], None, None)
    assert letter[2:5] == (None, None, ERRORS)


def test_a_letter_without_its_value_says_so_and_where_the_value_is() -> None:
    letter = a_letter([("A", b"1"), ("A", None)], value=b"12345")
    smaller = a_letter([("A", b"1"), ("A", None)], value=b"12345", size=Size.WITHOUT_VALUE)
    assert smaller[3] is None
    assert smaller[:3] == letter[:3]
    assert smaller[5:] == letter[5:]
    message = dict(smaller[4])["ERROR_MESSAGE"] or b""
    assert message.startswith(REJECTION.message.encode())
    assert b"the value of 5 bytes is too large" in message
    assert b"ERROR_TOPIC, ERROR_OFFSET" in message
    assert dict(smaller[4])["ERROR_OMITTED"] == b"value"
    assert [header for header in smaller[4] if header[0] not in ("ERROR_MESSAGE", "ERROR_OMITTED")] == [
        header for header in letter[4] if header[0] != "ERROR_MESSAGE"
    ]
    assert dict(letter[4])["ERROR_MESSAGE"] == REJECTION.message.encode()


def test_the_smallest_letter_is_the_reason_alone() -> None:
    _, _, key, value, headers, *_ = a_letter([("A", b"1")], size=Size.REASON_ONLY)
    assert (key, value) == (None, None)
    assert headers[0] == ("ERROR_OMITTED", b"record")
    assert [name for name, _ in headers[1:]] == [name for name, _ in ERRORS]
    assert b"key, value and headers are too large" in (dict(headers)["ERROR_MESSAGE"] or b"")


def test_a_record_that_is_too_large_names_its_size_and_the_topic() -> None:
    record: Outgoing = ("orders", BY_KEY, b"k", bytes(1_234_560), [("A", b"12345")], 0, 0, [])
    rejection = too_large(record, "Broker: Message size too large")
    assert rejection.code is ErrorCode.RECORD_TOO_LARGE
    assert "'orders' refuses the record of 1234567 bytes with its headers: Broker: Message" in rejection.message


def test_a_record_that_kafka_finds_too_large_may_have_come_compressed() -> None:
    error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    record: Outgoing = ("orders", BY_KEY, b"", b"", [], 0, 0, [])
    for rejection in (rejection_of(("orders", 0, error)), too_large(record, "large")):
        assert rejection.code is ErrorCode.RECORD_TOO_LARGE
        assert "--kafka compression.type=zstd" in rejection.message
        assert "raise max.message.bytes" in rejection.message
    assert "compress" not in rejection_of(("orders", 0, KafkaError(KafkaError.INVALID_RECORD))).message
