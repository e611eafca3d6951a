"""``timewheel dlq`` as operators use it: commands of their own, on a real broker with a real sidecar's dead letters."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.command import Ended, told
from tests.support.command import timewheel as run
from tests.support.kafka import Headers, Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

Dlq = Callable[..., Any]


@pytest.fixture
def dlq(kafka: Kafka, prefix: str) -> Dlq:
    """Runs a command and returns what it prints."""

    def ask(*arguments: str) -> Any:
        return told("dlq", *arguments, *where(kafka, prefix), "--json")

    return ask


def where(kafka: Kafka, prefix: str) -> tuple[str, ...]:
    return "--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix


def refused(kafka: Kafka, prefix: str, *arguments: str) -> Ended:
    ended = run("dlq", *arguments, *where(kafka, prefix))
    assert ended.returncode != 0
    return ended


def bury(kafka: Kafka, prefix: str, count: int, *more: tuple[str, bytes | None], first: int = 0) -> None:
    """Dead letters of the group ``billing``, as the sidecar writes them."""
    if f"{prefix}DLQ-billing" not in kafka.topics():
        kafka.create_topic(f"{prefix}DLQ-billing", 2)
    kafka.produce(
        (f"{prefix}DLQ-billing", b"k%d" % number, b'{"n": %d}' % number, [*failed(prefix, number), *more])
        for number in range(first, first + count)
    )


def failed(prefix: str, number: int) -> Headers:
    return [
        ("CONSUMER_GROUP", b"billing"),
        ("RETRY_TOPIC", f"{prefix}orders".encode()),
        ("RECONSUME_TIME", b"17"),
        ("UNIQ_KEY", b"%d" % number),
        ("TAGS", b"odd" if number % 2 else b"even"),
    ]


def ids(kafka: Kafka, topic: str, count: int) -> list[int]:
    return sorted(int(record.text("UNIQ_KEY")) for record in kafka.read([topic], count))


@pytest.mark.long
def test_letters_are_counted_shown_and_redriven_once(kafka: Kafka, prefix: str, dlq: Dlq) -> None:
    orders = kafka.create_topic(f"{prefix}orders", 3)
    bury(kafka, prefix, 10)
    bury(kafka, prefix, 2, ("RECONSUME_TIME", b"1"), first=10)
    (group,) = dlq("list")["groups"]
    assert (group["group"], group["total"], group["waiting"]) == ("billing", 12, 12)
    assert group["reasons"] == {"RETRIES_EXHAUSTED": 10, "GIVEN_UP": 2}

    page = dlq("show", "billing", "--limit", "7", "--body", "json")
    rest = dlq("show", "billing", "--limit", "7", "--after", page["next"])
    assert rest["next"] is None
    assert sorted(int(letter["id"]) for letter in page["letters"] + rest["letters"]) == list(range(12))
    letter = page["letters"][0]
    assert letter["value"] == {"n": int(letter["id"])}
    assert ["RETRY_TOPIC", orders] in letter["headers"]
    shown = run("dlq", "show", "billing", "--filter", "key=k3", *where(kafka, prefix)).stdout
    assert "RETRIES_EXHAUSTED  3\n" in shown
    assert '    value = {"n": 3}\n' in shown

    dry = dlq("redrive", "billing", "--filter", "header.TAGS=odd", "--dry-run")
    assert dlq("redrive", "billing", "--filter", "header.TAGS=odd") == {**dry, "dry_run": False}
    assert dry["destinations"] == {orders: 6}
    assert ids(kafka, orders, 6) == [1, 3, 5, 7, 9, 11]
    again = dlq("redrive", "%DLQ%billing")
    assert (again["redriven"], again["done_before"]) == (6, 6)
    assert dlq("redrive", "billing")["redriven"] == 0
    assert ids(kafka, orders, 12) == list(range(12))
    record = kafka.read([orders], 12)[0]
    assert record.text("REDRIVE_COUNT") == "1"
    assert record.header("RECONSUME_TIME") is None
    (group,) = dlq("list")["groups"]
    assert (group["waiting"], group["redriven"], group["reasons"]) == (0, 12, {})
    assert dlq("show", "billing")["letters"] == []


@pytest.mark.long
def test_a_redrive_that_is_killed_goes_on_when_it_is_run_again(kafka: Kafka, prefix: str, dlq: Dlq) -> None:
    orders = kafka.create_topic(f"{prefix}orders", 3)
    bury(kafka, prefix, 3_000)
    command = [sys.executable, "-m", "sidecar", "dlq", "redrive", "billing", "--rate", "100", *where(kafka, prefix)]
    for kill in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        before = len(kafka.read([orders], 0))
        with tempfile.TemporaryFile("w+") as told, subprocess.Popen(command, stdout=told, stderr=told) as process:

            def is_under_way() -> bool:
                if process.poll() is not None:
                    told.seek(0)
                    pytest.fail(f"it has ended with {process.returncode}: {told.read()}")
                return len(kafka.read([orders], 0)) > before + 50  # noqa: B023

            wait_until(is_under_way, "it is under way")
            process.send_signal(kill)
            process.wait(timeout=60)
    left = dlq("redrive", "billing")
    assert left["redriven"] > 0, "it was done before the last kill: the test proves nothing"
    assert left["redriven"] + left["done_before"] == 3_000
    assert ids(kafka, orders, 3_000) == list(range(3_000))


def test_a_message_is_parked_after_so_many_redrives(kafka: Kafka, prefix: str, dlq: Dlq) -> None:
    kafka.create_topic(f"{prefix}orders")
    bury(kafka, prefix, 3, ("REDRIVE_COUNT", b"2"))
    assert dlq("redrive", "billing", "--max-redrives", "2")["parked"] == 3
    assert dlq("list")["groups"][1] == {
        "group": "billing.parked",
        "topic": f"{prefix}DLQ-billing.parked",
        "total": 3,
        "redriven": 0,
        "waiting": 3,
        "reasons": {"RETRIES_EXHAUSTED": 3},
    }


def test_the_sidecars_rules_hold_for_a_redrive_that_is_given_its_settings(kafka: Kafka, prefix: str, dlq: Dlq) -> None:
    orders = kafka.create_topic(f"{prefix}orders")
    bury(kafka, prefix, 3)
    for rule in ("--denied-topics=*ders", "--allowed-topics=payments"):
        told = run("dlq", "redrive", "billing", rule, "--json", *where(kafka, prefix))
        assert told.returncode == 1
        assert f"'{orders}' is not among allowed_topics of this sidecar, or is among denied_topics" in told.stdout
    assert dlq("redrive", "billing")["destinations"] == {orders: 3}


@pytest.mark.long
def test_rejected_records_go_to_their_topic_once_it_is_there(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, dlq: Dlq
) -> None:
    own = f"{prefix}timewheel"
    sidecar.start()
    level, back = f"{prefix}SCHEDULE_TOPIC_XXXX-1", f"{prefix}SCHEDULE_TOPIC_XXXX-sendback"
    headers: Headers = [("REAL_TOPIC", f"{prefix}later".encode()), ("TAGS", b"a")]
    kafka.produce([(level, b"k", b"\xff\x00", headers), (back, None, b"v", [("RETRY_TOPIC", b"orders")])])
    kafka.read([f"{prefix}DLQ-{own}"], 2)
    letters = dlq("show", own)["letters"]
    assert {letter["reason"] for letter in letters} == {"UNKNOWN_DESTINATION", "MISSING_CONSUMER_GROUP"}
    assert "/wA=" in {letter.get("value_base64") for letter in letters}

    only = ("--filter", "reason=UNKNOWN_DESTINATION")
    stayed = run("dlq", "redrive", own, *only, *where(kafka, prefix))
    assert stayed.returncode == 1
    assert f"there is no topic '{prefix}later'" in stayed.stdout
    later = kafka.create_topic(f"{prefix}later")
    assert dlq("redrive", own, *only)["destinations"] == {later: 1}
    (record,) = kafka.read([later], 1)
    assert (record.key, record.value) == (b"k", b"\xff\x00")
    assert record.headers == [("TAGS", b"a"), ("UNIQ_KEY", f"{level}-0-0".encode()), ("REDRIVE_COUNT", b"1")]


@pytest.mark.long
def test_a_rejected_record_goes_through_the_sidecar_again_where_it_is_sent_to_a_schedule_topic(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, dlq: Dlq
) -> None:
    own, level = f"{prefix}timewheel", f"{prefix}SCHEDULE_TOPIC_XXXX-1"
    sidecar.start()
    kafka.produce([(level, b"k", b"v", [("REAL_TOPIC", f"{prefix}later".encode())])])
    kafka.read([f"{prefix}DLQ-{own}"], 1)
    later = kafka.create_topic(f"{prefix}later")
    assert dlq("redrive", own, "--to", level)["destinations"] == {level: 1}
    (record,) = kafka.read([later], 1)
    assert record.text("UNIQ_KEY") == f"{level}-0-0"
    assert record.lateness_ms >= 0


@pytest.mark.long
def test_mistakes_are_named(kafka: Kafka, prefix: str) -> None:
    bury(kafka, prefix, 1)
    mistakes = {
        ("show", "nobody"): (1, "group 'nobody' has no dead letters"),
        ("redrive", "billing", "--to", "missing"): (1, "there is no topic 'missing'"),
        ("redrive", "billing", "--to", f"{prefix}DLQ-billing"): (1, "already"),
        ("redrive", "billing", "--filter", "colour=red"): (2, "header.NAME="),
        ("redrive", "billing", "--filter", "from=yesterday"): (2, "'yesterday' is not a time"),
        ("show", "billing", "--after", "here"): (2, "PARTITION-OFFSET"),
    }
    for arguments, (code, sentence) in mistakes.items():
        ended = refused(kafka, prefix, *arguments)
        assert (ended.returncode, sentence in ended.stderr) == (code, True), ended.stderr
        assert "Traceback" not in ended.stderr
    nobody = run("dlq", "list", "--bootstrap-servers", "127.0.0.1:1")
    assert nobody.returncode == 3
