"""What a consumer reads: its assigned partitions, where it stands in each, and what comes next.

Nothing is fetched ahead, so that pausing, seeking and a change of assignment have nothing to throw away.
"""

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, Message, TopicPartition

from connectors.contract import Place
from connectors.testing.errors import error, error_message, words
from connectors.testing.log import MARKER, PartitionLog, SpanState
from connectors.testing.topics import Topic

_ABORTED = SpanState.ABORTED


class Reading:
    """One assigned partition."""

    __slots__ = ("epoch", "is_stopped", "next", "place", "position", "told_end")

    def __init__(self, partition: TopicPartition) -> None:
        self.place = partition.topic, partition.partition
        self.epoch = _epoch(partition)
        """The leader epoch of what was read last; -1: not known, so that a lost end is not noticed."""
        self.next = partition.offset
        """The offset to read next; negative: librdkafka's logical offsets."""
        self.position = OFFSET_INVALID
        """What the application is told: the offset after the last it was given."""
        self.told_end = -1
        self.is_stopped = False
        """An error has been told, and nothing more is read here until it is assigned or sought anew."""


class Fetching:
    """Reads from logs.

    Args:
        tells_epochs: whether brokers tell of leader epochs, so that a log that has lost its end is noticed (KIP-320).
        tells_ends: ``enable.partition.eof``.
        reset: ``auto.offset.reset``.
        committed: the group's offset for a partition; -1: none; None: not to be had yet.
    """

    def __init__(
        self,
        topics: Mapping[str, Topic],
        *,
        is_committed_only: bool,
        tells_epochs: bool,
        tells_ends: bool,
        reset: str,
        committed: Callable[[Place], int | None],
    ) -> None:
        self.partitions: dict[Place, Reading] = {}
        self._paused: set[Place] = set()
        """Remembered when a partition is taken away and comes back, as librdkafka does."""
        self._topics = topics
        self._is_committed_only = is_committed_only
        self._tells_epochs = tells_epochs
        self._tells_ends = tells_ends
        self._reset = reset
        self._committed = committed
        self._turn = 0

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            place = partition.topic, partition.partition
            self.partitions[place] = Reading(partition)

    def remove(self, places: Sequence[Place]) -> None:
        for place in places:
            self.partitions.pop(place, None)

    def unassign(self) -> None:
        self.partitions.clear()

    def pause(self, places: Sequence[Place], *, is_paused: bool) -> None:
        """Of partitions that are not assigned nothing is said."""
        known = self.partitions.keys() & set(places)
        self._paused = self._paused | known if is_paused else self._paused - known

    def seek(self, partition: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        place = partition.topic, partition.partition
        if place not in self.partitions:
            return False
        self.partitions[place] = Reading(partition)
        return True

    def position(self, place: Place) -> int:
        reading = self.partitions.get(place)
        return OFFSET_INVALID if reading is None else reading.position

    def fetch(self, limit: int, out: list[Message]) -> None:
        """Fill `out` up to `limit`, beginning with another partition each time."""
        readings = list(self.partitions.values())
        if not readings:
            return
        self._turn = (self._turn + 1) % len(readings)
        for reading in readings[self._turn :] + readings[: self._turn]:
            if reading.place in self._paused or reading.is_stopped:
                continue
            topic = self._topics.get(reading.place[0])
            if topic is None or reading.place[1] >= len(topic.logs):
                continue
            log = topic.logs[reading.place[1]]
            if not log.begin <= reading.next <= log.end and not self._settle(reading, log, out):
                continue
            if reading.epoch >= 0 and self._tells_epochs and log.end_of_epoch(reading.epoch) < reading.next:
                reason = f"Partition log truncation detected: {words(KafkaError._LOG_TRUNCATION)}"
                if not self._start_over(reading, log, reading.next, reason, out):
                    continue
            self._take(reading, topic, log, limit, out)
            if len(out) >= limit:
                return

    def _take(self, reading: Reading, topic: Topic, log: PartitionLog, limit: int, out: list[Message]) -> None:
        offset, committed_only = reading.next, self._is_committed_only
        end = log.stable_end if committed_only else log.end
        name, number = reading.place
        entries, begin, kind = log.entries, log.begin, topic.timestamp_type
        room = limit - len(out)
        while offset < end and room:
            timestamp_ms, key, value, headers, span = entries[offset - begin]
            offset += 1
            if span is not None and (span is MARKER or (committed_only and span.state is _ABORTED)):
                continue
            out.append(
                Message(
                    topic=name,
                    partition=number,
                    offset=offset - 1,
                    key=key,
                    value=value,
                    headers=headers,  # type: ignore[arg-type]
                    timestamp=(kind, timestamp_ms),
                    leader_epoch=log.epoch_of(offset - 1) if self._tells_epochs else -1,
                )
            )
            reading.position = offset
            room -= 1
        if self._tells_epochs and offset > reading.next:
            reading.epoch = log.epoch_of(offset - 1)
        reading.next = offset
        if self._tells_ends and room and offset == end and reading.told_end != offset:
            reading.told_end = reading.position = offset
            reason = f"Fetch from broker 1 reached end of partition at offset {offset} (HighwaterMark {log.end})"
            event = error(KafkaError._PARTITION_EOF, reason)
            out.append(error_message(event, name, number, offset))

    def _settle(self, reading: Reading, log: PartitionLog, out: list[Message]) -> bool:
        """Turn a logical or an impossible offset into one that can be read; False: not now, or not at all."""
        offset = reading.next
        if offset == OFFSET_BEGINNING:
            reading.next = log.begin
        elif offset == OFFSET_END:
            reading.next = self._end(log)
        elif offset < 0:
            committed = self._committed(reading.place)
            if committed is None:
                return False
            if committed < 0:
                reason = f"no previously committed offset available: {words(KafkaError._NO_OFFSET)}"
                return self._start_over(reading, log, None, reason, out)
            reading.next = committed
            return log.begin <= committed <= log.end or self._settle(reading, log, out)
        else:
            reason = (
                "fetch failed due to requested offset not available on the broker: "
                f"{words(KafkaError.OFFSET_OUT_OF_RANGE)} (broker 1)"
            )
            return self._start_over(reading, log, offset, reason, out)
        return True

    def _start_over(
        self, reading: Reading, log: PartitionLog, offset: int | None, reason: str, out: list[Message]
    ) -> bool:
        if self._reset in ("earliest", "smallest", "beginning"):
            reading.next = log.begin
        elif self._reset in ("latest", "largest", "end"):
            reading.next = self._end(log)
        else:
            reading.is_stopped = True
            name, number = reading.place
            event = error(KafkaError._AUTO_OFFSET_RESET, reason)
            out.append(error_message(event, name, number, offset))
            return False
        return True

    def _end(self, log: PartitionLog) -> int:
        return log.stable_end if self._is_committed_only else log.end


def _epoch(partition: TopicPartition) -> int:
    return -1 if partition.leader_epoch is None else partition.leader_epoch
