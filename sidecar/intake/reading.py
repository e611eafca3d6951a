"""How reading stands in one partition that is open."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, TopicPartition

from connectors.contract import Place
from sidecar.errors import ClientsLostError
from sidecar.intake.held_back import HeldBack
from sidecar.intake.progress import LastRead, Mark, Start
from sidecar.source import Source


class Run(NamedTuple):
    """Records of one partition, or the news that its end was reached."""

    place: Place
    messages: list[Message]
    end_offset: int | None = None


@dataclass(eq=False, slots=True)
class Reading:
    """A partition's source, and what lies between that and the consumer."""

    source: Source
    start: Start
    """Where it was opened."""
    mark: Mark = field(init=False)
    """What tells the log that is read from others, with the last record that was read."""
    is_paused: bool = False
    """Whether the consumer hands out nothing of it."""
    is_behind: bool = False
    """Whether it is to be read again from the source's position: not all that was offered was kept."""
    left: list[Run] = field(default_factory=list)
    """What the source has left until the transaction in hand has come to its end, and what came behind it."""
    held_back: HeldBack = field(default_factory=HeldBack)
    damage: str = ""
    """Why nothing more can be read of it, whoever waits; in words."""
    was_offered: bool = False
    """Whether there were records of it in the last batch."""
    is_compared: bool = False
    """Whether all has been looked at that was read before it was opened."""

    def __post_init__(self) -> None:
        self.mark = self.start.mark

    def take_left(self) -> list[Run]:
        """What was left, which is then handed over."""
        left, self.left = self.left, []
        return left

    def remember(self, last: Message) -> None:
        """The last record of some that have been offered."""
        epoch, (_, timestamp_ms) = last.leader_epoch(), last.timestamp()
        if epoch is not None and epoch >= 0 and timestamp_ms >= 0:
            last_read = LastRead(last.offset() or 0, timestamp_ms, epoch)
            self.mark = msgspec.structs.replace(self.mark, last_read=last_read)

    def other_from(self, messages: Sequence[Message]) -> int | None:
        """From where on, if among these, the log holds other records than it did before the partition was opened.

        Leader epochs only grow along a log: where one is later than that of the last record which was read, the record
        was not there then.
        """
        last = self.start.last_read
        if last is None or self.is_compared:
            return None
        read_until = max(last.offset + 1, self.start.offset)
        self.is_compared = (messages[-1].offset() or 0) >= read_until
        if not _is_later(messages[-1], last):
            return None
        first = next(message.offset() or 0 for message in messages if _is_later(message, last))
        return first if first < read_until else None

    def pause(self, consumer: Consumer) -> None:
        """The consumer is to hand out nothing of it before `resume`."""
        if not self.is_paused:
            consumer.pause([self._place()])
            self.is_paused = True

    def resume(self, consumer: Consumer) -> None:
        """Go on, from the position of the source where something of what it was offered was not kept."""
        if self.is_behind:
            self.is_behind = False
            self._seek(consumer, self._with_epoch(self.source.position))
        consumer.resume([self._place()])
        self.is_paused = False

    def read_again(self, consumer: Consumer) -> None:
        """What was fetched and not yet consumed is gone, or to be forgotten: pause, and `resume` from the source."""
        self.pause(consumer)
        self.is_behind = True
        self.left.clear()

    def reread(self, consumer: Consumer) -> None:
        """Read from where the partition was opened, and drop what was fetched under an earlier assignment.

        Raises:
            ClientsLostError: the consumer does not read this partition.
        """
        self._seek(consumer, self.first)

    @property
    def first(self) -> TopicPartition:
        """Where reading begins when it is opened: behind the last record that was read.

        What the source is beyond that are markers, whose epoch nobody knows.
        """
        position, last = self.source.position, self.start.last_read
        if last is not None and self.start.begin_offset <= last.offset + 1 < position:
            position = last.offset + 1
        return self._with_epoch(position)

    def _with_epoch(self, offset: int) -> TopicPartition:
        """With the epoch of what was read before it, as far as that is known.

        Else librdkafka does not ask whether the log has lost its end meanwhile, and grown again.
        """
        last = self.mark.last_read
        if last is None or offset > last.offset + 1:
            return self._place(offset)
        return TopicPartition(self.source.topic, self.source.partition, offset, leader_epoch=last.leader_epoch)

    def _seek(self, consumer: Consumer, place: TopicPartition) -> None:
        self.left.clear()
        try:
            consumer.seek(place)
        except KafkaException as error:
            raise ClientsLostError(f"consumer: {error}") from error

    def _place(self, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition, offset)


def _is_later(message: Message, last: LastRead) -> bool:
    epoch = message.leader_epoch()
    return epoch is not None and epoch > last.leader_epoch
