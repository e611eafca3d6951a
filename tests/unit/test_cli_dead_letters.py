"""``timewheel dlq`` on the in-memory Kafka: what comes from Kafka is shown, and is neither markup nor a command."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from click.testing import Result
from typer.testing import CliRunner

from connectors.dead_letters import DeadLetters
from connectors.testing import InMemoryKafka
from sidecar.cli import dlq
from sidecar.cli.main import make_app
from sidecar.errors import UsageError
from sidecar.settings import Settings

Run = Callable[..., Result]
Headers = list[tuple[str, bytes | None]]


@pytest.fixture
def kafka() -> InMemoryKafka:
    return InMemoryKafka()


@pytest.fixture
def run(kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def dead_letters(_: Settings) -> Iterator[DeadLetters]:
        yield DeadLetters({}, clients=kafka)

    monkeypatch.setattr(dlq, "_dead_letters", dead_letters)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(make_app("dlq"), ["dlq", *arguments])


def bury(kafka: InMemoryKafka, topic: str, *headers: tuple[str, bytes | None], value: bytes = b"v") -> None:
    kafka.create_topic(topic)
    producer = kafka.producer({})
    producer.produce(topic, value, b"k", headers=list(headers))
    producer.flush()


def test_groups_and_reasons_are_told_as_they_are(kafka: InMemoryKafka, run: Run) -> None:
    bury(kafka, "DLQ-enc--x.5B.2Fy.5D", ("RECONSUME_TIME", b"1"))
    bury(kafka, "DLQ-enc--billing.5Beu.5D.1B.0A", ("RECONSUME_TIME", b"1"))
    rejected = [("ERROR_CODE", b"[/z]\x1b[31m"), ("ERROR_TOPIC", b"t"), ("ERROR_OFFSET", b"1")]
    bury(kafka, "DLQ-fm", *rejected)
    listed = run("list")
    assert (listed.exit_code, listed.exception) == (0, None)
    assert all(told in listed.stdout for told in (" x[/y] ", r" billing[eu]\x1b\x0a ", r" [/z]\x1b[31m 1 "))
    assert "\x1b" not in listed.stdout


def test_a_long_group_is_told_whole_where_nobody_looks(
    kafka: InMemoryKafka, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For grep: a file or another program has no width of its own."""
    monkeypatch.delenv("COLUMNS")
    bury(kafka, f"DLQ-{'g' * 100}", ("RECONSUME_TIME", b"17"))
    assert f" {'g' * 100} " in run("list").stdout


def test_no_letter_writes_a_line_that_looks_like_another(kafka: InMemoryKafka, run: Run) -> None:
    forged = b"x\nRETRY_TOPIC: forged\n    key = forged\n0-7  2030\x1b[2J"
    headers: Headers = [("a\n    b", forged), ("UNIQ_KEY", forged), ("RECONSUME_TIME", b"1")]
    bury(kafka, "DLQ-g", *headers, value=forged)
    shown = run("show", "g").stdout
    assert r"    a\x0a    b: x\x0aRETRY_TOPIC: forged\x0a" in shown
    lines = shown.splitlines()
    assert [line[:5] for line in lines if not line.startswith(" ")] == ["0-0  "]
    assert [line for line in lines if line.startswith("    ") and line[4:8] == "key "] == ["    key = k"]
    assert "        RETRY_TOPIC: forged" in lines
    assert "\x1b" not in shown


@pytest.mark.parametrize("stamped_ms", [1_790_000_000_000_000_000, 2**63 - 1])
def test_a_letter_that_is_stamped_in_nanoseconds_is_shown(kafka: InMemoryKafka, run: Run, stamped_ms: int) -> None:
    kafka.create_topic("DLQ-g", 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})  # the default before 4.0
    producer = kafka.producer({})
    producer.produce("DLQ-g", b"v", timestamp=stamped_ms)
    producer.flush()
    assert f"0-0  {stamped_ms} ms  UNKNOWN" in run("show", "g").stdout


def test_a_null_header_is_called_what_a_null_value_is(kafka: InMemoryKafka, run: Run) -> None:
    bury(kafka, "DLQ-g", ("none", None), ("empty", b""), ("RECONSUME_TIME", b"1"))
    assert "    none: null\n    empty: \n" in run("show", "g").stdout
    ((*none, _),) = (letter["headers"] for letter in json.loads(run("show", "g", "--json").stdout)["letters"])
    assert none == [["none", None], ["empty", ""]]


def test_a_page_without_letters_says_why(kafka: InMemoryKafka, run: Run) -> None:
    kafka.create_topic("orders")
    kafka.create_topic("DLQ-none")
    kafka.create_topic("DLQ-g")
    producer = kafka.producer({})
    for kind in (b"a", b"a", b"b"):
        producer.produce("DLQ-g", b"v", headers=[("RETRY_TOPIC", b"orders"), ("RECONSUME_TIME", b"1"), ("kind", kind)])
    producer.flush()
    assert run("show", "g", "--filter", "header.kind=c").stdout == "no letters match\n"
    assert run("redrive", "g").exit_code == 0
    assert run("show", "g").stdout == "no letters match; 3 were redriven (--all shows them)\n"
    assert run("show", "g", "--filter", "header.kind=a").stdout.startswith("no letters match; 2 were redriven")
    assert "no letters" not in run("show", "g", "--all").stdout
    assert json.loads(run("show", "g", "--json").stdout)["letters"] == []
    assert run("show", "none").stdout == "no letters match\n"


@pytest.mark.parametrize("to", ["", "bad topic", "x" * 300])
def test_a_destination_that_is_no_topic_name_is_a_usage_error(kafka: InMemoryKafka, run: Run, to: str) -> None:
    bury(kafka, "DLQ-g", ("RECONSUME_TIME", b"1"))
    ended = run("redrive", "g", "--to", to)
    assert isinstance(ended.exception, UsageError)
    assert f"--to '{to}' is not a valid topic name" in str(ended.exception)


@pytest.mark.parametrize("after", ["x", "0-", "²-1", "0-" + "1" * 5_000])
def test_a_place_that_is_none_is_a_usage_error(kafka: InMemoryKafka, run: Run, after: str) -> None:
    bury(kafka, "DLQ-g")
    assert isinstance(run("show", "g", "--after", after).exception, UsageError)
