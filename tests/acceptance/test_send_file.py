"""``timewheel send --file``: many records, one receipt a line, in order."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import timewheel, told_lines
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess

pytestmark = pytest.mark.kafka


@pytest.fixture
def options(kafka: Kafka, prefix: str) -> list[str]:
    return ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix, "--levels", "1s 2s 3s"]


def test_each_line_gets_its_receipt_in_order_and_is_delivered(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, options: list[str]
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings["partitions"] = 3
    sidecar.start()
    lines = [
        {"topic": destination, "value": "text", "key": "a", "delay": "1s", "headers": {"n": "1", "none": None}},
        {"topic": destination, "value_base64": "AP8=", "key": "b", "deliver_at": "2020-01-01T00:00:00Z"},
        {"topic": destination, "value": None, "key": "c", "level": 1, "headers": [["n", "1"], ["n", "2"]]},
        {"topic": destination, "value": "", "delay": "1s", "headers": {"UNIQ_KEY": "mine"}},
    ]
    text = "\n\n".join(map(json.dumps, lines))
    ended = timewheel("send", *options, "--file", "-", stdin=text)
    assert (ended.returncode, ended.stderr) == (0, "")
    receipts = told_lines(ended.stdout)
    assert [receipt["topic"] for receipt in receipts] == [destination] * 4
    delivered = {record.text("UNIQ_KEY"): record for record in kafka.read([destination], 4)}
    records = [delivered[receipt["id"]] for receipt in receipts]
    assert [record.value for record in records] == [b"text", b"\x00\xff", None, b""]
    assert [record.key for record in records] == [b"a", b"b", b"c", None]
    assert [int(record.text("TIMER_OUT_MS")) for record in records] == [receipt["deliver_ms"] for receipt in receipts]
    assert [header for header in records[0].headers if header[0] in ("n", "none")] == [("n", b"1"), ("none", None)]
    assert [header for header in records[2].headers if header[0] == "n"] == [("n", b"1"), ("n", b"2")]
    assert receipts[2]["cancellable"] is False
    assert receipts[3]["id"] == "mine"


def test_bad_lines_are_named_and_the_others_are_scheduled(
    kafka: Kafka, prefix: str, options: list[str], tmp_path: Path
) -> None:
    wheel = kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    good = '{"topic": "orders", "value": "v", "delay": "1h"}'
    lines = [good, '{"topic": "orders", "value": "v", "delay": 90}', "", "no JSON", good.replace("orders", "?"), good]
    lines.append(good.replace('"v"', f'"{"v" * 2_000_000}"'))
    lines.append(good.replace('"1h"', '"1h", "headers": {"DELAY": "1"}'))
    lines.append(good)
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(lines))
    ended = timewheel("send", *options, "--file", str(file))
    assert ended.returncode == 1
    assert len(told_lines(ended.stdout)) == 3
    assert [record.value for record in kafka.read([wheel], 3)] == [b"v"] * 3
    faults = ended.stderr.splitlines()
    assert [fault.partition(": ")[2].partition(": ")[0] for fault in faults[:-1]] == [
        "line 2",
        "line 4",
        "line 5",
        "line 7",
        "line 8",
    ]
    assert "delay: 90 is not a duration; write a whole number" in faults[0]
    assert faults[-1] == "timewheel: not scheduled: 5 of 8 lines"


def test_nothing_in_is_nothing_out(kafka: Kafka, options: list[str]) -> None:
    ended = timewheel("send", *options, "--file", "-", stdin="\n\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_file_that_cannot_be_read_is_named(kafka: Kafka, options: list[str]) -> None:
    ended = timewheel("send", *options, "--file", "/absent.jsonl")
    assert ended.returncode == 2
    assert "--file /absent.jsonl cannot be read: No such file or directory" in ended.stderr


@pytest.mark.parametrize("record", [["--topic", "orders", "--delay", "1s", "v"], ["--file", "-"]], ids=["one", "file"])
def test_schedule_topics_that_are_not_there_are_told_soon_and_are_no_silence(
    kafka: Kafka, options: list[str], record: list[str]
) -> None:
    began_s = time.monotonic()
    ended = timewheel("send", *options, *record, stdin='{"topic": "orders", "value": "v", "delay": "1s"}\n')
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "there is no such schedule topic or partition; start the sidecar, or run" in ended.stderr
    assert time.monotonic() - began_s < 20


def test_a_receipt_does_not_wait_for_the_next_line(kafka: Kafka, prefix: str, options: list[str]) -> None:
    kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    command = [sys.executable, "-m", "sidecar", "send", *options, "--file", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            line = {"topic": "orders", "value": "v", "delay": "1h", "headers": {"UNIQ_KEY": str(number)}}
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == str(number)
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_hundred_thousand_lines_take_seconds_and_little_memory(
    kafka: Kafka, prefix: str, options: list[str], tmp_path: Path
) -> None:
    kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    file = tmp_path / "lines.jsonl"
    with file.open("w") as out:
        for number in range(100_000):
            line = {"topic": "orders", "value": "v" * 200, "delay": "1h", "headers": {"UNIQ_KEY": str(number)}}
            out.write(json.dumps(line) + "\n")
    program = (
        "import re, sys; from pathlib import Path; from sidecar.cli.main import make_app; sys.argv[0] = 'timewheel'; "
        "make_app('send')(standalone_mode=False); "
        # Not ru_maxrss, which begins with that of the process that forked it.
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) // 1024, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "send", *options, "--file", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert [receipt["id"] for receipt in told_lines(ended.stdout)] == [str(number) for number in range(100_000)]
    assert int(ended.stderr) < 250, f"{ended.stderr} MB"
