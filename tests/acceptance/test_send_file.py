"""``timewheel send --file``: many records, one receipt a line, in order."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from connectors.contract import TopicNames
from connectors.pending_receipt import PendingReceipt
from connectors.producer import ScheduledProducer
from connectors.receipt import Receipt
from sidecar.cli.send_file import Answers, Line, opened, send_lines
from sidecar.settings import Settings
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
    lines.append(good.replace('"1h"', '"400d"'))
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
        "line 10",
    ]
    assert "line 10: delay is further away than max_delay (366d)" in faults[-2]
    assert "delay: 90 is not a duration; write a whole number" in faults[0]
    assert faults[-1] == "timewheel: not scheduled: 6 of 9 lines"


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


class SmallQueue(ScheduledProducer):
    """A producer with room for little; notes who serves the answers, and is interrupted at a line."""

    def __init__(self, kafka: Kafka, prefix: str, interrupted_at: int = -1) -> None:
        config = {"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 10}
        super().__init__(config, names=TopicNames(prefix=prefix))
        self.served_by: Counter[str] = Counter()
        self._left = interrupted_at

    def begin_send(self, *args: Any, **kwargs: Any) -> PendingReceipt:
        topic, value, on_receipt = args

        def served(answer: Receipt | KafkaError) -> None:
            self.served_by[threading.current_thread().name] += 1
            on_receipt(answer)

        pending = super().begin_send(topic, value, served, **kwargs)
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return pending


def test_answers_are_served_where_ctrl_c_is_not_raised(
    kafka: Kafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
    producer = SmallQueue(kafka, prefix)
    with opened(str(_lines_of(tmp_path, 2_000, 10))) as file:
        send_lines(Settings(), producer, file)
    assert producer.served_by == {"answers": 2_000}
    assert [receipt["id"] for receipt in told_lines(capsys.readouterr().out)] == [str(n) for n in range(2_000)]


def test_whoever_is_interrupted_with_a_record_on_its_way_ends_with_its_receipt(
    kafka: Kafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
    producer = SmallQueue(kafka, prefix, interrupted_at=100)
    with opened(str(_lines_of(tmp_path, 200, 10))) as file, pytest.raises(KeyboardInterrupt):
        send_lines(Settings(), producer, file)
    told = capsys.readouterr()
    receipts = [receipt["id"] for receipt in told_lines(told.out)]
    assert receipts[:99] == [str(n) for n in range(99)]
    # The record that was interrupted: whichever comes first.
    assert receipts[99:] == ["99"] or "line 100: interrupted: it is not known whether it is scheduled" in told.err


def test_a_line_that_is_read_and_not_begun_when_ctrl_c_comes_is_answered_for(
    kafka: Kafka, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = SmallQueue(kafka, prefix)
    lines: list[Line] = []

    class Told:
        tell = staticmethod(lines.extend)

    def be_interrupted() -> None:
        with Answers(producer.poll, Told()) as answers:
            answers.expect(1, 10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert [(line.number, line.answer) for line in lines] == [
        (1, "interrupted: it is not known whether it is scheduled")
    ]


def test_ctrl_c_ends_it_with_a_receipt_for_every_record_that_kafka_has(
    kafka: Kafka, prefix: str, options: list[str], tmp_path: Path
) -> None:
    wheel = kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    file = _lines_of(tmp_path, 10_000, 10_000)
    command = [sys.executable, "-m", "sidecar", "send", *options, "--file", str(file)]
    complaints = tmp_path / "stderr"
    with (
        complaints.open("w") as stderr,
        subprocess.Popen(
            command,
            env={**os.environ, "TIMEWHEEL_KAFKA": '{"queue.buffering.max.kbytes": 200}'},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        kill = threading.Timer(60, process.kill)
        kill.start()
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(300)]
        process.send_signal(signal.SIGINT)
        told += process.stdout
        code = process.wait()
        kill.cancel()
    assert code == 130, "it has not ended by itself"
    receipts = told_lines("".join(told))
    assert 300 <= len(receipts) < 10_000
    assert {receipt["id"] for receipt in receipts} >= {record.text("UNIQ_KEY") for record in kafka.read([wheel], 1)}
    assert "Traceback" not in complaints.read_text()


def test_what_is_scheduled_without_a_receipt_is_told_where_none_can_be_printed(
    kafka: Kafka, prefix: str, options: list[str], tmp_path: Path
) -> None:
    wheel = kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    command = [sys.executable, "-m", "sidecar", "send", *options]
    with Path("/dev/full").open("w") as full:
        many = subprocess.run(
            [*command, "--file", str(_lines_of(tmp_path, 20_000, 10))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
        scheduled = len(kafka.read([wheel], 1))
        one = subprocess.run(
            [*command, "--topic", "orders", "--delay", "1h", "v"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    told = re.fullmatch(
        r"timewheel: receipts cannot be printed: No space left on device; (\d+) of the lines 1 to (\d+) are scheduled "
        r"and may lack theirs, and what follows line (\d+) has not been read\n",
        many.stderr,
    )
    assert told is not None, many.stderr
    assert (many.returncode, int(told[1])) == (1, scheduled)
    assert scheduled == int(told[2]) <= int(told[3]) < 20_000
    assert one.returncode == 1
    assert one.stderr.startswith(
        "timewheel: it is scheduled, and its receipt cannot be printed: No space left on device: {"
    )
    assert Receipt.decode(json.loads(one.stderr.partition("device: ")[2])["receipt"]).partition == 0


def test_a_hundred_thousand_lines_take_seconds_and_little_memory(
    kafka: Kafka, prefix: str, options: list[str], tmp_path: Path
) -> None:
    kafka.create_topic(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", message_timestamp_type="LogAppendTime")
    file = _lines_of(tmp_path, 100_000, 200)
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


def _lines_of(directory: Path, count: int, value_bytes: int) -> Path:
    file = directory / "lines.jsonl"
    with file.open("w") as out:
        for number in range(count):
            line = {"topic": "orders", "value": "v" * value_bytes, "delay": "1h", "headers": {"UNIQ_KEY": str(number)}}
            out.write(json.dumps(line) + "\n")
    return file
