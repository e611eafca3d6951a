"""Cancels and replacements that name what is in the transaction in hand: whether they come in time is not known yet.

They wait until it has come to its end, and are applied then, in their order, before anything else is sent. With them
wait those that name what a replacement among them would bring. They are not decided, and no progress passes them: what
was taken was taken before they were read.
"""

from collections.abc import Collection, Mapping
from itertools import chain

from sidecar.dispatch.cancels import Pending, speaks_of
from sidecar.intake.parse_wheel import Replace


class Deferred:
    """Of one partition. False while there are none."""

    def __init__(self) -> None:
        self._waiting: list[Pending] = []
        """In the order of their offsets."""
        self._brought: dict[bytes, set[str]] = {}
        """The messages that replacements among them would bring: by id, their topics."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_bringing(self) -> bool:
        """Whether an abort of the transaction in hand may bring a message."""
        return bool(self._brought)

    def concerns(self, pending: Pending, in_hand: Mapping[bytes, Collection[str]]) -> bool:
        """Whether the next cancel has to wait.

        Args:
            in_hand: the messages in the transaction in hand: by id, their topics.
        """
        topics = chain(in_hand.get(pending.uniq_key, ()), self._brought.get(pending.uniq_key, ()))
        return any(speaks_of(pending.request, topic) for topic in topics)

    def names(self, uniq_key: bytes) -> bool:
        """Whether one of those that wait names this id: a copy that has it is taken in after them."""
        return any(pending.uniq_key == uniq_key for pending in self._waiting)

    def add(self, pending: Pending) -> None:
        self._waiting.append(pending)
        if isinstance(pending.request, Replace):
            schedule = pending.request.schedule
            self._brought.setdefault(schedule.uniq_key, set()).add(schedule.topic)

    def forget_from(self, offset: int) -> None:
        """What stands there or behind is read again."""
        for pending in self.take():
            if pending.offset < offset:
                self.add(pending)

    def take(self) -> list[Pending]:
        """All of them, at the end of the transaction."""
        waiting, self._waiting, self._brought = self._waiting, [], {}
        return waiting
