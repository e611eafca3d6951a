"""How reading stands in one partition that is open."""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, TopicPartition

from connectors.contract import Place
from sidecar.errors import ClientsLostError
from sidecar.intake.held_back import HeldBack
from sidecar.intake.progress import LastRead, Mark
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
    mark: Mark
    """What tells the log that is read from others, with the last record that was read."""
    is_paused: bool = False
    """Whether the consumer hands out nothing of it."""
    is_behind: bool = False
    """Whether it is to be read again from the source's position: not all that was offered was kept."""
    left: list[Run] = field(default_factory=list)
    """What the source has left until the transaction in hand has come to its end, and what came behind it."""
    held_back: HeldBack = field(default_factory=HeldBack)
    was_offered: bool = False
    """Whether there were records of it in the last batch."""

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

    def pause(self, consumer: Consumer) -> None:
        """The consumer is to hand out nothing of it before `resume`."""
        if not self.is_paused:
            consumer.pause([self._place()])
            self.is_paused = True

    def resume(self, consumer: Consumer) -> None:
        """Go on, from the position of the source where something of what it was offered was not kept."""
        if self.is_behind:
            self.is_behind = False
            self.reread(consumer)
        consumer.resume([self._place()])
        self.is_paused = False

    def read_again(self, consumer: Consumer) -> None:
        """What was fetched and not yet consumed is gone, or to be forgotten: pause, and `resume` from the source."""
        self.pause(consumer)
        self.is_behind = True
        self.left.clear()

    def reread(self, consumer: Consumer) -> None:
        """Read on from the position of the source, whatever has come from beyond it.

        Raises:
            ClientsLostError: the consumer does not read this partition.
        """
        self.left.clear()
        try:
            consumer.seek(self._place(self.source.position))
        except KafkaException as error:
            raise ClientsLostError(f"consumer: {error}") from error

    def _place(self, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition, offset)
