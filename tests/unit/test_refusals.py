"""What a failed transaction tells: whose errors count, whether repeating mends them, who has to stand alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from connectors.contract import ErrorCode
from connectors.kafka import BY_KEY
from sidecar.dispatch.refusals import find, rejection_of, stand_alone
from sidecar.dispatch.transactions import Refusal
from sidecar.records import Outgoing
from sidecar.source import Draft

TOPICS = {"orders", "payments"}
PURGED = KafkaError._PURGE_QUEUE
TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
AWAY = KafkaError.LEADER_NOT_AVAILABLE
UNHEARD_OF = KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT

BROKE, FENCED = KafkaError.INVALID_TXN_STATE, KafkaError._STATE


@pytest.mark.parametrize(
    ("of_the_call", "of_records", "final", "guilty", "is_of_records"),
    [
        pytest.param(BROKE, [], set(), [], False, id="no record has failed"),
        pytest.param(BROKE, [("orders", TOO_LARGE)], {"orders"}, ["orders"], True, id="one is refused"),
        pytest.param(
            BROKE,
            [("payments", PURGED), ("orders", TOO_LARGE), ("payments", KafkaError._PURGE_INFLIGHT)],
            {"orders"},
            ["orders"],
            True,
            id="the others went with it",
        ),
        pytest.param(BROKE, [("orders", AWAY)], set(), ["orders"], True, id="it passes, and others need not wait"),
        pytest.param(BROKE, [("payments", PURGED)], set(), [], False, id="purged, and nobody says for whose sake"),
        pytest.param(DENIED, [], TOPICS, ["orders", "payments"], True, id="no right: none was sent, any may be it"),
        pytest.param(DENIED, [("orders", PURGED)], TOPICS, ["orders", "payments"], True, id="no right: all purged"),
        pytest.param(FENCED, [("orders", PURGED)], set(), [], True, id="the call after the one that had no right"),
        pytest.param(FENCED, [("orders", TOO_LARGE)], {"orders"}, ["orders"], True, id="a state that a record caused"),
        pytest.param(BROKE, [("orders", UNHEARD_OF)], set(), ["orders"], True, id="an error that nobody knows"),
    ],
)
def test_whose_errors_count(
    of_the_call: int, of_records: Sequence[tuple[str, int]], final: set[str], guilty: list[str], is_of_records: bool
) -> None:
    refusals = [(topic, 0, KafkaError(code)) for topic, code in of_records]
    found = find(KafkaError(of_the_call), refusals, TOPICS, skip_unknown_error=False)
    assert found.final.keys() == final
    assert [topic for topic, _, _ in found.guilty] == guilty
    assert found.is_of_records is is_of_records


def test_progress_that_may_not_be_committed_is_no_records_fault() -> None:
    words = "Failed to commit offsets to transaction on broker a:9092/1: SCHEDULE_TOPIC_XXXX-wheel((null))[0]"
    error = KafkaError(DENIED, words)
    found = find(error, [("orders", 0, KafkaError(PURGED))], TOPICS, skip_unknown_error=False)
    assert (found.final, found.is_of_records, found.in_words(error)) == ({}, False, words)


@pytest.mark.parametrize(("code", "is_final"), [(UNHEARD_OF, True), (AWAY, False), (PURGED, False)])
def test_an_unknown_error_is_final_where_the_settings_say_so_and_one_that_passes_is_not(
    code: int, is_final: bool
) -> None:
    found = find(KafkaError(BROKE), [("orders", 0, KafkaError(code))], TOPICS, skip_unknown_error=True)
    assert ("orders" in found.final) is is_final


def test_it_is_told_by_the_record_that_has_met_it() -> None:
    refusals = [("payments", 1, KafkaError(PURGED)), ("orders", 3, KafkaError(AWAY, "no leader"))]
    assert find(KafkaError(BROKE), refusals, TOPICS, skip_unknown_error=False).in_words(KafkaError(BROKE)) == (
        "'orders-3': no leader"
    )
    nothing = find(KafkaError(BROKE), [], TOPICS, skip_unknown_error=False)
    assert nothing.in_words(KafkaError(BROKE, "no such state")) == "no such state"


def test_one_record_stands_alone_and_so_does_what_one_record_brings() -> None:
    one, other = object(), object()
    assert stand_alone([a_draft(one, 7)])
    assert stand_alone([a_draft(one, 7, 7), a_draft(other)])
    assert not stand_alone([a_draft(one, 7, 8)])
    assert not stand_alone([a_draft(one, 7), a_draft(other, 7)])
    assert not stand_alone([a_draft(one)])


@pytest.mark.parametrize(
    ("code", "told_as", "remedy"),
    [
        (TOO_LARGE, ErrorCode.RECORD_TOO_LARGE, "raise max.message.bytes of that topic"),
        (KafkaError.INVALID_RECORD, ErrorCode.DESTINATION_REFUSED, "give it a key: orders is compacted"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ErrorCode.DESTINATION_REFUSED, "allow the client to write to orders"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ErrorCode.DESTINATION_REFUSED, "create orders"),
        (KafkaError.POLICY_VIOLATION, ErrorCode.DESTINATION_REFUSED, "see what the brokers have against it"),
    ],
)
def test_its_dead_letter_names_the_topic_what_kafka_says_and_what_to_do(
    code: int, told_as: ErrorCode, remedy: str
) -> None:
    refusal: Refusal = ("orders", 0, KafkaError(code, "Kafka's own words"))
    rejection = rejection_of(refusal)
    assert rejection.code is told_as
    assert rejection.message.startswith(f"'orders' refuses the record: Kafka's own words; {remedy}")


def a_draft(source: Any, *offsets: int) -> Draft:
    records: list[Outgoing] = [("orders", BY_KEY, None, b"v", [], 0, offset, []) for offset in offsets]
    return Draft(source, records)
