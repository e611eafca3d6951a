"""What is to be scheduled, as JSON: what it says, and what is wrong with it in words."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from sidecar.schedule_request import ScheduleRequest, faults

WHOLE = {"topic": "orders", "value": "v", "delay": "90s"}


def parsed(**fields: Any) -> ScheduleRequest:
    return ScheduleRequest.model_validate({name: value for name, value in {**WHOLE, **fields}.items() if value != "-"})


def faults_of(text: str) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        ScheduleRequest.model_validate_json(text)
    return faults(refused.value)


def test_a_message_with_a_delay() -> None:
    request = ScheduleRequest.model_validate_json('{"topic": "%RETRY%g", "value": "ü", "key": "k", "delay": "1h30m"}')
    assert (request.topic, request.payload, request.key) == ("%RETRY%g", "ü".encode(), "k")
    assert (request.delay_ms, request.deliver_at, request.level) == (5_400_000, None, None)


def test_a_message_for_a_time_or_a_level() -> None:
    at = parsed(delay="-", deliver_at="2030-01-31T09:00:00+01:00").deliver_at
    assert at == datetime(2030, 1, 31, 8, tzinfo=UTC)
    assert parsed(delay="-", level=3).level == 3


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"value": ""}, b""),
        ({"value": None}, None),
        ({"value": "-", "value_base64": "AP8="}, b"\x00\xff"),
        ({"value": "-", "value_base64": None}, None),
        ({"value": "v", "value_base64": None}, b"v"),
    ],
)
def test_the_value_is_text_bytes_or_a_tombstone(fields: dict[str, Any], payload: bytes | None) -> None:
    assert parsed(**fields).payload == payload


def test_headers_are_a_map_or_pairs_in_order() -> None:
    assert parsed(headers={"a": "1", "b": None}).headers == [("a", "1"), ("b", None)]
    assert parsed(headers=[["a", "1"], ["a", None]]).headers == [("a", "1"), ("a", None)]


def test_what_is_null_is_left_out() -> None:
    assert parsed(delay=None, level=1, deliver_at=None, key=None, headers=None).level == 1
    assert parsed(headers=None).headers == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not valid JSON: EOF"),
        ("\x00", "is not valid JSON: "),
        ('{"topic": "a"', "is not valid JSON: EOF"),
        ("[]", "is not a JSON object with the fields value, value_json, "),
        ('"a"', "is not a JSON object with the fields value, value_json, "),
        ('{"value": "v", "delay": "1s"}', "topic: is missing"),
        ('{"topic": "", "value": "v", "delay": "1s"}', "topic: is empty"),
        ('{"topic": "a", "delay": "1s"}', "give the message with one of value, value_json and"),
        ('{"topic": "a", "value": "v", "value_base64": "", "delay": "1s"}', "give the message with one of"),
        (
            '{"topic": "a", "value": {"b": 1}, "delay": "1s"}',
            "value: has to be text, in quotes; for JSON use value_json",
        ),
        ('{"topic": "a", "value_base64": "AP8", "delay": "1s"}', "value_base64: is not base64 text"),
        ('{"topic": "a", "value_base64": 5, "delay": "1s"}', "value_base64: is not base64 text"),
        ('{"topic": "a", "value": "v", "key": 5, "delay": "1s"}', "key: has to be text, in quotes"),
        ('{"topic": "a", "value": "v"}', "say when with exactly one of deliver_at, delay and level"),
        (
            '{"topic": "a", "value": "v", "delay": "1s", "level": 1}',
            "say when with exactly one of deliver_at, delay and level",
        ),
        ('{"topic": "a", "value": "v", "delay": 90}', "delay: 90 is not a duration; write a whole number with ms, s"),
        ('{"topic": "a", "value": "v", "delay": "90"}', "delay: '90' is not a duration; write a whole number"),
        ('{"topic": "a", "value": "v", "delay": "-1s"}', "delay: '-1s' is not a duration"),
        (
            '{"topic": "a", "value": "v", "deliver_at": "soon"}',
            "deliver_at: 'soon' is not a time; write an ISO 8601 time",
        ),
        ('{"topic": "a", "value": "v", "deliver_at": 1}', "deliver_at: 1 is not a time"),
        ('{"topic": "a", "value": "v", "deliver_at": "2030-01-01T00:00:00"}', "has no time zone; write an ISO 8601"),
        ('{"topic": "a", "value": "v", "level": 0}', "level: has to be a whole number (1 or more)"),
        ('{"topic": "a", "value": "v", "level": "1"}', "level: has to be a whole number (1 or more)"),
        ('{"topic": "a", "value": "v", "level": true}', "level: has to be a whole number (1 or more)"),
        ('{"topic": "a", "value": "v", "delay": "1s", "headers": {"b": 1}}', "headers: is neither a map of names to"),
        ('{"topic": "a", "value": "v", "delay": "1s", "headers": [["b"]]}', "headers: is neither a map of names to"),
        ('{"topic": "a", "value": "v", "delay": "1s", "headers": {"": "b"}}', "headers: is neither a map of names to"),
        (
            '{"topic": "a", "value": "v", "dealy": "1s"}',
            "dealy: there is no such field; the fields are value, value_json, ",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(text: str, told: str) -> None:
    assert any(told in fault for fault in faults_of(text)), faults_of(text)


def test_every_field_that_is_wrong_is_named() -> None:
    assert len(faults_of('{"topic": 1, "value": 2, "delay": 3}')) == 3
