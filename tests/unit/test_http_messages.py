"""What the API makes of a request before Kafka is asked, and of a Kafka that is not there."""

import asyncio
import base64
import json
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from connectors.dead_letters import Filter, RefusedError
from connectors.dead_letters.cluster import Cluster
from connectors.receipt import Receipt
from connectors.testing import InMemoryKafka
from sidecar.front.app import make_api
from sidecar.front.at_once import Done, Key, NothingDoneError, Work
from sidecar.front.idempotency import KEY_MAX_CHARACTERS, KeysInProgress, key_of
from sidecar.front.kafka import FrontKafka
from sidecar.front.redrives import KEPT_MAX, RUNNING_MAX, Job, Jobs, RedriveRequest, State
from sidecar.front.send_back import SendBackRequest, check_send_back, send_back_headers
from sidecar.settings import Settings
from sidecar.web.problems import PATH, Kind, ProblemError

MESSAGE = {"topic": "orders", "value": "v", "delay": "1s"}


@pytest.fixture
def app() -> FastAPI:
    """Nobody listens where its Kafka should be: what gets as far as that is not refused before."""
    settings = Settings(
        bootstrap_servers="127.0.0.1:1",
        kafka={"log_level": 0},
        denied_topics="secret*",
        allowed_groups="billing",
        max_delay="1h",
    )
    return make_api(settings, FrontKafka(settings))


def ask(app: FastAPI, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return asyncio.run(_ask(app, method, path, body, headers))


async def _ask(app: FastAPI, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return await client.request(method, path, headers=names, **content)  # type: ignore[arg-type]


def faults(answer: httpx.Response) -> dict[str, str]:
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, f"{PATH}/invalid"), problem
    assert answer.headers["content-type"] == "application/problem+json"
    return {fault["field"]: fault["message"] for fault in problem["errors"]}


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"topic": "no/topic"}, "topic", "not a valid topic name"),
        ({"topic": "SCHEDULE_TOPIC_XXXX-1"}, "topic", "is a schedule topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic", "is a schedule topic"),
        ({"topic": "rmq_sys_wheel_timer"}, "topic", "is a schedule topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX-idempotency"}, "topic", "is a schedule topic"),
        ({"topic": "secrets"}, "topic", "is not among allowed_topics"),
        ({"topic": "%RETRY%other"}, "topic", "group 'other' is not among allowed_groups"),
        ({"key": "k" * 1_025}, "key", "more than 1024 bytes"),
        ({"key": "k", "key_base64": "AA=="}, "", "give the key with one of"),
        ({"headers": {"UNIQ_KEY": {"base64": "/w=="}}}, "headers", "not UTF-8 text"),
        ({"headers": {"UNIQ_KEY": "k" * 1_025}}, "headers", "more than 1024 bytes"),
        ({"headers": {"UNIQ_KEY": "ä" * 513}}, "headers", "more than 1024 bytes"),
        ({"headers": {"DELAY": "1"}}, "headers", "is an instruction to the sidecar"),
        ({"headers": {"DELAY\0b": "1"}}, "headers", "has a NUL in a name"),
        ({"headers": {"REAL_QID": "x"}}, "headers", "REAL_QID is 'x', which is not a partition number"),
        ({"headers": {"REAL_QID": None}}, "headers", "REAL_QID is null, which is not a partition number"),
        ({"headers": {"a": {"base64": "!"}}}, "headers", "is not base64 text"),
        ({"delay": "2h"}, "delay", "further away than max_delay (1h)"),
        ({"delay": None, "deliver_at": "2999-01-01T00:00:00Z"}, "deliver_at", "further away than max_delay"),
        ({"delay": None, "deliver_at": "0001-01-01T00:00:00+23:59"}, "deliver_at", "lies before 1970"),
        ({"delay": None, "level": 18}, "level", "further away than max_delay (1h)"),
        ({"delay": None, "level": 99}, "level", "further away than max_delay (1h)"),
        ({"value_json": 1}, "", "give the message with one of value, value_json and value_base64"),
        ({"dealy": "1s"}, "dealy", "there is no such field"),
    ],
)
def test_what_is_wrong_is_told_with_its_field(app: FastAPI, fields: dict[str, Any], field: str, told: str) -> None:
    wanted = {**MESSAGE, **fields}
    one = faults(ask(app, "POST", "/messages", wanted))
    assert told in one[field]
    many = faults(ask(app, "POST", "/messages", [MESSAGE, wanted]))
    assert told in many[f"1.{field}" if field else "1"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[", b'"x"', b"null", b"[1]", b"[[]]", b'{"value_json": NaN}', b"\xff", b"[" * 5_000]
)
def test_what_is_no_message_is_refused(app: FastAPI, body: bytes) -> None:
    assert faults(ask(app, "POST", "/messages", body))
    assert faults(ask(app, "POST", "/send-back", body))


@pytest.mark.parametrize("path", ["/messages", "/send-back", "/dead-letters/billing/redrive"])
def test_a_body_is_refused_in_the_same_words_wherever_it_goes(app: FastAPI, path: str) -> None:
    assert "there is no such field; the fields are " in faults(ask(app, "POST", path, {"dryrun": True}))["dryrun"]
    assert "is not valid JSON" in faults(ask(app, "POST", path, b"{", Content_Type="application/json"))[""]
    assert "is not a JSON object with the fields " in faults(ask(app, "POST", path, 7))[""]


def test_the_fields_of_a_redrive_are_told(app: FastAPI) -> None:
    told = faults(ask(app, "POST", "/dead-letters/billing/redrive", {"rate": 0, "filter": ["a", 1], "to": ["orders"]}))
    assert told == {
        "rate": "has to be a whole number (1 or more)",
        "filter": "has to be text, in quotes",
        "to": "has to be text, in quotes",
    }


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("GET", "/dead-letters/billing", "the parameters are filter, limit, after, with_redriven, preview_bytes"),
        ("GET", "/dead-letters", "the parameters are limit, after"),
        ("GET", "/redrives", "there is none here"),
        ("GET", "/openapi.json", "there is none here"),
        ("POST", "/dead-letters/billing/redrive", "there is none here"),
    ],
)
def test_a_parameter_that_there_is_not_is_refused(app: FastAPI, method: str, path: str, known: str) -> None:
    told = faults(ask(app, method, f"{path}?fliter=reason%3DGIVEN_UP&dry_run=true&limit=5"))
    assert told["fliter"] == told["dry_run"] == f"there is no such parameter; {known}"


@pytest.mark.parametrize("count", [0, 1_001])
def test_a_list_is_neither_empty_nor_endless(app: FastAPI, count: int) -> None:
    assert "send 1 to 1000" in faults(ask(app, "POST", "/messages", [MESSAGE] * count))[""]


def test_faults_are_told_up_to_a_number(app: FastAPI) -> None:
    assert len(faults(ask(app, "POST", "/messages", [{**MESSAGE, "topic": "/"}] * 500))) == 20


def receipt(**fields: Any) -> str:
    told = {"schedule_topic": "SCHEDULE_TOPIC_XXXX-wheel", "partition": 0, "id": "a", "topic": "b", "deliver_ms": 1}
    return Receipt(**{**told, **fields}).encode()


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("nonsense", 422),
        (base64.urlsafe_b64encode(b'{"s":1}').decode(), 422),
        (receipt(schedule_topic="orders"), 422),
        (receipt(partition=-1), 422),
        (receipt(offset=2**63), 422),
        (receipt(deliver_ms=-1), 422),
        (receipt(deliver_ms=2**63), 422),
        (receipt(id=""), 422),
        (receipt(cancellable=False), 409),
        (receipt(schedule_topic="SCHEDULE_TOPIC_XXXX-1", cancellable=False), 409),
    ],
)
def test_a_receipt_that_is_none_of_ours_is_refused(app: FastAPI, word: str, status: int) -> None:
    assert ask(app, "DELETE", f"/messages/{word}").status_code == status
    assert ask(app, "PATCH", f"/messages/{word}", {"delay": "1s"}).status_code == status


def test_of_a_receipt_it_is_told_what_is_wrong(app: FastAPI) -> None:
    elsewhere = faults(ask(app, "DELETE", f"/messages/{receipt(schedule_topic='orders')}"))["receipt"]
    assert elsewhere == "is of orders, and this sidecar works on SCHEDULE_TOPIC_XXXX-wheel"
    impossible = faults(ask(app, "DELETE", f"/messages/{receipt(partition=-1)}"))["receipt"]
    assert "names a message that there cannot be" in impossible


@pytest.mark.parametrize(
    "body", [{}, {"delay": "1s", "deliver_at": "2030-01-01T00:00:00Z"}, {"level": 1}, {"delay": "2h"}]
)
def test_another_time_is_one_that_can_be_kept(app: FastAPI, body: dict[str, Any]) -> None:
    assert faults(ask(app, "PATCH", f"/messages/{receipt()}", body))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"group": "timewheel"}, "group"),
        ({"group": "other"}, "group"),
        ({"group": ""}, "group"),
        ({"topic": None}, "topic"),
        ({"topic": "no/topic"}, "topic"),
        ({"delay_level": -(2**31) - 1}, "delay_level"),
        ({"reconsume_times": -1}, "reconsume_times"),
        ({"max_reconsume_times": 2**40}, "max_reconsume_times"),
    ],
)
def test_a_send_back_that_the_sidecar_would_reject_is_refused(app: FastAPI, fields: dict[str, Any], field: str) -> None:
    wanted = {"group": "billing", "topic": "orders", "value": "v", **fields}
    assert field in faults(ask(app, "POST", "/send-back", wanted))


@pytest.mark.parametrize(
    ("headers", "field", "told"),
    [
        ({"DELAY": "x"}, "headers", "DELAY is 'x'"),
        ({"RECONSUME_TIME": "-3"}, "headers", "RECONSUME_TIME is '-3'"),
        ({"MAX_RECONSUME_TIMES": "many"}, "headers", "MAX_RECONSUME_TIMES is 'many'"),
        ({"CONSUMER_GROUP": {"base64": "/w=="}}, "headers", "not UTF-8 text"),
        ({"RETRY_TOPIC": "__consumer_offsets"}, "topic", "not a topic for messages"),
    ],
)
def test_the_headers_of_a_send_back_are_read_as_the_sidecar_reads_them(
    headers: dict[str, Any], field: str, told: str
) -> None:
    body = {"value": "v", "headers": {"CONSUMER_GROUP": "billing", "RETRY_TOPIC": "orders", **headers}}
    with pytest.raises(ProblemError) as refused:
        check_send_back(Settings(), SendBackRequest.model_validate(body))
    (fault,) = refused.value.more["errors"]
    assert (fault["field"], told in fault["message"]) == (field, True)


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (
            {"headers": [["CONSUMER_GROUP", "billing"], ["RETRY_TOPIC", "orders"], ["DELAY", "-1"], ["TAGS", "a"]]},
            [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders"), ("DELAY", b"-1"), ("TAGS", b"a")],
        ),
        (
            {"headers": {"CONSUMER_GROUP": "billing", "DELAY": "-1"}, "topic": "orders", "delay_level": 2},
            [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders"), ("DELAY", b"2")],
        ),
        (
            {"group": "billing", "topic": "orders", "delay_level": -2},
            [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders"), ("DELAY", b"-2")],
        ),
        (
            {"headers": {"RETRY_TOPIC": "orders"}, "group": "billing", "topic": "RETRY-billing"},
            [("RETRY_TOPIC", b"orders"), ("CONSUMER_GROUP", b"billing")],
        ),
        (
            {"headers": {"CONSUMER_GROUP": "other", "DELAY": "-1"}, "group": "billing", "topic": "orders"},
            [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders")],
        ),
    ],
)
def test_the_headers_of_a_send_back_may_say_all_of_it(body: dict[str, Any], written: list[tuple[str, bytes]]) -> None:
    wanted = SendBackRequest.model_validate({"value": "v", **body})
    check_send_back(Settings(), wanted)
    assert send_back_headers(wanted) == written


@pytest.mark.parametrize("headers", [{}, {"CONSUMER_GROUP": ""}, {"CONSUMER_GROUP": None}])
def test_a_send_back_without_a_group_is_refused(app: FastAPI, headers: dict[str, Any]) -> None:
    body = {"topic": "orders", "value": "v", "headers": headers}
    assert faults(ask(app, "POST", "/send-back", body)) == {"group": "is missing"}


def test_the_group_among_the_headers_is_checked_like_the_other(app: FastAPI) -> None:
    body = {"topic": "orders", "value": "v", "headers": {"CONSUMER_GROUP": Settings().group_id}}
    assert "the sidecar's own" in faults(ask(app, "POST", "/send-back", body))["group"]


def test_of_several_groups_among_the_headers_the_last_that_is_one_counts(app: FastAPI) -> None:
    groups = [["CONSUMER_GROUP", name] for name in ("billing", Settings().group_id, "")]
    body = {"topic": "orders", "value": "v", "headers": groups}
    assert "the sidecar's own" in faults(ask(app, "POST", "/send-back", body))["group"]


@pytest.mark.parametrize("key", ["", " ", "ä", "a b", '"', '"a', "x" * (KEY_MAX_CHARACTERS + 1), '""'])
def test_a_key_that_cannot_be_used_is_named(app: FastAPI, key: str) -> None:
    request = _request("/api/v1/messages", key)
    with pytest.raises(ProblemError) as refused:
        key_of(request, b"")
    assert refused.value.more["errors"][0]["field"] == "Idempotency-Key"


def test_a_key_comes_once() -> None:
    request = _request("/api/v1/messages", "k1")
    request.scope["headers"] *= 2
    with pytest.raises(ProblemError) as refused:
        key_of(request, b"")
    assert "has to come once" in refused.value.more["errors"][0]["message"]


def test_a_key_is_of_what_is_asked_with_it() -> None:
    plain, quoted = (key_of(_request("/api/v1/messages", text), b"{}") for text in ("k1", '"k1"'))
    assert plain == quoted
    other_path, other_body = (
        key_of(_request("/api/v1/send-back", "k1"), b"{}"),
        key_of(_request("/api/v1/messages", "k1"), b"[]"),
    )
    assert plain
    assert other_path
    assert other_body
    assert plain.name != other_path.name
    assert (plain.name, plain.fingerprint == other_body.fingerprint) == (other_body.name, False)
    assert key_of(_request("/api/v1/messages", None), b"") is None


def _request(path: str, key: str | None) -> Request:
    headers = [] if key is None else [(b"idempotency-key", key.encode("latin-1"))]
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": headers,
            "query_string": b"",
            "server": ("h", 1),
            "scheme": "http",
        }
    )


def test_a_kafka_that_is_away_is_told_in_bounded_time(app: FastAPI) -> None:
    async def all_at_once() -> list[httpx.Response]:
        return await asyncio.gather(
            _ask(app, "POST", "/messages", MESSAGE, {}),
            _ask(app, "POST", "/messages", MESSAGE, {"Idempotency-Key": "k"}),
            _ask(app, "POST", "/messages", [MESSAGE], {}),
            _ask(app, "DELETE", f"/messages/{receipt()}", None, {}),
        )

    began_s = time.monotonic()
    single, keyed, many, cancel = asyncio.run(all_at_once())
    assert time.monotonic() - began_s < 15
    for answer, kind in (
        (single, "unknown-outcome"),
        (keyed, "unknown-outcome"),
        (many, "unavailable"),
        (cancel, "unknown-outcome"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (503, f"{PATH}/{kind}")
        assert int(answer.headers["retry-after"]) > 0


FAILED = {"group": "billing", "topic": "orders", "value": "v", "key": "17"}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/messages", MESSAGE, {"Idempotency_Key": "k"}),
        ("/messages", [MESSAGE], {}),
        ("/send-back", FAILED, {"Idempotency_Key": "k"}),
    ],
)
def test_lists_and_keys_are_not_promised_without_transactions(path: str, body: Any, headers: dict[str, str]) -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:1", guarantee="at_least_once")
    answer = ask(make_api(settings, FrontKafka(settings)), "POST", path, body, **headers)
    assert (answer.status_code, answer.json()["type"]) == (501, f"{PATH}/not-offered")


@pytest.fixture
def working() -> FastAPI:
    """Its Kafka is in memory, and has the wheel topic."""
    settings, kafka = Settings(kafka={"log_level": 0}), InMemoryKafka()
    kafka.create_topic(settings.topic_names.wheel)
    return make_api(settings, FrontKafka(settings, kafka))


def test_a_repeated_request_is_answered_as_it_was(working: FastAPI) -> None:
    for body in (MESSAGE, [MESSAGE, MESSAGE]):
        first, again = (ask(working, "POST", "/messages", body, Idempotency_Key=f"k{len(body)}") for _ in range(2))
        assert (first.status_code, again.json()) == (202, first.json())
        assert [answer.headers.get("idempotent-replayed") for answer in (first, again)] == [None, "true"]


def test_a_delay_may_be_as_long_as_the_longest(working: FastAPI) -> None:
    longest_s = Settings().max_delay // 1_000
    answers = [ask(working, "POST", "/messages", {**MESSAGE, "delay": f"{longest_s + more}s"}) for more in (0, 1)]
    assert [answer.status_code for answer in answers] == [202, 422]


def test_a_list_is_one_whatever_white_space_stands_before_it(working: FastAPI) -> None:
    answer = ask(working, "POST", "/messages", b" \t\r\n" + json.dumps([MESSAGE]).encode())
    assert len(answer.json()["receipts"]) == 1


def test_a_topic_of_a_group_may_be_denied_like_any_other() -> None:
    settings = Settings(denied_topics="RETRY-*")  # type: ignore[arg-type]
    app = make_api(settings, FrontKafka(settings, InMemoryKafka()))
    answer = ask(app, "POST", "/messages", {**MESSAGE, "topic": "%RETRY%billing"})
    assert faults(answer) == {"topic": "'RETRY-billing' is among denied_topics of this sidecar"}


@pytest.mark.parametrize("is_list", [False, True])
def test_a_receipt_says_what_its_record_says(working: FastAPI, is_list: bool) -> None:
    message = {**MESSAGE, "key": "17", "headers": [["UNIQ_KEY", "a"], ["UNIQ_KEY", "b"]]}
    told = ask(working, "POST", "/messages", [message] if is_list else message).json()
    (answer,) = told["receipts"] if is_list else [told]
    receipt = Receipt.decode(answer["receipt"])
    assert (answer["id"], receipt.id, receipt.key, receipt.topic) == ("b", "b", b"17", "orders")


def test_a_send_back_needs_no_transactions() -> None:
    settings = Settings(guarantee="at_least_once")
    kafka = InMemoryKafka()
    topic = settings.topic_names.send_back
    kafka.create_topic(topic)
    answer = ask(make_api(settings, FrontKafka(settings, kafka)), "POST", "/send-back", FAILED)
    assert (answer.status_code, answer.json()) == (202, {"topic": topic, "partition": 0, "offset": 0})
    log = kafka.log(topic, 0)
    assert log is not None
    assert [entry[1:4] for entry in log.entries] == [
        (b"17", b"v", [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders")])
    ]


@pytest.mark.parametrize(
    ("group", "headers"),
    [
        ("billing", [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"secret-x"), ("RECONSUME_TIME", b"1")]),
        (
            "timewheel",
            [
                ("REAL_TOPIC", b"secret-x"),
                ("ERROR_CODE", b"DESTINATION_NOT_ALLOWED"),
                ("ERROR_TOPIC", b"SCHEDULE_TOPIC_XXXX-1"),
                ("ERROR_PARTITION", b"0"),
                ("ERROR_OFFSET", b"0"),
            ],
        ),
    ],
)
def test_a_redrive_writes_to_no_topic_that_the_settings_deny(group: str, headers: list[tuple[str, bytes]]) -> None:
    kafka = InMemoryKafka()
    for topic in ("secret-x", f"DLQ-{group}"):
        kafka.create_topic(topic)
    producer = kafka.producer({})
    producer.produce(f"DLQ-{group}", b"v", headers=headers)
    producer.flush()
    settings = Settings(denied_topics="secret*")  # type: ignore[arg-type]
    app = make_api(settings, FrontKafka(settings, kafka))
    told = ask(app, "POST", f"/dead-letters/{group}/redrive", {}).json()
    assert (told["redriven"], [stayed["count"] for stayed in told["stayed"]]) == (0, [1])
    assert "denied_topics" in told["stayed"][0]["reason"]
    assert "denied_topics" in faults(ask(app, "POST", f"/dead-letters/{group}/redrive", {"to": "secret-x"}))["to"]


def test_a_repeated_condition_that_no_letter_can_meet_is_refused() -> None:
    settings = Settings()
    app = make_api(settings, FrontKafka(settings, InMemoryKafka()))
    asked = ask(app, "GET", "/dead-letters/billing?filter=key=a&filter=key=b")
    assert "no letter has two" in faults(asked)["filter"]


def test_a_key_is_held_until_its_request_is_done_also_when_nobody_waits_for_that() -> None:
    async def run() -> None:
        keys, work = KeysInProgress(), Work((), Key("name", "fingerprint"))

        async def request() -> None:
            with keys.hold(work):
                await asyncio.shield(asyncio.wrap_future(work.done))

        asked = asyncio.create_task(request())
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        with pytest.raises(ProblemError, match="is under way"):
            await request()
        work.done.set_result(Done([], is_replay=False))
        await request()
        work.done = Future()
        work.fail(NothingDoneError("Kafka is away"))
        for _ in range(2):
            with pytest.raises(NothingDoneError):
                await request()

    asyncio.run(run())


def test_every_kind_of_problem_has_an_address_and_stands_in_the_reference(app: FastAPI) -> None:
    reference = Path("docs/http-api.md").read_text()
    for kind in Kind:
        answer = ask(app, "GET", f"/problems/{kind.slug}")
        assert answer.json() == {"type": f"{PATH}/{kind.slug}", "status": kind.status, "title": kind.title}
        assert f"| `{kind.slug}` | {kind.status} | {kind.title} |" in reference
    assert ask(app, "GET", "/problems/other").status_code == 404


def test_a_path_that_ends_with_a_slash_is_none(app: FastAPI) -> None:
    """To be sent on it would be to plain HTTP, where a proxy before it has ended TLS."""
    answer = ask(app, "POST", "/messages/", {"topic": "orders", "delay": "1s"})
    assert (answer.status_code, answer.json()["type"]) == (404, f"{PATH}/not-found")


def test_another_method_is_told_which_there_are(app: FastAPI) -> None:
    for path, methods in (("/messages", "POST"), ("/messages/x", "DELETE, PATCH"), ("/redrives/x", "DELETE, GET")):
        answer = ask(app, "PUT", path, {})
        assert (answer.status_code, answer.json()["type"]) == (405, f"{PATH}/method-not-allowed")
        assert answer.headers["allow"] == methods


def test_the_document_is_whole(app: FastAPI) -> None:
    document = ask(app, "GET", "/openapi.json").json()
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    def references(part: Any) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
            return own.union(*map(references, part.values()))
        return set().union(*map(references, part)) if isinstance(part, list) else set()

    assert references(document) <= defined
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert any(int(status) < 300 for status in operation["responses"]), path
            assert not path.startswith("/api/") or "503" in operation["responses"], path


def test_a_redrive_that_kafka_refuses_is_no_fault_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("DLQ-billing")
    settings = Settings(kafka={"log_level": 0})

    def refuse(_cluster: Cluster, topic: str, _configs: object) -> None:
        raise RefusedError(f"'{topic}' cannot be created: Broker: Topic authorization failed")

    monkeypatch.setattr(Cluster, "create", refuse)
    answer = ask(make_api(settings, FrontKafka(settings, kafka)), "POST", "/dead-letters/billing/redrive", {})
    assert (answer.status_code, answer.json()["type"]) == (502, f"{PATH}/refused")
    assert "'SCHEDULE_TOPIC_XXXX-redriven' cannot be created" in answer.json()["detail"]


def test_a_redrive_is_carried_out_as_it_was_asked_for() -> None:
    kafka = InMemoryKafka()
    for topic in ("DLQ-billing", "orders", "other"):
        kafka.create_topic(topic)
    producer = kafka.producer({})
    letter = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders"), ("RECONSUME_TIME", b"17")]
    producer.produce("DLQ-billing", b"v", headers=[*letter, ("REDRIVE_COUNT", b"1")])
    producer.flush()
    settings = Settings(kafka={"log_level": 0})
    app = make_api(settings, FrontKafka(settings, kafka))

    def redriven(**wanted: Any) -> tuple[dict[str, int], int, int]:
        told = ask(app, "POST", "/dead-letters/billing/redrive", wanted).json()
        return told["destinations"], told["parked"], told["done_before"]

    assert redriven(dry_run=True) == ({"orders": 1}, 0, 0)
    assert redriven() == ({"orders": 1}, 0, 0)
    assert redriven() == ({}, 0, 1)
    assert redriven(again=True, to="other") == ({"other": 1}, 0, 0)
    assert redriven(again=True, max_redrives=1) == ({}, 1, 0)
    by_topic = ask(app, "POST", "/dead-letters/%25DLQ%25billing/redrive", {})
    assert by_topic.json()["group"] == "billing", "two names of one group are one redrive"


def a_redrive(group: str, state: State = State.RUNNING) -> Job:
    return Job(group, RedriveRequest(), Filter(), state=state)


def test_so_many_groups_are_redriven_at_a_time() -> None:
    jobs, running = Jobs(), [a_redrive(f"g{number}") for number in range(RUNNING_MAX)]
    for job in running:
        jobs.add(job)
    with pytest.raises(ProblemError, match="wait for one of them"):
        jobs.add(a_redrive("one more"))
    running[0].state = State.DONE
    jobs.add(a_redrive("one more"))


def test_of_the_redrives_that_have_ended_the_oldest_are_forgotten() -> None:
    jobs, running = Jobs(), a_redrive("running")
    jobs.add(running)
    ended = [a_redrive("billing", State.DONE) for _ in range(KEPT_MAX)]
    for job in ended:
        jobs.add(job)
    assert jobs.all() == [*reversed(ended[1:]), running]
    assert jobs.find(running.id) is running
    with pytest.raises(ProblemError, match="not known"):
        jobs.find(ended[0].id)


def test_a_sidecar_that_stops_begins_no_redrive() -> None:
    jobs = Jobs()
    jobs.ask_to_stop()
    with pytest.raises(ProblemError, match="is stopping"):
        jobs.add(a_redrive("billing"))
