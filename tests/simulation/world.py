"""Random histories of the wheel partitions, on the sidecar's own loop: python -m tests.simulation.world SEED [-v]

Clock, Kafka and disk are in memory; everything else is the product's: intake, store, dispatch, recovery. A history
schedules, cancels, replaces, lets time pass, kills, damages disks, moves partitions and changes settings; then faults
stop, everything runs to its end, and `tests.simulation.oracle` judges what a `read_committed` reader sees.

    seed % 6    what may go wrong
    0           nothing: all outcomes are counted, all is in time, and a cancel in good time has to hit
    1           crashes of the process, at Kafka calls and at the disk's
    2, 3        everything, also the broker's ill will, a full and a damaged disk, loss of power
    4           everything, with a second replica, whose clock may differ, and whose settings change at another time
    5           the disk is full for a while, and nothing else: what is stored goes out in time, intake resumes
"""

import random
import sys
from collections.abc import Callable

import structlog

from connectors.testing import InMemoryKafka, Kind, ManualClock
from sidecar.dispatch.wheel.partition import LOOK_EVERY_MS
from sidecar.settings import Settings
from tests.simulation.ledger import BIG_BYTES, MAX_DELAY_MS, TOPICS, WHEEL, LevelTable, Violation
from tests.simulation.oracle import DEAD, GROUP, Judge
from tests.simulation.replica import Replica, simulated
from tests.simulation.stretches import disk_quota_bytes, read_ahead, roll_spread_ms
from tests.simulation.users import PARTITIONS, Users

CALM, CRASHES, ILL, PAIR, FULL = "calm", "crashes", "ill", "pair", "full"
MODES = (CALM, CRASHES, ILL, ILL, PAIR, FULL)
DISK_RATES = {CALM: 0.0, CRASHES: 0.004, ILL: 0.004, PAIR: 0.002, FULL: 0.0}
FAULT_RATES = (0.006, 0.006, 0.006, 0.006, 0.006, 0.06)
"""At each labelled call. With the last a fault often meets what the one before has left behind."""
TURNS_MAX = 6_000
AHEAD_MS = (0, 0, -2_000, -700, 700, 2_000)
"""Of the brokers' clock, where replicas have clocks of their own."""
LEVELS = ("1s 7s", "1s 3s 20s", "2s 7s")
Action = Callable[[], None]


class World:
    """A cluster, its users, and one or two sidecars."""

    def __init__(self, seed: int, tell: Callable[[str], object] | None = None) -> None:
        self.seed = seed
        self.mode = MODES[seed % len(MODES)]
        self.chance = chance = random.Random(seed)
        self.clock = ManualClock()
        self._tell = tell
        self.kafka = InMemoryKafka(self.clock)
        self.damages = self.mode in (ILL, PAIR)
        self.steps_back = self.damages and chance.random() < 0.2
        self.disk_rate = DISK_RATES[self.mode]
        self.limited_topic: str | None = None
        """Where an operator no longer lets large records in."""
        self._full: list[tuple[int, int]] = []
        """From when to when the disk was full by order."""
        self.level_tables: list[LevelTable] = []
        """All that were ever in force."""
        self.settings = self._some_settings()
        for number in range(1, 4):
            self.kafka.create_topic(f"SCHEDULE_TOPIC_XXXX-{number}", 1, {"message.timestamp.type": "LogAppendTime"})
        self.kafka.create_topic(WHEEL, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        for topic in TOPICS:
            self.kafka.create_topic(topic, 2)
        self.kafka.create_topic(DEAD)
        self.judge = Judge(self)
        self.users = Users(self)
        names = ["one", "two"] if self.mode == PAIR else ["one"]
        faults, apart = random.Random(f"{seed}-kafka"), random.Random(f"{seed}-apart")
        rate = apart.choice(FAULT_RATES)
        if self.mode == CRASHES:
            self.kafka.faults.seed(faults, rate, [Kind.CRASH], processes=names)
        elif self.damages:
            self.kafka.faults.seed(faults, rate, processes=names)
        ahead_ms = {name: apart.choice(AHEAD_MS) if self.mode == PAIR else 0 for name in names}
        self.clock_ahead_ms = max(0, *ahead_ms.values())
        """Of the clock that is farthest ahead."""
        self.rolls_out = self.mode == PAIR and apart.random() < 0.5
        """Whether settings change at one replica after the other, and not at all of them together."""
        self.replicas = [Replica(self, name, ahead_ms[name]) for name in names]
        self.at_work = self.replicas[0]
        """Whose turn it is: it tells by which machine's boot the files are judged."""

    @property
    def is_calm(self) -> bool:
        return self.mode == CALM

    @property
    def may_fail(self) -> bool:
        """Whether a disk or Kafka may refuse something without a crash, but for a disk that is full."""
        return self.mode not in (CALM, CRASHES)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing delays anything but a full disk."""
        return self.mode in (CALM, FULL)

    @property
    def counter(self) -> int:
        """Records that users have written."""
        return self.users.written

    def tell(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.clock.now_ms() - 1_700_000_000_000:>8} {text}")

    def full_until(self, from_ms: int, until_ms: int) -> int | None:
        """When the disk had room again that was full at some time between two times, in ms."""
        ends = [end_ms for start_ms, end_ms in self._full if start_ms < until_ms and from_ms < end_ms]
        return max(ends, default=None)

    # --- settings -----------------------------------------------------------------------------------------------------

    def _some_settings(self) -> Settings:
        chance = self.chance
        settings = Settings(
            levels=chance.choice(LEVELS),  # type: ignore[arg-type]
            group_id=GROUP,
            precision_ms=chance.choice([500, 1_000]),
            slots_total=chance.choice([32, 64]),
            batch_records=chance.choice([2, 5, 20]),
            max_delay=f"{MAX_DELAY_MS}ms",  # type: ignore[arg-type]
            disk_quota_bytes=disk_quota_bytes(self.seed) if self.damages else 0,
            trace_headers=chance.random() < 0.2 if not self.level_tables else self.settings.trace_headers,
        )
        window = chance.randrange(3, settings.slots_total) * settings.precision_ms
        self.level_tables.append(settings.levels.delays_ms)
        spread = roll_spread_ms(self.seed, window)
        update = {"roll_window": window, "roll_spread": spread, **read_ahead(self.seed)}
        return settings.model_copy(update=update)

    def _change_settings(self, stopped: Replica) -> None:
        """As an operator does it: all replicas are stopped first, or one goes ahead and the others follow some day."""
        changed = [stopped] if self.rolls_out else self.replicas
        for replica in changed:
            replica.stop()
        self.settings = settings = self._some_settings()
        for replica in changed:
            replica.settings = settings
        self.tell(
            f"settings of {', '.join(replica.name for replica in changed)}: {settings.slots_total} slots of "
            f"{settings.precision_ms} ms, roll window {settings.roll_window}, levels {settings.levels}"
        )

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
        self._end_faults()
        self._drain()
        self._rest()
        self.clock.advance(120_000)  # long enough for what was left open to time out
        self.judge.watch()
        for replica in self.replicas:
            waiting = replica.count_pending()
            if waiting:
                raise Violation(f"{replica.name} tells of {waiting} messages that wait, when all is done")
        self.judge.verdict()

    def _actions(self) -> list[tuple[float, Action]]:
        users = self.users
        actions: list[tuple[float, Action]] = [
            (40, users.schedule_some),
            (1, users.schedule_overdue),
            (12, users.cancel),
            (3, users.cancel_while_it_rolls),
            (5, users.replace),
            (3, users.err),
            (20, self._pass_time),
            (1, self._pass_laps),
            (6, self._retain),
        ]
        if self.mode == FULL:
            return [*actions, (3, self._fill_disk)]
        if self.mode == CALM:
            return actions
        actions += [(3, self._kill), (4, self._stop), (1.5, self._lose_power)]
        if self.mode == CRASHES:
            return actions
        actions += [(2, self._rebalance), (0.5, self._fill_disk), (0.3, self._limit_size), (1, self._take_leader)]
        if self.steps_back:
            actions.append((2, self._step_back))
        if self.mode == PAIR:
            actions.append((2, self._suspend))
        return actions

    def _pass_time(self) -> None:
        self.clock.advance(min(self.chance.choice([10, 500, 1_000, 3_000, 20_000]), self._lap_ms // 4))

    def _pass_laps(self) -> None:
        """Longer than the wheel spans."""
        laps = self.chance.choice([1.2, 3])
        self.tell(f"{laps} laps pass")
        if self.mode in (CRASHES, ILL, PAIR) and self.chance.random() < 0.5:
            for replica in self.replicas:
                replica.end()
        self.clock.advance(int(laps * self._lap_ms))

    @property
    def _lap_ms(self) -> int:
        return 2 * self.settings.slots_total * self.settings.precision_ms

    def _retain(self) -> None:
        """Retention takes what the committed progress says is not needed; somebody copies the disk."""
        for replica in self.replicas:
            replica.disk.snapshot()
        for partition in range(PARTITIONS):
            lowest = self.judge.lowest_needed(partition)
            log = self.kafka.log(WHEEL, partition)
            assert log is not None
            if lowest is not None and log.begin < lowest and self.chance.random() < 0.5:
                self.judge.watch()
                self.tell(f"retention of {partition} before {lowest}")
                self.kafka.delete_records(WHEEL, partition, lowest)

    def _kill(self) -> None:
        replica = self.chance.choice(self.replicas)
        self.tell(f"{replica.name}: SIGKILL")
        replica.begin()

    def _stop(self) -> None:
        replica = self.chance.choice(self.replicas)
        self.tell(f"{replica.name}: SIGTERM")
        replica.stop()
        if self.chance.random() < 0.2:
            self.tell(f"{replica.name}: its machine is switched off")
            replica.lose_power()
        if self.chance.random() < 0.5:
            self._change_settings(replica)

    def _lose_power(self) -> None:
        replica = self.chance.choice(self.replicas)
        self.tell(f"{replica.name}: power is lost")
        replica.lose_power()

    def _rebalance(self) -> None:
        self.tell("rebalance")
        self.kafka.rebalance(GROUP)

    def _suspend(self) -> None:
        replica = self.chance.choice(self.replicas)
        self.tell(f"{replica.name}: SIGSTOP")
        replica.suspend()
        self.clock.advance(self.chance.choice([1_000, 20_000]))

    def _fill_disk(self) -> None:
        replica = self.chance.choice(self.replicas)
        if not replica.wheel_partitions:
            return
        for_ms = self.chance.choice([3_000, 20_000, 100_000])
        self.tell(f"{replica.name}: the disk is full for {for_ms} ms")
        self._full.append((self.clock.now_ms(), self.clock.now_ms() + for_ms))
        replica.disk.fill(for_ms)

    def _limit_size(self) -> None:
        """An operator lowers a topic's max.message.bytes, below what is there already."""
        if self.limited_topic is None:
            self.limited_topic = self.chance.choice([*TOPICS, WHEEL])
            self.tell(f"{self.limited_topic} takes small records only")
            self.users.writes_big = False
            self.kafka.faults.refuse(self.limited_topic, larger_than_bytes=BIG_BYTES)

    def _take_leader(self) -> None:
        """The broker of a destination partition is lost, and comes back."""
        topic, partition = self.chance.choice(TOPICS), self.chance.randrange(2)
        for_ms = self.chance.choice([2_000, 30_000, 200_000])
        self.tell(f"{topic}-{partition} has no leader for {for_ms} ms")
        self.kafka.take_leader(topic, partition, for_ms)

    def _step_back(self) -> None:
        self.tell("the clock steps back")
        self.judge.look_at_the_clock()
        self.clock.step_wall(-self.chance.choice([500, 5_000]))

    def _end_faults(self) -> None:
        self.tell("--- faults stop")
        self.kafka.faults.stop()
        if self.limited_topic is not None:
            self.kafka.faults.refuse(self.limited_topic, larger_than_bytes=BIG_BYTES)
        if not self.is_healthy:
            for replica in self.replicas:
                replica.disk.stop()
        self.damages = False
        if len(self.replicas) > 1:
            self.kafka.rebalance(GROUP)

    def _turn(self, replica: Replica) -> None:
        replica.turn()
        self.judge.watch()

    def _drain(self) -> None:
        for turn in range(TURNS_MAX):
            for replica in self.replicas:
                self._turn(replica)
            owned = [partition for replica in self.replicas for partition in replica.wheel_partitions]
            if sorted(owned) == list(range(PARTITIONS)) and not any(replica.trouble for replica in self.replicas):
                return
            # A static member that dies between giving up and joining again has nothing until there is a rebalance.
            is_idle = sorted(owned) != list(range(PARTITIONS)) and not any(
                replica.is_failing for replica in self.replicas
            )
            if turn % 500 == 499 and (is_idle or len(self.replicas) > 1):
                self.kafka.rebalance(GROUP)
            if turn % 10 == 9:
                self.clock.advance(self.chance.choice([100, 2_000, 10_000]))
        troubles = "; ".join(f"{replica.name}: {replica.trouble}" for replica in self.replicas)
        raise Violation(f"not at rest after {TURNS_MAX} turns: {troubles}")

    def _rest(self) -> None:
        """Nothing is left to do: retention may take all that is committed."""
        for _ in range(30):  # each takes a step of a look, too
            self.clock.advance(LOOK_EVERY_MS // 2)
            for replica in self.replicas:
                self._turn(replica)
        for partition in range(PARTITIONS):
            self.judge.check_nothing_needed(partition)


def main() -> None:
    """Replay a seed."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("debug" if "-v" in sys.argv else "critical")
    )
    seed = int(sys.argv[1])
    world = World(seed, print)
    try:
        world.run()
    finally:
        print(*world.kafka.faults.injected, *((replica.name, replica.disk.injected) for replica in world.replicas))
    print(f"seed {seed}: nothing found")


if __name__ == "__main__":
    main()
