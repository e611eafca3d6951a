"""What a wheel partition has in the transaction in hand: a cancel of any of it waits for the outcome."""

from collections.abc import Callable

from connectors.header_names import UNIQ_KEY
from sidecar.dispatch.wheel.cancels import speaks_of
from sidecar.intake.parse_wheel import Cancel, Replace
from sidecar.records import HEADERS, TOPIC, Outgoing, Rejection


class InHand:
    """The records of one partition that are being sent.

    Args:
        real_topic: the destination of a record, which a copy names in a header.
    """

    def __init__(self, real_topic: Callable[[Outgoing], str]) -> None:
        self._real_topic = real_topic
        self.records: list[Outgoing] = []
        self.is_awaited = False
        """Whether a cancel waits for the outcome, and all that follows it; that is soon, and reading goes on."""
        self._topics: dict[bytes, set[str]] | None = None
        """The destinations of the records, by id; made when the first cancel asks."""

    def hold(self, records: list[Outgoing]) -> None:
        """A transaction begins with these records; without any: it has come to its end."""
        self.records, self._topics = records, None
        self.is_awaited = False

    def holds_back(self, request: Cancel | Replace) -> bool:
        """Whether a cancel names any of the records; if so, the outcome is awaited."""
        if self._topics is None:
            self._topics = {}
            for record in self.records:
                if not isinstance(record[TOPIC], Rejection):
                    uniq_key = next((value for name, value in record[HEADERS] if name == UNIQ_KEY and value), b"")
                    self._topics.setdefault(uniq_key, set()).add(self._real_topic(record))
        is_named = any(speaks_of(request, topic) for topic in self._topics.get(request.uniq_key, ()))
        self.is_awaited = self.is_awaited or is_named
        return is_named
