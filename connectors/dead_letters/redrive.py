"""Moving dead letters out, each once.

A transaction holds the messages and the ledger's note of them, so that a redrive that is killed goes on, when it is run
again, where it stopped. Only one redrive of a dead-letter topic can commit: a later one takes over its transactional
ids before it reads the ledger, and the earlier one is told so. Letters that come while it runs are left for the next:
what fails again at once would keep it busy for ever.

A message that Kafka refuses fails the transaction that it is in. That is aborted and halved until the guilty one stands
alone; it stays where it is, and is told of.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectors.clock import Clock
from connectors.contract import Place
from connectors.dead_letters.errors import NotAnsweredError, RefusedError, TakenOverError
from connectors.dead_letters.ledger import Ledger
from connectors.dead_letters.letter import Filter
from connectors.dead_letters.offsets import Offsets, runs
from connectors.dead_letters.plan import Move, Planner
from connectors.kafka import HEADER_ERRORS
from connectors.kafka_errors import REFUSALS
from connectors.until_answered import until_answered

BATCH = 5_000
"""Most letters in one transaction."""

_CALL_TIMEOUT_S = 1.0
_ATTEMPTS = 5
_LATE = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT})
"""Of a batch that a slow link does not take in the time that a message has."""
_NO_OFFSETS = Offsets()
_UNREADABLE = "a header's name is not UTF-8 text"


@dataclass
class Redriven:
    """What a redrive has done, or with a dry run would do."""

    moved: Counter[str] = field(default_factory=Counter)
    """By destination."""
    parked: int = 0
    stayed: Counter[str] = field(default_factory=Counter)
    """By the reason that there is no way out."""
    done_before: int = 0
    """Letters that an earlier redrive has moved."""
    filtered_out: int = 0
    """Letters that the filter leaves out."""

    @property
    def seen(self) -> int:
        return self.moved.total() + self.parked + self.stayed.total() + self.done_before + self.filtered_out

    def to_dict(self, reasons_max: int | None = None) -> dict[str, Any]:
        """As JSON has it; of the reasons, so many that are the most frequent."""
        return {
            "redriven": self.moved.total(),
            "destinations": dict(self.moved),
            "parked": self.parked,
            "stayed": [{"reason": reason, "count": count} for reason, count in self.stayed.most_common(reasons_max)],
            "done_before": self.done_before,
            "filtered_out": self.filtered_out,
        }


Item = tuple[Message, Move | None, bool]
"""A letter that has been read, what becomes of it, and whether it has been redriven before."""


class Pace:
    """Keeps to so many messages a second."""

    def __init__(self, rate: int | None, wait: Callable[[float], object], clock: Clock) -> None:
        self._rate = rate
        self._wait = wait
        self._clock = clock
        self._began_s = self._monotonic_s
        self._sent = 0

    @property
    def batch(self) -> int:
        """How many at a time, so that a second's share does not come all at once."""
        return BATCH if self._rate is None else max(1, min(BATCH, self._rate // 10))

    def sent(self, count: int) -> None:
        """Wait until the next may go."""
        if self._rate is None or count == 0:
            return
        self._sent += count
        ahead_s = self._began_s + self._sent / self._rate - self._monotonic_s
        if ahead_s > 0:
            self._wait(ahead_s)
        elif ahead_s < -1:  # what was missed, by a filter or a broker that was away, is not made up for
            self._began_s = self._monotonic_s - self._sent / self._rate

    @property
    def _monotonic_s(self) -> float:
        return self._clock.monotonic_ms() / 1000


class InHand(NamedTuple):
    """A transaction whose commit has begun."""

    items: Sequence[Item]
    producer: Producer
    commit: Future[None]


class Redrive:
    """One redrive of one dead-letter topic.

    Args:
        topic: the dead-letter topic.
        redriven: what the ledger tells.
        producers: two transactional ones that take turns, because a transaction begun right after a commit of the same
            producer waits for its markers; none for a dry run.
        failures: where the producers' delivery callback puts what failed.
        make_parked: makes the topic for what is parked, where it is missing; tells, in words, why it cannot be used.
        executor: runs the commits.
    """

    def __init__(
        self,
        planner: Planner,
        chosen: Filter,
        topic: str,
        *,
        redriven: Mapping[Place, Offsets],
        ledger: Ledger,
        producers: Sequence[Producer],
        failures: list[KafkaError],
        make_parked: Callable[[], str | None],
        executor: Executor,
        pace: Pace,
        clock: Clock,
    ) -> None:
        self._plan = planner.plan
        self._chosen = chosen
        self._takes_all = chosen == Filter()
        self._topic = topic
        self._redriven = {partition: offsets for (_, partition), offsets in redriven.items()}
        self._ledger = ledger
        self._producers = producers
        self._failures = failures
        self._make_parked = make_parked
        self._executor = executor
        self._pace = pace
        self._clock = clock
        self._turn = 0
        self._attempts = 0
        self._in_hand: InHand | None = None
        self._has_parked = False
        """Whether there is any among what is planned and not yet sent."""
        self.report = Redriven()

    def run(self, messages: Sequence[Message]) -> None:
        """Move a batch of letters; its commit goes on while the next batch is read."""
        items = [self._item(message) for message in messages]
        if not self._producers:
            self._count(items)
            return
        if self._has_parked:
            self._has_parked = False
            refusal = self._make_parked()
            if refusal is not None:
                items = self._with_none_parked(items, refusal)
        self.settle()
        self._send(items)

    def settle(self) -> None:
        """Wait for the commit in hand, and try again what was aborted."""
        in_hand, self._in_hand = self._in_hand, None
        if in_hand is None:
            return
        try:
            in_hand.commit.result()
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
        else:
            self._attempts = 0
            self._pace.sent(self._count(in_hand.items))
            return
        self._send_again(in_hand.items, in_hand.producer, error)  # outside of the handler, as in `_produce`

    def _item(self, message: Message) -> Item:
        if self._redriven and (message.offset() or 0) in self._redriven.get(message.partition() or 0, _NO_OFFSETS):
            self.report.done_before += 1
            return message, None, True
        try:
            headers: Any = message.headers() or []
        except HEADER_ERRORS:
            self.report.stayed[_UNREADABLE] += 1
            return message, None, False
        if not self._takes_all and not self._chosen.matches(message.timestamp()[1], message.key(), headers):
            self.report.filtered_out += 1
            return message, None, False
        move = self._plan(headers)
        if isinstance(move, str):
            self.report.stayed[move] += 1
            return message, None, False
        if move.is_parked:
            self._has_parked = True
        return message, move, False

    def _with_none_parked(self, items: Sequence[Item], reason: str) -> list[Item]:
        """What was to be parked stays."""
        kept: list[Item] = []
        for message, move, is_done in items:
            if move is not None and move.is_parked:
                self.report.stayed[f"it is to be parked, and {reason}"] += 1
                kept.append((message, None, is_done))
            else:
                kept.append((message, move, is_done))
        return kept

    def _count(self, items: Sequence[Item]) -> int:
        """Tell of what has been sent; how many those are."""
        sent = _moves(items)
        moved = [move.topic for _, move, _ in items if move is not None and not move.is_parked]
        self.report.moved.update(moved)
        self.report.parked += sent - len(moved)
        return sent

    # --- a transaction ------------------------------------------------------------------------------------------------

    def _send(self, items: Sequence[Item]) -> None:
        """Begin a transaction, and its commit."""
        if not any(move for _, move, _ in items):
            return
        producer = self._producers[self._turn % len(self._producers)]
        self._turn += 1
        self._failures.clear()
        try:
            producer.begin_transaction()
            self._produce(producer, items)
            # Those reports that are here already: in the commit's thread each of them asks for the interpreter.
            producer.poll(0)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
        except BaseException:  # a Ctrl-C: readers of the destinations are not to wait for the time-out
            with suppress(KafkaException):
                producer.abort_transaction(_CALL_TIMEOUT_S)
            raise
        else:
            commit = self._executor.submit(until_answered, producer.commit_transaction)
            self._in_hand = InHand(items, producer, commit)
            return
        self._send_again(items, producer, error)

    def _produce(self, producer: Producer, items: Sequence[Item]) -> None:
        """The messages, and what is noted of them."""
        produce = producer.produce
        for message, move, _ in items:
            if move is None:
                continue
            try:
                # No keywords, here where it is done for each: they cost 0.14 µs.
                produce(move.topic, message.value(), message.key(), move.partition, None, None, 0, move.headers)  # type: ignore[arg-type]
            except BufferError:
                pass
            else:
                continue
            # Outside of the handler, as in `ScheduledProducer.begin_send`.
            _produce_patiently(producer, move.topic, message.value(), message.key(), move.partition, move.headers)
        for key, value in self._notes(items):
            _produce_patiently(producer, self._ledger.topic, value, key, 0, [])

    def _send_again(self, items: Sequence[Item], producer: Producer, error: KafkaError) -> None:
        """A transaction has failed: again, in halves where Kafka refuses one of its messages, or time was short."""
        refusals = self._abort(producer, error)
        if refusals and _moves(items) == 1:
            self.report.stayed[f"Kafka refuses it: {refusals[0].str()}"] += 1
            return
        if not refusals:
            self._attempts += 1
            if self._attempts > _ATTEMPTS:
                raise NotAnsweredError(f"{error.str()}; run it again, and it goes on where it stopped")
        was_late = error.code() in _LATE or any(failure.code() in _LATE for failure in self._failures)
        middle = len(items) // 2 if refusals or (was_late and _moves(items) > 1) else len(items)
        for part in (items[:middle], items[middle:]):
            self._send(part)
            self.settle()

    def _notes(self, items: Sequence[Item]) -> list[tuple[bytes, bytes]]:
        """The ledger's records of a transaction."""
        by_partition: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        for message, move, is_done in items:
            by_partition[message.partition() or 0].append((message.offset() or 0, move is not None or is_done))
        now_ms = self._clock.now_ms()
        entries = [
            self._ledger.entry((self._topic, partition), ranges, now_ms)
            for partition, offsets in by_partition.items()
            if (ranges := runs(offsets))
        ]
        return [(entry.key, entry.encode()) for entry in entries]

    def _abort(self, producer: Producer, error: KafkaError) -> list[KafkaError]:
        """Make sure that nothing of the transaction becomes visible; what Kafka has against its messages.

        Raises:
            DeadLettersError: there is no telling, or no going on. The ledger knows what was committed.
        """
        if not error.fatal():
            try:
                until_answered(producer.abort_transaction)
            except KafkaException as exception:
                if error.code() in REFUSALS and exception.args[0].code() == KafkaError.INVALID_TXN_STATE:
                    # Kafka knows of no such transaction: it has refused every topic of it.
                    raise RefusedError(
                        f"Kafka refuses what is written ({error.str()}); fix that and run it again, and it goes on "
                        "where it stopped"
                    ) from exception
                error = exception.args[0]
            else:
                producer.poll(0)  # the reports are complete only now
                refusals = [failure for failure in self._failures if failure.code() in REFUSALS]
                return [error] if error.code() in REFUSALS and not refusals else refusals
        if error.fatal():
            raise TakenOverError(
                f"this redrive cannot go on ({error.str()}): another of the same group has begun, or a broker was "
                "restarted; run it again, and it goes on where it stopped"
            )
        raise NotAnsweredError(f"{error.str()}; run it again, and it goes on where it stopped")


def _produce_patiently(
    producer: Producer, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: Any
) -> None:
    """Produce one, when the client's queue has room for it."""
    while True:
        try:
            producer.produce(topic, value, key, partition, headers=headers)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _moves(items: Sequence[Item]) -> int:
    return sum([move is not None for _, move, _ in items])
