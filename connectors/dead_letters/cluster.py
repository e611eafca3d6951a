"""What reading and redriving ask of Kafka."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, OffsetSpec, TopicDescription
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_fixed

from connectors.clients import Clients
from connectors.clock import Deadline
from connectors.contract import Place
from connectors.dead_letters.errors import DamagedError, DeadLettersError, NotAnsweredError, RefusedError
from connectors.kafka import UNPOLLED, common_config, consumer_config, transactional_config
from connectors.kafka_errors import DAMAGED, HOW_TO_MEND, PASSING, is_about_group
from connectors.until_answered import until_answered

_TIMEOUT_S = 10.0
_SILENCE_S = 30.0
"""How long a scan waits for Kafka's next word; whoever asked may ask again."""
_SETTLED_POLL_S = 0.05
_TRANSACTION_TIMEOUT_MS = 10_000
_NAME = "timewheel-dead-letters"
_NO_SUCH_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

_SAYS_NOTHING = (KafkaError._PARTITION_EOF, *DAMAGED)

Ranges = dict[Place, tuple[int, int]]
"""The first offset, and the one behind the last."""


class Damage(NamedTuple):
    """Where a partition cannot be read any further, and how that is told."""

    offset: int
    words: str


class Cluster:
    """Topics, logs and transactions.

    Args:
        config: librdkafka's.
        replication_factor: of topics that are made; -1: the brokers' default.

    Every method raises NotAnsweredError where Kafka does not answer, and RefusedError where a right is missing.
    """

    def __init__(self, config: Mapping[str, Any], clients: Clients, replication_factor: int = -1) -> None:
        options = {name: value for name, value in config.items() if name != "bootstrap.servers"}
        self._options = options
        self._servers = str(config.get("bootstrap.servers", ""))
        self._clients = clients
        self._replication_factor = replication_factor
        self._admin: AdminClient | None = self._make_admin()

    def _make_admin(self) -> AdminClient:
        """One that keeps nothing for whoever would poll it, while brokers are away: nobody does."""
        config = common_config(self._servers, {**UNPOLLED, **self._options}, _NAME)
        admin: AdminClient = self._clients.admin({**config, "log_level": 0})
        return admin

    @contextmanager
    def _asked(self) -> Iterator[AdminClient]:
        """The admin client. Where Kafka does not answer it, another is asked next time: it may look in a wrong place.

        Raises:
            NotAnsweredError: for what Kafka, or its client, has against a call.
        """
        admin = self._admin
        if admin is None:  # not falsy, as one is that has no events
            admin = self._admin = self._make_admin()
        try:
            with answered():
                yield admin
        except NotAnsweredError:
            self._admin = None
            raise

    def topics(self) -> dict[str, int]:
        """Every topic, with the number of its partitions."""
        with self._asked() as admin:
            topics = admin.list_topics(timeout=_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def count_partitions(self, topic: str) -> int:
        """0 where there is no such topic; asking never makes a broker create it."""
        description = self._describe([topic]).get(topic)
        return 0 if description is None else len(description.partitions)

    def writable(self, topic: str) -> int | str:
        """How many partitions a topic has, 0 where there is none, or, in words, why it may not be written to.

        Asked before a transaction names the topic: one whose every topic is refused takes its producer along.
        """
        not_allowed = f"'{topic}' may not be written to: allow this client to (ACL Write)"
        with self._asked() as admin:
            asked = admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True, request_timeout=_TIMEOUT_S
            )
            try:
                description = asked[topic].result()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.code() in _NO_SUCH_TOPIC:
                    return 0
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    return not_allowed
                raise
        allowed = description.authorized_operations  # none: this broker does not tell
        return not_allowed if allowed and AclOperation.WRITE not in allowed else len(description.partitions)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of the topics that exist: a topic that is made anew has another id."""
        return {topic: str(description.topic_id) for topic, description in self._describe(topics).items()}

    def _describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        described = {}
        with self._asked() as admin:
            asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_TIMEOUT_S)
            for topic, future in asked.items():
                try:
                    described[topic] = future.result()
                except KafkaException as error:
                    if error.args[0].code() not in _NO_SUCH_TOPIC:
                        raise _failure(error.args[0], f"read {topic}") from error
        return described

    def create(self, topic: str, configs: Mapping[str, str]) -> None:
        """Create a topic of one partition, unless it is there.

        Raises:
            RefusedError: Kafka will not have it.
        """
        if self.count_partitions(topic):
            return
        new = NewTopic(topic, num_partitions=1, replication_factor=self._replication_factor, config=dict(configs))
        with self._asked() as admin:
            try:
                asked = admin.create_topics([new], operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
                asked[topic].result()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    refused = NotAnsweredError if error.code() in PASSING else RefusedError
                    raise refused(f"'{topic}' cannot be created: {error.str()}") from exception

    def ends(self, topics: Sequence[str]) -> Ranges:
        """The log of each partition of the topics that there are, up to what is committed by now."""
        return self._ranges(self._places(topics))

    def settled_ends(self, topics: Sequence[str], within_s: float) -> Ranges:
        """As `ends`, once every transaction that is open now has ended: what is committed behind one is seen after it.

        Raises:
            NotAnsweredError: one stays open for so long; Kafka aborts those of a process that was killed by itself.
        """
        places = self._places(topics)
        with self._asked() as admin:
            written = _offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)()

        def held_up(ranges: Ranges) -> list[Place]:
            return [place for place, (_, end) in ranges.items() if end < written[place]]

        def give_up(state: RetryCallState) -> Ranges:
            assert state.outcome is not None
            topic, partition = held_up(state.outcome.result())[0]
            raise NotAnsweredError(f"a transaction on {topic}-{partition} stays open; try again in a minute")

        patience = Retrying(
            retry=retry_if_result(lambda ranges: bool(held_up(ranges))),
            wait=wait_fixed(_SETTLED_POLL_S),
            stop=stop_after_delay(within_s),
            retry_error_callback=give_up,
        )
        return patience(self._ranges, places)

    def first_since(self, place: Place, since_ms: int) -> int | None:
        """The offset of the first record stamped then or later; None: there is none."""
        with self._asked() as admin:
            offset = _offsets(admin, [TopicPartition(*place)], OffsetSpec.for_timestamp(max(0, since_ms)))()[place]
        return None if offset < 0 else offset

    def _places(self, topics: Sequence[str]) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition.id)
            for topic, description in self._describe(topics).items()
            for partition in description.partitions
        ]

    def _ranges(self, places: Sequence[TopicPartition]) -> Ranges:
        with self._asked() as admin:
            asked = [_offsets(admin, places, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
            firsts, ends = (answer() for answer in asked)
        return {place: (firsts[place], ends[place]) for place in firsts}

    @contextmanager
    def scan(
        self, ranges: Ranges, batch: Callable[[], int], given_up: dict[Place, Damage] | None = None
    ) -> Iterator[Iterator[list[Message]]]:
        """Committed records between offsets, a batch at a time, in offset order in each partition.

        Args:
            batch: the most records of the next batch.
            given_up: for partitions that are read no further, because what follows is damaged; without it that raises
                DamagedError.
        """
        left = {place: end for place, (begin, end) in ranges.items() if begin < end}
        if not left:
            yield iter(())
            return
        of_leaders = {**self._options, "client.rack": ""}  # they need not be waited for
        consumer = self._clients.consumer(
            consumer_config(self._servers, of_leaders, group_id=_NAME, instance_id=None, session_timeout_ms=45_000)
        )
        try:
            consumer.assign([TopicPartition(*place, ranges[place][0]) for place in left])
            yield self._batches(consumer, left, batch, given_up)
        except KafkaException as error:
            raise NotAnsweredError(error.args[0].str()) from error
        finally:
            consumer.close()

    def _batches(
        self,
        consumer: Consumer,
        left: dict[Place, int],
        batch: Callable[[], int],
        given_up: dict[Place, Damage] | None,
    ) -> Iterator[list[Message]]:
        is_one = len(left) == 1
        while left:
            silence = Deadline(self._clients.clock, _SILENCE_S)
            while not (told := _consume(consumer, batch())):
                if silence.left_s == 0:
                    topic, partition = next(iter(left))
                    raise NotAnsweredError(f"nothing of {topic}-{partition} has come for {_SILENCE_S:.0f} s")
            messages = told if is_one and _is_below(told, *left.values()) else _committed(told, left, given_up)
            if messages:
                yield messages

    def producer(self, transactional_id: str, on_delivery: Callable[[KafkaError | None, Message], None]) -> Producer:
        """A transactional producer; whoever had this id before is fenced, and what it left open is aborted."""
        config = transactional_config(
            self._servers,
            self._options,
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )
        producer: Producer = self._clients.producer({**config, "on_delivery": on_delivery})
        with answered(f"write with the transactional id {transactional_id}"):
            until_answered(producer.init_transactions)
        return producer


def _offsets(
    admin: AdminClient,
    places: Sequence[TopicPartition],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> Callable[[], dict[Place, int]]:
    """Ask for one offset of each partition; what is returned waits for the answers."""
    if not places:
        return dict
    futures = admin.list_offsets(dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=_TIMEOUT_S)
    return lambda: {(place.topic, place.partition): futures[place].result().offset for place in places}


@contextmanager
def answered(what: str = "do so") -> Iterator[None]:
    """Raises NotAnsweredError for what Kafka, or its client, has against a call, RefusedError where a right is missing.

    Args:
        what: the right.
    """
    try:
        yield
    except KafkaException as error:
        raise _failure(error.args[0], what) from error


def _failure(error: KafkaError, what: str) -> DeadLettersError:
    if error.code() in _NOT_ALLOWED:
        return RefusedError(f"{error.str()}; allow this login to {what}")
    return NotAnsweredError(error.str())


def _consume(consumer: Consumer, most: int) -> list[Message]:
    messages = consumer.consume(most, 0)
    if messages:
        return messages
    first = consumer.poll(1.0)
    return [] if first is None else [first, *consumer.consume(max(0, most - 1), 0)]


def _is_below(messages: list[Message], end: int) -> bool:
    """Whether all of them, of one partition, are records below the last."""
    errors = [message.error() for message in messages]
    return not any(errors) and (messages[-1].offset() or 0) < end - 1


def _committed(messages: list[Message], left: dict[Place, int], given_up: dict[Place, Damage] | None) -> list[Message]:
    """The records below their partition's end; partitions that have reached it, or get no further, are taken off
    ``left``."""
    kept = []
    for message in messages:
        place = message.topic() or "", message.partition() or 0
        offset, end = message.offset() or 0, left.get(place, 0)
        error = message.error()
        if error is not None and error.code() in DAMAGED and place in left:
            damage = Damage(offset, f"{place[0]}-{place[1]} cannot be read from offset {offset} on: {error.str()}")
            if given_up is None:
                raise DamagedError(f"{damage.words}; {HOW_TO_MEND}")
            given_up[place] = damage
            left.pop(place)
        elif error is not None and error.code() not in _SAYS_NOTHING and not is_about_group(error):
            raise _failure(error, f"read {place[0]}")
        if error is None and offset < end:
            kept.append(message)
        # A replica that lags tells of an end before the one that was asked for.
        if offset >= (end - 1 if error is None else end):
            left.pop(place, None)
    return kept
