"""What became of recent cancels, for those who wait to hear it: written by the loop, read by web threads.

An outcome is final once the committed offset has passed the cancel's record, and is known then to the sidecar that
commits, and nowhere else.
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum

OUTCOMES_MAX = 100_000
"""Outcomes kept for each partition; the oldest go first."""


class CancelOutcome(StrEnum):
    """What a cancel or a replacement comes to; see `sidecar.dispatch.wheel.decisions`."""

    CANCELLED = "cancelled"
    TOO_LATE = "too_late"
    UNKNOWN = "unknown"


class NoOutcome(StrEnum):
    """Why there is no outcome to tell."""

    NOT_ASSIGNED = "not_assigned"
    """The partition is another sidecar's."""
    UNDECIDED = "undecided"
    """The committed offset has not passed the record."""
    UNKNOWN_OFFSET = "unknown_offset"
    """The committed offset has passed the record, and no outcome is on record: it is no cancel, or one that waits for a
    rolled message to come back, or its outcome was known to an earlier process, or too long ago."""


class _Partition:
    def __init__(self, committed: int) -> None:
        self.committed = committed
        self.outcomes: OrderedDict[int, CancelOutcome] = OrderedDict()


class CancelOutcomes:
    """Outcomes by wheel partition and the cancel's offset; they outlive sessions with Kafka, not the process.

    Args:
        topic: the wheel topic.
        most: how many are kept for each partition.
    """

    def __init__(self, topic: str, most: int = OUTCOMES_MAX) -> None:
        self.topic = topic
        self._most = most
        self._partitions: dict[int, _Partition] = {}

    def opened(self, partition: int, committed: int) -> None:
        """The partition is ours, from this offset on; where that lies behind what was known, the log is another."""
        known = self._partitions.get(partition)
        if known is None or committed < known.committed:
            self._partitions[partition] = _Partition(committed)
        else:
            known.committed = committed  # what another has decided meanwhile is not undecided here

    def told(self, partition: int, outcomes: Mapping[int, CancelOutcome], committed: int) -> None:
        """A commit has made these outcomes final."""
        known = self._partitions[partition]
        known.outcomes.update(outcomes)
        while len(known.outcomes) > self._most:
            known.outcomes.popitem(last=False)
        known.committed = committed  # last: whoever finds it passed finds the outcome, too

    def find(self, partition: int, offset: int) -> CancelOutcome | NoOutcome:
        """The outcome, or why it cannot be told. Asks not whose the partition is."""
        known = self._partitions.get(partition)
        if known is None:
            return NoOutcome.NOT_ASSIGNED
        is_passed = offset < known.committed
        outcome = known.outcomes.get(offset)
        if outcome is not None:
            return outcome
        return NoOutcome.UNKNOWN_OFFSET if is_passed else NoOutcome.UNDECIDED
