"""What must hold of histories in which Kafka loses something: what is written once arrives once, unless it is excused.

A record need not arrive that a log has lost, or that an operator has passed over. It may arrive again where progress
went back, or an operator has chosen that. Nothing else excuses anything, so what Kafka still has is delivered.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.contract import Place
from connectors.testing import InMemoryKafka
from connectors.testing.log import MARKER, Entry, SpanState
from tests.simulation.ledger import WHEEL, expect

LEVELS = ("SCHEDULE_TOPIC_XXXX-1", "SCHEDULE_TOPIC_XXXX-2")
DESTINATION = "orders"
DEAD = "DLQ-g"
ROLLS_FROM_MS = 1_500
"""The shortest roll window that there is: what is due so soon does not roll."""


@dataclass(eq=False)
class Written:
    """A record that asks to be delivered, or has to be rejected."""

    value: bytes
    place: Place
    stamp_ms: int
    due_ms: int
    """On a level by the shortest delay that is ever in force there."""
    is_bad: bool
    is_named: bool = False
    """Whether a cancel or a replacement speaks of it, or it is a replacement's: it may arrive or not."""
    missing: list[str] = field(default_factory=list)
    """Why it need not arrive."""
    repeats: list[str] = field(default_factory=list)
    """Why it may arrive again."""

    def acted_on_ms(self, at_ms: int) -> int:
        """Up to when nothing need have been done with it, of which the last copy is from that time."""
        if self.is_bad:
            return self.stamp_ms
        if self.place[0] == WHEEL and self.due_ms - at_ms >= ROLLS_FROM_MS:
            return at_ms
        return max(self.due_ms, self.stamp_ms)


class Arrival(NamedTuple):
    """What was seen at the destination, or among the dead letters."""

    topic: str
    entry: Entry
    highest_ms: int
    """The highest time that the clock had shown by then."""

    @property
    def is_visible(self) -> bool:
        span = self.entry[4]
        return span is None or span.state is SpanState.COMMITTED


class Judge:
    """Knows all that was written, and watches where it arrives."""

    def __init__(self, kafka: InMemoryKafka, tell: Callable[[str], object]) -> None:
        self.written: dict[bytes, Written] = {}
        self.highest_ms = 0
        self.is_clock_set_back = False
        self._kafka = kafka
        self._tell = tell
        self._arrivals: list[Arrival] = []
        self._ends: dict[Place, int] = defaultdict(int)

    def watch(self) -> None:
        """Has to be called before a log loses anything."""
        self.highest_ms = max(self.highest_ms, self._kafka.clock.now_ms())
        for topic in (DESTINATION, DEAD):
            for log in self._kafka.topics[topic].logs:
                place = topic, log.number
                for offset in range(self._ends[place], log.end):
                    entry = log.entries[offset - log.begin]
                    if entry[4] is not MARKER:
                        self._arrivals.append(Arrival(topic, entry, self.highest_ms))
                        self._tell(f"  {topic}-{log.number} {offset}: {(entry[2] or b'').decode()}")
                self._ends[place] = log.end

    def lost(self, place: Place, entries: Iterable[Entry], why: str) -> None:
        """A log has lost these, among them copies, of which the original may be there."""
        for written in self._of(entries):
            written.missing.append(why)
        log = self._kafka.log(*place)
        self._ends[place] = 0 if log is None else log.end

    def may_be_missing(self, place: Place, why: str, below: int | None = None) -> None:
        """What is in the log need not arrive."""
        log = self._kafka.topics[place[0]].logs[place[1]]
        for written in self._of(log.entries if below is None else log.entries[: max(0, below - log.begin)]):
            written.missing.append(why)

    def may_repeat(self, place: Place, why: str) -> None:
        """What was ever written there may arrive again: files may hold what the log has lost."""
        for written in self.written.values():
            if written.place == place:
                written.repeats.append(why)

    def _of(self, entries: Iterable[Entry]) -> list[Written]:
        return [self.written[entry[2] or b""] for entry in entries if (entry[2] or b"") in self.written]

    @property
    def arrived(self) -> Mapping[bytes, int]:
        """How often a `read_committed` reader has seen each value."""
        return Counter(arrival.entry[2] or b"" for arrival in self._arrivals if arrival.is_visible)

    def worked_until_ms(self, place: Place) -> int:
        """Up to when delivery of what a log holds is known to have worked, as a well-informed operator knows it."""
        log, arrived = self._kafka.topics[place[0]].logs[place[1]], self.arrived
        latest = {entry[2] or b"": entry[0] for entry in log.entries}
        open_since = [
            self.written[value].acted_on_ms(at_ms)
            for value, at_ms in latest.items()
            if value in self.written and not arrived.get(value)
        ]
        return min([self._kafka.clock.now_ms(), *open_since]) - 1

    def verdict(self) -> None:
        """Raises Violation."""
        arrived = self.arrived
        for arrival in self._arrivals:
            written = self.written[arrival.entry[2] or b""]
            is_cut = self.is_clock_set_back and written.place[0] != WHEEL  # a timestamp from the future
            if arrival.topic == DESTINATION and arrival.is_visible and not is_cut:
                expect(arrival.highest_ms >= written.due_ms, f"{written} is early: {arrival.highest_ms}")
        for written in self.written.values():
            count = arrived.get(written.value, 0)
            expect(count > 0 or bool(written.missing) or written.is_named, f"{written} is lost")
            expect(count < 2 or bool(written.repeats), f"{written} arrives {count} times")
