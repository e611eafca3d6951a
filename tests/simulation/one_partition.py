"""Random stories of one wheel partition by itself: python -m tests.simulation.one_partition SEED

There is no loop around it, so that anything may come between any two of its calls: records that are read while a
transaction is in hand, its abort, the end of the process. Kafka is a list and the progress committed last, the disk is
the machine's own. At the end faults stop, all runs to its end, and `one_partition_judge` judges.

    seed % 6    what may go wrong
    0           nothing: all outcomes are told
    1           transactions are aborted
    2, 3        also, the process ends, its directory closed, dirty or gone; the disk is full; Kafka refuses records
    4           the same, where few cancels may run ahead of what they take out
    5           the same, where ids are reused

In half of them each process has a host of its own, and the hosts' clocks are not the brokers'.
With ``--forgets``, progress is lost in the middle, once all that was due has gone out, and an operator names that time.

Stories without end: python -m tests.simulation.one_partition --seconds 3600 [--first SEED]
"""

import argparse
import errno
import random
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, ParamSpec, TypeVar
from unittest.mock import patch

import msgspec
from confluent_kafka import Message

from connectors.contract import TopicNames
from sidecar.cli.progress_choice import Log, due_after, first_undelivered, stamps_of
from sidecar.dispatch.wheel import intake as wheel_intake
from sidecar.dispatch.wheel.intake import HITS_AHEAD_MAX_BYTES
from sidecar.dispatch.wheel.partition import LOOK_EVERY_MS, WheelPartition
from sidecar.dispatch.wheel.progress import BURIED_MAX
from sidecar.plan import Plan
from sidecar.records import Outgoing
from sidecar.store.payload_log import PayloadLog
from sidecar.store.timer_log import TimerLog
from tests.simulation.histories import be_quiet, no_longer_than, what_is_found
from tests.simulation.ledger import Violation, errors_as_violations, expect
from tests.simulation.one_partition_judge import Judge, Written
from tests.simulation.stretches import roll_spread_ms, small_stretches
from tests.support.one_wheel import NOW_MS, WHEEL, message, opened

SEEDS = 300
"""How many stories every run of the tests goes through; what goes on without end goes on from there."""
STORY_S = 20.0
"""Most take a twentieth of a second. What goes round in a circle is a fault as well."""
PLAN = Plan(roll_window_ms=9_000, precision_ms=1_000, max_delay_ms=10**10, levels="1s")
SLOTS = 30
TOPICS = (b"orders", b"payments")
TAKEN_BYTES = 2**24
TURNS_MAX = 600
REST_MS = 8 * LOOK_EVERY_MS + 2_000
MEMORY = Path("/dev/shm")
AHEAD_MS = ((0,), (0, 900, -700), (0,), (3_000, 0, -3_000, 12_000))
"""By story, how far the clock of each process's host is ahead of the brokers'."""

P = ParamSpec("P")
T = TypeVar("T")


class Mode(NamedTuple):
    """What may go wrong."""

    name: str
    aborts: bool = True
    fails: bool = True
    """The process, its disk, and Kafka's good will."""
    reuses_ids: bool = False
    hits_ahead_bytes: tuple[int, ...] = (HITS_AHEAD_MAX_BYTES,)


CALM = Mode("calm", aborts=False, fails=False)
ABORTS = Mode("aborts", fails=False)
ILL = Mode("ill")
FEW_AHEAD = Mode("few ahead", hits_ahead_bytes=(3, 6, 12))
REUSED = Mode("reused", reuses_ids=True, hits_ahead_bytes=(6, HITS_AHEAD_MAX_BYTES))
MODES = (CALM, ABORTS, ILL, ILL, FEW_AHEAD, REUSED)


class Taken(NamedTuple):
    """A transaction in hand."""

    records: list[Outgoing]
    refused: list[Outgoing]
    offset: int
    metadata: str


class Went(NamedTuple):
    """What has come of a story."""

    seed: int
    found: str | None
    """None where nothing was."""
    met: Counter[str]
    """How often what happened."""


class Disk:
    """Has no room now and then for what is appended to a log."""

    def __init__(self) -> None:
        self._good = self._bad = 0

    def fill(self, good: int, bad: int) -> None:
        """So many appends find room yet, and then so many none."""
        self._good, self._bad = good, bad

    def limited(self, append: Callable[P, T]) -> Callable[P, T]:
        def appended(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._good == 0 and self._bad > 0:
                self._bad -= 1
                raise OSError(errno.ENOSPC, "no space left on device")
            self._good = max(0, self._good - 1)
            return append(*args, **kwargs)

        return appended


class Story:
    """A partition, those who write to it, its Kafka and its disk."""

    def __init__(self, seed: int, tell: Callable[[str], object] | None = None, *, forgets: bool = False) -> None:
        self._forgets = forgets
        self.met: Counter[str] = Counter()
        self._seed = seed
        self._mode = mode = MODES[seed % len(MODES)]
        self._plan = msgspec.structs.replace(PLAN, spread_ms=roll_spread_ms(seed, PLAN.roll_window_ms))
        self._chance = random.Random(seed)
        self._hits_ahead_bytes = self._chance.choice(mode.hits_ahead_bytes)
        self._reads = self._chance.choice([(1, 2, 5, 20), (1, 3, 10, 30), (10, 100)])
        """How many records at a time: some stories lag behind the log's end, some are always there."""
        self._names_in_hand = self._chance.choice([0.0, 0.3, 0.6])
        """How often what is in hand is named, where something is."""
        self._tell = tell
        self._now_ms = NOW_MS
        """By the brokers' clock."""
        self._skews_ms = (0,) if forgets else AHEAD_MS[seed // len(MODES) % len(AHEAD_MS)]
        self._ahead_ms = 0
        """What the clock of the host that the process runs on is ahead of that."""
        self._highest_ms = 0
        """The highest time that any of the hosts' clocks has shown."""
        self._log: list[Message] = []
        self._committed, self._metadata = 0, ""
        self._ids: list[bytes] = []
        self._in_hand: list[bytes] = []
        """Ids of what is in the transaction in hand."""
        self._judge = Judge(are_ids_reused=mode.reuses_ids)
        self._disk = Disk()
        self._files = ExitStack()
        """Those that are open."""
        self._directory = Path()
        self._processes = 0
        self._wheel: WheelPartition

    def run(self) -> None:
        """The whole story. Raises Violation."""
        with (
            TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory,
            self._files,
            patch.object(wheel_intake, "HITS_AHEAD_MAX_BYTES", self._hits_ahead_bytes),
            patch.object(TimerLog, "append", self._disk.limited(TimerLog.append)),
            patch.object(PayloadLog, "append_batch", self._disk.limited(PayloadLog.append_batch)),
            small_stretches(self._seed),
        ):
            self._directory = Path(directory)
            with errors_as_violations():
                self._run()

    def _run(self) -> None:
        chance = self._chance
        self._open()
        actions = [self._write, self._offer, self._transact, self._pass_time, self._crash, self._fill_disk]
        weights = [25, 25, 25, 15, *([3, 7] if self._mode.fails else [])]
        turns = chance.randint(5, 60)
        for turn in range(turns):
            if self._forgets and turn == turns // 2:
                self._lose_progress()
            chance.choices(actions[: len(weights)], weights)[0]()
        self._happens("faults stop")
        self._mode = self._mode._replace(aborts=False, fails=False)
        self._disk.fill(0, 0)
        self._drain()
        expect(self._wheel.figures.pending == 0, f"{self._wheel.figures.pending} wait, when all is done")
        left = left_in_memory(self._wheel)
        expect(not left, f"{', '.join(left)}: not empty, when all is done")
        lowest_needed = int(msgspec.json.decode(self._metadata or '{"l": 0}')["l"])
        self._judge.verdict(len(self._log), lowest_needed, hears_all=self.met["opened"] == 1)

    def _happens(self, what: str, more: object = "") -> None:
        self.met[what] += 1
        if self._tell is not None:
            self._tell(f"{self._now_ms - NOW_MS:>7} {what} {more}")

    # --- users --------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        for _ in range(self._chance.randint(1, 8)):
            write = self._chance.choices([self._schedule, self._cancel, self._replace], [5, 4, 2])[0]
            write() if self._ids else self._schedule()

    def _schedule(self) -> None:
        is_reused = self._mode.reuses_ids and bool(self._ids) and self._chance.random() < 0.4
        uniq_key = self._chance.choice(self._ids[-6:]) if is_reused else self._new_id()
        self._append(Written(len(self._log), None, uniq_key, self._chance.choice(TOPICS), self._some_time_ms()))

    def _cancel(self) -> None:
        topic = self._chance.choice([None, None, *TOPICS])
        self._append(Written(len(self._log), self._some_id(), None, topic))

    def _replace(self) -> None:
        """Half of them by a message with the same id."""
        names = self._some_id()
        uniq_key = names if self._chance.random() < 0.5 else self._new_id()
        self._append(Written(len(self._log), names, uniq_key, self._chance.choice(TOPICS), self._some_time_ms()))

    def _append(self, written: Written) -> None:
        """The value is the record's offset, by which its message is known again."""
        headers = [
            ("TIMER_DEL_UNIQKEY" if written.uniq_key is None else "TIMER_REPLACE_UNIQKEY", written.names),
            ("UNIQ_KEY", written.uniq_key),
            ("REAL_TOPIC", written.topic),
            ("TIMER_DELIVER_MS", b"%d" % written.due_ms if written.uniq_key is not None else None),
        ]
        present = [(name, value) for name, value in headers if value is not None]
        timestamp_ms = self._now_ms - self._chance.choice([0, 0, 0, 5, 300])
        self._judge.write(written)
        value = b"%d" % written.offset
        self._log.append(message(written.offset, *present, timestamp_ms=timestamp_ms, value=value))
        self._happens("written", written)

    def _new_id(self) -> bytes:
        self._ids.append(b"id%d" % len(self._log))
        return self._ids[-1]

    def _some_id(self) -> bytes:
        """Often one of what is in hand, or the last, so that chains come about."""
        if self._in_hand and self._chance.random() < self._names_in_hand:
            return self._chance.choice(self._in_hand)
        return self._chance.choice(self._ids[-self._chance.choice([1, 8, 8, 30]) :])

    def _some_time_ms(self) -> int:
        return self._now_ms + self._chance.choice([-5, 0, 300, 700, 2_000, 5_000, 5_001, 12_000, 30_000])

    # --- the process --------------------------------------------------------------------------------------------------

    @property
    def _host_ms(self) -> int:
        """What the time is on the host."""
        return self._now_ms + self._ahead_ms

    def _open(self) -> None:
        """On some host."""
        process = self.met["opened"]
        self._ahead_ms = self._skews_ms[process % len(self._skews_ms)]

        def tell_outcomes(outcomes: Mapping[int, str], _committed: int) -> None:
            for offset, outcome in outcomes.items():
                self._happens(outcome, offset)
                self._judge.tell(offset, outcome, process)

        self._wheel = opened(
            self._directory / str(self._processes),
            self._committed,
            self._metadata,
            len(self._log),
            now_ms=self._host_ms,
            plan=self._plan,
            slots=SLOTS,
            tell_outcomes=tell_outcomes,
        )
        self._files.callback(self._wheel._store.close, None, {})
        self._happens("opened", f"at {self._committed} of {len(self._log)}, reads from {self._wheel.position}")

    def _crash(self) -> None:
        """The process ends, and another one begins."""
        left = self._chance.choice(["dirty", "dirty", "gone", "closed"])
        self._happens(left)
        if left == "closed":
            self._wheel.close()
            self._files.pop_all()
        else:
            directory = self._directory / str(self._processes)
            self._processes += 1
            if left == "dirty":
                shutil.copytree(directory, self._directory / str(self._processes))
            self._files.close()
            shutil.rmtree(directory)
        self._open()

    @contextmanager
    def _until_it_fails(self) -> Iterator[None]:
        """A process that cannot go on for want of room begins again, when there is some."""
        try:
            yield
        except OSError as error:
            self._happens("failed", error)
            self._disk.fill(0, 0)
            self._crash()

    def _fill_disk(self) -> None:
        self._happens("full")
        self._disk.fill(self._chance.randint(0, 3), self._chance.randint(1, 5))

    def _pass_time(self) -> None:
        self._tick(self._chance.choice([1, 100, 600, 1_500, 4_000]))

    def _tick(self, for_ms: int) -> None:
        self._now_ms += for_ms
        self._wheel.tick(self._host_ms)

    def _offer(self) -> None:
        self._read(self._chance.choice(self._reads))

    def _read(self, most: int) -> None:
        wheel = self._wheel
        position = wheel.position
        with self._until_it_fails():
            wheel.offer(self._log[position : position + most], self._host_ms)
            if wheel.position >= len(self._log):
                wheel.reached_end(len(self._log))
            self._happens("read", f"{position} to {wheel.position} of {len(self._log)} {wheel.trouble}")
        self.met["waiting"] += wheel._intake._is_waiting_for_late or wheel._in_hand.is_awaited

    # --- transactions -------------------------------------------------------------------------------------------------

    def _transact(self) -> None:
        """What is read meanwhile finds what it names in hand."""
        chance, wheel = self._chance, self._wheel
        taken = self._take(chance.choice([1, 2, 3, 1_000]))
        if taken is None:
            return
        self._in_hand = [dict(record[4])["UNIQ_KEY"] or b"" for record in taken.records]
        for _ in range(chance.randint(0, 3)):
            if chance.random() < 0.5:
                self._write()
            self._offer()
            if self._wheel is not wheel:
                break
        self._in_hand = []
        if self._wheel is not wheel:
            return
        fate = chance.random()
        if self._mode.aborts and fate < 0.35:
            self._happens("aborted")
            with self._until_it_fails():
                wheel.put_back()
        elif self._mode.fails and fate < 0.42:
            self._crash()
        else:
            self._commit(taken)

    def _take(self, most: int) -> Taken | None:
        """None: it is not known yet what is due."""
        wheel = self._wheel
        if wheel.is_recovering:
            return None
        self._highest_ms = max(self._highest_ms, self._host_ms)
        records = wheel.take(self._host_ms, most, TAKEN_BYTES)
        refused = [record for record in records if self._is_refused(record)]
        if refused:
            wheel.bury(refused)
        taken = Taken(records, refused, *wheel.progress)
        self._judge.check_metadata(taken.metadata)
        values = [(record[0], int(record[3] or b"")) for record in records]
        self._happens("taken", f"{values}, {len(refused)} refused; {taken.offset} {taken.metadata}")
        return taken

    def _is_refused(self, record: Outgoing) -> bool:
        rate = 0.15 if record[0] == WHEEL else 0.03
        return self._mode.fails and self.met["buried"] < BURIED_MAX // 2 and self._chance.random() < rate

    def _commit(self, taken: Taken) -> None:
        for record in taken.records:
            self._send(record, taken)
        self._judge.commit(taken.offset)
        self._committed, self._metadata = taken.offset, taken.metadata
        self._happens("committed", taken.offset)
        if self._mode.fails and self._chance.random() < 0.08:
            self._crash()
        else:
            self._wheel.confirm()

    def _send(self, record: Outgoing, taken: Taken) -> None:
        topic, _, _, value, headers, _, _, _ = record
        offset = int(value or b"")
        if record in taken.refused:
            self._happens("buried", offset)
            self._judge.bury(offset)
        elif topic == WHEEL:
            roll_times = int(dict(headers)["TIMER_ROLL_TIMES"] or b"")
            self._happens("rolled" if roll_times else "brought", f"{offset} at {len(self._log)}")
            self._judge.copy(offset, roll_times)
            self._log.append(message(len(self._log), *headers, timestamp_ms=self._now_ms, value=b"%d" % offset))
        else:
            assert isinstance(topic, str)
            self._happens("delivered", offset)
            self._judge.deliver(offset, topic.encode(), self._highest_ms, taken.offset)

    def _drain(self) -> None:
        """Until nothing more happens and nothing waits."""
        rest_from_ms = self._now_ms
        for _ in range(TURNS_MAX):
            before = self._done
            self._tick(self._chance.choice([1_000, 4_000]))
            self._read(200)
            for _ in range(2):
                taken = self._take(1_000)
                if taken is not None:
                    self._commit(taken)
            if self._done != before:
                rest_from_ms = self._now_ms
            elif self._now_ms - rest_from_ms > REST_MS and not self._wheel.figures.pending:
                return
        raise Violation(f"not at rest after {TURNS_MAX} turns, {self._committed} committed: {self._wheel.trouble}")

    # --- the operator -------------------------------------------------------------------------------------------------

    def _lose_progress(self) -> None:
        """When nothing is due, and all is read. What is written after that time is read by nobody before."""
        mode, self._mode = self._mode, self._mode._replace(aborts=False, fails=False)
        self._disk.fill(0, 0)
        while self._wheel.position < len(self._log) or self._is_due():
            self._tick(100)
            self._read(200)
            taken = self._take(1_000)
            if taken is not None:
                self._commit(taken)
        for _ in range(self._chance.choice([0, 1, 2])):
            self._write_what_nobody_reads()
        due_by_ms = self._now_ms
        self._now_ms += 400
        for _ in range(self._chance.randint(0, 3)):
            self._write()
        # Replacements whose message Kafka has refused are known by what was committed alone.
        known = self._metadata if self.met["buried"] else self._chance.choice(["", self._metadata])
        later = [stamp.offset for stamp in stamps_of(self._log) if stamp.timestamp_ms > due_by_ms]
        undelivered = first_undelivered(
            TopicNames(), WHEEL, stamps_of(self._log[later[0] :] if later else []), due_by_ms, self._now_ms
        )
        log = Log(0, len(self._log))
        chosen = due_after(TopicNames(), (WHEEL, 0), log, undelivered, known, due_by_ms, self._now_ms)
        self._committed, self._metadata = chosen.offset, chosen.metadata
        self._judge.lose_progress()
        self._happens("forgotten", f"{chosen.offset} {chosen.metadata}")
        self._mode = mode
        self._crash()

    def _write_what_nobody_reads(self) -> None:
        """A message for later and what replaces it: in the log by the time that is named, and not carried out."""
        named, topic, due_ms = self._new_id(), self._chance.choice(TOPICS), self._now_ms + 2_000
        self._append(Written(len(self._log), None, named, topic, due_ms))
        self._append(Written(len(self._log), named, self._new_id(), topic, due_ms))

    def _is_due(self) -> bool:
        next_due_ms = self._wheel.next_due_ms
        return self._wheel.is_recovering or (next_due_ms is not None and next_due_ms <= self._host_ms)

    @property
    def _done(self) -> tuple[int, int, int]:
        return self.met["delivered"], self._wheel.position, self._committed


def left_in_memory(wheel: WheelPartition) -> list[str]:
    """The names of all that is not empty: what nothing comes for any more would add up, in a process that lives long.

    Not what the commit before the start has told, which is as much as fits into its metadata.
    """
    intake = wheel._intake
    parts = (wheel, wheel._cancels, wheel._staging, wheel._late, wheel._ready, intake, intake.decisions)
    fields = [(f"{type(part).__name__}.{name}", value) for part in parts for name, value in vars(part).items()]
    left = [name for name, value in fields if isinstance(value, list | dict | set | deque) and value]
    left += ["WheelPartition._at_hand"] if wheel._at_hand != (0, 0) else []
    return [name for name in left if not name.endswith("._hit_before")]


# --- by their seeds ---------------------------------------------------------------------------------------------------


def go_through(seed: int, *, forgets: bool = False) -> Went:
    """One story."""
    story = Story(seed, forgets=forgets)
    return Went(seed, what_is_found(story.run, STORY_S), story.met)


def trace_of(seed: int) -> list[str]:
    """All that a story tells of itself."""
    trace: list[str] = []
    Story(seed, trace.append).run()
    return trace


def go_on(seconds: float, first: int) -> int:
    """How many of the stories from this seed on have failed."""
    began_s, failed = time.monotonic(), 0
    for seed in count(first):
        if time.monotonic() - began_s >= seconds:
            break
        found = go_through(seed).found
        if found is not None:
            failed += 1
            print(f"python -m tests.simulation.one_partition {seed}  # {found}", flush=True)
    print(f"{seed - first} stories from seed {first} on in {time.monotonic() - began_s:.0f} s, {failed} failed")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.one_partition")
    parser.add_argument("seed", type=int, nargs="?", help="the one story to tell line by line")
    parser.add_argument("--forgets", action="store_true", help="of the one story: progress is lost")
    parser.add_argument("--seconds", type=float, default=60, help="how long stories are begun (default 60)")
    parser.add_argument("--first", type=int, default=SEEDS, help=f"the first seed (default {SEEDS})")
    options = parser.parse_args()
    be_quiet()
    if options.seed is None:
        return 1 if go_on(options.seconds, options.first) else 0
    with no_longer_than(STORY_S):
        Story(options.seed, print, forgets=options.forgets).run()
    print(f"seed {options.seed}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
