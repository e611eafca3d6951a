"""The HTTP API of a real sidecar, as an application in the same pod uses it."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec

from sidecar.front.serve import PROCESS_NAME
from tests.support.http_api import Answer, HttpApi
from tests.support.kafka import Headers, Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import now_ms

pytestmark = pytest.mark.kafka


@pytest.fixture
def api(sidecar: SidecarProcess) -> HttpApi:
    return HttpApi(sidecar)


def front(sidecar: SidecarProcess) -> psutil.Process:
    """The process that serves HTTP."""
    children = psutil.Process(sidecar.process.pid).children()
    (found,) = [one for one in children if one.name() == PROCESS_NAME]
    return found


def by_id(kafka: Kafka, destination: str, count: int) -> dict[str, Any]:
    delivered = kafka.read([destination], count)
    assert len(delivered) == count, delivered
    return {record.text("UNIQ_KEY"): record for record in delivered}


def test_whoever_has_no_token_keeps_nobody_from_scheduling(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings["http_token"] = "secret"
    sidecar.start()
    host, _, port = sidecar.http_address.rpartition(":")
    chunk = b"3fffff\r\n" + b" " * 0x3FFFFF  # with sixteen of them there is no room for another body
    with ExitStack() as stack:
        for path in ("/", "/api/v1/messages"):
            for _ in range(17):
                connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=0.3))
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                with suppress(OSError):  # it has been answered, and is not read from any more
                    connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        answer = HttpApi(sidecar, "secret").post("/messages", {"topic": destination, "value": "v", "delay": "10ms"})
        assert answer.status == 202
        assert len(kafka.read([destination], 1)) == 1


def test_messages_are_scheduled_cancelled_and_rescheduled(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    raw = bytes(range(256))
    wanted: dict[str, dict[str, Any]] = {
        "text": {"value": "ü", "key": "k", "delay": "100ms"},
        "json": {"value_json": {"b": [1, None], "a": "ü"}, "deliver_at": "2020-01-01T00:00:00Z"},
        "bytes": {"value_base64": base64.b64encode(raw).decode(), "key_base64": "AP8=", "level": 1},
        "tombstone": {"value": None, "key": "k", "delay": "0s"},
    }
    receipts: dict[str, Any] = {}
    for name, fields in wanted.items():
        headers = [["UNIQ_KEY", name], ["TAGS", "a"], ["TAGS", None], ["RAW", {"base64": "AP8="}]]
        answer = api.post("/messages", {"topic": destination, "headers": headers, **fields})
        assert answer.status == 202, answer
        assert (answer.body["id"], answer.body["topic"]) == (name, destination)
        assert answer.body["cancellable"] is (name != "bytes")
        receipts[name] = answer.body
    many = api.post("/messages", [{"topic": destination, "value": str(n), "key": "k", "delay": "1h"} for n in range(3)])
    kept, moved, cancelled = many.body["receipts"]
    again = api.ask("PATCH", f"/messages/{moved['receipt']}", {"delay": "200ms"})
    assert (again.status, again.body["id"]) == (202, moved["id"])
    taken = api.ask("DELETE", f"/messages/{cancelled['receipt']}")
    assert taken.status == 202
    outcome = taken.body["outcome"].removeprefix("/api/v1")
    wait_until(lambda: api.get(outcome).status == 200, "the cancel is decided")
    assert api.get(outcome).body["outcome"] == "cancelled"
    delivered = by_id(kafka, destination, 5)
    assert set(delivered) == {*wanted, moved["id"]}
    assert {name: record.value for name, record in delivered.items()} == {
        "text": "ü".encode(),
        "json": '{"b":[1,null],"a":"ü"}'.encode(),
        "bytes": raw,
        "tombstone": None,
        moved["id"]: b"1",
    }
    assert (delivered["text"].key, delivered["bytes"].key) == (b"k", b"\x00\xff")
    assert all(record.lateness_ms >= 0 for record in delivered.values())
    tags = [header for header in delivered["text"].headers if header[0] in ("TAGS", "RAW")]
    assert tags == [("TAGS", b"a"), ("TAGS", None), ("RAW", b"\x00\xff")]
    assert int(delivered["text"].text("TIMER_OUT_MS")) == receipts["text"]["deliver_ms"]
    level = api.ask("DELETE", f"/messages/{receipts['bytes']['receipt']}")
    assert (level.status, level.problem) == (409, "not-cancellable")
    late = api.ask("PATCH", f"/messages/{receipts['bytes']['receipt']}", {"delay": "1s"})
    assert (late.status, late.problem) == (409, "not-cancellable")
    assert api.get(f"/pending?id={kept['id']}").body["total"] == 1


def test_a_list_is_scheduled_whole_or_not_at_all(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    wheel = ConfigResource(ConfigResource.Type.TOPIC, f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
    wheel.add_incremental_config(
        ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    )
    kafka.admin.incremental_alter_configs([wheel])[wheel].result(10)
    good = {"topic": destination, "value": "good", "delay": "10ms"}
    large = {"topic": destination, "value": "x" * 200_000, "delay": "10ms"}
    refused = api.post("/messages", [good, large])
    assert (refused.status, refused.problem) == (413, "too-large")
    assert "item 1" in refused.body["detail"]
    invalid = api.post(
        "/messages", [good, {**good, "delay": "soon"}, {**good, "topic": "SCHEDULE_TOPIC_XXXX"[:3] + "/"}]
    )
    assert (invalid.status, [fault["field"] for fault in invalid.body["errors"]]) == (422, ["1.delay"])
    illegal = api.post("/messages", [good, {**good, "topic": "no/topic"}])
    assert [fault["field"] for fault in illegal.body["errors"]] == ["1.topic"]
    assert api.post("/messages", [{**good, "value": "last"}] * 2).status == 202
    assert [record.value for record in kafka.read([destination], 2)] == [b"last"] * 2


@pytest.mark.long
def test_a_repeated_request_is_harmless_through_kills_of_either_process(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    key = str(uuid.uuid4())
    body = [{"topic": destination, "value": "v", "delay": "300ms"}, {"topic": destination, "value": "w", "level": 1}]
    first = api.post("/messages", body, key)
    assert (first.status, "idempotent-replayed" in first.headers) == (202, False)

    def again() -> Answer:
        answer = api.post("/messages", body, key)
        assert (answer.status, answer.headers.get("idempotent-replayed")) == (202, "true"), answer
        assert answer.body == first.body
        return answer

    again()
    other = api.post("/messages", [body[0]], key)
    assert (other.status, other.problem) == (422, "key-reused")
    # The process that serves HTTP is killed: it comes back, and delivery has not noticed.
    os.kill(front(sidecar).pid, signal.SIGKILL)
    wait_until(lambda: any(e["event"].startswith("http process ended") for e in sidecar.events()), "it is noticed")
    again()
    # The sidecar is killed, and the process that serves HTTP with it.
    orphan = front(sidecar)
    sidecar.kill()
    psutil.wait_procs([orphan], timeout=5)
    assert not orphan.is_running()
    sidecar.start()
    again()
    assert len(kafka.read([destination], 2)) == 2
    assert sidecar.metric("timewheel_delivered_records_total") <= 2


def test_a_key_that_is_under_way_is_not_carried_out_twice(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    body = {"topic": destination, "value": "v", "delay": "100ms"}
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: api.post("/messages", body, f"k{number % 2}"), range(64)))
    assert {answer.status for answer in answers} <= {202, 409}
    busy = [answer for answer in answers if answer.status == 409]
    assert all((answer.problem, answer.headers["retry-after"]) == ("in-progress", "1") for answer in busy)
    assert len({answer.body["receipt"] for answer in answers if answer.status == 202}) == 2
    assert len(kafka.read([destination], 2)) == 2


@pytest.mark.long
def test_a_failed_message_comes_back_and_a_dead_one_is_shown_and_redriven(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi
) -> None:
    origin = kafka.create_topic(f"{prefix}orders")
    sidecar.settings["levels"] = "200ms"
    sidecar.start()
    failed = {"group": "billing", "topic": origin, "key": "17", "value": "order 17", "headers": {"UNIQ_KEY": "o17"}}
    assert api.post("/send-back", failed, "first").status == 202
    assert api.post("/send-back", failed, "first").headers["idempotent-replayed"] == "true"
    retry = f"{prefix}RETRY-billing"
    wait_until(lambda: retry in kafka.topics(), "there is a retry topic")
    (record,) = kafka.read([retry], 1)
    assert (record.value, record.text("RECONSUME_TIME"), record.text("RETRY_TOPIC")) == (b"order 17", "1", origin)
    # As the consumer saw it, given up.
    headers = [[name, value.decode()] for name, value in record.headers if value is not None]
    dead = {
        "group": "billing",
        "topic": retry,
        "key": "17",
        "value": "x" * 5_000,
        "headers": headers,
        "delay_level": -1,
    }
    assert api.post("/send-back", dead).status == 202

    def listed() -> list[Any]:
        groups = api.get("/dead-letters").body["groups"]
        return [group for group in groups if group["group"] == "billing" and group["waiting"]]

    (summary,) = wait_until(listed, "it is listed")
    assert summary["reasons"] == {"GIVEN_UP": 1}
    page = api.get("/dead-letters/billing?filter=reason=GIVEN_UP&preview_bytes=100").body
    (letter,) = page["letters"]
    assert (letter["id"], len(letter["value"]), letter["value_bytes"], letter["is_cut"]) == ("o17", 100, 5_000, True)
    assert page["next"] is None
    assert api.get("/dead-letters/billing?filter=reason=OTHER").body["letters"] == []
    assert api.get("/dead-letters/billing?filter=nonsense").problem == "invalid"
    assert api.get("/dead-letters/nobody").problem == "no-such-group"
    dry = api.post("/dead-letters/billing/redrive", {"dry_run": True})
    assert (dry.status, dry.body["state"], dry.body["destinations"]) == (200, "done", {origin: 1})
    assert api.post("/dead-letters/billing/redrive", {"to": "nowhere"}).problem == "invalid"
    for redriven_now, redriven_before in ((1, 0), (0, 1)):
        begun = api.post("/dead-letters/billing/redrive")  # 202 where it takes longer than two seconds
        assert begun.status in (200, 202)
        path = begun.headers["location"].removeprefix("/api/v1")
        ended = wait_until(
            lambda path=path: (told := api.get(path).body)["state"] != "running" and told, "it has ended"
        )
        assert (ended["state"], ended["redriven"], ended["done_before"]) == ("done", redriven_now, redriven_before)
    (redriven,) = kafka.read([origin], 1)
    assert (redriven.value, redriven.text("UNIQ_KEY")) == (b"x" * 5_000, "o17")


@pytest.mark.long
def test_a_long_redrive_is_watched_and_stopped_and_goes_on(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi
) -> None:
    origin = kafka.create_topic(f"{prefix}orders")
    topic = kafka.create_topic(f"{prefix}DLQ-billing", 2)
    headers: Headers = [("RETRY_TOPIC", origin.encode()), ("RECONSUME_TIME", b"16")]
    kafka.produce([(topic, b"%d" % n, b"v", [*headers, ("UNIQ_KEY", b"%d" % n)]) for n in range(400)])
    sidecar.start()
    began = api.post("/dead-letters/billing/redrive", {"rate": 50})
    assert (began.status, began.body["state"]) == (202, "running")
    path = began.headers["location"].removeprefix("/api/v1")
    again = api.post("/dead-letters/billing/redrive")
    assert (again.status, again.problem, again.body["redrive"]) == (409, "in-progress", began.body["id"])
    wait_until(lambda: 0 < api.get(path).body["gone_through"] < api.get(path).body["total"], "it is on its way")
    assert api.ask("DELETE", path).status == 202
    wait_until(lambda: api.get(path).body["state"] == "stopped", "it has stopped")
    rest = api.post("/dead-letters/billing/redrive")
    assert rest.status == 200, rest
    assert 0 < rest.body["redriven"] < 400
    assert rest.body["redriven"] + rest.body["done_before"] == 400
    assert len({record.text("UNIQ_KEY") for record in kafka.read([origin], 400)}) == 400
    assert [job["state"] for job in api.get("/redrives").body["redrives"]] == ["done", "stopped"]


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_lets_a_redrive_finish_its_transaction(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi, workers: int
) -> None:
    """Whoever reads the destination would wait for Kafka to abort it: 10 s and more."""
    origin = kafka.create_topic(f"{prefix}orders")
    topic = kafka.create_topic(f"{prefix}DLQ-billing")
    headers: Headers = [("RETRY_TOPIC", origin.encode()), ("RECONSUME_TIME", b"16")]
    count = 150_000
    kafka.produce([(topic, b"%d" % n, b"v", [*headers, ("UNIQ_KEY", b"%d" % n)]) for n in range(count)])
    sidecar.settings["workers"] = workers
    sidecar.start()
    with ThreadPoolExecutor(1) as asking:
        asking.submit(api.post, "/dead-letters/billing/redrive", {"rate": 30_000})
        wait_until(lambda: kafka.ends(origin)[0] > 0, "it moves letters", 30)
        assert sidecar.terminate()[0] == 0
    place = TopicPartition(origin, 0)
    written, committed = (
        kafka.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)[place].result().offset
        for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    )
    assert 0 < written < count, "it was in the midst of them"
    assert committed == written, "a transaction is open"
    sidecar.start()
    wait_until(lambda: api.post("/dead-letters/billing/redrive").body.get("state") == "done", "the rest", 60)
    assert len({record.text("UNIQ_KEY") for record in kafka.read([origin], count, 60)}) == count


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_pending_is_told_a_page_at_a_time(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, api: HttpApi, workers: int
) -> None:
    """Also where a page ends within a millisecond, and whoever has the partition."""
    sidecar.settings |= {"workers": workers, "partitions": 3}
    sidecar.start()
    at_ms = now_ms() + 3_600_000
    moments = [at_ms + (n // 40) for n in range(120)]
    body = [
        {"topic": ("orders", "other")[n % 2], "value": str(n), "key": str(n), "headers": {"UNIQ_KEY": f"m{n}"}}
        for n in range(120)
    ]
    for one, moment_ms in zip(body, moments, strict=True):
        one["deliver_at"] = f"{time.strftime('%FT%T', time.gmtime(moment_ms // 1000))}.{moment_ms % 1000:03}Z"
    assert api.post("/messages", body).status == 202
    wait_until(lambda: sidecar.pending() == 120, "all are stored")

    def pages(limit: int, query: str = "") -> Iterator[list[Any]]:
        after = ""
        while True:
            page = api.get(f"/pending?limit={limit}{query}{after}")
            assert page.status == 200, page
            yield page.body["messages"]
            if page.body["next"] is None:
                return
            after = f"&after={page.body['next']}"

    for limit in (7, 40, 10_000):
        found = [one for page in pages(limit) for one in page]
        assert sorted(one["id"] for one in found) == sorted(f"m{n}" for n in range(120)), limit
        assert [one["deliver_ms"] for one in found] == sorted(moments)
    assert len([one for page in pages(9, "&topic=other") for one in page]) == 60
    assert len([one for page in pages(9, f"&from={at_ms + 1}&to={at_ms + 2}") for one in page]) == 40
    assert [one["id"] for page in pages(9, "&id=m7") for one in page] == ["m7"]
    assert api.get("/pending?after=x").problem == "invalid"
    assert api.get("/pending?from=2020-01-01T00:00:00Z").body["total"] > 0
    assert api.get("/pending?to=2020-01-01T01:00:00%2B01:00").body["total"] == 0
    assert api.get("/pending?to=2020-01-01T00:00:00").problem == "invalid"
    document = api.get("/openapi.json").body
    assert {"/healthz", "/api/v1/messages", "/api/v1/pending", "/api/v1/switches"} <= set(document["paths"])
    assert api.get("/messages").status == 405
    assert api.get("/nothing").problem == "not-found"


def test_the_token_is_wanted_by_all_of_the_api(sidecar: SidecarProcess, api: HttpApi) -> None:
    sidecar.settings["http_token"] = "secret"
    sidecar.start()
    for method, path in [("POST", "/messages"), ("GET", "/pending"), ("GET", "/openapi.json"), ("PUT", "/switches")]:
        assert api.ask(method, path, {}).problem == "unauthorised"
    known = HttpApi(sidecar, "secret")
    assert known.get("/pending").status == 200
    assert known.get("/openapi.json").body["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert json.loads(sidecar.get("/readyz")[1])["ready"]


def test_receipts_of_others_are_refused(sidecar: SidecarProcess, api: HttpApi) -> None:
    """A receipt says where the sidecar writes: nobody may make one that points elsewhere."""
    from connectors.receipt import Receipt

    sidecar.start()
    topic = f"{sidecar.settings['topic_prefix']}SCHEDULE_TOPIC_XXXX-wheel"
    good = {"schedule_topic": topic, "partition": 0, "id": "a", "topic": "b", "deliver_ms": 1}
    for bad in (
        {"schedule_topic": "orders"},
        {"partition": -1},
        {"partition": 2**40},
        {"offset": -2},
        {"deliver_ms": -1},
    ):
        word = Receipt(**{**good, **bad}).encode()  # type: ignore[arg-type]
        for method, body in (("DELETE", None), ("PATCH", {"delay": "1s"})):
            answer = api.ask(method, f"/messages/{word}", body)
            assert (answer.status, answer.problem) == (422, "invalid"), bad
    assert api.ask("DELETE", "/messages/nonsense").problem == "invalid"
    gone = Receipt(**{**good, "offset": 10_000}).encode()  # type: ignore[arg-type]
    assert api.ask("PATCH", f"/messages/{gone}", {"delay": "1s"}).problem == "gone"
    beyond = Receipt(**{**good, "partition": 77}).encode()  # type: ignore[arg-type]
    assert api.ask("DELETE", f"/messages/{beyond}").problem == "refused"


@pytest.mark.slow
def test_while_kafka_is_away_requests_are_refused_in_bounded_time(tmp_path: Path) -> None:
    """With its own broker, which is stopped."""
    from connectors.embedded import EmbeddedKafka

    with EmbeddedKafka() as broker:
        process = SidecarProcess(broker.bootstrap_servers, tmp_path, group_id="g", levels="1s")
        with process:
            api = HttpApi(process)
            message = {"topic": "orders", "value": "v", "delay": "1h"}
            assert api.post("/messages", [message], "k").status == 202
            broker.stop()
            for answer in (api.post("/messages", [message], "k2"), api.post("/messages", message)):
                assert (answer.status, answer.headers["retry-after"]) == (503, "2")
                assert answer.problem == ("unavailable" if answer.body.get("id") is None else "unknown-outcome")
            assert api.get("/dead-letters").problem == "unavailable"
            assert process.get("/healthz")[0] == 200


def test_the_readmes_lines_run(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    for program in ("curl", "jq"):
        assert shutil.which(program), f"{program} is not installed"
    sidecar.settings["levels"] = "1s 5s 10s"
    kafka.create_topic(f"{prefix}x")
    sidecar.start()
    section = Path("README.md").read_text().partition("\n## HTTP\n")[2].partition("\n## ")[0]
    commands = section.partition("```sh\n")[2].partition("```")[0].replace("\\\n", " ")
    lines = [line for line in commands.replace("',\n", "',").replace("},\n", "},").splitlines() if line.strip()]
    assert len(lines) == 4
    environment = dict(os.environ)

    def told(line: str) -> Any:
        command = line.replace("localhost:8080", str(sidecar.http_address))
        ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=True)
        answer = json.loads(ended.stdout)
        return None if "no-such-group" in answer.get("type", "") else answer  # it is on its way

    for line in lines:
        name, is_kept, _ = line.partition("=$(")
        if is_kept and name.isidentifier():
            command = f"{line.replace('localhost:8080', str(sidecar.http_address))}; printf %s ${name}"
            ended = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=True)
            environment[name] = ended.stdout
            continue
        answer = wait_until(partial(told, line), line)
        assert "type" not in answer, (line, answer)
    assert answer["outcome"].startswith("/api/v1/cancels/")
