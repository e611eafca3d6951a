"""Random histories in which Kafka itself loses something: python -m tests.simulation.losses SEED [-v]

Logs lose their end in unclean elections and grow again, committed progress goes back, retention takes what is needed,
topics are made anew; meanwhile settings change, and the clock is set by hours. Where a partition stops, an operator
chooses as the runbook says. At the end all is at rest, and `losses_judge` judges.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable

import structlog
from confluent_kafka import TopicPartition

from connectors.contract import Headers, Place
from connectors.testing import InMemoryKafka, ManualClock
from connectors.testing.groups import Committed
from connectors.testing.log import MARKER, PartitionLog, SpanState
from sidecar.cli.progress_choice import (
    Chosen,
    Log,
    Stamp,
    at_offset,
    due_after,
    first_undelivered,
    remaining,
    stamped_by_ms,
)
from sidecar.errors import UsageError
from sidecar.settings import Settings
from tests.simulation.disk import Disk
from tests.simulation.histories import be_quiet, what_is_found
from tests.simulation.ledger import WHEEL, Violation
from tests.simulation.losses_judge import DEAD, DESTINATION, LEVELS, Judge, Written
from tests.simulation.oracle import GROUP
from tests.simulation.replica import Replica, simulated
from tests.simulation.stretches import roll_spread_ms

SEEDS = 100
"""How many histories every run of the tests goes through."""
HISTORY_S = 30.0
TURNS_MAX = 3_000
STOPPED_MS = 120_000
"""So long all sidecars are stopped while an operator chooses: sessions and transactions are over by then."""
HOUR_MS = 3_600_000
TABLES = ("1s 7s", "2s 5s")
SHORTEST_MS = (1_000, 5_000)
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
OF_A_LOG = '"t":'
"""In the metadata of each commit that says of which log it is."""
Action = Callable[[], None]
Went = tuple[int, str | None, Counter[str]]
"""Seed; what was found, None where nothing was; how often what happened."""


class World:
    """A cluster that forgets, those who write to it, one or two sidecars, and an operator."""

    def __init__(self, seed: int, tell: Callable[[str], object] | None = None) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.clock = ManualClock()
        self.kafka = InMemoryKafka(self.clock, tells_epochs=True)
        self.damages, self.may_fail, self.disk_rate = False, True, 0.0
        self.met: Counter[str] = Counter()
        self._tell = tell
        self.settings = self._some_settings()
        for topic, partitions in ((WHEEL, 2), *((level, 1) for level in LEVELS)):
            self.kafka.create_topic(topic, partitions, APPEND_TIME)
        self.kafka.create_topic(DESTINATION, 2)
        self.kafka.create_topic(DEAD)
        self._producer = self.kafka.producer({})
        self._judge = Judge(self.kafka, self.tell)
        self._earlier: list[dict[Place, Committed]] = []
        """Progress as it was."""
        self._unmarked: dict[Place, Committed] = {}
        """What an operator has set, where the log has lost its end since: it does not say of which log it is."""
        self._stopped: dict[Place, str] = {}
        self._ends_lost: set[Place] = set()
        self._made_anew: set[str] = set()
        self._noticed_ms: float | None = None
        """When sidecars notice that a topic was made anew."""
        names = ["one", "two"] if chance.random() < 0.3 else ["one"]
        self.replicas = [Replica(self, name) for name in names]
        self.at_work = self.replicas[0]

    def tell(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.clock.now_ms() - 1_700_000_000_000:>8} {text}")

    def _some_settings(self) -> Settings:
        chance = self.chance
        settings = Settings(
            levels=chance.choice(TABLES),  # type: ignore[arg-type]
            group_id=GROUP,
            precision_ms=chance.choice([500, 1_000]),
            slots_total=chance.choice([32, 64]),
            batch_records=chance.choice([2, 5, 20]),
            max_delay="600s",  # type: ignore[arg-type]
            read_ahead_records=chance.choice([3, 10, 1_000]),
        )
        window = chance.randrange(3, settings.slots_total) * settings.precision_ms
        return settings.model_copy(update={"roll_window": window, "roll_spread": roll_spread_ms(self.seed, window)})

    # --- history ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole history. Raises Violation."""
        with simulated(self):
            self._run()

    def _run(self) -> None:
        chance = self.chance
        weights, actions = zip(*self._actions(), strict=True)
        for _ in range(chance.randrange(20, 60)):
            chance.choices(actions, weights)[0]()
            for _ in range(chance.randrange(4)):
                self._turn(chance.choice(self.replicas))
        self.tell("--- nothing is lost any more")
        self.clock.step_wall(max(0, self._judge.highest_ms - self.clock.now_ms()))
        self._drain()
        self.clock.advance(STOPPED_MS)  # long enough for what was left open to time out
        self.kafka.timers.ring()
        self._judge.watch()
        for replica in self.replicas:
            if waiting := replica.count_pending():
                raise Violation(f"{replica.name} tells of {waiting} messages that wait, when all is done")
        self._judge.verdict()

    def _actions(self) -> list[tuple[float, Action]]:
        """Some of what may go wrong, beside what happens everywhere."""
        losses: list[tuple[float, Action]] = [
            (5, self._lose_end),
            (1, self._lose_end_of_destination),
            (2, self._lose_progress),
            (2, self._retain),
            (1, self._make_anew),
            (2, self._change_settings),
            (1, self._set_clock),
            (1, self._choose_anywhere),
        ]
        return [
            (40, self._schedule_some),
            (8, self._cancel),
            (4, self._replace),
            (25, self._pass_time),
            (3, self._kill),
            (3, self._stop),
            (2, self._rebalance),
            (6, self._elect),
            (5, self._note_progress),
            (3, self._choose_where_stopped),
            *(loss for loss in losses if self.chance.random() < 0.4),
        ]

    @property
    def _places(self) -> list[Place]:
        return [(topic, log.number) for topic in (WHEEL, *LEVELS) for log in self.kafka.topics[topic].logs]

    def _log(self, place: Place) -> PartitionLog:
        return self.kafka.topics[place[0]].logs[place[1]]

    @property
    def _progress(self) -> dict[Place, Committed]:
        return self.kafka.groups.group(GROUP).offsets

    def _happens(self, what: str, more: object = "") -> None:
        self.met[what] += 1
        self.tell(f"{what} {more}")

    # --- users --------------------------------------------------------------------------------------------------------

    def _schedule_some(self, place: Place | None = None, count: int = 0) -> None:
        for _ in range(count or self.chance.choice([1, 1, 2, 8])):
            self._schedule(place or self.chance.choice(self._places))

    def _schedule(self, place: Place) -> None:
        chance, window = self.chance, self.settings.roll_window
        is_bad = chance.random() < 0.06
        delay = chance.choice([0, 1, chance.randrange(3_000), chance.randrange(window), 5 * window // 2])
        if place[0] != WHEEL:
            delay = SHORTEST_MS[LEVELS.index(place[0])]
        headers: Headers = [] if is_bad else [("REAL_TOPIC", DESTINATION.encode())]
        if place[0] == WHEEL:
            headers.append(("TIMER_DELIVER_MS", b"%d" % (self.clock.now_ms() + delay)))
        self._write(place, headers, delay, is_bad=is_bad)

    def _write(self, place: Place, headers: Headers, delay_ms: int, *, is_bad: bool = False) -> Written:
        """Its value is its id."""
        now_ms, value = self.clock.now_ms(), b"v%d" % len(self._judge.written)
        written = self._judge.written[value] = Written(value, place, now_ms, now_ms + delay_ms, is_bad)
        if place in self._unmarked and self._progress.get(place) == self._unmarked[place]:
            written.missing.append("nobody can tell that it was not there when an operator chose")
        self._produce(place, value, [*headers, ("UNIQ_KEY", value)])
        return written

    def _produce(self, place: Place, value: bytes | None, headers: Headers) -> None:
        self._producer.produce(place[0], value, b"k", place[1], headers=headers)
        while self._producer.flush(1):
            pass
        shown = " ".join(f"{name}={(text or b'').decode()}" for name, text in headers)
        self.tell(f"produce {value} to {place[0]}-{place[1]} {self._log(place).end - 1}: {shown}")

    def _named(self) -> Written | None:
        on_wheel = [written for written in self._judge.written.values() if written.place[0] == WHEEL]
        return self.chance.choice(on_wheel[-20:]) if on_wheel else None

    def _cancel(self) -> None:
        if named := self._named():
            named.is_named = True
            self._produce(named.place, None, [("TIMER_DEL_UNIQKEY", named.value)])

    def _replace(self) -> None:
        if named := self._named():
            named.is_named = True
            delay = self.chance.randrange(2 * self.settings.roll_window)
            due = b"%d" % (self.clock.now_ms() + delay)
            replaces = [("TIMER_REPLACE_UNIQKEY", named.value), ("REAL_TOPIC", DESTINATION.encode())]
            self._write(named.place, [*replaces, ("TIMER_DELIVER_MS", due)], delay).is_named = True

    # --- what happens everywhere --------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.clock.advance(self.chance.choice([10, 500, 1_000, 3_000, 8_000]))

    def _kill(self) -> None:
        replica = self.chance.choice(self.replicas)
        self._happens("SIGKILL", replica.name)
        replica.end()
        if self.chance.random() < 0.3:
            self._happens("files are gone", replica.name)
            replica.disk = Disk(random.Random(self.seed), 0.0, replica.host_clock)

    def _stop(self) -> None:
        replica = self.chance.choice(self.replicas)
        self._happens("SIGTERM", replica.name)
        replica.stop()

    def _rebalance(self) -> None:
        self.kafka.rebalance(GROUP)

    def _elect(self) -> None:
        self.kafka.elect(*self.chance.choice(self._places))

    def _change_settings(self) -> None:
        """At all replicas together."""
        for replica in self.replicas:
            replica.stop()
        self.settings = self._some_settings()
        for replica in self.replicas:
            replica.settings = self.settings
        self._happens("settings changed")

    def _set_clock(self) -> None:
        self._judge.watch()
        by_ms = self.chance.choice([HOUR_MS, 5 * HOUR_MS, 20_000, -20_000, -HOUR_MS])
        self._judge.is_clock_set_back = self._judge.is_clock_set_back or by_ms < 0
        self._happens("clock set", by_ms)
        self.clock.step_wall(by_ms)

    # --- losses -------------------------------------------------------------------------------------------------------

    def _lose_end(self) -> None:
        """Of a schedule topic. Mostly it grows again at once, beyond where it ended before or not quite."""
        self._judge.watch()
        place = self.chance.choice(self._places)
        lost = min(self.chance.choice([1, 2, 5, 20]), len(self._log(place).entries))
        self._judge.lost(place, self.kafka.elect(*place, lost), f"{place} has lost its end")
        self._happens("end lost", f"{place} from {self._log(place).end} on")
        self._ends_lost.add(place)
        if place in self._progress and OF_A_LOG not in (self._progress[place].metadata or ""):
            self._unmarked[place] = self._progress[place]
        if self.chance.random() < 0.7:
            self._schedule_some(place, self.chance.choice([lost, lost + 3, 2 * lost + 5]))

    def _lose_end_of_destination(self) -> None:
        self._judge.watch()
        place = self.chance.choice([(DESTINATION, 0), (DESTINATION, 1), (DEAD, 0)])
        lost = self.kafka.elect(*place, self.chance.choice([1, 5]))
        self._happens("end of a destination lost", place)
        self._judge.lost(place, lost, f"{place} has lost its end")

    def _note_progress(self) -> None:
        self._earlier.append(dict(self._progress))

    def _lose_progress(self) -> None:
        """An unclean election costs __consumer_offsets its end; mostly all were away meanwhile."""
        if not self._earlier:
            return
        if self.chance.random() < 0.7:
            self._stop_all()
        earlier = self.chance.choice(self._earlier)
        places = self._places if self.chance.random() < 0.5 else [self.chance.choice(self._places)]
        for place in places:
            if place in earlier and place in self._progress:
                offset, metadata, _ = earlier[place]
                self._progress[place] = self._progress[place]._replace(offset=offset, metadata=metadata)
                self._happens("progress goes back", f"of {place} to {offset}")
                self._judge.may_repeat(place, "progress went back")
                if OF_A_LOG not in (metadata or ""):
                    self._judge.may_be_missing(place, "progress went back to what does not say of which log it is")

    def _retain(self) -> None:
        """Retention is too short, or somebody deletes records."""
        self._judge.watch()
        place = self.chance.choice(self._places)
        log = self._log(place)
        until = self.chance.choice([log.end, self.chance.randint(log.begin, log.end)])
        self._happens("retention", f"of {place} before {until}")
        self._judge.lost(place, log.entries[: until - log.begin], f"retention of {place}")
        self.kafka.delete_records(*place, until)

    def _make_anew(self) -> None:
        self._judge.watch()
        topic = self.chance.choice([WHEEL, *LEVELS])
        logs = self.kafka.topics[topic].logs
        self._happens("deleted", topic)
        self.kafka.delete_topic(topic)
        for log in logs:
            self._judge.lost((topic, log.number), log.entries, f"{topic} was deleted")
        for _ in range(self.chance.randrange(3)):
            for replica in self.replicas:
                replica.turn()
                self._look_at_stops()
        self.kafka.create_topic(topic, len(logs), APPEND_TIME)
        self._earlier.clear()
        self._made_anew.add(topic)
        self._noticed_ms = self.clock.monotonic_ms() + self.chance.choice([0, 2_000, 10_000])

    # --- the operator -------------------------------------------------------------------------------------------------

    def _choose_where_stopped(self) -> None:
        if self._stopped:
            self._stop_all()
            for place in self._stopped:
                self._choose(place)
            self._stopped = {}

    def _choose_anywhere(self) -> None:
        self._stop_all()
        self._choose(self.chance.choice(self._places))

    def _stop_all(self) -> None:
        for replica in self.replicas:
            replica.stop()
        self.clock.advance(STOPPED_MS)
        self.kafka.timers.ring()
        self._judge.watch()

    def _choose(self, place: Place) -> None:
        """As `timewheel progress set` does."""
        chance, judge, names, log = self.chance, self._judge, self.settings.topic_names, self._log(place)
        options = ["beginning", "end", "offset", "remaining", *(["due-after"] * 3)]
        choice = chance.choice(options)
        if choice == "due-after" and judge.is_clock_set_back:  # no time tells what comes before what
            choice = "beginning"
        chosen = at_offset(names, place, log.begin)
        if choice == "remaining":
            chosen = self._remaining(place, log) or chosen
        elif choice == "due-after":
            chosen = self._due_after(place, log)
        elif choice != "beginning":
            offset = log.end if choice == "end" else chance.randint(log.begin, log.end)
            chosen = at_offset(names, place, offset)
            judge.may_be_missing(place, f"{choice} was chosen", offset)
        if choice != "remaining" or chosen.offset == log.begin:
            judge.may_repeat(place, f"{choice} was chosen")
        self._happens(f"--to {choice}", f"{place}: {chosen}")
        self.kafka.groups.commit(GROUP, [(place, chosen.offset, chosen.metadata)], -1, "", None)

    def _remaining(self, place: Place, log: PartitionLog) -> Chosen | None:
        """None: it is not known what remains. Where more is lost than retention took, it is the wrong choice."""
        found = self._progress.get(place)
        told = None if found is None else TopicPartition(*place, found.offset, found.metadata or "")
        try:
            chosen = remaining(self.settings.topic_names, place, Log(log.begin, log.end), told)
        except UsageError:
            return None
        if place in self._ends_lost or place[0] in self._made_anew:
            self._judge.may_be_missing(place, "what remains was chosen, though more was lost", chosen.offset)
            self._judge.may_repeat(place, "what remains was chosen, though more was lost")
        return chosen

    def _due_after(self, place: Place, log: PartitionLog) -> Chosen:
        settings, names, now_ms = self.settings, self.settings.topic_names, self.clock.now_ms()
        due_by_ms = self._judge.worked_until_ms(place)
        by_ms = stamped_by_ms(names, settings.levels, place[0], due_by_ms)
        stamps = [
            Stamp(offset, timestamp_ms, int(dict(headers or []).get("TIMER_DELIVER_MS") or 0) or None)
            for offset, (timestamp_ms, _, _, headers, span) in enumerate(log.entries, log.begin)
            if span is None or (span is not MARKER and span.state is SpanState.COMMITTED)
        ]
        first = next((number for number, stamp in enumerate(stamps) if stamp.timestamp_ms > by_ms), len(stamps))
        until_ms = now_ms + settings.max_clock_skew
        undelivered = first_undelivered(names, place[0], stamps[first:], by_ms, until_ms)
        metadata = self._progress[place].metadata or "" if place in self._progress else ""
        return due_after(names, place, Log(log.begin, log.end), undelivered, metadata, due_by_ms, now_ms)

    # --- turns --------------------------------------------------------------------------------------------------------

    def _turn(self, replica: Replica) -> None:
        if self._noticed_ms is not None and self.clock.monotonic_ms() >= self._noticed_ms:
            self._noticed_ms = None
            for one in self.replicas:
                one.health.topics_made_anew += 1
        replica.turn()
        self._look_at_stops()
        self._judge.watch()

    def _look_at_stops(self) -> None:
        stopped: dict[Place, str] = {}
        for replica in self.replicas:
            for name, cause in replica.health.stopped.items() if replica.loop is not None else ():
                topic, _, number = name.rpartition("-")
                stopped[topic, int(number)] = cause.words
        for place, why in stopped.items():
            if place not in self._stopped:
                self._happens("stopped", f"{place}: {why}")
                if place[0] in self._made_anew and place[0] in self.kafka.topics:
                    self._judge.may_be_missing(place, "stopped in a topic that was made anew")
                    self._judge.may_repeat(place, "stopped in a topic that was made anew")
        self._stopped = stopped

    def _drain(self) -> None:
        for turn in range(TURNS_MAX):
            for replica in self.replicas:
                self._turn(replica)
            if turn % 20 == 19:
                self._choose_where_stopped()
            open_places = [
                (source.topic, source.partition)
                for replica in self.replicas
                if replica.loop is not None
                for source in replica.loop.sources
            ]
            if sorted(open_places) == sorted(self._places) and not any(replica.trouble for replica in self.replicas):
                return
            if turn % 500 == 499:
                self.kafka.rebalance(GROUP)
            if turn % 10 == 9:
                self.clock.advance(self.chance.choice([100, 2_000, 10_000]))
        troubles = "; ".join(f"{replica.name}: {replica.trouble}" for replica in self.replicas)
        raise Violation(f"not at rest after {TURNS_MAX} turns: {troubles} {self._stopped}")


def go_through(seed: int) -> Went:
    """One history."""
    world = World(seed)
    return seed, what_is_found(world.run, HISTORY_S), world.met


def main() -> None:
    """Replay a seed."""
    if "-v" in sys.argv:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("debug"))
    else:
        be_quiet()
    world = World(int(sys.argv[1]), print)
    world.run()
    print(f"seed {sys.argv[1]}: nothing found; {dict(world.met)}")


if __name__ == "__main__":
    main()
