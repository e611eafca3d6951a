"""Log lines: which there are, how many, in which form, and what they may not show."""

import json
import logging
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from connectors import event_log
from connectors.contract import ErrorCode
from connectors.event_log import EventLog, named
from connectors.kafka import BY_KEY
from connectors.testing import ManualClock
from sidecar.dispatch.dequeue_put import Coordinates
from sidecar.dispatch.levels import LevelPartition, LevelProgress
from sidecar.intake.parse import Parser
from sidecar.observability.log_limits import FACTS_MAX, LINES_PER_WINDOW, WINDOW_MS, Limiter, OncePerMinute
from sidecar.records import Rejection
from sidecar.rejections import RejectionLog
from sidecar.settings import load_settings
from sidecar.source import Draft
from tests.support.log_events import ROOT, LogLine, log_lines
from tests.support.logged import logged
from tests.support.outages import no_outages
from tests.support.waiting import wait_until

# --- the page and the sources -----------------------------------------------------------------------------------------


def rows(heading: str) -> dict[str, list[str]]:
    """A table of docs/logs.md: by event the other columns."""
    section = (ROOT / "docs" / "logs.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in cells}


@pytest.mark.parametrize("line", log_lines("sidecar"), ids=lambda line: line.where)
def test_a_line_of_the_sidecar_is_on_the_page_with_its_level_and_fields(line: LogLine) -> None:
    level, fields, _ = rows("Of the sidecar")[line.event]
    assert level == line.level
    told = set(re.findall(r"`(\w+)`", fields))
    assert line.fields - {"operator_action", "**"} <= told
    assert told <= line.fields or "**" in line.fields or line.event == "starting", "fields that the line does not have"


def test_the_page_lists_no_line_that_there_is_not() -> None:
    assert set(rows("Of the sidecar")) == {line.event for line in log_lines("sidecar")}
    of_the_library = {line.event: line.level for line in log_lines("connectors")}
    assert {event: level for event, (level, _) in rows("Of the library").items()} == of_the_library


@pytest.mark.parametrize("line", [*log_lines("sidecar"), *log_lines("connectors")], ids=lambda line: line.where)
def test_what_is_wrong_comes_with_what_to_do(line: LogLine) -> None:
    assert ("operator_action" in line.fields) == (line.level in ("warning", "error"))


def test_no_line_has_a_field_for_payloads() -> None:
    for line in log_lines("sidecar"):
        assert not line.fields & {"value", "key", "headers", "message", "payload", "settings", "token"}, line.where


# --- how many ---------------------------------------------------------------------------------------------------------


class Bounded:
    """A logger with a limiter in front, whose lines are kept."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self.clock = ManualClock()
        self.limiter = Limiter(self.clock, window_ms=window_ms)

    def tell(self, event: str, **fields: object) -> bool:
        """Whether the line is written."""
        try:
            self.limiter(None, "warning", {"event": event, **fields})
        except structlog.DropEvent:
            return False
        return True


def test_ten_lines_of_a_fact_are_written_in_a_minute_and_the_rest_is_counted() -> None:
    bounded = Bounded()
    assert [bounded.tell("broken", partition=1) for _ in range(1_000)] == [True] * 10 + [False] * 990
    assert bounded.tell("broken", partition=2), "another fact"
    with logged() as lines:
        bounded.limiter.close()
    (line,) = lines
    assert (line["event"], line["of"], line["about"], line["count"]) == ("lines left out", "broken", ["1"], 990)
    assert bounded.tell("broken", partition=1)
    with logged() as lines:
        bounded.limiter.sum_up(("broken", "1", "", "", "", ""))
    assert not lines, "the timer of a window that is over already finds the next one"


def test_a_timer_says_how_many_were_left_out() -> None:
    limiter = Limiter(ManualClock(), window_ms=1)
    told: list[tuple[str, ...]] = []
    limiter.sum_up = told.append  # type: ignore[method-assign]
    for _ in range(11):
        with suppress(structlog.DropEvent):
            limiter(None, "warning", {"event": "broken"})
    wait_until(lambda: told, "the timer has rung")
    assert told == [("broken", "", "", "", "", "")]


def test_a_line_a_minute_is_always_written() -> None:
    bounded = Bounded()
    for _ in range(100):
        assert bounded.tell("now and then")
        bounded.clock.advance(WINDOW_MS / LINES_PER_WINDOW)


def test_so_many_facts_that_they_cannot_be_told_apart_are_bounded_together() -> None:
    bounded = Bounded()
    written = sum(bounded.tell("broken", topic=f"t{number}") for number in range(10_000))
    assert written == FACTS_MAX + LINES_PER_WINDOW
    bounded.clock.advance(WINDOW_MS)
    assert bounded.tell("broken", topic="another"), "facts of a window that is over are forgotten"


def test_libraries_say_a_thing_once_a_minute_and_what_is_ours_passes() -> None:
    once = OncePerMinute()

    def passes(name: str, message: str, created: float) -> bool:
        record = logging.LogRecord(name, logging.INFO, "", 0, message, None, None)
        record.created = created
        return once.filter(record)

    assert passes("librdkafka", "FAIL: connect to 9092 failed after 3ms", 0)
    assert not passes("librdkafka", "FAIL: connect to 9093 failed after 17ms", 30)
    assert passes("opentelemetry.exporter", "cannot export", 30)
    assert not passes("opentelemetry.exporter", "cannot export", 31)
    assert passes("librdkafka", "FAIL: connect to 9092 failed after 3ms", 61)
    assert passes("timewheel", "anything", 61)
    assert passes("timewheel", "anything", 61)
    assert passes("librdkafka", "FAIL: connect to 9092 failed after 3ms", -3_600)  # the host's clock was set back
    assert not passes("librdkafka", "FAIL: connect to 9092 failed after 3ms", -3_541)


# --- rejected records -------------------------------------------------------------------------------------------------


def rejected(count: int, code: ErrorCode) -> dict[Coordinates, Rejection]:
    return {(str(code), 0, offset): Rejection(code, "why") for offset in range(count)}


def test_a_million_rejected_records_are_a_handful_of_lines_that_count_them() -> None:
    clock = ManualClock()
    with logged() as lines:
        log = RejectionLog(clock, "timewheel")
        batch = rejected(4_999, ErrorCode.MISSING_REAL_TOPIC) | rejected(1, ErrorCode.DELAY_TOO_LONG)
        for _ in range(200):
            log.tell(batch, [])
            clock.advance(500)
        log.close()
    assert len(lines) < 60
    one_by_one = [line for line in lines if line["event"] == "record rejected"]
    more = [line for line in lines if line["event"] == "more records rejected"]
    for code, total in ((ErrorCode.MISSING_REAL_TOPIC, 999_800), (ErrorCode.DELAY_TOO_LONG, 200)):
        told = sum(line["code"] == code for line in one_by_one)
        assert told >= 10, "a rare code is not drowned by a frequent one"
        assert told + sum(line["count"] for line in more if line["code"] == code) == total
    assert all("timewheel dlq" in line["operator_action"] for line in lines)


def test_few_are_told_at_once_and_nothing_follows() -> None:
    clock = ManualClock()
    with logged() as lines:
        log = RejectionLog(clock, "timewheel")
        log.tell(rejected(3, ErrorCode.MISSING_REAL_TOPIC), [])
        clock.advance(WINDOW_MS)
        log.tick()
        log.close()
    assert [(line["event"], line["offset"]) for line in lines] == [("record rejected", offset) for offset in range(3)]


@pytest.mark.parametrize("with_records", [True, False])
def test_keys_and_values_are_logged_only_where_they_are_asked_for(with_records: bool) -> None:
    source = LevelPartition(
        "t",
        0,
        1_000,
        start_offset=0,
        progress=LevelProgress(),
        parser=Parser(load_settings().topic_names),
        outages=no_outages(),
        max_delay_ms=10_000,
        max_clock_skew_ms=0,
        max_records=10,
        max_bytes=1_000,
    )
    rejection = Rejection(ErrorCode.MISSING_REAL_TOPIC, "why")
    drafts = [Draft(source, [(rejection, BY_KEY, b"the key\xff", b"v" * 1_000, [], 0, 7, [])])]
    with logged() as lines:
        RejectionLog(ManualClock(), "g", with_records=with_records).tell({("t", 0, 7): rejection}, drafts)
    (line,) = lines
    if with_records:
        assert (line["key"], line["value"]) == ("the key\\xff", "v" * 200 + "… (1000 bytes)")
    else:
        assert not {"key", "value"} & set(line)


# --- form -------------------------------------------------------------------------------------------------------------

PROGRAM = """
import logging, structlog
from sidecar.observability.logs import configure_logging
configure_logging("auto", "info", ["hunter2", "abc"], worker=3)
log = structlog.get_logger("timewheel.test")
log.info("started", address="127.0.0.1:1", nested={"a": ["the hunter2 secret"]})
log.debug("unheard")
logging.getLogger("librdkafka").error("SASL hunter2 refused, abc")
try:
    raise ValueError("hunter2 in an exception")
except ValueError:
    logging.getLogger("other").exception("failed")
for number in range(25):
    log.warning("broken", number=number, operator_action="mend it")
"""


def test_without_a_terminal_lines_are_json_and_secrets_are_masked() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout == ""
    lines = [json.loads(line) for line in answer.stderr.splitlines()]
    assert "hunter2" not in answer.stderr
    started, refused, failed, *broken = lines
    assert started == {
        "event": "started",
        "address": "127.0.0.1:1",
        "nested": {"a": ["the ********** secret"]},
        "worker": 3,
        "level": "info",
        "logger": "timewheel.test",
        "timestamp": started["timestamp"],
    }
    assert refused["event"] == "SASL ********** refused, abc", (
        "what is shorter than four letters is in every other word"
    )
    assert "ValueError: ********** in an exception" in failed["exception"]
    assert [line["event"] for line in broken] == ["broken"] * 10 + ["lines left out"], "told at the latest at the end"
    assert (broken[-1]["of"], broken[-1]["count"]) == ("broken", 15)


def test_on_a_terminal_they_are_for_people() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb") as terminal:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=follower, cwd=ROOT)
        os.close(follower)
        shown = b""
        while chunk := _read(terminal.fileno()):
            shown += chunk
        assert process.wait(30) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert re.search(r"\[info +\] started +\[timewheel.test\] address=127.0.0.1:1", text), text
    assert "hunter2" not in text


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""


def test_every_secret_setting_is_kept_out_of_the_log() -> None:
    settings = load_settings(
        {
            "http_token": "the-token",
            "kafka": {"sasl.password": "the-password", "ssl.key.pem": "the-key", "client.rack": "a"},
        }
    )
    assert sorted(settings.secrets()) == ["the-key", "the-password", "the-token"]


# --- the library ------------------------------------------------------------------------------------------------------


def test_a_line_of_the_library_has_fields_beside_its_sentence(caplog: pytest.LogCaptureFixture) -> None:
    EventLog(logging.getLogger("connectors.x")).warning(
        "listener ended late", "the listener %s was late", "charge", operator_action="raise it by 100%"
    )
    (record,) = caplog.records
    assert record.getMessage() == "the listener charge was late; raise it by 100%"
    assert (record.event, record.operator_action) == ("listener ended late", "raise it by 100%")  # type: ignore[attr-defined]
    assert Path(record.pathname).name == "test_logs.py"


def test_requests_that_a_server_ends_before_they_do_are_no_event() -> None:
    script = """
import asyncio, logging
from sidecar.observability.logs import configure_logging
configure_logging("json", "info", [])
server = logging.getLogger("uvicorn.error")
server.error("Cancel %s running task(s), timeout graceful shutdown exceeded", 1)
server.error("ASGI callable returned without completing response.")
for error in (asyncio.CancelledError(), RuntimeError("broken")):
    server.error("Exception in ASGI application", exc_info=error)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = ended.stderr.splitlines()
    assert "RuntimeError: broken" in json.loads(line)["exception"]


def test_what_the_library_repeats_is_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = EventLog(logging.getLogger("connectors.x"), clock)

    def fail() -> None:
        log.error("listener failed", "the listener failed", operator_action="mend it")

    def told() -> list[str]:
        """Other clients of this process may have lines of their own."""
        return [record.getMessage() for record in caplog.records if record.name == "connectors.x"]

    for _ in range(1_000):
        fail()
    assert len(told()) == event_log.LINES_PER_WINDOW
    log.warning("another", "another", operator_action="none")
    assert len(told()) == event_log.LINES_PER_WINDOW + 1
    clock.advance(event_log.WINDOW_MS)
    fail()
    assert told()[-1] == "the listener failed (990 more of these since the last); mend it"
    fail()
    assert told()[-1] == "the listener failed; mend it"


def test_a_large_batch_is_named_in_short() -> None:
    assert named(["a", "b"]) == "a, b"
    assert named([str(number) for number in range(1_000)]) == "0, 1, 2, 3, 4 and 995 more"
