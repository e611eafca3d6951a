"""The wheel under SIGKILL: at every moment, with its directory whole, damaged or gone, while everything goes on.

A failure prints its seed; ``TIMEWHEEL_TEST_SEED`` takes it again: the same records, moments and damage, though not the
same instants.
"""

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.damage import DAMAGES, damage
from tests.support.kafka import Kafka, Record, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, cancel, is_drained, now_ms, replacement, timed

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]  # some two minutes on an idle machine

KILLS = 50
GOOD_TIME_MS = 25_000
"""A cancel this long before the message is due is in good time, whatever kills lie between."""
CANCELLABLE_UNTIL_MS = 120_000
"""When the last of the messages that are there to be cancelled or replaced are due, from the start on."""
HOT_RECORDS = 2_500
"""Due in one second; transactions of 500."""


class Story:
    """Records produced so far, and what has to become of each."""

    def __init__(self, prefix: str, destination: str, chance: random.Random) -> None:
        self._prefix = prefix
        self._destination = destination
        self._chance = chance
        self._last_due_ms = now_ms() + CANCELLABLE_UNTIL_MS
        self._count = 0
        self._cancellable: dict[str, int] = {}
        """Those due in a while, and when."""
        self.due_ms: dict[str, int] = {}
        """When a message may arrive at the earliest."""
        self.values: dict[str, bytes] = {}
        """The messages that have to arrive."""

    def wave(self, hot: int) -> list[Produced]:
        """Records with all kinds of times, cancels and replacements; ``hot`` records are due in the same second."""
        records = [self._ordinary() for _ in range(150)]
        if now_ms() + GOOD_TIME_MS < self._last_due_ms:
            records += [self._later() for _ in range(25)]
        hot_ms = now_ms() // 1_000 * 1_000 + 1_000
        records += [self._timed("TIMER_DELIVER_MS", hot_ms + self._chance.randrange(1_000)) for _ in range(hot)]
        self._chance.shuffle(records)
        return records + list(self._changes())

    def _ordinary(self) -> Produced:
        if self._chance.random() < 0.5:
            return self._timed("TIMER_DELAY_MS", self._chance.randrange(10_000))
        return self._timed("TIMER_DELIVER_MS", now_ms() + self._chance.randrange(-1_000, 10_000))

    def _later(self) -> Produced:
        due_ms = self._chance.randrange(now_ms() + GOOD_TIME_MS, self._last_due_ms + 1_000)
        record = self._timed("TIMER_DELIVER_MS", due_ms)
        self._cancellable[(record[1] or b"").decode()] = due_ms
        return record

    def _timed(self, header: str, number: int) -> Produced:
        name = f"m{self._count}"
        self._count += 1
        self.due_ms[name] = now_ms() + number if header == "TIMER_DELAY_MS" else number
        self.values[name] = b"first" * 20
        return timed(self._prefix, self._destination, name, (header, number), value=self.values[name])

    def _changes(self) -> Iterator[Produced]:
        """Cancels and replacements of messages of this wave and of earlier ones, which have rolled."""
        in_time = [name for name, due_ms in self._cancellable.items() if due_ms > now_ms() + GOOD_TIME_MS]
        chosen = self._chance.sample(in_time, min(15, len(in_time)))
        for name in chosen[:10]:
            due_ms = self._cancellable.pop(name)
            del self.values[name]
            hint = self._chance.choice([(), (("TIMER_DELIVER_MS", b"%d" % due_ms),), (("TIMER_DELIVER_MS", b"12345"),)])
            yield cancel(self._prefix, name, *hint)
        for name in chosen[10:]:  # which may be cancelled or replaced later on like any other
            self._cancellable[name] = self.due_ms[name] = self._chance.randrange(now_ms(), self._last_due_ms)
            self.values[name] = self.values[name] + b" replaced"
            when = ("TIMER_DELIVER_MS", self.due_ms[name])
            yield replacement(self._prefix, self._destination, name, when, value=self.values[name])

    def judge(self, delivered: list[Record]) -> None:
        judge(self.values, delivered).assert_exactly_once()
        for record in delivered:
            name = record.text("UNIQ_KEY")
            assert record.value == self.values[name], f"{name} arrived as it was before it was replaced"
            assert record.timestamp_ms >= self.due_ms[name], f"{name} arrived early"


class Assassin:
    """Starts the sidecar and kills it at a moment that is one of ``moments``."""

    def __init__(self, kafka: Kafka, sidecar: SidecarProcess, story: Story, chance: random.Random) -> None:
        self._kafka = kafka
        self._sidecar = sidecar
        self._story = story
        self._chance = chance
        self.moments: dict[str, Callable[[], None]] = {
            "just started": self._just_started,
            "recovering": self._recovering,
            "in intake": self._in_intake,
            "in dispatch": self._in_dispatch,
            "stopping": self._stopping,
        }

    def strike(self, moment: str) -> None:
        self._kafka.produce(self._story.wave(0), enable_idempotence=True)
        self._sidecar.start(wait_ready=False)
        self.moments[moment]()
        self._sidecar.kill()

    def _just_started(self) -> None:
        self._some_time(1.2)

    def _recovering(self) -> None:
        wait_until(lambda: any(e["event"] == "wheel opened" for e in self._sidecar.events()), "a wheel is opened")
        self._some_time(0.2)

    def _in_intake(self) -> None:
        self._sidecar.wait_ready()
        self._kafka.produce(self._story.wave(HOT_RECORDS), enable_idempotence=True)
        self._some_time(0.2)

    def _in_dispatch(self) -> None:
        self._sidecar.wait_ready()
        self._kafka.produce(self._story.wave(HOT_RECORDS), enable_idempotence=True)
        before = self._delivered()
        wait_until(lambda: self._delivered() > before + HOT_RECORDS / 10, "the hot slot is being sent")
        self._some_time(0.1)

    def _stopping(self) -> None:
        self._sidecar.wait_ready()
        self._kafka.produce(self._story.wave(0), enable_idempotence=True)
        self._sidecar.process.terminate()
        self._some_time(0.5)

    def _delivered(self) -> float:
        assert self._sidecar.process.poll() is None, "the sidecar has ended by itself"
        return self._sidecar.metric("timewheel_delivered_records_total", queue="wheel")

    def _some_time(self, most_s: float) -> None:
        """No condition is waited for: that the moment is any is the point."""
        time.sleep(self._chance.uniform(0, most_s))


def test_kills_at_any_moment_with_the_directory_damaged_lose_nothing_and_repeat_nothing(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    seed = int(os.environ.get("TIMEWHEEL_TEST_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"TIMEWHEEL_TEST_SEED={seed}")
    chance = random.Random(seed)
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings |= {"levels": "1s", "slots_total": 3_600, "roll_window": "6s", "partitions": 3}
    sidecar.settings["batch_records"] = 500
    sidecar.start()
    story = Story(prefix, destination, chance)
    assassin = Assassin(kafka, sidecar, story, chance)
    moments: list[str] = []
    while len(moments) < KILLS:  # in blocks, so that none of them starves what the others need
        moments += chance.sample(list(assassin.moments), len(assassin.moments))
    sidecar.kill()
    for kill, moment in enumerate(moments):
        how = chance.choice(DAMAGES)
        print(f"kill {kill + 1}: {moment}, directory {how}")
        assassin.strike(moment)
        damage(sidecar.settings["data_dir"], how, chance)
    sidecar.start()
    wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 90, poll_s=0.5)
    delivered = kafka.read([destination], len(story.values))
    story.judge(delivered)
    written = kafka.read([destination], len(delivered), committed=False)
    assert len(written) > len(delivered), "no kill has met an open transaction: the test proves less than it says"
    found = {case for case in ("clean", "unclean", "corrupt", "empty") if f'"found": "{case}"' in sidecar.log_text()}
    assert found == {"clean", "unclean", "corrupt", "empty"}, "a kind of directory was never met"
