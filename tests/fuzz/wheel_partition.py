"""A wheel partition that is given any records, stopped or killed at any time, and sends what is due.

Records are blocks of header lines (see `headers`), apart by `---`; a block may begin with `@` and a number of ms by
which the clock goes on before it, and a word: `stop`, `kill`.
"""

import re
from pathlib import Path
from unittest.mock import patch

from confluent_kafka import Message

from connectors.contract import TopicNames
from sidecar.dispatch.wheel.partition import WheelPartition, WheelSettings
from sidecar.intake.copies import Copies
from sidecar.intake.parse import Parser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.intake.progress import Start
from sidecar.plan import Plan
from sidecar.records import Outgoing
from sidecar.store.recovery import Owner
from tests.fuzz.headers import WORDS, check_rejection, read_headers
from tests.fuzz.memory_disk import memory_disk
from tests.simulation.disk import Mount
from tests.support.outages import no_outages

WHEEL = "SCHEDULE_TOPIC_XXXX-wheel"
NOW_MS = 1_700_000_000_000
PLAN = Plan(roll_window_ms=20_000, precision_ms=1_000, max_delay_ms=100_000, levels="1s 5s")
RECORDS_MAX = 24
_BLOCK = re.compile(rb"@([0-9]{1,6}) ?(stop|kill)?\n?")
_SEGMENTS = {"TIMER_LOG_SEGMENT_BYTES": 400, "PAYLOAD_LOG_SEGMENT_BYTES": 500}
DICTIONARY = (*WORDS, "\\x0a---\\x0a", "@1000 stop\\x0a", "@5000 kill\\x0a", "1700000005000", "90000")
_TO = b"REAL_TOPIC=orders\n"
SEEDS = (
    _TO + b"TIMER_DELAY_MS=1500\nUNIQ_KEY=a",
    _TO + b"TIMER_DELAY_MS=1500\nUNIQ_KEY=a\n---\nTIMER_DEL_UNIQKEY=a",
    _TO
    + b"TIMER_DELAY_MS=9000\nUNIQ_KEY=a\n---\n@2000\n"
    + _TO
    + b"TIMER_REPLACE_UNIQKEY=a\nTIMER_DELAY_MS=1\n---\n@9000 stop\n",
    _TO + b"TIMER_DELAY_MS=90000\n---\n@30000 kill\n" + _TO + b"DELAY=2",
    _TO + b"TIMER_DELIVER_MS=-999999999999999999\n---\n" + _TO + b"TIMER_DELIVER_MS=1",
    b"REAL_TOPIC=no/topic\nDELAY=1\n---\nTIMER_DEL_UNIQKEY\n---\n@1\n",
)


class _Life:
    """A partition on a disk, before a log of records."""

    def __init__(self) -> None:
        self.fs: Mount = memory_disk({})
        self.now_ms = NOW_MS
        self.log: list[Message] = []
        self.progress = (0, "")
        self.sent: list[Outgoing] = []
        self.wheel = self._open()

    def _open(self) -> WheelPartition:
        copies = Copies(b"key")
        return WheelPartition(
            WHEEL,
            0,
            start=Start(*self.progress, len(self.log)),
            settings=WheelSettings(PLAN, 64, None, 50_000, 2**25, Path("/data")),
            parser=WheelParser(Parser(TopicNames()), WHEEL, 0, copies),
            copies=copies,
            outages=no_outages(),
            owner=Owner("cluster", "topic", "group", 0, "layout"),
            fs=self.fs,
            now_ms=self.now_ms,
            tell_outcomes=lambda _outcomes, _committed: None,
        )

    def again(self, *, is_killed: bool) -> None:
        if not is_killed:
            self.wheel.close()
        self.fs.disk.boot(self.fs)
        self.fs = self.fs.disk.mount(self.fs._process)
        self.wheel = self._open()

    def take_in(self) -> None:
        unread = self.log[self.wheel.position :]
        if unread:
            self.wheel.offer(unread, self.now_ms)
        self.wheel.reached_end(len(self.log))

    def send(self) -> None:
        """All that is due, a few records a transaction."""
        self.wheel.tick(self.now_ms)
        for _ in range(4 * RECORDS_MAX):
            records = self.wheel.take(self.now_ms, 3, 1_000_000)
            self.progress = self.wheel.progress
            self.wheel.confirm()
            for record in records:
                self._note(record)
            if not records:
                return
        raise AssertionError("transactions without end")

    def _note(self, record: Outgoing) -> None:
        if record[0] == WHEEL:  # a copy, which waits again
            self._append(record[4])
            return
        self.sent.append(record)

    def _append(self, headers: list[tuple[str, bytes | None]]) -> None:
        self.log.append(
            Message(
                topic=WHEEL,
                partition=0,
                offset=len(self.log),
                key=b"k",
                value=b"v",
                headers=headers,  # type: ignore[arg-type]
                timestamp=(2, self.now_ms),
            )
        )

    def schedule(self, block: bytes) -> None:
        headers = read_headers(block)
        if headers:
            self._append(headers)


def fuzz_one(data: bytes) -> None:
    with patch.multiple("sidecar.store.opening", **_SEGMENTS):
        life = _Life()
        for block in data.split(b"\n---\n")[:RECORDS_MAX]:
            match = _BLOCK.match(block)
            if match:
                life.now_ms += int(match[1])
            life.schedule(block[match.end() :] if match else block)
            life.take_in()
            life.send()
            if match and match[2]:
                life.again(is_killed=match[2] == b"kill")
        for _ in range(8):  # until nothing waits: the longest delay, in rolls
            life.now_ms += PLAN.roll_window_ms
            life.take_in()
            life.send()
        assert life.wheel.waiting == 0, life.wheel.waiting
        assert life.wheel.next_due_ms is None or life.wheel.next_due_ms > life.now_ms
        life.wheel.close()
    ids = [dict(record[4]).get("UNIQ_KEY") for record in life.sent if type(record[0]) is str]
    assert None not in ids
    assert len(life.sent) <= len(life.log)
    offsets = [record[6] for record in life.sent]
    assert len(offsets) == len(set(offsets)), "twice"
    for record in life.sent:
        if type(record[0]) is not str:
            check_rejection(record[0])
