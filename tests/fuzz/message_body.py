"""The body of ``POST /api/v1/messages`` by itself, which is also a line of ``timewheel send --file``."""

from datetime import timedelta

from pydantic import ValidationError

from connectors.contract import is_legal_topic_name
from connectors.schedule_record import ScheduleError, carried, when
from connectors.times import epoch_ms
from sidecar.front.messages import KEY_MAX_BYTES, _Checks, _given_id, _headers, _ids, _parse
from sidecar.schedule_request import ScheduleRequest, faults
from sidecar.settings import Settings
from sidecar.web.problems import Kind, ProblemError

SETTINGS = Settings(bootstrap_servers="127.0.0.1:1", denied_topics="secret*", allowed_groups="billing")  # type: ignore[arg-type]
DETAIL_MAX_CHARACTERS = 4_000
_CHECKS = _Checks(SETTINGS)
DICTIONARY = (
    *('"topic":"orders"', '"value":null', '"value_json":', '"value_base64":"AP8="', '"key":"', '"key_base64":"'),
    *('"headers":{', '"headers":[["', '{"base64":"', '"UNIQ_KEY"', '"REAL_QID"', '"level":3', '"delay":"1h30m"'),
    *('"deliver_at":"2030-01-31T09:00:00Z"', "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "\\\\ud800"),
)
SEEDS = (
    b'{"topic":"orders","key":"1","value":"v","delay":"1h30m"}',
    b'[{"topic":"orders","value_json":{"order":23},"deliver_at":"2030-01-31T09:00:00Z"},'
    b'{"topic":"orders","value_base64":"AP8=","level":3}]',
    b'{"topic":"orders","value":null,"key_base64":"/w==","delay":"1s","headers":[["a",{"base64":"AA=="}],["UNIQ_KEY","u"]]}',
    b'{"topic":"orders","value_json":1e999,"delay":"1s","headers":{"DELAY":"1"}}',
    b'{"topic":"%RETRY%billing","value":"v","level":0,"more":1}',
    b'{"topic":"","value":"v","delay":5,"deliver_at":"0001-01-01T00:00:00+23:59"}',
    b'{"topic":"orders","value":"v","deliver_at":"9999-12-31T23:59:59-23:59"}',
    b"[]",
    b"[[[[[",
    b"\xff",
)


def fuzz_one(data: bytes) -> None:
    _check_a_line(data)
    try:
        wanted, is_list = _parse(data)
        _CHECKS.all(wanted, is_list=is_list)
    except ProblemError as problem:
        assert problem.kind is Kind.INVALID
        assert 0 < len(problem.detail) < DETAIL_MAX_CHARACTERS
        problem.response()  # can be written as JSON
        return
    for one, id_ in zip(wanted, _ids(wanted, None), strict=True):
        _check(one, id_)


def _check(one: ScheduleRequest, id_: str) -> None:
    """It can be written to Kafka."""
    assert is_legal_topic_name(SETTINGS.topic_names.physical(one.topic))
    assert one.payload is None or type(one.payload) is bytes
    assert len(one.key_bytes or b"") <= KEY_MAX_BYTES
    written, uniq_key = carried(_headers(one, id_))
    assert uniq_key
    assert all(name.encode() and (text is None or type(text) is bytes) for name, text in written)
    assert len((_given_id(one) or "").encode()) <= KEY_MAX_BYTES
    if one.level is None:
        delay = None if one.delay_ms is None else timedelta(milliseconds=one.delay_ms)
        (_, text), told_ms = when(one.deliver_at, delay, None)
        assert int(text) == told_ms
        assert one.deliver_at is None or epoch_ms(one.deliver_at) == told_ms
        assert 0 <= told_ms < 2**63


def _check_a_line(data: bytes) -> None:
    """As `timewheel send --file` reads it."""
    try:
        one = ScheduleRequest.model_validate_json(data)
    except ValidationError as error:
        told = faults(error)
        assert told
        assert all(told)
        "\n".join(told).encode()
        return
    try:
        carried(one.headers)
    except ScheduleError as error:
        str(error).encode()
