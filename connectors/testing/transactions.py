"""The transaction coordinator: epochs, open transactions, their end and its markers."""

from collections.abc import Callable

from connectors.testing.errors import ProducerFencedError
from connectors.testing.log import PartitionLog, Span, SpanState
from connectors.testing.timers import Timers

Finish = Callable[[Span], None]


class TransactionalId:
    """What the coordinator keeps for one ``transactional.id``."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.epoch = -1
        self.open: Span | None = None
        self.completing: Span | None = None
        """Decided, but its markers are not written yet."""


class TransactionCoordinator:
    """Ends transactions by request, by a newer producer, or by time-out.

    Args:
        settle_offsets: makes the offsets of an ended span final, or drops them.
        now_ms: wall time, for the markers.
    """

    def __init__(self, timers: Timers, settle_offsets: Finish, now_ms: Callable[[], int]) -> None:
        self._timers = timers
        self._settle_offsets = settle_offsets
        self._now_ms = now_ms
        self._ids: dict[str, TransactionalId] = {}

    def init(self, name: str, timeout_ms: int) -> int:
        """A new epoch: producers of older ones are fenced, what they left open is aborted."""
        entry = self._ids.get(name)
        if entry is None:
            entry = self._ids[name] = TransactionalId(timeout_ms)
        self._complete(entry)
        self._abort_open(entry)
        entry.timeout_ms = timeout_ms
        entry.epoch += 1
        return entry.epoch

    def span(self, name: str, epoch: int) -> Span:
        """The open transaction; begins one, and its time-out, where there is none."""
        entry = self._check(name, epoch)
        self._complete(entry)  # a client meets CONCURRENT_TRANSACTIONS here, and tries again until this is done
        if entry.open is None:
            span = entry.open = Span()
            self._timers.after(entry.timeout_ms, lambda: self._time_out(entry, span))
        return entry.open

    def end(self, name: str, epoch: int, *, commit: bool, markers_after_ms: int = 0) -> None:
        """Decide the open transaction; without one there is nothing to decide."""
        entry = self._check(name, epoch)
        span, entry.open = entry.open, None
        if span is None:
            return
        if not commit:
            self._finish(span, SpanState.ABORTED)
        elif markers_after_ms:
            entry.completing = span
            self._timers.after(markers_after_ms, lambda: self._complete(entry, span))
        else:
            self._finish(span, SpanState.COMMITTED)

    def check(self, name: str, epoch: int) -> None:
        """Raises ProducerFencedError."""
        self._check(name, epoch)

    def fence(self, name: str) -> None:
        """As if another producer with this id had come and gone."""
        entry = self._ids[name]
        self._abort_open(entry)
        entry.epoch += 1

    def _check(self, name: str, epoch: int) -> TransactionalId:
        entry = self._ids[name]
        if entry.epoch != epoch:
            raise ProducerFencedError(name)
        return entry

    def _time_out(self, entry: TransactionalId, span: Span) -> None:
        if entry.open is span:
            self._abort_open(entry)
            entry.epoch += 1

    def _abort_open(self, entry: TransactionalId) -> None:
        span, entry.open = entry.open, None
        if span is not None:
            self._finish(span, SpanState.ABORTED)

    def _complete(self, entry: TransactionalId, span: Span | None = None) -> None:
        """Write the markers that are still owed, of that span only where one is named."""
        owed = entry.completing
        if owed is not None and (span is None or owed is span):
            entry.completing = None
            self._finish(owed, SpanState.COMMITTED)

    def _finish(self, span: Span, state: SpanState) -> None:
        span.state = state
        log: PartitionLog
        for log in span.logs:
            log.mark(span, self._now_ms())
        self._settle_offsets(span)
