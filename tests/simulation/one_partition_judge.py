"""What must hold of every story of one partition, told from what was written, what was committed, and what was told.

    a message comes once at most: it is delivered, not early, or buried; what has come is not copied any more
    it comes, or an order speaks of it that is carried out: a cancel, or a replacement whose own message
    comes, or is taken out in the same way
    a replacement's message comes only where something that it replaces does not
    no message is delivered once an order that speaks of it is below the committed offset
    an outcome is told once, and what has become of the messages bears it out

Where ids are reused, which of several messages an order takes out is not promised, only that it takes out one.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from tests.simulation.ledger import expect

METADATA_MAX_BYTES = 4_096
"""What brokers keep of a commit's metadata."""


class Written(NamedTuple):
    """A user's record: it schedules, and has a message; it cancels, and names one; it replaces, and does both."""

    offset: int
    names: bytes | None
    """The id of what it takes out."""
    uniq_key: bytes | None
    """Its own message's."""
    topic: bytes | None
    """Where its message goes; of a cancel, where what it takes out would go, None: anywhere."""
    due_ms: int = 0

    def speaks_of(self, message: "Written") -> bool:
        is_by_name = self.names is not None and self.names == message.uniq_key and self.offset > message.offset
        return is_by_name and (self.uniq_key is not None or self.topic in (None, message.topic))


class Delivery(NamedTuple):
    """A message at its destination, and the offset that was committed with it."""

    message: Written
    committed: int


class Told(NamedTuple):
    """What has become of an order, and by which of the processes it was told last."""

    outcome: str
    process: int


class Judge:
    """Told what happens while it does; judges that, and at the end all of it.

    Args:
        are_ids_reused: whether users give one id to several messages.
    """

    def __init__(self, *, are_ids_reused: bool) -> None:
        self._are_ids_reused = are_ids_reused
        self._written: dict[int, Written] = {}
        self._orders: dict[bytes, list[Written]] = defaultdict(list)
        """By the id that they name."""
        self._messages: dict[bytes, list[Written]] = defaultdict(list)
        """By their id."""
        self._copies: Counter[int] = Counter()
        """How many there are of a message; by offset, as all that follows."""
        self._came: set[int] = set()
        """What is delivered or buried."""
        self._delivered: list[Delivery] = []
        self._told: dict[int, Told] = {}
        self._told_before_loss: set[int] = set()
        self._committed = 0

    # --- while it runs ------------------------------------------------------------------------------------------------

    def write(self, written: Written) -> None:
        self._written[written.offset] = written
        if written.names is not None:
            self._orders[written.names].append(written)
        if written.uniq_key is not None:
            self._messages[written.uniq_key].append(written)

    def deliver(self, offset: int, topic: bytes, now_ms: int, committed: int) -> None:
        """The message of the record there is at its destination, with progress up to an offset.

        Args:
            now_ms: the highest time that a sidecar's clock has shown.
        """
        message = self._written[offset]
        self._come(message)
        expect(topic == message.topic, f"{message} is delivered to {topic!r}")
        expect(now_ms >= message.due_ms, f"{message} is delivered {message.due_ms - now_ms} ms early")
        self._delivered.append(Delivery(message, committed))
        if not self._are_ids_reused:
            late = [order for order in self._orders_of(message) if order.offset < committed]
            expect(not late, f"{message} is delivered with {committed} committed, in spite of {late}")

    def bury(self, offset: int) -> None:
        """It is among the dead letters."""
        self._come(self._written[offset])

    def _come(self, message: Written) -> None:
        expect(message.offset not in self._came, f"{message} comes twice")
        self._came.add(message.offset)

    def copy(self, offset: int, roll_times: int) -> None:
        """A copy is on the wheel topic: one that has rolled, or the one that a replacement brings."""
        message = self._written[offset]
        expect(offset not in self._came, f"{message} is copied when it has come")
        count = self._copies[offset] if message.names is not None else self._copies[offset] + 1
        expect(roll_times == count, f"{message} is copied as rolled {roll_times} times, and it is {count}")
        self._copies[offset] += 1

    def check_metadata(self, metadata: str) -> None:
        size_bytes = len(metadata.encode())
        expect(size_bytes < METADATA_MAX_BYTES, f"the metadata of a commit has {size_bytes} bytes: {metadata}")

    def commit(self, offset: int) -> None:
        expect(offset >= self._committed, f"progress goes back from {self._committed} to {offset}")
        self._committed = offset

    def lose_progress(self) -> None:
        """What was told by then may be told once more."""
        self._told_before_loss = set(self._told)

    def tell(self, offset: int, outcome: str, process: int) -> None:
        """What has become of the order there is final.

        A later process may tell it once more of a replacement whose message is taken out before it is written, and of
        what takes it out: no copy says that both were carried out. So it may of a cancel that has taken out one of
        several with an id, when it takes out the copy of another.
        """
        order, before = self._written[offset], self._told.get(offset)
        may_be_forgotten = self._are_ids_reused or offset in self._told_before_loss
        may_be_forgotten = may_be_forgotten or any(message.names is not None for message in self._spoken_of(order))
        if order.uniq_key is not None:
            may_be_forgotten = may_be_forgotten or bool(self._orders_of(order))
        is_told_again = may_be_forgotten and before is not None and before.process < process
        is_as_before = before is None or (is_told_again and before.outcome == outcome)
        expect(is_as_before, f"{order} is told {outcome} by process {process}, and was before: {before}")
        self._told[offset] = Told(outcome, process)

    # --- at the end ---------------------------------------------------------------------------------------------------

    def verdict(self, end: int, lowest_needed: int, *, hears_all: bool) -> None:
        """Of a log with this end, and what is committed as the lowest offset that a rebuild needs.

        Args:
            hears_all: whether no outcome may be lost, since no process has ended before its time.
        """
        expect(self._committed == end, f"{self._committed} is committed of {end}")
        expect(lowest_needed == end, f"a rebuild needs {lowest_needed} of {end}, when nothing is left")
        for written in self._written.values():
            if written.uniq_key is not None:
                self._judge_message(written)
            if written.names is not None:
                self._judge_order(written, hears_all=hears_all)
        for delivery in self._delivered:
            self._judge_delivery(delivery)

    def _judge_message(self, message: Written) -> None:
        if message.names is None:
            if message.offset not in self._came:
                expect(bool(self._orders_of(message)), f"{message} is lost")
                expect(self._is_settled(message), f"{message} is gone, and so is what replaces it")
        elif message.offset in self._came:
            expect(self._has_effect(message), f"{message} comes, and so does what it replaces")

    def _judge_order(self, order: Written, *, hears_all: bool) -> None:
        told = self._told.get(order.offset)
        if told is None:
            expect(not hears_all, f"{order} is told nothing")
        elif told.outcome == "cancelled":
            expect(self._has_effect(order), f"{order} is told cancelled, and nothing is")
            is_there = order.uniq_key is None or self._is_settled(order)
            expect(is_there, f"{order} is told cancelled, and what it brings is gone")
        else:
            expect(order.offset not in self._came, f"{order} is told {told.outcome}, and what it brings comes")
            for message in self._spoken_of(order):
                has_others = message.names is not None or self._orders_of(message) != [order]
                is_left = has_others or message.offset in self._came
                expect(is_left, f"{order} is told {told.outcome}, and {message} is gone")

    def _judge_delivery(self, delivery: Delivery) -> None:
        """No order that had been committed by then is left that can have taken out nothing else."""
        for order in self._orders_of(delivery.message):
            had_its_turn = order.offset >= delivery.committed or self._has_effect(order)
            expect(had_its_turn, f"{delivery} in spite of {order}, which takes out nothing else")

    def _orders_of(self, message: Written) -> list[Written]:
        assert message.uniq_key is not None
        return [order for order in self._orders.get(message.uniq_key, []) if order.speaks_of(message)]

    def _spoken_of(self, order: Written) -> list[Written]:
        assert order.names is not None
        return [message for message in self._messages.get(order.names, []) if order.speaks_of(message)]

    def _has_effect(self, order: Written) -> bool:
        """Whether something that it speaks of has not come."""
        return any(message.offset not in self._came for message in self._spoken_of(order))

    def _is_settled(self, message: Written) -> bool:
        """Whether it has come, or may have been taken out by an order that was carried out."""
        if message.offset in self._came:
            return True
        return any(order.uniq_key is None or self._is_settled(order) for order in self._orders_of(message))
