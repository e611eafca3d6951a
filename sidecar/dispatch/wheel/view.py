"""What a wheel partition tells of what waits: to whoever asks what is pending, and to metrics."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Generator, Mapping
from functools import partial

import numpy as np

from connectors.header_names import REAL_TOPIC, TIMER_DELIVER_MS, TIMER_OUT_MS, UNIQ_KEY
from sidecar.dispatch.late import Late
from sidecar.dispatch.wheel.figures import DUE_WITHIN_MS, OTHER_TOPICS, TOPICS_TOLD_MAX, WheelFigures
from sidecar.dispatch.wheel.ready import Ready, offset_of
from sidecar.pending import LIMIT_MAX, Cursor, PendingAnswer, PendingMessage, PendingQuery, id_bytes, id_text
from sidecar.records import DUE_MS, HEADERS, OFFSET, TOPIC, Outgoing, Rejection, decode_record
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.timer_store import Loaded, TimerStore

TOPIC_NAMES_MAX = 20_000
"""Twice as many as are counted one by one (`topic_counts`): of so many, half are none of those."""

_END_MS = 2**62
"""Later than anything."""

DESCRIBED_AT_ONCE = 500
"""Messages told in one step of a question: some 3 ms."""
COMPARED_AT_ONCE = 5_000
"""Messages that were due when they arrived, looked at in one step: they are many only where delivery cannot keep up."""


class WheelView:
    """The view of one partition.

    Args:
        topic_names: topics by their hash, as far as an earlier process has told.
    """

    def __init__(
        self, topic: str, partition: int, store: TimerStore, ready: Ready, late: Late, topic_names: dict[int, str]
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._store = store
        self._ready = ready
        self._late = late
        self._topic_names = topic_names
        self._due_within: dict[str, int] = {}
        self._furthest_ms: int | None = None

    # --- topics -------------------------------------------------------------------------------------------------------

    def remember(self, topic_hash: Mapping[str, int]) -> None:
        """Topics are about to be stored; on disk stand their hashes alone."""
        if len(self._topic_names) >= TOPIC_NAMES_MAX:
            self._forget()
        self._topic_names.update((number, topic) for topic, number in topic_hash.items())

    def _forget(self) -> None:
        """Names of topics that nothing is counted for."""
        at_hand = Counter(dict(self._ready.count_topics())).most_common(TOPICS_TOLD_MAX)
        told = {number for number, _ in at_hand}
        self._topic_names = {
            number: topic
            for number, topic in self._topic_names.items()
            if number in told or self._store.pending_of_topic(number)
        }

    @property
    def topics_to_keep(self) -> list[tuple[int, str]]:
        """Hash and name of those with the most messages, for the checkpoint."""
        counted = [number for number, _ in self._store.pending_by_topic_hash(TOPICS_TOLD_MAX)]
        return [(number, self._topic_names[number]) for number in counted if number in self._topic_names]

    # --- figures ------------------------------------------------------------------------------------------------------

    def look(self, now_ms: int, done_ms: int) -> Generator[None, None, int | None]:
        """Look at the whole wheel, in steps: count by slots, and find the first record that is pending.

        Args:
            done_ms: the watermark's.

        Returns:
            Its offset; None: when the look began, nothing was pending.

        Raises StoreError, OSError.
        """
        # A slot tells only how much it has held: what is left of the loaded ones is counted at hand, and where nothing
        # is, they do not count.
        at_hand_ms = self._ready.times_ms()
        loaded_ms = self._ready.loaded_until_ms
        pending_from_ms = done_ms if self._ready.waiting else loaded_ms
        ends_ms = [*(now_ms + ahead_ms for ahead_ms in DUE_WITHIN_MS.values()), _END_MS]
        found = yield from self._store.survey(done_ms, pending_from_ms, loaded_ms, ends_ms)
        counts = np.bincount(np.searchsorted(ends_ms, at_hand_ms, side="right"), minlength=len(ends_ms)) + found.counts
        counts[0] += self._late.count
        self._due_within = dict(zip([*DUE_WITHIN_MS, "later"], counts.tolist(), strict=True))
        last_ms = [] if found.last_ms is None else [found.last_ms]
        last_ms += [self._store.slot_time_ms(int(at_hand_ms.max()))] if len(at_hand_ms) else []
        self._furthest_ms = max(last_ms, default=None)
        if found.oldest is None:
            return None
        position, size = found.oldest
        (payload,) = self._store.read(np.array([position]), np.array([size], np.int32))
        return decode_record(payload)[OFFSET]

    def figures(self) -> WheelFigures:
        """For metrics."""
        by_topic: Counter[str] = Counter()
        for number, count in [*self._store.pending_by_topic_hash(TOPICS_TOLD_MAX), *self._ready.count_topics()]:
            by_topic[self._topic_names.get(number, OTHER_TOPICS)] += count
        pending = self._store.pending_count + self._ready.waiting + self._late.count
        store = self._store
        sizes_bytes = store.disk_bytes, store.quota_bytes or 0
        return WheelFigures(pending, dict(by_topic), self._due_within, self._furthest_ms, *sizes_bytes)

    # --- questions ----------------------------------------------------------------------------------------------------

    def pending(self, query: PendingQuery) -> Generator[None, None, PendingAnswer]:
        """How many messages wait, and the first of them; in steps of some ms, between which all else may go on."""
        messages: list[PendingMessage] = []
        rest: PendingQuery | None = query
        while rest is not None:
            total, found, late, rest = yield from self._stored(rest)
            total += len(messages)
            messages += found
        overdue = yield from self._overdue(late, query)
        messages += [self._describe(record, act_ms) for act_ms, record in overdue[: query.limit]]
        messages.sort(key=lambda message: message.cursor)
        return PendingAnswer(total + len(overdue), messages[: query.limit])

    def _stored(
        self, query: PendingQuery
    ) -> Generator[None, None, tuple[int, list[PendingMessage], list[tuple[int, Outgoing]], PendingQuery | None]]:
        """Of what is stored: how many wait and the first of them; what was late as they were told; the rest to ask for.

        There is a rest where some of the first are not meant, a hash being another's too, or have been sent meanwhile:
        a page that is not full would be the last one, or let the next begin behind what it lacks.
        """
        id_hash = int(hash_ids([id_bytes(query.id)])[0]) if query.id is not None else None
        topic_hash = hash_topic(query.topic) if query.topic is not None else None
        loaded_ms = self._ready.loaded_until_ms
        after_ms, limit = 0, query.limit
        if query.after is not None:  # what is before it in its millisecond is passed over below
            after_ms = query.after.act_ms
            begin_ms = max(after_ms, loaded_ms)
            same, _ = yield from self._store.query(begin_ms, begin_ms + 1, 0, id_hash=id_hash, topic_hash=topic_hash)
            limit += same
        total, found = yield from self._store.query(
            max(query.from_ms, after_ms, loaded_ms),
            query.until_ms,
            limit,
            id_hash=id_hash,
            topic_hash=topic_hash,
            rolls_from_ms=max(after_ms, loaded_ms),
            rolls_wanted=partial(_is_delivered_within, query) if query.is_by_out else None,
        )
        # What has been loaded since is at hand now, and has been counted, also beyond the first of them.
        is_stored = found.act_ms >= self._ready.loaded_until_ms
        at_hand = self._at_hand(query, after_ms, id_hash, topic_hash)
        counted = max(np.count_nonzero(~is_stored), np.count_nonzero(at_hand.act_ms >= loaded_ms))
        total += len(at_hand.act_ms) - int(counted)
        merged = Loaded.joined([at_hand, found.where(is_stored)])
        ordered = merged.where(np.lexsort((merged.payload_pos, merged.act_ms)))
        passed = self._count_passed(ordered, query.after) if query.after is not None else 0
        late = self._late.waiting
        first = ordered.where(np.arange(passed, min(passed + query.limit, len(ordered.act_ms))))
        messages = []
        payloads = self._store.read(first.payload_pos, first.payload_size)  # now: what is sent meanwhile is gone
        for begin in range(0, len(payloads), DESCRIBED_AT_ONCE):
            part = slice(begin, begin + DESCRIBED_AT_ONCE)
            for payload, act_ms in zip(payloads[part], first.act_ms[part].tolist(), strict=True):
                message = self._describe(decode_record(payload), act_ms)
                if query.means(message):  # a hash may be another's
                    messages.append(message)
            yield
        total += len(messages) - passed - len(payloads)
        if len(messages) >= min(total, query.limit):
            return total, messages, late, None
        if payloads:
            return total, messages, late, query._replace(after=message.cursor, limit=LIMIT_MAX)
        is_sent = self._ready.loaded_until_ms > loaded_ms
        return total, messages, late, query if is_sent else None

    def _at_hand(self, query: PendingQuery, after_ms: int, id_hash: int | None, topic_hash: int | None) -> Loaded:
        """What is about to fall due and meant, acted on from ``after_ms`` on."""
        at_hand = self._ready.pending()
        meant = (at_hand.act_ms >= after_ms) & (at_hand.act_ms < query.until_ms)
        meant &= (at_hand.act_ms >= query.from_ms) | (at_hand.rolls & query.is_by_out)
        if id_hash is not None:
            meant &= at_hand.id_hash == id_hash
        if topic_hash is not None:
            meant &= at_hand.topic_hash == topic_hash
        if query.is_by_out:
            rolls = np.flatnonzero(meant & at_hand.rolls)
            payloads = self._store.read(at_hand.payload_pos[rolls], at_hand.payload_size[rolls])
            meant[rolls] = [_is_delivered_within(query, payload) for payload in payloads]
        return at_hand.where(meant)

    def _overdue(
        self, late: list[tuple[int, Outgoing]], query: PendingQuery
    ) -> Generator[None, None, list[tuple[int, Outgoing]]]:
        """Which of those that were due when they arrived are meant, each with its time, in the order of their times."""
        uniq_key = None if query.id is None else (UNIQ_KEY, id_bytes(query.id))
        found = []
        for begin in range(0, len(late), COMPARED_AT_ONCE):
            for arrived_ms, record in late[begin : begin + COMPARED_AT_ONCE]:
                act_ms = record[DUE_MS] or arrived_ms  # what a replacement brings goes as soon as it can
                if (
                    not isinstance(record[TOPIC], Rejection)
                    and query.spans(self._out_ms(record, act_ms) if query.is_by_out else act_ms)
                    and (uniq_key is None or uniq_key in record[HEADERS])
                    and (query.topic is None or query.topic == self.real_topic(record))
                    and (query.after is None or Cursor(act_ms, self._partition, record[OFFSET]) > query.after)
                ):
                    found.append((act_ms, record))
            yield
        found.sort(key=lambda each: each[0])
        return found

    def _count_passed(self, ordered: Loaded, after: Cursor) -> int:
        """How many of them, by time and then arrival, do not come after a cursor. Within a millisecond those that have
        arrived later have the higher offsets, so that few are looked at."""
        same = int(np.searchsorted(ordered.act_ms, after.act_ms, side="right"))
        if self._partition != after.partition:
            return same if self._partition < after.partition else 0
        return bisect_right(range(same), after.offset, key=lambda number: offset_of(self._store, ordered, number))

    def _describe(self, record: Outgoing, act_ms: int) -> PendingMessage:
        headers = dict(record[HEADERS])
        deliver_ms = headers.get(TIMER_DELIVER_MS if record[TOPIC] == self._topic else TIMER_OUT_MS)
        return PendingMessage(
            id=id_text(headers.get(UNIQ_KEY) or b""),
            topic=self.real_topic(record),
            deliver_ms=int(deliver_ms) if deliver_ms else record[DUE_MS],
            partition=self._partition,
            offset=record[OFFSET],
            act_ms=act_ms,
        )

    def _out_ms(self, record: Outgoing, act_ms: int) -> int:
        """As `PendingMessage.out_ms`; only a copy, which goes back to the wheel, is delivered later than acted on."""
        return act_ms if record[TOPIC] != self._topic else self._describe(record, act_ms).out_ms

    def real_topic(self, record: Outgoing) -> str:
        """Where a record goes in the end, also where its next step is a roll."""
        if record[TOPIC] != self._topic:
            return str(record[TOPIC])
        return next((value.decode() for name, value in record[HEADERS] if name == REAL_TOPIC and value), "")


def _is_delivered_within(query: PendingQuery, payload: bytes) -> bool:
    """Whether the message of a record that rolls is delivered within the bounds; of millions, so by what it takes."""
    return query.spans(int(dict(decode_record(payload)[HEADERS])[TIMER_DELIVER_MS] or 0))
