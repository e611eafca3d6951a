"""One partition of the wheel topic: any delay, exactly once.

    offer     parse ──► already due: straight to the next transaction
                    ──► later: payload log, timer log, wheel
                    ──► cancel, replace: take out what is pending
    take      what is due, in (time, offset) order, with everything that arrived already due
    confirm   the transaction is final: watermark and offset move

The state that must not be lost is in Kafka (`wheel_progress`); the files are a cache of it. After a start, records
between the checkpoint and the committed offset are read again (replay): what the watermark says is done is passed over,
the rest is stored, and nothing is published before that is through.

A transaction takes everything that arrived already due, because the committed offset may only move past a record that
is stored or published; and the watermark moves past those, so no pending record before them may be left behind. Where
there is such a backlog, records that came due behind it are stored and wait their turn.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog
from confluent_kafka import Message

from connectors.contract import ErrorCode, Header
from sidecar.dispatch.cancels import Cancels, Pending, Tombstone, speaks_of
from sidecar.dispatch.ready import Joined, Ready
from sidecar.dispatch.wheel_progress import WheelProgress
from sidecar.intake.parse_wheel import Cancel, Replace, Schedule, WheelParser
from sidecar.intake.progress import Start
from sidecar.pending import PendingAnswer, PendingMessage, PendingQuery
from sidecar.plan import Plan
from sidecar.records import BY_KEY, Headers, Outgoing, Rejection, decode_record, encode_record
from sidecar.store.errors import SlotConflict
from sidecar.store.files import FileSystem
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.recovery import Owner
from sidecar.store.timer_store import Loaded, Marks, open_store

CHECKPOINT_EVERY_MS = 1_000
TRY_AGAIN_MS = 1_000
"""How long intake pauses before it tries a full disk again."""
OLDEST_EVERY_MS = 10_000
JOINED_MAX = 50_000
"""Records for loaded slots that are kept at hand; beyond it the partition is paused until some are sent."""

_UNIQ_KEY = str(Header.UNIQ_KEY)
_REAL_TOPIC = str(Header.REAL_TOPIC)
_REAL_QID = str(Header.REAL_QID)
_TIMER_OUT_MS = str(Header.TIMER_OUT_MS)
_TIMER_ROLL_TIMES = str(Header.TIMER_ROLL_TIMES)
_TIMER_DELIVER_MS = str(Header.TIMER_DELIVER_MS)
_TIMER_ENQUEUE_MS = str(Header.TIMER_ENQUEUE_MS)

_UNREADABLE = Rejection(
    ErrorCode.UNREADABLE_HEADERS, "a header's name is not UTF-8 text, so that no header of this record can be read"
)
_by_time = itemgetter(5)

log = structlog.get_logger("timewheel.wheel")


class WheelSettings(NamedTuple):
    """What a wheel partition needs of the settings."""

    plan: Plan
    slots_total: int
    directory: Path
    trace: bool = False


class Staged(NamedTuple):
    """A record to be stored with its batch."""

    record: Outgoing
    act_ms: int
    timestamp_ms: int
    uniq_key: bytes
    real_topic: str
    rolls: bool


class WheelPartition:
    """See the module's docstring.

    Args:
        start: committed offset and metadata, and the log's end.
        owner: whose the directory is.
        count_cancel: told each cancel's outcome once it is final: ``cancelled``, ``too_late``, ``unknown``.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        start: Start,
        settings: WheelSettings,
        parser: WheelParser,
        owner: Owner,
        fs: FileSystem,
        now_ms: int,
        count_cancel: Callable[[str, int], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._blocked_ms = 0
        self.blocked = ""
        """Why intake cannot go on (a full disk); empty while it can."""
        self._parser = parser
        self._trace = settings.trace
        self._count_cancel = count_cancel
        progress = WheelProgress.decode(start.metadata, start.offset, settings.plan)
        self._committed = start.offset
        self._replay_until = start.offset
        self._watermark = progress.watermark
        self._plans = progress.plans
        opened = open_store(
            settings.directory / f"wheel-{partition}",
            fs,
            owner,
            slots_total=settings.slots_total,
            precision_ms=settings.plan.precision_ms,
            committed_offset=start.offset,
            lowest_needed_offset=progress.lowest_needed,
            live_from_ms=progress.watermark[0],
        )
        self.case = opened.case
        self._store = opened.store
        self.position = opened.complete_to_offset
        self._ready = Ready(self._store, self._watermark)
        tombstones = [Tombstone(*entry) for entry in opened.extra.get("tombstones", [])]
        self._cancels = Cancels(max(start.offset, start.end_offset), tombstones)
        self._oldest_pending = progress.lowest_needed
        self._late: list[Outgoing] = []
        self._staged: list[Staged] = []
        self._copies_read: list[tuple[int, bytes]] = []
        """Offset and id of the roll copies in the batch that is being taken in."""
        self._has_hit: set[int] = set()
        """Offsets of the cancels in force that have taken something out."""
        self._outcomes: dict[int, str] = {}
        """By the cancel's offset; told once that is below the committed one."""
        self._taken_late: list[Outgoing] = []
        self._taken: list[Outgoing] = []
        self._taken_watermark = self._watermark
        self._taken_position = self.position
        self._taken_marks: Marks = self._store.marks()
        self._committed_marks = self._taken_marks
        self._checkpointed_ms = now_ms
        self._is_checkpointed = True
        self._oldest_ms = now_ms
        log.info(
            "wheel opened",
            partition=partition,
            found=str(opened.case),
            read_from=self.position,
            committed=start.offset,
            lowest_needed=progress.lowest_needed,
        )

    # --- intake -------------------------------------------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        """Whether records before the committed offset are still being read again."""
        return self.position < self._replay_until

    def offer(self, messages: Sequence[Message], now_ms: int) -> None:
        """Take in records of this partition, in offset order.

        Where the disk is full, ``blocked`` says so, and ``position`` stays at the first record that is not taken in.
        """
        if self.blocked:  # what follows the first record that is not taken in is read again with it
            return
        now_ms = max(now_ms, self._watermark[0])
        cancels: list[Pending] = []
        try:
            for message in messages:
                offset: int = message.offset()  # type: ignore[assignment]
                if offset < self.position:
                    continue
                plan = self._plans.of(offset)
                try:
                    headers: Headers = message.headers() or []  # type: ignore[assignment]
                    timestamp_ms = message.timestamp()[1]
                    request = self._parser.parse(headers, offset, timestamp_ms, plan)
                except UnicodeDecodeError:
                    headers, request = [], _UNREADABLE
                if isinstance(request, Schedule) and not cancels:
                    self._schedule(request, plan, message, offset, timestamp_ms, now_ms)
                elif isinstance(request, Cancel | Replace):
                    self._store_staged()
                    cancels.append(Pending(offset, request, message.key(), message.value()))
                else:
                    if cancels:
                        self._apply_cancels(cancels, now_ms)
                        cancels = []
                    if isinstance(request, Schedule):
                        self._schedule(request, plan, message, offset, timestamp_ms, now_ms)
                    elif offset >= self._replay_until:
                        self._late.append(
                            (request, BY_KEY, message.key(), message.value(), [], now_ms, offset, headers)
                        )
                self.position = offset + 1
            self._store_staged()
            if cancels:
                self._apply_cancels(cancels, now_ms)
        except (OSError, SlotConflict) as error:
            self._block(error, cancels, now_ms)
        for offset, uniq_key in self._copies_read:
            if offset < self.position:  # else it is read again, and what takes it out has to stay in force
                self._cancels.copy_taken_in(uniq_key)
        self._copies_read.clear()
        self._expire_cancels(now_ms)

    def reached_end(self, offset: int) -> None:
        """There is nothing to read below ``offset``: markers and aborted records leave offsets that hold no record."""
        if self.blocked:  # there is: from the first record that is not taken in
            return
        self.position = max(self.position, offset)
        self._expire_cancels(self._watermark[0])

    def _schedule(
        self, schedule: Schedule, plan: Plan, message: Message, offset: int, timestamp_ms: int, now_ms: int
    ) -> None:
        """A record to deliver: into the next transaction, onto disk, or nowhere, being done or cancelled."""
        replayed = offset < self._replay_until
        act_ms, rolls = plan.act_at(timestamp_ms, schedule.due_ms)
        if schedule.roll_times:
            self._copies_read.append((offset, schedule.uniq_key))
            hit = self._cancels.copy_read(schedule, act_ms, offset)
            if hit is not None:
                if not replayed:
                    self._decided("cancelled", hit)
                return
        if replayed and (act_ms, offset) <= self._watermark:
            return
        if rolls:
            record = self._roll(schedule, message, offset, act_ms)
        else:
            record = self._deliver(schedule, message, offset, now_ms)
        if act_ms <= now_ms and not replayed:
            self._late.append(record)
        else:
            self._staged.append(Staged(record, act_ms, timestamp_ms, schedule.uniq_key, schedule.topic, rolls))

    def _deliver(self, schedule: Schedule, message: Message, offset: int, now_ms: int) -> Outgoing:
        headers = schedule.carried
        headers.append((_UNIQ_KEY, schedule.uniq_key))
        headers.append((_TIMER_OUT_MS, b"%d" % schedule.due_ms))
        if schedule.roll_times:
            headers.append((_TIMER_ROLL_TIMES, b"%d" % schedule.roll_times))
        if self._trace:
            headers.append((_TIMER_ENQUEUE_MS, b"%d" % now_ms))
        return (
            schedule.topic,
            schedule.partition,
            message.key(),
            message.value(),
            headers,
            schedule.due_ms,
            offset,
            schedule.control,
        )

    def _roll(self, schedule: Schedule, message: Message, offset: int, act_ms: int) -> Outgoing:
        """The copy that a roll writes to the end of this partition, with the absolute time and the id."""
        headers = self._wheel_headers(schedule)
        headers += self._parser.roll_headers(
            schedule.uniq_key, schedule.origin_offset, schedule.roll_times + 1, schedule.due_ms
        )
        return self.topic, self.partition, message.key(), message.value(), headers, act_ms, offset, schedule.control

    def _wheel_headers(self, schedule: Schedule) -> Headers:
        headers = [*schedule.carried, (_REAL_TOPIC, schedule.topic.encode())]
        if schedule.partition != BY_KEY:
            headers.append((_REAL_QID, b"%d" % schedule.partition))
        return headers

    def _store_staged(self) -> None:
        """Put the batch on disk; what falls into a loaded slot also joins what is about to be sent."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        try:
            stored = self._store.put(
                [encode_record(one.record) for one in staged],
                np.fromiter((one.act_ms for one in staged), np.int64, len(staged)),
                np.fromiter((one.timestamp_ms for one in staged), np.int64, len(staged)),
                hash_ids([one.uniq_key for one in staged]),
                np.fromiter((hash_topic(one.real_topic) for one in staged), np.int32, len(staged)),
                np.fromiter((one.rolls for one in staged), np.bool_, len(staged)),
            )
        except (OSError, SlotConflict):
            self._staged = staged
            raise
        for number in np.flatnonzero(stored.act_ms < self._ready.loaded_until_ms):
            one = staged[number]
            self._ready.join(Joined((one.act_ms, one.record[6]), one.record, stored.where(np.array([number]))))

    def _block(self, error: OSError | SlotConflict, cancels: list[Pending], now_ms: int) -> None:
        """Go back to the first record that is not taken in; it is read again once there is room."""
        firsts = [one.record[6] for one in self._staged] + [pending.offset for pending in cancels]
        self._staged = []
        if firsts:
            self.position = min(firsts)
            self._late = [record for record in self._late if record[6] < self.position]
        self._outcomes = {offset: outcome for offset, outcome in self._outcomes.items() if offset < self.position}
        self.blocked = f"{error.strerror}" if isinstance(error, OSError) else str(error)
        self._blocked_ms = now_ms
        log.error(
            "wheel intake paused",
            partition=self.partition,
            reason=self.blocked,
            operator_action="make room in data_dir; intake goes on by itself",
        )

    # --- cancels ------------------------------------------------------------------------------------------------------

    def _apply_cancels(self, cancels: list[Pending], now_ms: int) -> None:
        """Take out what the cancels name, in one pass over what is pending."""
        hits: dict[int, int] = {}

        by_id: dict[bytes, list[Pending]] = {}
        for pending in cancels:
            by_id.setdefault(pending.uniq_key, []).append(pending)

        def matches(record: Outgoing) -> bool:
            for name, value in record[4]:
                if name == _UNIQ_KEY and value in by_id:
                    topic = self._real_topic(record)
                    for pending in by_id[value]:
                        if record[6] < pending.offset and speaks_of(pending.request, topic):
                            hits[pending.offset] = hits.get(pending.offset, 0) + 1
                            return True
            return False

        late, loaded = self._late, self._ready.snapshot()
        try:
            self._take_out(cancels, hits, matches)
        except OSError:
            # Nothing is taken out: the cancels are read again once there is room, and have to find it then.
            self._late = late
            self._ready.restore(loaded)
            raise
        # 4. Outcomes; where a roll copy may still come, the cancel stays in force.
        for pending in cancels:
            kept = self._cancels.keep(pending, self.position)
            if pending.offset < self._replay_until:
                continue
            if pending.offset in hits:
                self._decided("cancelled", pending)
            elif not kept:
                self._decided(_missed(pending, now_ms), pending)
            if not kept:
                self._has_hit.discard(pending.offset)

    def _take_out(self, cancels: list[Pending], hits: dict[int, int], matches: Callable[[Outgoing], bool]) -> None:
        # 1. What waits for the next transaction, then what is loaded: both are in memory.
        self._late = [record for record in self._late if isinstance(record[0], Rejection) or not matches(record)]
        id_hashes = hash_ids([pending.uniq_key for pending in cancels])
        removed = [self._ready.drop(matches, id_hashes)]
        # 2. What is on disk only: in the slot that a cancel names, then wherever it is.
        missed = [pending for pending in cancels if pending.offset not in hits]
        hinted = [pending for pending in missed if isinstance(pending.request, Cancel) and pending.request.deliver_ms]
        for pending in hinted:
            deliver_ms: int = pending.request.deliver_ms  # type: ignore[union-attr, assignment]
            if deliver_ms >= self._ready.loaded_until_ms:
                found = self._store.find_in_slot(hash_ids([pending.uniq_key]), deliver_ms)
                removed.append(self._matching(found, matches))
        missed = [pending for pending in cancels if pending.offset not in hits]
        if missed:
            found = self._store.find(
                hash_ids([pending.uniq_key for pending in missed]), max(self._ready.loaded_until_ms, self._watermark[0])
            )
            removed.append(self._matching(found, matches))
        # 3. All of them in one write: all or none.
        self._store.delete(Loaded.joined(removed))

    def _matching(self, found: Loaded, matches: Callable[[Outgoing], bool]) -> Loaded:
        """Those that match and are pending: before the first slot is loaded, the store also tells of what is done."""
        records = map(decode_record, self._store.read(found.payload_pos, found.payload_size))
        kept = [(record[5], record[6]) > self._watermark and matches(record) for record in records]
        return found.where(np.array(kept, np.bool_))

    def _real_topic(self, record: Outgoing) -> str:
        """Where a record goes in the end, also where its next step is a roll."""
        if record[0] != self.topic:
            return str(record[0])
        return next((value.decode() for name, value in record[4] if name == _REAL_TOPIC and value), "")

    def _decided(self, outcome: str, pending: Pending) -> None:
        """A cancel's outcome is known; a replacement's message goes out with it, as an ordinary wheel record.

        Known once: one that has hit and stays in force may hit again, where ids are reused, and ends in force.
        """
        if pending.offset in self._has_hit:
            return
        if outcome == "cancelled":
            self._has_hit.add(pending.offset)
        if isinstance(pending.request, Replace):
            outcome = "cancelled" if outcome == "cancelled" else "too_late"
            if outcome == "cancelled":
                self._late.append(self._replacement(pending, pending.request.schedule))
        self._outcomes[pending.offset] = outcome

    def _replacement(self, pending: Pending, schedule: Schedule) -> Outgoing:
        headers = self._wheel_headers(schedule)
        headers += [(_UNIQ_KEY, schedule.uniq_key), (_TIMER_DELIVER_MS, b"%d" % schedule.due_ms)]
        return self.topic, self.partition, pending.key, pending.value, headers, 0, pending.offset, schedule.control

    def _expire_cancels(self, now_ms: int) -> None:
        for pending in self._cancels.expire(self.position):
            if pending.offset >= self._replay_until:
                self._decided(_missed(pending, now_ms), pending)
            self._has_hit.discard(pending.offset)

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When there is something to publish; None: nothing known, or records are still being read again."""
        if self.is_recovering:
            return None
        if self._late:
            return 0
        if not self._ready.loaded_until_ms:
            return 0
        times = [time_ms for time_ms in (self._ready.next_ms, self._next_slot_ms()) if time_ms is not None]
        return min(times, default=None)

    @property
    def is_full(self) -> bool:
        return bool(self.blocked) or self._ready.joined > JOINED_MAX

    @property
    def has_room(self) -> bool:
        return not self.blocked and 2 * self._ready.joined <= JOINED_MAX

    @property
    def waiting(self) -> int:
        """Records at hand, those on disk only not counted."""
        return len(self._late) + self._ready.waiting

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """What is due, for one transaction; `confirm` or `put_back` must follow.

        May be more than ``max_records`` by what arrived already due: that cannot be left out.
        """
        if self.is_recovering:
            return []
        now_ms = max(now_ms, self._watermark[0])
        room = max(0, max_records - len(self._late))
        # 1. Stored records in order, as many as there is room for.
        self._ready.load(now_ms, max_records)
        stored = self._ready.take(now_ms, room, max_bytes) if room else []
        watermark = max(self._watermark, (stored[-1][5], stored[-1][6])) if stored else self._watermark
        # 2. Where more of them are due, what arrived due behind them is stored: the watermark may not pass those. They
        #    are due by the time of what arrived also where nothing is to be sent by now (`now_ms` in the past).
        if self._late and self._is_more_due(max(now_ms, self._latest_late_ms())):
            self._spill(watermark)
        # 3. Everything else that arrived already due.
        late, self._late = self._late, []
        watermark = max(watermark, _last_key(late))
        records = sorted(late + stored, key=_by_time) if stored else late
        for record in records:
            if record[0] == self.topic:
                self._note_copy(record, self._cancels.rolled)
        self._taken_late, self._taken = late, records
        self._taken_watermark, self._taken_position = watermark, self.position
        self._taken_marks = self._store.marks()
        return records

    @property
    def progress(self) -> tuple[int, str]:
        """Offset and metadata to commit with what was taken."""
        offset = self._taken_position
        return offset, WheelProgress(
            watermark=self._taken_watermark, lowest_needed=self._lowest_needed(offset), plans=self._plans
        ).encode()

    @property
    def has_progress(self) -> bool:
        return not self.is_recovering and self.position > self._committed

    def confirm(self) -> None:
        self._ready.confirm()
        self._watermark, self._committed = self._taken_watermark, self._taken_position
        self._committed_marks = self._taken_marks
        self._store.advance(self._watermark[0])
        final = {offset: outcome for offset, outcome in self._outcomes.items() if offset < self._committed}
        for outcome, count in Counter(final.values()).items():
            self._count_cancel(outcome, count)
        for offset in final:
            del self._outcomes[offset]
        self._is_checkpointed = False
        self._taken_late, self._taken = [], []

    def put_back(self) -> None:
        self._ready.put_back()
        self._late = self._taken_late + self._late
        waiting: list[Pending] = []
        for record in self._taken:
            if record[0] == self.topic:
                self._note_copy(record, lambda uniq_key: waiting.extend(self._cancels.taken_back(uniq_key)))
        self._taken_late, self._taken = [], []
        if waiting:
            self._apply_cancels(sorted(waiting, key=lambda pending: pending.offset), self._watermark[0])

    def _note_copy(self, record: Outgoing, note: Callable[[bytes], None]) -> None:
        names = dict(record[4])
        uniq_key = names.get(_UNIQ_KEY)
        if uniq_key is not None and _TIMER_ROLL_TIMES in names:
            note(uniq_key)

    def _next_slot_ms(self) -> int | None:
        return self._store.next_slot_ms(self._ready.loaded_until_ms)

    def _is_more_due(self, now_ms: int) -> bool:
        next_ms, slot_ms = self._ready.next_ms, self._next_slot_ms()
        return (next_ms is not None and next_ms <= now_ms) or (slot_ms is not None and slot_ms <= now_ms)

    def _latest_late_ms(self) -> int:
        return max((record[5] for record in self._late if not isinstance(record[0], Rejection)), default=0)

    def _spill(self, watermark: tuple[int, int]) -> None:
        kept = []
        for record in self._late:
            if isinstance(record[0], Rejection) or (record[5], record[6]) <= watermark:
                kept.append(record)
                continue
            uniq_key = next((value for name, value in record[4] if name == _UNIQ_KEY and value), b"")
            rolls = record[0] == self.topic
            self._staged.append(Staged(record, record[5], record[5], uniq_key, self._real_topic(record), rolls))
        self._store_staged()
        self._late = kept

    # --- questions ----------------------------------------------------------------------------------------------------

    def pending(self, query: PendingQuery) -> PendingAnswer:
        """How many messages wait, and the first of them."""
        id_hash = int(hash_ids([query.id.encode()])[0]) if query.id is not None else None
        topic_hash = hash_topic(query.topic) if query.topic is not None else None
        total, found = self._store.query(
            max(query.from_ms, self._ready.loaded_until_ms),
            query.until_ms,
            query.limit,
            id_hash=id_hash,
            topic_hash=topic_hash,
        )
        at_hand = self._ready.pending()
        mine = (at_hand.act_ms >= query.from_ms) & (at_hand.act_ms < query.until_ms)
        if id_hash is not None:
            mine &= at_hand.id_hash == id_hash
        if topic_hash is not None:
            mine &= at_hand.topic_hash == topic_hash
        at_hand = at_hand.where(mine)
        total += len(at_hand.act_ms)
        merged = Loaded.joined([at_hand, found])
        first = merged.where(np.argsort(merged.act_ms, kind="stable")[: query.limit])
        messages = [self._describe(decode_record(p)) for p in self._store.read(first.payload_pos, first.payload_size)]
        if query.id is not None:  # a hash may be another id's
            messages = [message for message in messages if message.id == query.id]
            total = min(total, len(messages)) if total <= query.limit else total
        return PendingAnswer(total, messages)

    def _describe(self, record: Outgoing) -> PendingMessage:
        headers = dict(record[4])
        deliver_ms = headers.get(_TIMER_DELIVER_MS) if record[0] == self.topic else None
        return PendingMessage(
            id=(headers.get(_UNIQ_KEY) or b"").decode(errors="backslashreplace"),
            topic=self._real_topic(record),
            deliver_ms=int(deliver_ms) if deliver_ms else record[5],
            partition=self.partition,
            offset=record[6],
        )

    # --- housekeeping -------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Between transactions: load the next slot ahead of its time, now and then a checkpoint."""
        if self.blocked and now_ms - self._blocked_ms >= TRY_AGAIN_MS:
            self.blocked = ""  # has room again, as far as is known: intake tries
        if self.is_recovering:
            return
        self._ready.load(now_ms + self._store.precision_ms, JOINED_MAX)
        if now_ms - self._oldest_ms >= OLDEST_EVERY_MS:
            self._oldest_ms = now_ms
            self._oldest_pending = self._find_oldest_pending()
        if now_ms - self._checkpointed_ms >= CHECKPOINT_EVERY_MS and not self._is_checkpointed:
            self._checkpointed_ms = now_ms
            self._checkpoint()

    def close(self) -> None:
        """Flush and close; the directory is clean where everything that was read is committed."""
        settled = self._committed == self.position and not self._late and not self._staged
        settled = settled and not self.is_recovering and not self._cancels.is_any_in_force
        try:
            self._store.close(self._committed if settled else None, self._extra())
        except OSError as error:
            log.warning("wheel not closed cleanly, it is cut back at the next start", reason=str(error))

    def _checkpoint(self) -> None:
        # A cancel in force is nowhere but in memory and in Kafka: no checkpoint may lie behind it.
        if self._cancels.is_any_in_force:
            return
        try:
            self._store.checkpoint(self._committed, self._committed_marks, self._extra())
        except OSError as error:
            log.warning("checkpoint failed, the one before stays", partition=self.partition, reason=str(error))
        else:
            self._is_checkpointed = True

    def _extra(self) -> dict[str, object]:
        return {"tombstones": [list(tombstone) for tombstone in self._cancels.tombstones]}

    def _lowest_needed(self, committed: int) -> int:
        cancels = self._cancels.lowest_needed(self._taken_watermark)
        return min(committed, self._oldest_pending, committed if cancels is None else cancels)

    def _find_oldest_pending(self) -> int:
        found = self._store.oldest(self._watermark[0])
        if found is None:
            return self._committed
        (payload,) = self._store.read(np.array(found[:1]), np.array(found[1:], np.int32))
        return min(decode_record(payload)[6], self._committed)


def _last_key(records: list[Outgoing]) -> tuple[int, int]:
    """The highest (time, offset) of records that arrived already due; rejected ones have none."""
    kept = [record for record in records if not isinstance(record[0], Rejection)]
    last_ms = max(map(_by_time, kept), default=-1)
    return last_ms, max((record[6] for record in kept if record[5] == last_ms), default=-1)


def _missed(pending: Pending, now_ms: int) -> str:
    """Nothing was pending: sent already, as far as the cancel tells, or never heard of."""
    if isinstance(pending.request, Replace):
        return "too_late"
    deliver_ms = pending.request.deliver_ms
    return "too_late" if deliver_ms is not None and deliver_ms <= now_ms else "unknown"
