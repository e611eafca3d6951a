"""Words that come with requests and settings: receipts, keys, tokens, conditions, durations, names of groups.

The first byte says which; the rest is the word.
"""

import asyncio
import re
from contextlib import suppress
from unittest.mock import patch

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from connectors.contract import DelayLevels, LevelsError, TopicNames, decode_group, encode_group, is_legal_topic_name
from connectors.dead_letters import Filter, FilterError
from connectors.durations import MAX_DURATION_MS, DurationError, format_duration, parse_duration_ms
from connectors.receipt import Receipt, ReceiptError
from connectors.schedule_record import ScheduleError, cancel_headers
from connectors.times import parse_time
from sidecar.front.idempotency import KEY_MAX_CHARACTERS, key_of
from sidecar.front.messages import _Checks
from sidecar.option_references import resolve
from sidecar.pending import CURSOR_PATTERN, Cursor
from sidecar.settings import Settings
from sidecar.web import guard
from sidecar.web.problems import Kind, ProblemError

SETTINGS = Settings(bootstrap_servers="127.0.0.1:1")
TOKEN = "größe 1"
SECRET = "of-the-environment"
NAMES = TopicNames()
_CHECKS = _Checks(SETTINGS)
_RECEIPT = Receipt(
    schedule_topic=NAMES.wheel, partition=1, offset=2, id="a", topic="orders", deliver_ms=3, key=b"\xff"
).encode()
DICTIONARY = ("Bearer ", "enc--", "reason=", "header.", "from=", "${env:", "${dir:", "1h30m", "T00:00:00+23:59")
SEEDS = (
    b"\0" + _RECEIPT.encode(),
    b"\0"
    + Receipt(schedule_topic="SCHEDULE_TOPIC_XXXX-1", partition=0, id="b", topic="t", deliver_ms=0).encode().encode(),
    b'\x01"a \\"key\\""',
    b"\x018e03978e-40d5-43dd-bc93-6894a57f9324",
    b"\x02Bearer word",
    b"\x02Bearer " + TOKEN.encode(),
    b"\x03reason=GIVEN_UP",
    b"\x03header.TAGS=a",
    b"\x03from=2030-01-31T09:00:00+01:00",
    b"\x041h30m",
    b"\x04999999999999999999d",
    b"\x05orders/eu",
    b"\x05enc--a.2Fb",
    b"\x061700000000000-3-17",
    b"\x07${env:SECRET} and ${dir:/nowhere:file}",
    b"\x080001-01-01T00:00:00+23:59",
    b"\x091s 5s 3h",
)


def fuzz_one(data: bytes) -> None:
    if data:
        _KINDS[data[0] % len(_KINDS)](data[1:])


def _receipt(raw: bytes) -> None:
    word = raw.decode(errors="replace")
    with suppress(ReceiptError):
        receipt = Receipt.decode(word)
        assert Receipt.decode(receipt.encode()) == receipt
    try:
        receipt = _CHECKS.receipt(word)
    except ProblemError as problem:
        assert problem.kind in (Kind.INVALID, Kind.NOT_CANCELLABLE)
        assert len(problem.detail) < 2_000
        problem.detail.encode()
        return
    assert receipt.schedule_topic == NAMES.wheel
    with suppress(ScheduleError):
        assert all(value for _, value in cancel_headers(receipt))


def _idempotency_key(raw: bytes) -> None:
    request = _request(b"idempotency-key", raw)
    text = raw.decode("latin-1").strip()
    try:
        key = key_of(request, b"{}")
    except ProblemError as problem:
        assert problem.kind is Kind.INVALID
        assert len(problem.detail) < 2_000
        return
    assert key is not None
    assert re.fullmatch("[0-9a-f]{32}", key.name)
    assert len(text) <= 2 * KEY_MAX_CHARACTERS + 2
    assert text
    assert text.isascii()
    assert key == key_of(request, b"{}")


def _bearer(raw: bytes) -> None:
    """The application behind it is reached with the token, and with nothing else."""
    reached = []

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        reached.append(True)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        assert TOKEN.encode() not in message.get("body", b"")

    async def run() -> None:
        await guard.Guard(app, TOKEN)(_request(b"authorization", raw).scope, receive, send)

    with patch.object(guard, "WRONG_TOKEN_AFTER_S", 0):
        asyncio.run(run())
    assert bool(reached) == (raw == b"Bearer " + TOKEN.encode())


def _condition(raw: bytes) -> None:
    with suppress(FilterError, OverflowError):
        chosen = Filter.parse([raw.decode(errors="replace")])
        chosen.matches(1_700_000_000_000, b"k", [("TAGS", b"a"), ("n", None), ("ERROR_CODE", b"\xff")])


def _duration(raw: bytes) -> None:
    with suppress(DurationError):
        duration_ms = parse_duration_ms(raw.decode(errors="replace"))
        assert 0 <= duration_ms <= MAX_DURATION_MS
        assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


def _group(raw: bytes) -> None:
    text = raw.decode(errors="replace")
    assert decode_group(encode_group(text)) == text
    retry = NAMES.retry(text)
    assert is_legal_topic_name(retry) == (len(retry) <= 249)
    assert NAMES.group_of(retry) == text
    assert NAMES.physical(NAMES.logical(NAMES.physical(text))) in (NAMES.physical(text), "SCHEDULE_TOPIC_XXXX")


def _cursor(raw: bytes) -> None:
    text = raw.decode(errors="replace")
    if re.fullmatch(CURSOR_PATTERN, text, re.ASCII):
        assert Cursor.parse(str(Cursor.parse(text))) == Cursor.parse(text)


def _reference(raw: bytes) -> None:
    text = raw.decode(errors="replace")
    if "dir:" in text:  # reads files
        return
    try:
        resolve("sasl.password", text, {"SECRET": SECRET})
    except ValueError as error:
        assert SECRET not in str(error)


def _time(raw: bytes) -> None:
    with suppress(ValueError):
        time = parse_time(raw.decode(errors="replace"), "remedy")
        assert time.utcoffset() is not None


def _levels(raw: bytes) -> None:
    with suppress(LevelsError):
        levels = DelayLevels.parse(raw.decode(errors="replace"))
        assert all(0 < delay_ms <= MAX_DURATION_MS for delay_ms in levels.delays_ms)


_KINDS = (_receipt, _idempotency_key, _bearer, _condition, _duration, _group, _cursor, _reference, _time, _levels)


def _request(name: bytes, value: bytes) -> Request:
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": "/api/v1/messages",
            "raw_path": b"/api/v1/messages",
            "headers": [(name, value)],
            "query_string": b"",
            "server": ("h", 1),
            "scheme": "http",
        }
    )
