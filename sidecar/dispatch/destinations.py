"""Whether a destination can be delivered to, judged when a record is due.

Metadata is asked for through a client that never makes the broker create a topic. A topic that exists is believed for a
while; one that does not is asked for again with every batch, because it may have been created meanwhile. However many
topics a batch names, Kafka is asked once: nobody else's records wait for a thousand answers.
"""

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import NamedTuple, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException

from connectors.contract import ErrorCode, TopicKind, TopicNames, is_internal_topic
from sidecar.clock import Clock
from sidecar.records import Rejection

KNOWN_FOR_MS = 10_000
UNKNOWN_FOR_MS = 100
UNANSWERED_FOR_MS = 30_000
"""How long a topic that Kafka did not create in time is not asked for again: each attempt takes a second."""
UNSHOWN_FOR_MS = 2_000
"""The same of one that it has created, but does not show yet."""
CREATES_FOR_MS = 2_000
"""How long topics are created for in a row: the transaction that they are for is open meanwhile, all others wait."""

_KNOWN_MAX = 10_000

T = TypeVar("T")

_NO_ANSWER = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""What Kafka says where it has no verdict on a topic that it is asked to create: such an answer bears no flag for
that."""


class DestinationPolicy(Protocol):
    """The settings that govern destinations."""

    create_destinations: bool
    max_group_topics: int

    def is_topic_allowed(self, topic: str) -> bool: ...

    def is_topic_denied(self, topic: str) -> bool: ...

    def is_group_allowed(self, group: str) -> bool: ...


class Unanswered(NamedTuple):
    """A topic that is still to be created."""

    until_ms: float
    """Kafka is not asked to before."""
    error: KafkaError
    asked_ms: float = -inf
    """When it was last asked to, if ever."""


class Destinations:
    """Verdicts on destination topics: a partition count, or a rejection.

    Args:
        count_partitions: asks Kafka; 0 where there is no such topic. Raises KafkaException when Kafka does not answer.
        create_topic: creates a topic and tells how many partitions it has; used for retry and dead-letter topics, and
            for others where the policy says so.
        count_group_topics: how many retry and dead-letter topics there are in the cluster.
    """

    def __init__(
        self,
        names: TopicNames,
        policy: DestinationPolicy,
        clock: Clock,
        count_partitions: Callable[[Collection[str]], Mapping[str, int]],
        create_topic: Callable[[str], int],
        count_group_topics: Callable[[], int],
    ) -> None:
        self._names = names
        self._policy = policy
        self._clock = clock
        self._count_partitions = count_partitions
        self._create_topic = create_topic
        self._count_group_topics = count_group_topics
        self.changed: set[str] = set()
        """Topics that have more partitions than before, or fewer: whoever produces to them may not have heard of it."""
        self._counted: dict[str, int] = {}
        self._verdicts: dict[str, tuple[float, int | Rejection]] = {}
        self._refusing: dict[str, tuple[float, Rejection]] = {}
        self._refusing_keyless: dict[str, tuple[float, Rejection]] = {}
        self._unanswered: dict[str, Unanswered] = {}

    def judge(self, topic: str, *, fresh: bool = False) -> int | Rejection:
        """How many partitions the topic has, or why nothing can be delivered to it.

        Args:
            fresh: ask Kafka, whatever is known.

        Raises:
            KafkaException: Kafka does not answer; no verdict.
        """
        verdicts = self.judge_all([topic], fresh=fresh)
        if topic not in verdicts:
            raise self.silence(topic)
        return verdicts[topic]

    def silence(self, topic: str) -> KafkaException:
        """Why `judge_all` has left a topic out."""
        return KafkaException(self._unanswered[topic].error)

    def judge_all(self, topics: Collection[str], *, fresh: bool = False) -> dict[str, int | Rejection]:
        """As `judge`, for many topics with one question to Kafka; without those that it does not create in time."""
        verdicts: dict[str, int | Rejection] = {}
        allowed: list[str] = []
        for topic in topics:
            verdict = (None if fresh else self.known(topic)) or self._forbidden(topic)
            if verdict is None:
                allowed.append(topic)
            else:
                verdicts[topic] = verdict
        if allowed:
            found = self._find_all(allowed)
            self._remember(found)
            verdicts |= found
        return verdicts

    def known(self, topic: str) -> int | Rejection | None:
        """The verdict, if Kafka has been asked not long ago."""
        return self._current(self._refusing, topic) or self._current(self._verdicts, topic)

    @property
    def unanswered(self) -> dict[str, int]:
        """Topics that Kafka has not created in time; with when it is asked to again, in ms from now."""
        now_ms = self._clock.monotonic_ms()
        waits_ms = {topic: int(one.until_ms - now_ms) for topic, one in self._unanswered.items()}
        return {topic: wait_ms for topic, wait_ms in waits_ms.items() if wait_ms > 0}

    def _remember(self, found: Mapping[str, int | Rejection]) -> None:
        now_ms = self._clock.monotonic_ms()
        if len(self._verdicts) + len(found) > _KNOWN_MAX:
            self._verdicts.clear()
            self._counted.clear()
        for topic, verdict in found.items():
            if isinstance(verdict, int):
                if self._counted.get(topic, verdict) != verdict:
                    self.changed.add(topic)
                self._counted[topic] = verdict
            self._verdicts[topic] = (now_ms + (KNOWN_FOR_MS if isinstance(verdict, int) else UNKNOWN_FOR_MS), verdict)

    def forget(self) -> None:
        """Ask Kafka again for everything: a delivery failed in a way that fresh metadata may explain."""
        self._verdicts.clear()

    def refuses(self, topic: str, rejection: Rejection) -> None:
        """The topic takes nothing of ours, as a record has shown: for a while no other is sent to find that out."""
        self._refusing[topic] = self._clock.monotonic_ms() + KNOWN_FOR_MS, rejection

    def refuses_keyless(self, topic: str, rejection: Rejection) -> None:
        """The same of records without a key: it is compacted."""
        self._refusing_keyless[topic] = self._clock.monotonic_ms() + KNOWN_FOR_MS, rejection

    def known_of_keyless(self, topic: str) -> Rejection | None:
        """What a record without a key is to hear there, if Kafka has refused one not long ago."""
        return self._current(self._refusing_keyless, topic)

    def _current(self, kept: dict[str, tuple[float, T]], topic: str) -> T | None:
        """What is kept of a topic, until its time is over."""
        if topic not in kept:
            return None
        until_ms, found = kept[topic]
        if self._clock.monotonic_ms() < until_ms:
            return found
        del kept[topic]
        return None

    def _find_all(self, topics: Collection[str]) -> dict[str, int | Rejection]:
        partitions, unanswered = self._count_partitions(topics), self.unanswered
        for topic in topics:
            if partitions[topic]:
                self._unanswered.pop(topic, None)
        missing = [topic for topic in topics if not partitions[topic] and topic not in unanswered]
        group_topics = self._count_group_topics() if any(map(self._names.is_group_topic, missing)) else 0
        found: dict[str, int | Rejection] = {topic: count for topic, count in partitions.items() if count}
        over_ms = self._clock.monotonic_ms() + CREATES_FOR_MS
        silence: Unanswered | None = None
        for topic in sorted(missing, key=self._asked_ms):
            verdict: int | Rejection | None = self._not_to_be_created(topic, group_topics)
            if verdict is None and (silence or self._clock.monotonic_ms() >= over_ms):
                self._put_off(topic, silence)
                continue
            verdict = verdict or self._create(topic)
            if verdict is None:
                silence = self._unanswered[topic]
                continue
            found[topic] = verdict
            group_topics += isinstance(verdict, int) and self._names.is_group_topic(topic)
        return found

    def _asked_ms(self, topic: str) -> float:
        return self._unanswered[topic].asked_ms if topic in self._unanswered else -inf

    def _put_off(self, topic: str, silence: Unanswered | None) -> None:
        """Kafka does not answer just now, or there is no more time."""
        until_ms = silence.until_ms if silence else self._clock.monotonic_ms() + UNSHOWN_FOR_MS
        error = silence.error if silence else KafkaError(KafkaError._TIMED_OUT, "others are created before it")
        self._leave_out(topic, Unanswered(until_ms, error, self._asked_ms(topic)))

    def _leave_out(self, topic: str, unanswered: Unanswered) -> None:
        if len(self._unanswered) >= _KNOWN_MAX:
            self._unanswered.clear()
        self._unanswered[topic] = unanswered

    def _create(self, topic: str) -> int | Rejection | None:
        """None: Kafka has not answered in time, or does not show what it has created."""
        wait_ms = UNANSWERED_FOR_MS
        try:
            partitions = self._create_topic(topic)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if not (error.retriable() or error.code() in _NO_ANSWER):
                return Rejection(
                    ErrorCode.DESTINATION_REFUSED,
                    f"'{topic}' cannot be created: {error.str()}{self._remedy(topic, error)}",
                )
        else:
            if partitions:
                return partitions
            error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"'{topic}' has been created, and is not shown yet")
            wait_ms = UNSHOWN_FOR_MS
        now_ms = self._clock.monotonic_ms()
        self._leave_out(topic, Unanswered(now_ms + wait_ms, error, now_ms))
        return None

    def _remedy(self, topic: str, error: KafkaError) -> str:
        if error.code() != KafkaError.TOPIC_EXCEPTION or "collides" not in error.str():
            return ""
        group = self._names.group_of(topic)
        other = "another name" if group is None else f"another id for group '{group}'"
        return f"; Kafka takes '.' and '_' for the same in names of topics, so choose {other}"

    def _not_to_be_created(self, topic: str, group_topics: int) -> Rejection | None:
        most = self._policy.max_group_topics
        if self._names.is_group_topic(topic):
            if group_topics >= most:
                return Rejection(
                    ErrorCode.TOO_MANY_GROUP_TOPICS,
                    f"there is no topic '{topic}', and with {most} retry and dead-letter topics there are as many as "
                    "max_group_topics allows; raise it, or create the topic",
                )
        elif not self._policy.create_destinations:
            return Rejection(
                ErrorCode.UNKNOWN_DESTINATION,
                f"topic '{topic}' does not exist, or the sidecar has no right to it; create it, allow the sidecar to "
                "write to it, or set create_destinations",
            )
        return None

    def _forbidden(self, topic: str) -> Rejection | None:
        why = no_destination(self._names, self._policy, topic)
        return None if why is None else Rejection(ErrorCode.DESTINATION_NOT_ALLOWED, why)


class Verdicts:
    """Verdicts on the destinations of one batch, none of which Kafka is asked for more than once, or once again.

    Args:
        topics: all of them, where Kafka has to be asked.
    """

    def __init__(self, destinations: Destinations, topics: Callable[[], Collection[str]]) -> None:
        self._destinations = destinations
        self._topics = topics
        self._found: dict[str, int | Rejection] = {}
        self._found_again: set[str] = set()

    def of(self, topic: str) -> int | Rejection:
        """See `Destinations.judge`."""
        if topic not in self._found:
            known = self._destinations.known(topic)
            self._found |= self._destinations.judge_all(self._topics()) if known is None else {topic: known}
        if topic not in self._found:
            raise self._destinations.silence(topic)
        return self._found[topic]

    def again(self, topic: str) -> int | Rejection:
        """What Kafka says of it now."""
        if topic not in self._found_again:
            self._found[topic] = self._destinations.judge(topic, fresh=True)
            self._found_again.add(topic)
        return self._found[topic]


def no_destination(names: TopicNames, policy: DestinationPolicy, topic: str) -> str | None:
    """Why, in words, no message may be scheduled for a topic."""
    if is_internal_topic(topic):
        return f"'{topic}' is one of Kafka's internal topics"
    if not names.is_destination(topic):
        return f"'{topic}' is a schedule topic; name the topic to deliver to"
    return not_allowed(names, policy, topic)


def not_allowed(names: TopicNames, policy: DestinationPolicy, topic: str) -> str | None:
    """Why, in words, the settings keep a topic from being written to; schedule topics are none of theirs."""
    if names.is_group_topic(topic):
        group = names.group_of(topic) or ""
        if not policy.is_group_allowed(group):
            return f"group '{group}' is not among allowed_groups of this sidecar"
        if policy.is_topic_denied(topic):
            return f"'{topic}' is among denied_topics of this sidecar"
    elif names.kind(topic) is TopicKind.OTHER and not policy.is_topic_allowed(topic):
        return f"'{topic}' is not among allowed_topics of this sidecar, or is among denied_topics"
    return None


def unknown_partition(topic: str, partition: int, partitions: int) -> Rejection:
    return Rejection(
        ErrorCode.UNKNOWN_DESTINATION,
        f"REAL_QID is {partition}, but '{topic}' has {partitions} partitions (0 to {partitions - 1})",
    )
