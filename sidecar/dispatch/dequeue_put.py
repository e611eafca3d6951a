"""RIP-43's DequeuePut: due records go out, those that cannot go out become dead letters, in the same transaction."""

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from sidecar.dispatch.dead_letters import dead_letter, too_large, without_value
from sidecar.dispatch.destinations import Destinations, unknown_partition
from sidecar.dispatch.transactions import Publishing, TransactionAbortedError
from sidecar.errors import ClientsLostError
from sidecar.records import Outgoing, Rejection, source_headers
from sidecar.source import Draft, Source

Coordinates = tuple[str, int, int]
"""Topic, partition and offset of a record on its schedule topic."""


class DequeuePut:
    """Produces drafts into the open transaction."""

    def __init__(self, destinations: Destinations, dead_letter_topic: str) -> None:
        self._destinations = destinations
        self._dead_letter_topic = dead_letter_topic
        self._refused: dict[Coordinates, Rejection] = {}
        self._too_large_for_dead_letters: set[Coordinates] = set()
        self.rejections: list[tuple[Coordinates, Rejection]] = []
        """What the transaction in hand turned into dead letters."""

    def refuse(self, source: Source, record: Outgoing, rejection: Rejection) -> None:
        """Kafka has refused this very record: the next time it goes to the dead letters, and then without its value."""
        coordinates = source.topic, source.partition, record[6]
        if coordinates in self._refused or record[0] == self._dead_letter_topic:
            self._too_large_for_dead_letters.add(coordinates)
        else:
            self._refused[coordinates] = rejection

    def put(self, publishing: Publishing, drafts: Sequence[Draft]) -> None:
        """Produce every record of the drafts, in order.

        Raises:
            TransactionAbortedError: the transaction is beyond use; abort it and take the records again.
        """
        self.rejections.clear()
        partitions: dict[str, int] = {self._dead_letter_topic: 1}
        produce = publishing.produce
        nothing_refused = not self._refused and not self._too_large_for_dead_letters
        for source, records in drafts:
            for record in records:
                topic, partition, key, value, headers, _, _, _ = record
                if not (nothing_refused and partition < partitions.get(topic, -1)):
                    rejection = self._judge(source, record, partitions)
                    if rejection is not None:
                        self._bury(publishing, source, record, rejection)
                        continue
                try:
                    produce(topic, value, key, partition, headers=headers)
                except (BufferError, KafkaException):
                    rejection = self._deliver(publishing, record)
                    if rejection is not None:
                        self._bury(publishing, source, record, rejection)

    def committed(self) -> None:
        """The transaction in hand is final."""
        for coordinates, _ in self.rejections:
            self._refused.pop(coordinates, None)
            self._too_large_for_dead_letters.discard(coordinates)

    def _judge(self, source: Source, record: Outgoing, partitions: dict[str, int]) -> Rejection | None:
        topic, partition = record[:2]
        refused = self._refused.get((source.topic, source.partition, record[6]))
        if refused is not None:
            return refused
        if topic not in partitions:
            verdict = self._destinations.judge(topic)
            if isinstance(verdict, Rejection):
                return verdict
            partitions[topic] = verdict
        if partition >= partitions[topic]:
            self._destinations.forget()
            return unknown_partition(topic, partition, partitions[topic])
        return None

    def _deliver(self, publishing: Publishing, record: Outgoing) -> Rejection | None:
        """Produce one record with patience; says so when the client finds it too large."""
        topic, partition, key, value, headers = record[:5]
        while True:
            try:
                publishing.produce(topic, value, key, partition, headers=headers)
            except BufferError:
                publishing.make_room()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return too_large(len(value or b""), topic, error.str())
                if error.fatal():
                    raise ClientsLostError(f"produce: {error}") from exception
                raise TransactionAbortedError(error, [(topic, partition, error)]) from exception
            else:
                return None

    def _bury(self, publishing: Publishing, source: Source, record: Outgoing, rejection: Rejection) -> None:
        """Send a record to the dead letters, without its value where that is too large even for them."""
        coordinates = source.topic, source.partition, record[6]
        self.rejections.append((coordinates, rejection))
        letter = record
        if record[0] != self._dead_letter_topic:
            letter = dead_letter(
                self._dead_letter_topic,
                rejection,
                source_topic=source.topic,
                source_partition=source.partition,
                offset=record[6],
                key=record[2],
                value=record[3],
                headers=source_headers(record),
                due_ms=record[5],
            )
        if coordinates in self._too_large_for_dead_letters or self._deliver(publishing, letter) is not None:
            self._deliver(publishing, without_value(letter))
