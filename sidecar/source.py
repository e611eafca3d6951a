"""What the loop knows of an assigned partition of a schedule topic, whatever its kind."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from confluent_kafka import Message

from sidecar.records import Outgoing


class Source(Protocol):
    """One assigned partition: takes in records, gives out those that are due, knows its progress.

    ``take`` is followed by ``confirm`` or ``put_back`` before the next ``take``.
    """

    topic: str
    partition: int

    @property
    def position(self) -> int:
        """The next offset to be read; set back where records that were offered could not be kept.

        Where it lies before the end of what was offered and the source is not full, the rest waits for the end of the
        transaction in hand, and is offered again then.
        """

    def offer(self, messages: Sequence[Message], now_ms: int) -> None:
        """Accept records of this partition, in offset order."""

    def reached_end(self, offset: int) -> None:
        """Everything below ``offset`` has been read."""

    def lost_end(self, offset: int) -> None:
        """From there on, at or behind the committed offset, the log holds other records than those read before."""

    @property
    def next_due_ms(self) -> int | None:
        """When there is something to publish; None: nothing known."""

    @property
    def is_full(self) -> bool:
        """Whether reading should pause."""

    @property
    def has_room(self) -> bool:
        """Whether reading may resume."""

    @property
    def is_best_read_whole(self) -> bool:
        """Whether records like those offered last cost less by the batch than by pieces of it."""

    @property
    def is_recovering(self) -> bool:
        """Whether records before the committed offset are being read again, and nothing is published before."""

    @property
    def trouble(self) -> str:
        """Why it does not do all it should just now, in words; empty when all is well."""

    @property
    def remedy(self) -> str:
        """What an operator can do about `trouble`; empty where it passes by itself."""

    @property
    def note(self) -> str:
        """What an operator should know of it though nothing is held up; empty when there is nothing."""

    @property
    def is_disk_full(self) -> bool:
        """Whether intake is paused for want of room and nothing else."""

    @property
    def waits_for_delivery(self) -> bool:
        """Whether what is at hand keeps others from being read that could be put away."""

    @property
    def replayed(self) -> tuple[int, int]:
        """Offsets read again since the start, and of how many."""

    @property
    def waiting(self) -> int:
        """Records accepted and not yet published."""

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """Due records for one transaction, in order.

        Raises:
            KafkaException: Kafka does not tell what has to be known of them; nothing has been taken.
        """

    def prepare(self, until_ms: int, max_records: int, max_bytes: int) -> None:
        """While a transaction commits: whatever makes the next `take` of what is due by then faster."""

    def bury(self, records: Sequence[Outgoing]) -> None:
        """Of what was taken, these go to the dead letters; has to be called before `progress` is asked for."""

    def unsee(self) -> bool:
        """The clock was set forward: whether there is anything that has to be read again, from `position` on."""

    @property
    def progress(self) -> tuple[int, str]:
        """Offset and metadata to commit together with what was taken."""

    @property
    def has_progress(self) -> bool:
        """Whether a commit without records would move the committed offset."""

    def tick(self, now_ms: int) -> None:
        """Between transactions: whatever need not wait for one."""

    def close(self) -> None:
        """The partition is no longer ours; what was read and not committed is read again by whoever has it next."""

    def confirm(self) -> None:
        """The transaction with what was taken is committed."""

    def put_back(self) -> None:
        """The transaction with what was taken is aborted."""


class Draft(NamedTuple):
    """What one source wants in the next transaction."""

    source: Source
    records: list[Outgoing]
