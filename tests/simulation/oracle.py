"""What must hold at the end of every history, told from Kafka's logs alone.

A message is an accepted record, or the one that a replacement has put in its place. Its fate is read off the
destinations and the dead letters; whether that is right, off the order of things on its wheel partition (`ledger`):

    delivered once, as it was written    and no cancel that speaks of it was below a committed offset before that
    delivered never                      and a cancel or a replacement speaks of it
    buried once                          and Kafka has refused it, or its destination is none
    anything else                        a fault

Where ids are reused, which of several messages an order takes out is not promised, only that it takes out one.

While nothing goes wrong but a full disk, it must also happen in good time: in turns of the loop, since a sidecar that
gets no turns can do nothing.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from connectors.contract import Place
from connectors.murmur2 import partition_of_key
from connectors.testing.log import MARKER, Entry, PartitionLog, SpanState
from sidecar.observability.metrics import Metrics
from tests.simulation.ledger import (
    BIG_BYTES,
    TOPICS,
    WHEEL,
    Headers,
    Ledger,
    Message,
    Order,
    Record,
    Violation,
    due_times,
    expect,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP = "g"
DEAD = f"DLQ-{GROUP}"
METRICS = Metrics("simulation")
"""Making them costs more than a history."""

IN_GOOD_TIME_MS = 3_000
IN_GOOD_TIME_TURNS = 30
"""So long before it is due, a cancel has to hit while nothing goes wrong: by then it has been read."""

GENERATED = ("UNIQ_KEY", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")


class Seen(NamedTuple):
    """A record, and when it was first seen."""

    offset: int
    entry: Entry
    turn: int


class Delivery(NamedTuple):
    """A record at a destination."""

    place: Place
    offset: int
    turn: int
    timestamp_ms: int
    key: bytes | None
    headers: Headers


class Letter(NamedTuple):
    """A dead letter."""

    code: bytes
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Less those that tell of the error."""


class Commit(NamedTuple):
    """Progress of a wheel partition, when it was first seen."""

    offset: int
    turn: int
    ends: dict[Place, int]
    """Where the destinations ended then."""


class Judge:
    """Watches the logs after every turn, and judges at the end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._entries: dict[Place, list[Seen]] = defaultdict(list)
        """All that was ever in a log."""
        self._ends: Counter[Place] = Counter()
        self._committed: dict[int, list[Commit]] = defaultdict(list)
        self._lowest: dict[int, tuple[str, int]] = defaultdict(lambda: ("", 0))
        """By partition the metadata as last seen, and its L."""
        self._highest_ms = 0
        self._turns: list[int] = []
        """The highest time that a clock has shown, by each turn."""
        self._outcomes = self._count_outcomes()

    def _count_outcomes(self) -> dict[str, float]:
        return {name: METRICS.cancels.labels(name)._value.get() for name in ("cancelled", "too_late", "unknown")}

    # --- while it runs ------------------------------------------------------------------------------------------------

    def look_at_the_clock(self) -> None:
        """What it shows may have been seen."""
        self._highest_ms = max(self._highest_ms, self._world.clock.now_ms() + self._world.clock_ahead_ms)

    def watch(self) -> None:
        kafka = self._world.kafka
        self.look_at_the_clock()
        self._turns.append(self._highest_ms)
        for topic in (*TOPICS, DEAD, WHEEL):
            for log in kafka.topics[topic].logs:
                place = topic, log.number
                if log.end > self._ends[place]:
                    self._take(place, log)
        for place, (offset, metadata) in kafka.committed(GROUP).items():
            if place[0] == WHEEL:
                self._watch_lowest(place[1], metadata)
                seen = self._committed[place[1]]
                if not seen or offset > seen[-1].offset:
                    ends = {at: end for at, end in self._ends.items() if at[0] != WHEEL}
                    seen.append(Commit(offset, len(self._turns) - 1, ends))
                elif offset < seen[-1].offset:
                    raise Violation(f"progress of {place} goes back from {seen[-1].offset} to {offset}")

    def _take(self, place: Place, log: PartitionLog) -> None:
        for offset in range(self._ends[place], log.end):
            entry = log.entries[offset - log.begin]
            self._entries[place].append(Seen(offset, entry, len(self._turns) - 1))
            if entry[4] is not MARKER:
                self._world.tell(f"  {place[0]}-{place[1]} {offset}: {_show(entry)}")
        self._ends[place] = log.end

    def lowest_needed(self, partition: int) -> int | None:
        """L, as committed."""
        found = self._world.kafka.committed(GROUP).get((WHEEL, partition))
        return int(msgspec.json.decode(found[1])["l"]) if found is not None and found[1] else None

    def _watch_lowest(self, partition: int, metadata: str) -> None:
        seen, before = self._lowest[partition]
        if metadata and metadata != seen:
            lowest = int(msgspec.json.decode(metadata)["l"])
            expect(lowest >= before, f"L of {partition} goes back from {before} to {lowest}")
            self._lowest[partition] = metadata, lowest

    def check_nothing_needed(self, partition: int) -> None:
        """That no rebuild needs what lies below the committed offset."""
        committed, lowest = self._committed[partition], self.lowest_needed(partition)
        if committed and lowest is not None:
            expect(lowest == committed[-1].offset, f"{partition}: L stays at {lowest} of {committed[-1].offset}")

    def due_of(self, uniq_key: bytes) -> int | None:
        """When the latest message with this id is due, as far as its record has been seen."""
        for place, entries in self._entries.items():
            if place[0] == WHEEL:
                for seen in reversed(entries):
                    headers = dict(seen.entry[3] or [])
                    if headers.get("UNIQ_KEY") == uniq_key:
                        times = due_times(headers, seen.entry[0], self._world.level_tables)
                        return min(times) if times else None
        return None

    # --- at the end ---------------------------------------------------------------------------------------------------

    def _visible(self, place: Place) -> Iterator[Seen]:
        for seen in self._entries[place]:
            span = seen.entry[4]
            if span is not MARKER and (span is None or span.state is SpanState.COMMITTED):
                yield seen

    def verdict(self) -> None:
        """Raises Violation."""
        delivered = self._deliveries()
        buried = self._letters()
        refused = 0
        gone = perhaps = orders = 0
        for partition in range(len(self._world.kafka.topics[WHEEL].logs)):
            records = [Record(seen.offset, seen.entry) for seen in self._visible((WHEEL, partition))]
            ledger = Ledger(partition, records, self._world.level_tables)
            for place in list(buried):
                if place[0] == partition:
                    ledger.bury(place[1])
            self._judge_rejected(ledger, buried)
            undelivered: list[Message] = []
            sent: list[tuple[Message, Delivery]] = []
            for message in ledger.messages:
                found = delivered.pop(message.value, [])
                letters = self._letters_of(message, ledger, buried)
                refused += len(letters) if message.topic in TOPICS and not self._is_too_big(message) else 0
                count = len(found) + len(letters)
                expect(count <= 1, f"{message} is delivered {count} times: {found} {letters}")
                if count == 0:
                    expect(bool(ledger.orders_of(message)), f"{message} is lost")
                    undelivered.append(message)
                elif found:
                    sent.append((message, found[0]))
            unborn = ledger.unborn
            for message, delivery in sent:
                idle = [
                    order
                    for order in ledger.orders_of(message)
                    if not any(order.speaks_of(other) for other in undelivered + unborn)
                ]
                self._check_contents(message, delivery)
                self._check_delivery(message, delivery, idle)
            ledger.check_replacements(undelivered)
            if self._world.is_healthy:
                self._check_intake(partition)
            gone += len(undelivered)
            perhaps += len(unborn)
            orders += len(ledger.orders)
        expect(not delivered, f"delivered, but never accepted: {dict(delivered)}")
        expect(not buried, f"in the dead letters, but not bad: {dict(buried)}")
        refusals = sum(fault.kind == "refuse" for _, _, fault in self._world.kafka.faults.injected)
        expect(refused <= refusals, f"{refused} refused, Kafka refused {refusals}")
        if self._world.is_calm:
            self._check_outcomes(orders, gone, perhaps)

    def _deliveries(self) -> dict[bytes, list[Delivery]]:
        delivered: dict[bytes, list[Delivery]] = defaultdict(list)
        for topic in TOPICS:
            for log in self._world.kafka.topics[topic].logs:
                place = topic, log.number
                for offset, (timestamp_ms, key, value, headers, _), turn in self._visible(place):
                    delivery = Delivery(place, offset, turn, timestamp_ms, key, headers or [])
                    delivered[value or b""].append(delivery)
        return delivered

    def _letters(self) -> dict[tuple[int, int], list[Letter]]:
        """By partition and offset of what was buried."""
        buried: dict[tuple[int, int], list[Letter]] = defaultdict(list)
        for _, (_, key, value, headers, _), _ in self._visible((DEAD, 0)):
            error = dict(headers or [])
            kept = [header for header in headers or [] if not header[0].startswith("ERROR_")]
            expect(error["ERROR_TOPIC"] == WHEEL.encode(), f"dead letter of topic {error['ERROR_TOPIC']!r}")
            where = int(error["ERROR_PARTITION"] or -1), int(error["ERROR_OFFSET"] or -1)
            buried[where].append(Letter(error["ERROR_CODE"] or b"", key, value, kept))
        for (partition, offset), letters in buried.items():
            expect(len(letters) == 1, f"{partition}@{offset} is {len(letters)} times in the dead letters")
            _, (_, key, value, headers, _), _ = self._entries[WHEEL, partition][offset]
            letter = letters[0]
            # Where Kafka has refused the letter itself, it comes without the value, or with its reason alone.
            could_be_smaller = any(fault.kind == "refuse" for _, _, fault in self._world.kafka.faults.injected)
            told = letter.key, letter.value, letter.headers
            whole = key, value, headers or []
            smaller = [(key, None, headers or []), (None, None, [])] if could_be_smaller else []
            expect(told in [whole, *smaller], f"{partition}@{offset} is not buried as it was: {letter}")
        return buried

    def _judge_rejected(self, ledger: Ledger, buried: dict[tuple[int, int], list[Letter]]) -> None:
        for offset in ledger.rejected:
            letters = buried.pop((ledger.partition, offset), [])
            expect(len(letters) == 1, f"bad record {ledger.partition}@{offset} has {len(letters)} dead letters")

    def _letters_of(
        self, message: Message, ledger: Ledger, buried: dict[tuple[int, int], list[Letter]]
    ) -> list[Letter]:
        """Of the message, in whichever form it came."""
        offsets = {message.offset, message.origin, *message.copies}
        return [letter for offset in offsets for letter in buried.pop((ledger.partition, offset), [])]

    def _is_too_big(self, message: Message) -> bool:
        """Whether an operator has made a topic on its way too small for it."""
        limited = self._world.limited_topic
        return len(message.value) > BIG_BYTES and limited in (message.topic, WHEEL)

    # --- what a message has become ------------------------------------------------------------------------------------

    def _check_contents(self, message: Message, delivery: Delivery) -> None:
        """As it was written, less its instructions, plus what the sidecar tells."""
        expect(delivery.key == message.key, f"{message} has the key {delivery.key!r}")
        kept = [header for header in delivery.headers if header[0] not in GENERATED]
        expect(kept == message.carried, f"{message} carries {kept}")
        told = {name: value for name, value in delivery.headers if name in GENERATED}
        expect(len(told) + len(kept) == len(delivery.headers), f"{message} is told of twice: {delivery.headers}")
        trace = [told.pop("TIMER_ENQUEUE_MS", None), told.pop("TIMER_DEQUEUE_MS", None)]
        expect((None not in trace) if self._world.settings.trace_headers else not any(trace), f"{message}: {trace}")
        due = {b"%d" % due_ms for due_ms in message.due_times}
        expect(told.pop("TIMER_OUT_MS", None) in due, f"{message} was due at another time: {delivery.headers}")
        rolled = {"TIMER_ROLL_TIMES": b"%d" % len(message.rolls)} if message.rolls else {}
        expect(told == {"UNIQ_KEY": message.uniq_key, **rolled}, f"{message} tells {delivery.headers}")
        if message.qid is not None:
            expect(delivery.place[1] == message.qid, f"{message} went to partition {delivery.place[1]}")
        elif message.key is not None:
            count = len(self._world.kafka.topics[message.topic].logs)
            by_key = partition_of_key(message.key, count)
            expect(delivery.place[1] == by_key, f"{message} went to partition {delivery.place[1]}")

    def _check_delivery(self, message: Message, delivery: Delivery, spoken: list[Order]) -> None:
        """In its place, not early, and not after what takes it out was final."""
        world = self._world
        due_ms = int(dict(delivery.headers)["TIMER_OUT_MS"] or 0)
        highest_ms = self._turns[delivery.turn]
        expect(delivery.place[0] == message.topic, f"{message} went to {delivery.place}")
        expect(highest_ms >= due_ms, f"{message} is early: {highest_ms}")
        if not world.steps_back:
            expect(
                delivery.timestamp_ms + world.clock_ahead_ms >= due_ms, f"{message} is early: {delivery.timestamp_ms}"
            )
        for order in spoken:
            commit = self._commit_of(message.partition, order.offset)
            if commit is not None:
                late = delivery.offset >= commit.ends.get(delivery.place, 0)
                expect(not late, f"{message} is delivered {delivery} after {order} was committed")
            if world.is_calm:
                # Not even read in time? A sidecar that lives has no excuse.
                turns = bisect_left(self._turns, due_ms) - bisect_left(self._turns, order.timestamp_ms + 1)
                in_time = turns > IN_GOOD_TIME_TURNS and order.timestamp_ms + IN_GOOD_TIME_MS < due_ms
                expect(not in_time, f"{message} is delivered though {order} came in good time")
        if world.is_healthy:
            # What is read is sent when it is due, whatever the disk is like by then.
            commit = self._commit_of(message.partition, max(message.offset, *message.copies, -1))
            expect(commit is not None, f"{message} is delivered, and its record not committed")
            ready = max(commit.turn if commit is not None else 0, bisect_left(self._turns, due_ms))
            late = delivery.turn > ready + self._turns_for_all
            expect(not late, f"{message} is delivered {delivery.turn - ready} turns after it was due")

    def _commit_of(self, partition: int, offset: int) -> Commit | None:
        """The first one behind an offset."""
        commits = self._committed[partition]
        at = bisect_left(commits, offset + 1, key=lambda commit: commit.offset)
        return commits[at] if at < len(commits) else None

    @property
    def _turns_for_all(self) -> int:
        """Turns in which everything can have been sent, a record each, and the idle progress committed."""
        return IN_GOOD_TIME_TURNS + self._world.counter

    def _check_intake(self, partition: int) -> None:
        """What is written is taken in within seconds, and as soon as there is room on the disk."""
        for seen in self._visible((WHEEL, partition)):
            last = self._last_turn_of_intake(seen.turn)
            commit = self._commit_of(partition, seen.offset)
            in_time = commit is not None and commit.turn <= last
            expect(in_time, f"{partition}@{seen.offset}, to be taken in by turn {last}, is taken in by {commit}")

    def _last_turn_of_intake(self, turn: int) -> int:
        """The turn by which is taken in what was written at a turn: time and turns enough, and room in all of them."""
        time_ms = self._turns[turn]
        while True:
            last = max(turn, bisect_left(self._turns, time_ms + IN_GOOD_TIME_MS)) + self._turns_for_all
            end_ms = self._turns[min(last, len(self._turns) - 1)]
            full_until_ms = self._world.full_until(time_ms, end_ms)
            if full_until_ms is None:
                return last
            time_ms = full_until_ms

    def _check_outcomes(self, orders: int, gone: int, perhaps: int) -> None:
        now = self._count_outcomes()
        told = {name: int(now[name] - before) for name, before in self._outcomes.items()}
        expect(sum(told.values()) == orders, f"{orders} cancels and replacements, told {told}")
        at_least = min(gone, 1)  # one order may take out several
        in_range = at_least <= told["cancelled"] <= gone + perhaps
        expect(in_range, f"{gone} messages cancelled, and {perhaps} perhaps, told {told}")


def _show(entry: Entry) -> str:
    _, _, value, headers, _ = entry
    names = {name: (text or b"").decode(errors="replace") for name, text in headers or []}
    told = ("UNIQ_KEY", "TIMER_ROLL_TIMES", "TIMER_ORIGIN_OFFSET", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "ERROR_CODE")
    shown = " ".join(f"{name}={names[name]}" for name in told if name in names)
    return f"{(value or b'')[:8].decode()} {shown}"
