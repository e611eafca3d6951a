"""Records at the edge of what Kafka takes: through the store, through a restart, and out as they came in."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, now_ms, timed

pytestmark = pytest.mark.kafka

LARGE_BYTES = 1_048_000

ODD: dict[str, tuple[bytes | None, bytes | None, Headers]] = {
    "large": (b"k", bytes(range(256)) * (LARGE_BYTES // 256), []),
    "null value": (b"k", None, []),
    "null key": (None, b"v", []),
    "null all": (None, None, []),
    "empty": (b"", b"", []),
    "binary key": (bytes(range(256)), b"v", []),
    "empty headers": (b"k", b"v", [("empty", b""), ("null", None), ("", b"no name")]),
    "duplicates in order": (b"k", b"v", [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1"), ("b", None)]),
    "not UTF-8": (b"k", b"v", [("bytes", b"\xff\xfe\x00\x80"), ("TAGS", b"\xc3\x28")]),
    "names beyond ASCII": (b"k", b"v", [("größe", b"1"), ("名前", "値".encode())]),
    "many headers": (b"k", b"v", [(f"h{number}", b"%d" % number) for number in range(1_000)]),
    "large header": (b"k", b"v", [("large", b"h" * 500_000)]),
    "nearly ours": (b"k", b"v", [("real_topic", b"x"), ("REAL_TOPIC ", b"y"), ("TIMER_DELIVER", b"z")]),
}


def leave(data: Path) -> None:
    """The directory stays: what is sent comes from the store."""


@pytest.mark.long
@pytest.mark.parametrize("prepare", [leave, shutil.rmtree], ids=["from the store", "from Kafka"])
def test_odd_records_come_out_as_they_went_in(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, prepare: Callable[[Path], None]
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", max_message_bytes="2000000")
    sidecar.start()
    due_ms = now_ms() + 8_000
    batch: list[Produced] = []
    for name, (key, value, headers) in ODD.items():
        topic, _, _, control = timed(prefix, destination, name, ("TIMER_DELIVER_MS", due_ms))
        batch.append((topic, key, value, [*headers[:1], *control, *headers[1:]]))
    kafka.produce(batch, message_max_bytes=2_000_000)
    wait_until(lambda: sidecar.pending() == len(ODD), "all are stored")
    # Closed in order: the next start reads nothing of this from Kafka, unless it has to.
    assert sidecar.terminate()[0] == 0
    assert now_ms() < due_ms, "the machine is too slow: they were due before the restart"
    prepare(Path(sidecar.settings["data_dir"]))
    sidecar.start()
    (opened,) = [event for event in sidecar.events() if event["event"] == "wheel opened"]
    assert opened["read_from"] == (0 if prepare is shutil.rmtree else len(ODD))
    delivered = kafka.read([destination], len(ODD))
    judge(ODD, delivered).assert_exactly_once()
    for record in delivered:
        key, value, headers = ODD[record.text("UNIQ_KEY")]
        assert (record.key, record.value) == (key, value)
        assert record.headers[: len(headers)] == headers
        assert {name for name, _ in record.headers[len(headers) :]} == {"UNIQ_KEY", "TIMER_OUT_MS"}


@pytest.mark.parametrize("queue", ["wheel", "1"])
@pytest.mark.parametrize("tool", ["kcat"], indirect=True)
def test_a_header_whose_name_is_no_text_makes_a_dead_letter_and_holds_up_nobody(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tool: str, queue: str
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    topic = f"{prefix}SCHEDULE_TOPIC_XXXX-{queue}"
    given = [f"REAL_TOPIC={destination}".encode(), b"TIMER_DELAY_SEC=1", b"UNIQ_KEY=odd", b"na\xffme=v"]
    command = [tool, "-b", kafka.bootstrap_servers, "-P", "-t", topic, "-k", "key"]
    subprocess.run([*command, *(part for header in given for part in ("-H", header))], input=b"value", check=True)
    _, key, value, headers = timed(prefix, destination, "behind", ("TIMER_DELAY_SEC", 1))
    kafka.produce([(topic, key, value, headers)])
    judge(["behind"], kafka.read([destination], 1)).assert_exactly_once()
    (letter,) = kafka.read([f"{prefix}DLQ-{sidecar.settings['group_id']}"], 1)
    assert letter.text("ERROR_CODE") == "UNREADABLE_HEADERS"
    assert (letter.key, letter.value) == (b"key", b"value")
    assert (letter.text("ERROR_TOPIC"), letter.text("ERROR_OFFSET")) == (topic, "0")
