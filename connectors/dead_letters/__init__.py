"""Dead letters: count them, look at them, and send them where they belong.

    letters = DeadLetters({"bootstrap.servers": "localhost:9092"})
    letters.summaries()                                           # how many, of which groups, and why
    letters.browse("billing", Filter.parse(["reason=GIVEN_UP"]))
    letters.redrive("billing")                                    # each to the topic that it came from

**A letter is redriven once.** What has been redriven is noted in the same transactions (see `ledger`), so the same
redrive run twice moves nothing twice, and one that was killed goes on where it stopped; letters that a filter left out,
or that had no way out, are still there for the next. A message that fails again comes back as a new letter. `again`
moves letters although they have been redriven, for when they went to the wrong place.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from connectors.clients import Clients, KafkaClients
from connectors.clock import SystemClock
from connectors.contract import Place, TopicKind, TopicNames, is_legal_topic_name
from connectors.dead_letters.cluster import Cluster, Damage, Ranges
from connectors.dead_letters.errors import (
    DamagedError,
    DeadLettersError,
    NoSuchGroupError,
    NotAnsweredError,
    RefusedError,
    TakenOverError,
)
from connectors.dead_letters.ledger import Ledger
from connectors.dead_letters.letter import DeadLetter, Filter, FilterError, LetterCursor, Reason
from connectors.dead_letters.offsets import Offsets
from connectors.dead_letters.plan import Move, Planner
from connectors.dead_letters.redrive import BATCH, Pace, Redrive, Redriven
from connectors.kafka import HEADER_ERRORS

__all__ = [
    "DEFAULT_MAX_REDRIVES",
    "DamagedError",
    "DeadLetter",
    "DeadLetters",
    "DeadLettersError",
    "Filter",
    "FilterError",
    "LetterCursor",
    "Move",
    "NoSuchGroupError",
    "NotAnsweredError",
    "OnProgress",
    "Page",
    "Reason",
    "Redriven",
    "RefusedError",
    "Summary",
    "TakenOverError",
]

DEFAULT_MAX_REDRIVES = 3

OnProgress = Callable[[int, int], object]
"""Told how many offsets have been gone through, of how many."""

_NO_OFFSETS = Offsets()
_PARKED_MAX_BYTES = 2 * 1_048_588
"""Twice Kafka's default, as the sidecar gives the dead-letter topics that it makes."""


@dataclass
class Summary:
    """What a group's dead letters come to."""

    group: str
    topic: str
    total: int = 0
    redriven: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """How often each reason stands on a letter that has not been redriven."""

    @property
    def waiting(self) -> int:
        """How many have not been redriven."""
        return self.total - self.redriven

    def add(self, letter: DeadLetter) -> None:
        """Count a letter in."""
        self.total += 1
        if letter.is_redriven:
            self.redriven += 1
        else:
            self.reasons[letter.reason] += 1


class Page(NamedTuple):
    """Dead letters, and where the next page begins."""

    letters: list[DeadLetter]
    next: LetterCursor | None
    """For `browse`; None: that was the last page."""
    redriven: int = 0
    """How many have been left out because they have been redriven."""


def _one_thread() -> Executor:
    return ThreadPoolExecutor(1, "commit")


class DeadLetters:
    """The dead letters of every group.

    Args:
        config: librdkafka's.
        names: of the topics, for sidecars with a prefix or templates of their own.
        clients: where the Kafka clients come from; a `connectors.testing.InMemoryKafka` in tests.
        executor: what makes an executor for the blocking calls that nothing else has to wait for, one at a time.
        why_not: why, in words, a redrive may not write to a topic, for whoever has rules of its own; None: it may.
        replication_factor: of the topics that a redrive makes, for parked letters and for its ledger; -1: the brokers'.
        retention_ms: how long parked letters are kept.

    Groups are named by their id, or by their dead-letter topic. Every method raises NotAnsweredError where Kafka does
    not answer, RefusedError where a right is missing, and NoSuchGroupError for a group that has no dead-letter topic.
    Where a batch of letters is damaged on its broker, a redrive leaves it and what is behind it in its partition, and
    says so; what counts or shows letters raises DamagedError.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        names: TopicNames | None = None,
        clients: Clients | None = None,
        executor: Callable[[], Executor] = _one_thread,
        why_not: Callable[[str], str | None] = lambda _topic: None,
        replication_factor: int = -1,
        retention_ms: int = 30 * 86_400_000,
    ) -> None:
        self._names = names or TopicNames()
        self._cluster = Cluster(config, clients or KafkaClients(), replication_factor)
        self._retention_ms = retention_ms
        self._executor = executor
        self._why_not = why_not

    def group_of(self, name: str) -> str:
        """The group that is meant by its id or by the logical or physical name of its dead-letter topic."""
        topic = self._names.physical(name)
        if self._names.kind(topic) is TopicKind.DEAD_LETTER:
            return self._names.group_of(topic) or name
        return name

    def groups(self) -> list[str]:
        """The groups that have a dead-letter topic."""
        topics = [topic for topic in self._cluster.topics() if self._names.kind(topic) is TopicKind.DEAD_LETTER]
        return sorted(self._names.group_of(topic) or topic for topic in topics)

    def summaries(self, on_progress: OnProgress | None = None) -> list[Summary]:
        """The summary of every group, by name. Reads all letters."""
        return list(self._summarize(self.groups(), on_progress).values())

    def summary(self, group: str, on_progress: OnProgress | None = None) -> Summary:
        """The summary of one group. Reads all its letters."""
        topic = self._topic(group)
        return self._summarize([self.group_of(group)], on_progress)[topic]

    def topic_of(self, group: str) -> str:
        """The dead-letter topic of a group, whether it exists or not."""
        return self._names.dead_letter(self.group_of(group))

    def check(self, group: str, to: str | None = None) -> str:
        """The group that is meant. Raises what `redrive` would of it and of the destination."""
        self._checked(to, self._topic(group))
        return self.group_of(group)

    def spans(self) -> dict[str, int]:
        """How many offsets each group's dead letters take up: as many as there are letters, or a little more."""
        topics = {self._names.dead_letter(group): group for group in self.groups()}
        spans = dict.fromkeys(topics.values(), 0)
        for (topic, _), (begin, end) in self._cluster.ends(list(topics)).items():
            spans[topics[topic]] += end - begin
        return spans

    def browse(
        self,
        group: str,
        chosen: Filter | None = None,
        *,
        limit: int = 20,
        after: tuple[int, int] | None = None,
        with_redriven: bool = False,
        look_at: int | None = None,
        max_bytes: int | None = None,
    ) -> Page:
        """Dead letters, the oldest of each partition first, a partition after the other.

        Args:
            after: where the page begins, as the one before told.
            with_redriven: also those that have been redriven.
            look_at: end the page, full or not, after so many letters that are not on it.
            max_bytes: end it before their keys, values and headers are more than this; one letter is always on it.
        """
        topic = self._topic(group)
        redriven = self._ledger([topic]).read()
        letters: list[DeadLetter] = []
        passed = size_bytes = redriven_count = 0
        for place, (begin, end) in sorted(self._cluster.ends([topic]).items()):
            partition = place[1]
            if after is not None and partition <= after[0]:
                begin = end if partition < after[0] else max(begin, after[1])
            with self._cluster.scan({place: (begin, end)}, lambda: BATCH) as batches:
                for message in chain.from_iterable(batches):
                    letter = _letter(message, redriven)
                    is_meant = chosen is None or chosen.matches(letter.timestamp_ms, letter.key, letter.headers)
                    if not is_meant or (letter.is_redriven and not with_redriven):
                        passed += 1
                        redriven_count += is_meant
                        if passed == look_at:
                            return Page(letters, LetterCursor(partition, letter.offset + 1), redriven_count)
                        continue
                    size_bytes += letter.size_bytes
                    is_full = max_bytes is not None and size_bytes > max_bytes and bool(letters)
                    if is_full or len(letters) == limit:
                        return Page(letters, LetterCursor(partition, letter.offset), redriven_count)
                    letters.append(letter)
        return Page(letters, None, redriven_count)

    def redrive(
        self,
        group: str,
        chosen: Filter | None = None,
        *,
        to: str | None = None,
        rate: int | None = None,
        max_redrives: int = DEFAULT_MAX_REDRIVES,
        again: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> Redriven:
        """Send dead letters where they belong: a consumer's to the topic that it first came from, a rejected one to its
        ``REAL_TOPIC``.

        Args:
            chosen: which; all of them by default.
            to: another destination. A consumer's message sent to ``RETRY-<group>`` is seen by that group alone; with a
                schedule topic the sidecar deals with it anew.
            rate: messages a second, at most.
            max_redrives: a message that has been redriven so often is parked: it becomes a dead letter of the group
                ``<group>.parked``; or it stays, where that name is too long for Kafka.
            again: also those that have been redriven.
            dry_run: move nothing; tell what would be done.

        Raises:
            DeadLettersError: there is no such destination, or it may not be written to; or another redrive of this
                group has begun meanwhile.
            ValueError: the rate is below 1.
        """
        if rate is not None and rate < 1:
            raise ValueError(f"rate is {rate}; give a whole number of messages a second, 1 or more, or None")
        topic = self._topic(group)
        parked = self._parked(self.group_of(group))
        planner = Planner(
            self._names,
            topic,
            to=self._checked(to, topic),
            parked=parked,
            max_redrives=max_redrives,
            look_up=self._destination,
        )
        ledger = self._ledger([topic])
        failures: list[KafkaError] = []
        producers = [] if dry_run else self._producers(topic, ledger, failures)
        clock = SystemClock()
        pace = Pace(rate, wait, clock)
        with self._executor() as executor:
            redrive = Redrive(
                planner,
                chosen or Filter(),
                topic,
                redriven={} if again else ledger.read(is_settled=True),
                ledger=ledger,
                producers=producers,
                failures=failures,
                make_parked=lambda: self._make_parked(parked or ""),
                executor=executor,
                pace=pace,
                clock=clock,
            )
            ends = self._cluster.ends([topic])
            progress = _Progress(on_progress, ends)
            given_up: dict[Place, Damage] = {}
            with self._cluster.scan(ends, lambda: pace.batch, given_up) as batches:
                for messages in batches:
                    redrive.run(messages)
                    progress.add(len(messages))
            redrive.settle()
            for place, (offset, words) in given_up.items():
                redrive.report.stayed[words] += ends[place][1] - offset
            progress.end()
        return redrive.report

    def _producers(self, topic: str, ledger: Ledger, failures: list[KafkaError]) -> list[Producer]:
        """Two that take turns; from here on nobody else adds to what the ledger tells of this topic."""

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        ledger.create()
        return [self._cluster.producer(f"timewheel-redrive-{topic}-{turn}", on_delivery) for turn in (0, 1)]

    # --- topics -------------------------------------------------------------------------------------------------------

    def _topic(self, group: str) -> str:
        topic = self._names.dead_letter(self.group_of(group))
        if self._cluster.count_partitions(topic) == 0:
            raise NoSuchGroupError(f"group '{group}' has no dead letters: there is no topic '{topic}'")
        return topic

    def _parked(self, group: str) -> str | None:
        """The topic for what has been redriven too often; None: it is parked already, or has too long a name."""
        topic = self._names.dead_letter(self._names.parked_group(group))
        return None if self._names.is_parked_group(group) or not is_legal_topic_name(topic) else topic

    def _make_parked(self, topic: str) -> str | None:
        """Make that topic, where it is missing; why nothing can be parked, in words."""
        found = self._cluster.writable(topic)
        if found == 0:
            try:
                self._cluster.create(
                    topic,
                    {
                        "cleanup.policy": "delete",
                        "retention.ms": str(self._retention_ms),
                        "retention.bytes": "-1",
                        "max.message.bytes": str(_PARKED_MAX_BYTES),
                    },
                )
            except RefusedError as error:
                return str(error)
        return found if isinstance(found, str) else None

    def _destination(self, topic: str) -> int | str:
        """How many partitions a topic has, or, in words, why nothing may go there."""
        if self._names.is_reserved(topic):
            return f"'{topic}' is not a topic for messages: Kafka or the sidecar keeps its own records there"
        return self._why_not(topic) or self._cluster.writable(topic) or f"there is no topic '{topic}'; create it first"

    def _ledger(self, topics: Sequence[str]) -> Ledger:
        return Ledger(self._cluster, self._names.redriven, topics)

    def _checked(self, to: str | None, topic: str) -> str | None:
        if to is None:
            return None
        destination = self._names.physical(to)
        if destination == topic:
            raise DeadLettersError(f"'{destination}' is where these dead letters are already")
        if not is_legal_topic_name(destination):
            raise DeadLettersError(f"'{to}' is not a valid topic name")
        found = self._destination(destination)
        if isinstance(found, str):
            raise DeadLettersError(found)
        return destination

    def _summarize(self, groups: Sequence[str], on_progress: OnProgress | None) -> dict[str, Summary]:
        """By topic."""
        summaries = {topic: Summary(group, topic) for group in groups for topic in [self._names.dead_letter(group)]}
        redriven = self._ledger(list(summaries)).read()
        ends = self._cluster.ends(list(summaries))
        progress = _Progress(on_progress, ends)
        with self._cluster.scan(ends, lambda: BATCH) as batches:
            for messages in batches:
                for message in messages:
                    summaries[message.topic() or ""].add(_letter(message, redriven))
                progress.add(len(messages))
        progress.end()
        return summaries


class _Progress:
    """Counts offsets for whoever watches."""

    def __init__(self, told: OnProgress | None, ends: Ranges) -> None:
        self._told = told
        self._total = sum(end - begin for begin, end in ends.values())
        self._done = 0
        self.add(0)

    def add(self, count: int) -> None:
        self._done += count
        if self._told is not None:
            self._told(self._done, self._total)

    def end(self) -> None:
        """All is done: offsets that hold no record, too."""
        self.add(self._total - self._done)


def _letter(message: Message, redriven: Mapping[Place, Offsets]) -> DeadLetter:
    try:
        headers: Any = message.headers() or []
    except HEADER_ERRORS:
        headers = []
    partition, offset = message.partition() or 0, message.offset() or 0
    done = redriven.get((message.topic() or "", partition), _NO_OFFSETS)
    return DeadLetter(
        partition, offset, message.timestamp()[1], message.key(), message.value(), headers, offset in done
    )
