"""Records that a wheel partition writes to its own end: of what rolls, and of what a replacement brings."""

from collections.abc import Iterable

from connectors.contract import Headers
from connectors.header_names import REAL_QID, REAL_TOPIC, TIMER_ROLL_TIMES, UNIQ_KEY
from connectors.kafka import BY_KEY
from sidecar.dispatch.wheel.cancels import CancelRead
from sidecar.intake.copies import Copied, Copies
from sidecar.intake.parse_wheel import Replace, Schedule
from sidecar.records import BROUGHT_DUE_MS, HEADERS, TOPIC, Outgoing


class WheelCopies:
    """Makes the copies of one partition; each carries the absolute time, the id and the proof.

    Args:
        copies: what this group's own records on the wheel topic carry.
    """

    def __init__(self, topic: str, partition: int, copies: Copies) -> None:
        self._topic = topic
        self._partition = partition
        self._copies = copies

    def rolled(self, schedule: Schedule, record: Outgoing, next_roll_ms: int = 0) -> Outgoing:
        """The copy that a roll writes.

        Args:
            record: what would be delivered, were it due at the time of the roll.
            next_roll_ms: it is not rolled again before; 0: its timestamp alone decides.
        """
        copied = Copied(schedule.origin_offset, schedule.roll_times + 1, roll_after_ms=next_roll_ms)
        _, _, key, value, _, act_ms, offset, source_headers = record
        return self._topic, self._partition, key, value, self._headers(schedule, copied), act_ms, offset, source_headers

    def brought(self, replacement: CancelRead, deciding_offset: int) -> Outgoing:
        """A replacement's message, as a copy of its record that has not rolled yet.

        As with a roll, a cancel between the two is still able to take it out.

        Args:
            deciding_offset: of the record that has decided that the replacement is carried out; the copy goes out with
                the transaction that passes it.
        """
        offset, request, key, value, source_headers = replacement
        assert isinstance(request, Replace)
        assert source_headers is not None
        headers = self._headers(request.schedule, Copied(offset))
        return self._topic, self._partition, key, value, headers, BROUGHT_DUE_MS, deciding_offset, source_headers

    def ids_among(self, records: Iterable[Outgoing]) -> list[bytes]:
        """The ids of those of the records that are such copies, or postponed ones."""
        own = [dict(record[HEADERS]) for record in records if record[TOPIC] == self._topic]
        ids = [names.get(UNIQ_KEY) for names in own if TIMER_ROLL_TIMES in names]
        return [uniq_key for uniq_key in ids if uniq_key is not None]

    def _headers(self, schedule: Schedule, copied: Copied) -> Headers:
        headers = [*schedule.carried, (REAL_TOPIC, schedule.topic.encode())]
        if schedule.partition != BY_KEY:
            headers.append((REAL_QID, b"%d" % schedule.partition))
        return headers + self._copies.headers(schedule.uniq_key, schedule.due_ms, copied)
