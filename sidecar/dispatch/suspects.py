"""Sources among whose records is one that Kafka refuses, until that stands alone.

It fails the transaction it is in, and all that is in there with it. So its source goes on in transactions of its own,
half as large each time, in turns with those of all others: what is refused holds up its own partition alone.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from sidecar.source import Draft, Source


class Suspects:
    """Who they are, and how many records of each go into one transaction.

    Args:
        batch_records: so many of a source that is none.
    """

    def __init__(self, batch_records: int) -> None:
        self._batch_records = batch_records
        self._limits: WeakKeyDictionary[Source, int] = WeakKeyDictionary()
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
        return self._limits.get(source, self._batch_records)

    def refused(self, drafts: Sequence[Draft]) -> None:
        """Kafka has refused a record of these. Each of several is asked by itself first: it may be another's."""
        asked = [draft for draft in drafts if draft.records]
        for source, records in asked:
            self._limits[source] = max(1, len(records) // 2) if len(asked) == 1 else self._batch_records

    def committed(self, drafts: Sequence[Draft]) -> list[Source]:
        """Kafka has taken these; which of their sources are suspects no more."""
        cleared = []
        for source in [source for source, records in drafts if records and source in self._limits]:
            self._limits[source] *= 2
            if self._limits[source] > self._batch_records:
                del self._limits[source]
                cleared.append(source)
        return cleared
