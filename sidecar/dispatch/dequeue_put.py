"""RIP-43's DequeuePut: due records go out, those that cannot go out become dead letters, in the same transaction."""

from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from confluent_kafka import KafkaError, KafkaException

from connectors.header_names import TIMER_DEQUEUE_MS
from connectors.kafka_errors import is_fatal
from sidecar.dispatch.dead_letters import Size, dead_letter, too_large
from sidecar.dispatch.destinations import Destinations, Verdicts, unknown_partition
from sidecar.dispatch.transactions import Publishing, TransactionAbortedError, lost_in
from sidecar.errors import ClientsLostError
from sidecar.records import DUE_MS, HEADERS, KEY, OFFSET, SOURCE_HEADERS, TOPIC, Outgoing, Rejection, brought_by
from sidecar.source import Draft, Source

Coordinates = tuple[str, int, int]
"""Topic, partition and offset of a record on its schedule topic."""


class DequeuePut:
    """Produces drafts into the open transaction.

    Args:
        onward: by schedule topic, those that its records may go on to, where no producer may send them.
        trace: whether delivered records say when they were published.
    """

    def __init__(
        self,
        destinations: Destinations,
        dead_letter_topic: str,
        onward: Mapping[str, Iterable[str]] | None = None,
        *,
        trace: bool = False,
    ) -> None:
        self._destinations = destinations
        self._dead_letter_topic = dead_letter_topic
        self._onward = {source: frozenset(topics) for source, topics in (onward or {}).items()}
        self._trace = trace
        self._refused: WeakKeyDictionary[Source, dict[Coordinates, Rejection]] = WeakKeyDictionary()
        self._letter_size: dict[Coordinates, Size] = {}
        self.rejections: dict[Coordinates, Rejection] = {}
        """What the transaction in hand, or the one before it until the next, turned into dead letters."""

    def refuse(self, source: Source, record: Outgoing, rejection: Rejection) -> None:
        """Kafka has refused this very record: the next time it goes to the dead letters, and then a smaller one.

        Where it was a dead letter already, that has been refused: it gets smaller, and keeps its own reason.
        """
        coordinates = coordinates_of(source, record)
        refused = self._refused.get(source, {})
        if coordinates in refused or coordinates in self.rejections or isinstance(record[TOPIC], Rejection):
            self._letter_size[coordinates] = self._letter_size.get(coordinates, Size.WHOLE).smaller()
        else:
            self._refused[source] = {**refused, coordinates: rejection}

    def forget(self, source: Source) -> None:
        """None of its records is to be refused unasked any more: what was may have been cancelled since."""
        self._refused.pop(source, None)

    def is_smallest(self, source: Source, record: Outgoing) -> bool:
        """Whether its dead letter carries no more than the reason by now."""
        return self._letter_size.get(coordinates_of(source, record)) is Size.REASON_ONLY

    def put(self, publishing: Publishing, drafts: Sequence[Draft], now_ms: int = 0) -> None:
        """Produce every record of the drafts, in order.

        Raises:
            TransactionAbortedError: the transaction is beyond use; abort it and take the records again.
        """
        self.rejections.clear()
        partitions: dict[str | Rejection, int] = {}
        verdicts = Verdicts(self._destinations, lambda: _topics_of(drafts))
        produce = publishing.produce
        trace = self._trace
        for source, records in drafts:
            refused = source in self._refused
            for record in records:
                topic, partition, key, value, headers, _, _, _ = record
                if refused or not partition < partitions.get(topic, -1):
                    rejection = self._judge(source, record, partitions, verdicts)
                    if rejection is not None:
                        self._bury(publishing, source, record, rejection)
                        continue
                    while self._destinations.changed:  # a key's partition may be one that is no more: it would time out
                        publishing.look_up(self._destinations.changed.pop())
                if trace:
                    headers = [*headers, (TIMER_DEQUEUE_MS, b"%d" % now_ms)]
                    record = (*record[:HEADERS], headers, *record[DUE_MS:])
                try:
                    produce(topic, value, key, partition, None, None, 0, headers)
                except (BufferError, KafkaException):
                    pass
                else:
                    continue
                # Not while the exception is handled: another one of confluent-kafka's would never be freed then, and
                # hold all of the batch (github.com/confluentinc/confluent-kafka-python/issues/1266, seen with 2.16.1).
                rejection = self._deliver(publishing, record)
                if rejection is not None:
                    self._bury(publishing, source, record, rejection)

    def is_buried(self, source: Source, record: Outgoing) -> bool:
        """Whether it is among the `rejections`."""
        return coordinates_of(source, record) in self.rejections

    def topic_of(self, source: Source, record: Outgoing) -> str:
        """Where it has gone in the transaction in hand."""
        topic = record[TOPIC]
        return self._dead_letter_topic if isinstance(topic, Rejection) or self.is_buried(source, record) else topic

    def committed(self) -> None:
        """The transaction in hand is final."""
        for coordinates in self.rejections:
            self._letter_size.pop(coordinates, None)
            for refused in self._refused.values():
                refused.pop(coordinates, None)
        for source in [source for source, refused in self._refused.items() if not refused]:
            self.forget(source)

    def _judge(
        self, source: Source, record: Outgoing, partitions: dict[str | Rejection, int], verdicts: Verdicts
    ) -> Rejection | None:
        topic, partition = record[:2]
        if isinstance(topic, Rejection):
            return topic
        refused = self._refused[source].get(coordinates_of(source, record)) if source in self._refused else None
        if refused is not None:
            return refused
        if topic in self._onward.get(source.topic, ()):  # a roll, a replacement, a retry
            partitions[topic] = 0  # the key decides, or the partition that the record came from
            return None
        verdict = verdicts.of(topic)
        if isinstance(verdict, int) and partition >= verdict:
            verdict = verdicts.again(topic)
        if isinstance(verdict, Rejection):
            return verdict
        keyless = self._destinations.known_of_keyless(topic)
        if keyless is None:
            partitions[topic] = verdict
        elif record[KEY] is None:
            return keyless
        return None if partition < verdict else unknown_partition(topic, partition, verdict)

    def _deliver(self, publishing: Publishing, record: Outgoing) -> Rejection | None:
        """Produce one record with patience; says so when the client finds it too large."""
        topic, partition, key, value, headers = record[:5]
        is_looked_up = False
        while True:
            try:
                publishing.produce(topic, value, key, partition, None, None, 0, headers)
            except BufferError:
                failure = None
            except KafkaException as exception:
                failure = exception
            else:
                return None
            if failure is None:
                publishing.make_room()
                continue
            error: KafkaError = failure.args[0]
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return too_large(record, error.str())
            if is_fatal(error):
                raise lost_in("produce", error) from failure
            if error.code() != KafkaError._UNKNOWN_PARTITION or is_looked_up:
                publishing.refused(str(topic), partition, error)
                raise TransactionAbortedError(error) from failure
            publishing.look_up(str(topic))  # the partition may be new
            is_looked_up = True

    def _bury(self, publishing: Publishing, source: Source, record: Outgoing, rejection: Rejection) -> None:
        """Send a record to the dead letters, as much of it as fits."""
        coordinates = coordinates_of(source, record)
        self.rejections[coordinates] = rejection
        for size in Size:
            if size < self._letter_size.get(coordinates, Size.WHOLE):
                continue
            letter = dead_letter(
                self._dead_letter_topic,
                rejection,
                (*record[:OFFSET], coordinates[2], record[SOURCE_HEADERS]),
                source_topic=source.topic,
                source_partition=source.partition,
                size=size,
            )
            if self._deliver(publishing, letter) is None:
                return
        raise ClientsLostError(
            f"{self._dead_letter_topic} takes not even the reason of a rejection; raise its max.message.bytes"
        )


def _topics_of(drafts: Sequence[Draft]) -> set[str]:
    return {record[TOPIC] for _, records in drafts for record in records if not isinstance(record[TOPIC], Rejection)}


def coordinates_of(source: Source, record: Outgoing) -> Coordinates:
    """Where it stands: a message that a replacement brings, at the replacement, not at what has decided it."""
    replacement = brought_by(record, source.topic)
    return source.topic, source.partition, record[OFFSET] if replacement is None else replacement
