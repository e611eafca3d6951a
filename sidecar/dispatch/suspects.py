"""Sources among whose records is one that Kafka refuses, until that stands alone.

It fails the transaction it is in, and all that is in there with it. So its source goes on in transactions of its own,
half as large each time, in turns with those of all others: what is refused holds up its own partition alone.

What Kafka takes may be larger the next time. But where it is a whole batch that the topic has no room for
(``max.message.bytes``), that is refused again, and each refusal costs another transaction beside: so after each refusal
that follows, twice as many have to be taken before. Once a record has stood alone, it was that one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sidecar.source import Draft, Source

_WAITS_AT_MOST = 64


@dataclass
class Limit:
    """How far a suspect is parted."""

    records: int
    """Most of them in one transaction."""
    waits: int = 1
    """So many transactions have to be taken before there may be more in one."""
    taken: int = 0
    has_grown: bool = False

    def refused(self, records: int) -> None:
        """So many were too many, or one of them is refused."""
        if self.has_grown:
            self.waits = min(2 * self.waits, _WAITS_AT_MOST)
        self.records, self.taken, self.has_grown = max(1, records // 2), 0, False

    def committed(self) -> None:
        """Kafka has taken a transaction of it."""
        self.taken += 1
        if self.records == 1:
            self.waits = 1
        if self.taken >= self.waits:
            self.records, self.taken, self.has_grown = 2 * self.records, 0, True


class Suspects:
    """Who they are, and how many records of each go into one transaction.

    Args:
        batch_records: so many of a source that is none.
    """

    def __init__(self, batch_records: int) -> None:
        self._batch_records = batch_records
        self._limits: WeakKeyDictionary[Source, Limit] = WeakKeyDictionary()
        """The one whose turn it is next stands first."""
        self._were_chosen = False

    def chosen(self, due: list[Source]) -> list[Source]:
        """Which of the due sources share the next transaction: a single suspect, or all that are not suspects."""
        suspects = [source for source in self._limits if source in due]
        others = [source for source in due if source not in self._limits]
        self._were_chosen = bool(suspects) and not (self._were_chosen and others)
        if not self._were_chosen:
            return others
        self._limits[suspects[0]] = self._limits.pop(suspects[0])
        return suspects[:1]

    def limit(self, source: Source) -> int:
        """Most records of it in one transaction."""
        return self._limits[source].records if source in self._limits else self._batch_records

    def refused(self, drafts: Sequence[Draft]) -> bool:
        """Kafka has refused a record of these. Each of several is asked by itself first: it may be another's.

        Returns:
            Whether one of them was no suspect yet.
        """
        asked = [draft for draft in drafts if draft.records]
        is_news = any(source not in self._limits for source, _ in asked)
        for source, records in asked:
            limit = self._limits.setdefault(source, Limit(self._batch_records))
            if len(asked) == 1:
                limit.refused(len(records))
        return is_news

    def committed(self, drafts: Sequence[Draft]) -> list[Source]:
        """Kafka has taken these; which of their sources are suspects no more."""
        cleared = []
        for source in [source for source, records in drafts if records and source in self._limits]:
            self._limits[source].committed()
            if self._limits[source].records > self._batch_records:
                del self._limits[source]
                cleared.append(source)
        return cleared
