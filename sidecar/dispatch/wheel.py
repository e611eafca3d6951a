"""One partition of the wheel topic: any delay, exactly once.

    offer     parse ──► already due: straight to the next transaction
                    ──► later: payload log, timer log, wheel
                    ──► cancel, replace: take out what is pending
    take      what is due, in (time, offset) order; what arrived already due after what was due before it arrived
    confirm   the transaction is final: watermark and offset move

The state that must not be lost is in Kafka (`wheel_progress`); the files are a cache of it. After a start, records
between the checkpoint and the committed offset are read again (replay): what the watermark says is done is passed over,
the rest is stored, and nothing is published before that is through.

What arrived already due (`late`) waits in memory, and the committed offset stands at the first of it. Before it go the
stored records that were due by its arrival, whose offsets are all lower; after it the others, which may be higher. So
the watermark never passes a stored record below the committed offset, and no record above that is sent.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import not_
from pathlib import Path
from typing import NamedTuple

import structlog
from confluent_kafka import Message

from connectors.contract import Header
from connectors.kafka import BY_KEY
from sidecar.dispatch.cancels import Cancels, Pending, Tombstone, speaks_of
from sidecar.dispatch.clock_ahead import ClockAhead
from sidecar.dispatch.decisions import Decisions
from sidecar.dispatch.intake_pause import IntakePause
from sidecar.dispatch.late import Late
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.ready import Ready
from sidecar.dispatch.staging import Staging
from sidecar.dispatch.taking_out import TakingOut
from sidecar.dispatch.time_counts import TimeCounts, Window, count_by_time
from sidecar.dispatch.wheel_copies import WheelCopies
from sidecar.dispatch.wheel_figures import WheelFigures
from sidecar.dispatch.wheel_progress import BURIED_MAX, WheelProgress
from sidecar.dispatch.wheel_view import WheelView
from sidecar.intake.alike import Alike
from sidecar.intake.columns import FEW, stretches
from sidecar.intake.copies import Copies
from sidecar.intake.headers import UNREADABLE, UNREADABLE_HEADERS, read_headers
from sidecar.intake.parse_wheel import Cancel, Parsed, Replace, Schedule, WheelParser
from sidecar.intake.progress import Start
from sidecar.pending import PendingAnswer, PendingQuery
from sidecar.plan import Plan
from sidecar.records import Headers, Outgoing, Rejection, brought_by, encode_headers, for_disk
from sidecar.sizes import bytes_of
from sidecar.store.errors import SlotConflict, StoreError
from sidecar.store.files import FileSystem
from sidecar.store.opening import open_store
from sidecar.store.recovery import Owner
from sidecar.store.timer_store import Marks

CHECKPOINT_EVERY_MS = 1_000
LOOK_EVERY_MS = 10_000
"""How often the whole wheel is looked at, some 10 ms in all: for the oldest pending record, and for metrics."""
BEYOND_ALL_OFFSETS = 2**63
MARKS_MAX = 100
"""More than there are transactions while what is at hand is sent, with the default settings."""
HITS_AHEAD_MAX = 200
"""Cancels read ahead of records that came due and wait: as many as fit into the metadata of a commit."""

_UNIQ_KEY = str(Header.UNIQ_KEY)
_TIMER_OUT_MS = str(Header.TIMER_OUT_MS)
_TIMER_ROLL_TIMES = str(Header.TIMER_ROLL_TIMES)
_TIMER_ENQUEUE_MS = str(Header.TIMER_ENQUEUE_MS)

log = structlog.get_logger("timewheel.wheel")


class WheelSettings(NamedTuple):
    """What a wheel partition needs of the settings."""

    plan: Plan
    slots_total: int
    disk_quota_bytes: int | None
    at_hand_records: int
    """Most records in memory that came due or for loaded slots; beyond it the partition is paused until half are sent.

    More than a level's: while it is paused nothing is stored."""
    at_hand_bytes: int
    """The same for the bytes of those that came due, about."""
    directory: Path
    trace: bool = False


class Complete(NamedTuple):
    """The logs up to these marks hold all below the offset that is not done, and nothing from there on."""

    offset: int
    marks: Marks


class WheelPartition:
    """See the module's docstring.

    Args:
        start: committed offset and metadata, and the log's end.
        copies: what this group's own records on the wheel topic carry.
        outages: destinations that take nothing just now.
        owner: whose the directory is.
        tell_outcomes: told after each commit what it made final, and the committed offset: by the offset of the
            cancel, ``cancelled``, ``too_late`` or ``unknown``.

    Where a method raises StoreError or OSError, what is in memory is of no more use: `close`, and begin again from the
    committed progress.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        start: Start,
        settings: WheelSettings,
        parser: WheelParser,
        copies: Copies,
        outages: Outages,
        owner: Owner,
        fs: FileSystem,
        now_ms: int,
        tell_outcomes: Callable[[Mapping[int, str], int], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._pause = IntakePause(partition)
        self._now_ms = now_ms
        """The highest time that has been told."""
        self._told_ms = now_ms
        """The time as it was last told, which may lie behind one that was told before."""
        self._clock_ahead = ClockAhead(partition)
        self._parser = parser
        self._copies = WheelCopies(topic, partition, copies)
        self._outages = outages
        self._trace = settings.trace
        self._at_hand_records = settings.at_hand_records
        self._at_hand_bytes = settings.at_hand_bytes
        self._tell_outcomes = tell_outcomes
        progress = WheelProgress.decode(start.metadata, start.offset, settings.plan)
        self._committed = start.offset
        self._replay_until = start.offset
        self._watermark = progress.watermark
        self._plans = progress.plans
        self._is_plan_old = progress.plans.since[-1][1] != settings.plan
        """Whether the settings hold only after a later start."""
        opened = open_store(
            settings.directory / f"wheel-{partition}",
            fs,
            owner,
            slots_total=settings.slots_total,
            precision_ms=settings.plan.precision_ms,
            quota_bytes=settings.disk_quota_bytes,
            committed_offset=start.offset,
            lowest_needed_offset=progress.lowest_needed,
            live_from_ms=progress.watermark[0],
        )
        self.case = opened.case
        self._store = opened.store
        self.position = self._replay_from = opened.complete_to_offset
        self._ready = Ready(self._store, self._watermark)
        tombstones = [Tombstone(entry[0], entry[-1]) for entry in opened.extra.get("tombstones", [])]
        buried = [progress.lowest_needed + ahead for ahead in progress.buried]
        self._cancels = Cancels(max(start.offset, start.end_offset), tombstones, buried)
        self._oldest_pending = progress.lowest_needed
        self._late = Late()
        self._arriving: list[Outgoing] = []
        """What of the batch that is being taken in is due already."""
        self._copies_read: list[tuple[int, bytes]] = []
        """Offset and id of the roll copies in the batch that is being taken in."""
        hit_before = {start.offset + ahead for ahead in progress.hits_ahead}
        self._sends_from = max([start.offset, *(offset + 1 for offset in hit_before)])
        """What those took out is pending again where it is read again: nothing is sent before they are read, too."""
        self._decisions = Decisions(self._cancels, start.offset, hit_before, self._bring)
        self._brought: dict[int, int] = {}
        """Replacements whose message waits to be sent: their offset, and the one that the message stands at."""
        self._is_waiting_for_late = False
        """Whether nothing more is taken in before what came due is sent."""
        self._is_waiting_for_hand = False
        """The same, before the transaction in hand has come to its end; that is soon, and reading goes on."""
        self._taken: list[Outgoing] = []
        self._buried: list[Outgoing] = []
        """Those of what is taken that go to the dead letters."""
        self._in_hand: dict[bytes, set[str]] | None = None
        """By id, the destinations of that; made when the first cancel asks."""
        self._taken_watermark = self._watermark
        self._taken_position = self.position
        self._taken_lowest_needed = self._committed_lowest_needed = progress.lowest_needed
        self._committed_marks = Complete(self.position, self._store.marks())
        self._marks: deque[Complete] = deque()
        """Later ones, of the beginnings of transactions: each holds once the committed offset has reached its own."""
        topic_names = {int(number): str(name) for number, name in opened.extra.get("topics", [])}
        self._view = WheelView(topic, partition, self._store, self._ready, self._late, topic_names)
        taking_out = TakingOut(self._store, self._ready, self._late, self._view.real_topic)
        self._staging = Staging(self._store, self._ready, self._view, taking_out)
        self._checkpointed_ms = now_ms
        self._is_checkpointed = True
        self._looking: Generator[None, None, None] | None = None
        self._looked_ms = now_ms - LOOK_EVERY_MS  # a process that never lives long must not leave it where it is
        log.info(
            "wheel opened",
            partition=partition,
            found=str(opened.case),
            read_from=self.position,
            committed=start.offset,
            lowest_needed=progress.lowest_needed,
        )
        if self._is_plan_old:
            log.warning(
                "settings not taken over",
                partition=partition,
                plans=len(self._plans.since),
                lowest_needed=progress.lowest_needed,
                operator_action="start again once the oldest pending messages are delivered; until then roll_window, "
                "precision_ms, max_delay and levels hold here as they did before",
            )

    # --- intake -------------------------------------------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        """Whether records before the committed offset, or what they need, are still being read again."""
        return self.position < self._sends_from

    def offer(self, messages: Sequence[Message], now_ms: int) -> None:
        """Take in records of this partition, in offset order.

        Where the disk is full, ``trouble`` says so, and ``position`` stays at the first record that is not taken in.
        """
        if self._is_held or self._is_waiting_for_hand:
            return  # what follows the first record that is not taken in is read again with it
        self._told_ms = now_ms
        now_ms = self._now_ms = max(now_ms, self._now_ms, self._watermark[0])
        if messages and (messages[0].offset() or 0) < self.position:
            messages = [message for message in messages if (message.offset() or 0) >= self.position]
        headers = read_headers(messages)
        try:
            for some in stretches(messages, headers):
                if not (self._stage_alike(*some, now_ms) or self._stage_each(*some, now_ms)):
                    break
            self._take_in(now_ms)
        except (OSError, SlotConflict) as error:
            self._block(error, now_ms)
            if self.is_recovering and isinstance(error, SlotConflict):
                raise  # nothing is sent before the end of the recovery, so that waiting makes no room
        else:
            self._pause.is_over()
        for offset, uniq_key in self._copies_read:
            if offset < self.position:  # else it is read again, and what takes it out has to stay in force
                self._cancels.copy_taken_in(uniq_key, offset)
        self._copies_read.clear()
        if messages:
            self._clock_ahead.record_read(self._told_ms - messages[-1].timestamp()[1])
        self._expire_cancels(now_ms)

    def reached_end(self, offset: int) -> None:
        """There is nothing to read below ``offset``: markers and aborted records leave offsets that hold no record."""
        if self._is_held or self._is_waiting_for_hand:  # there is: from the first record that is not taken in
            return
        self.position = max(self.position, offset)
        self._expire_cancels(self._watermark[0])

    def _stage_alike(self, messages: Sequence[Message], headers: Sequence[Headers | None], now_ms: int) -> bool:
        """Records that are alike, and have not rolled; False: nothing is done yet."""
        plan_from, plan = self._plans.since[-1]
        first, last = messages[0].offset() or 0, messages[-1].offset() or 0
        is_apart = (first < self._replay_until) == (last < self._replay_until)  # from what else is to be read
        if len(messages) <= FEW or self._trace or first < plan_from or not is_apart:
            return False
        alike = self._parser.alike(messages, headers)
        if alike is None or alike.longest_delay_ms > plan.max_delay_ms:
            return False
        rolls_from_ms = _rolls_from_ms(plan)
        if alike.longest_delay_ms < rolls_from_ms:
            self._stage_near(messages, headers, alike, now_ms)
        elif self._staging.cancels:  # which may have to be applied in between
            return False
        else:
            schedules, arriving = self._staging.schedules, self._arriving
            begin, arriving_begin = len(schedules), len(arriving)
            is_near = [due - at < rolls_from_ms for due, at in zip(alike.due_ms, alike.timestamps_ms, strict=True)]
            if any(is_near):
                near = list(compress(messages, is_near)), list(compress(headers, is_near))
                self._stage_near(*near, alike.those(is_near), now_ms)
            is_far = list(map(not_, is_near))
            self._stage_far(compress(messages, is_far), compress(headers, is_far), alike.those(is_far), plan, now_ms)
            schedules[begin:] = sorted(schedules[begin:], key=lambda staged: staged[0][6])
            arriving[arriving_begin:] = sorted(arriving[arriving_begin:], key=lambda record: record[6])
        self.position = last + 1
        return True

    def _stage_near(
        self, messages: Sequence[Message], headers: Sequence[Headers | None], alike: Alike, now_ms: int
    ) -> None:
        """Those of them that do not roll, at least one."""
        first = messages[0].offset() or 0
        is_replayed = first < self._replay_until
        due_ms, schedules = alike.due_ms, self._staging.schedules
        is_any_due = not is_replayed and min(due_ms) <= now_ms
        if is_any_due:
            times = zip(due_ms, alike.timestamps_ms, strict=True)
            due_ms = [due if due >= at else _asked_for_late(due, at, now_ms) for due, at in times]
        is_all_due = is_any_due and max(due_ms) <= now_ms
        told = headers if is_all_due else list(map(encode_headers, headers))  # type: ignore[arg-type]
        records = alike.outgoing(messages, due_ms, told)
        staged = zip(records, due_ms, alike.timestamps_ms, alike.ids, alike.topics, repeat(False), strict=False)
        if is_replayed:
            schedules += [one for one in staged if (one[1], one[0][6]) > self._watermark]
        elif not is_any_due:
            schedules += staged
        else:
            self._apply_cancels_before(first, now_ms)
            if not is_all_due:
                schedules += [one for one in staged if one[1] > now_ms]
                records = [record for record in records if record[5] <= now_ms]
            self._arriving += records

    def _stage_far(
        self, messages: Iterable[Message], headers: Iterable[Headers | None], alike: Alike, plan: Plan, now_ms: int
    ) -> None:
        """Those of them that roll."""
        for message, own_headers, said in zip(messages, headers, zip(*alike, strict=True), strict=True):
            topic, delivered, uniq_key, due_ms, timestamp_ms, offset = said
            parsed = topic, BY_KEY, delivered[:-2], uniq_key, due_ms, 0, offset, 0, 0
            self._schedule(parsed, plan, message, own_headers or [], offset, timestamp_ms, now_ms)

    def _stage_each(self, messages: Sequence[Message], headers: Sequence[Headers | None], now_ms: int) -> bool:
        """Any records; False: one of them is read again, and with it what follows."""
        plain, replay_until, watermark = self._parser.plain, self._replay_until, self._watermark
        schedules, cancels = self._staging.schedules, self._staging.cancels
        last_from, last_plan = self._plans.since[-1]
        plain_from = BEYOND_ALL_OFFSETS if self._trace else last_from
        max_delay_ms, rolls_from_ms = last_plan.max_delay_ms, _rolls_from_ms(last_plan)
        # Short: it runs once a record. `position` is brought up to date for those that look at it.
        for message, own_headers in zip(messages, headers, strict=True):
            offset: int = message.offset()  # type: ignore[assignment]
            own_headers = own_headers or []
            timestamp_ms = message.timestamp()[1]
            found = plain(own_headers, offset, timestamp_ms, max_delay_ms) if offset >= plain_from else None
            if found is None:
                self.position = offset
                if not self._stage(message, own_headers, offset, timestamp_ms, now_ms):
                    return False
            elif (due_ms := found[3]) - timestamp_ms < rolls_from_ms:
                # What `_schedule` does with one that neither rolls nor has rolled.
                topic, delivered, uniq_key, _ = found
                is_replayed = offset < replay_until
                if due_ms < timestamp_ms and not is_replayed:
                    due_ms = _asked_for_late(due_ms, timestamp_ms, now_ms)
                is_due = due_ms <= now_ms and not is_replayed
                told = own_headers if is_due else encode_headers(own_headers)
                record = topic, BY_KEY, message.key(), message.value(), delivered, due_ms, offset, told
                if is_due:
                    if cancels:
                        self._apply_cancels_before(offset, now_ms)
                    self._arriving.append(record)
                elif not is_replayed or (due_ms, offset) > watermark:
                    schedules.append((record, due_ms, timestamp_ms, uniq_key, topic, False))
            else:
                self.position = offset
                topic, delivered, uniq_key, _ = found
                parsed = topic, BY_KEY, delivered[:-2], uniq_key, due_ms, 0, offset, 0, 0
                self._schedule(parsed, last_plan, message, own_headers, offset, timestamp_ms, now_ms)
        self.position = offset + 1
        return True

    def _stage(self, message: Message, headers: Headers, offset: int, timestamp_ms: int, now_ms: int) -> bool:
        """Any record; False: it is read again, and with it what follows."""
        if headers is UNREADABLE_HEADERS:
            self._reject(UNREADABLE, message, [], offset, now_ms)
            return True
        plan = self._plans.of(offset)
        request = self._parser.parse(headers, offset, timestamp_ms, plan)
        if isinstance(request, Rejection):
            self._reject(request, message, headers, offset, now_ms)
            return True
        if isinstance(request, Cancel | Replace):
            return self._stage_cancel(Pending(offset, request, message.key(), message.value(), headers), now_ms)
        self._schedule(request, plan, message, headers, offset, timestamp_ms, now_ms)
        return True

    def _reject(self, rejection: Rejection, message: Message, headers: Headers, offset: int, now_ms: int) -> None:
        """A record that goes to the dead letters."""
        if offset >= self._replay_until:
            self._apply_cancels_before(offset, now_ms)
            self._arriving.append((rejection, BY_KEY, message.key(), message.value(), [], now_ms, offset, headers))

    def _stage_cancel(self, pending: Pending, now_ms: int) -> bool:
        """A cancel or a replacement, to be applied with the batch; False: it is read again, as what follows."""
        staging, offset, request = self._staging, pending.offset, pending.request
        # What is read again is applied by itself: only what follows it has to be remembered.
        is_apart = bool(staging.cancels) and staging.cancels[-1].offset < self._replay_until <= offset
        if is_apart or staging.brings(request.uniq_key):
            self._take_in(now_ms)
        if self._taken and self._is_in_hand(request):  # whether it comes in time is not known yet
            self._is_waiting_for_hand = True
            return False
        # Whether something holds back the committed offset, or will when these are applied.
        is_behind = self._is_behind or staging.is_bringing or isinstance(request, Replace)
        ahead = self._decisions.ahead + len(staging.cancels)
        if is_behind and ahead >= HITS_AHEAD_MAX and offset >= self._sends_from:
            if staging.cancels:  # few of them may have to be remembered
                self._take_in(now_ms)
                return self._stage_cancel(pending, now_ms)
            self._is_waiting_for_late = True
            return False
        staging.cancel(pending)
        return True

    def _apply_cancels_before(self, offset: int, now_ms: int) -> None:
        """Before a record that is due already arrives: it holds back the committed offset behind them alone."""
        self.position = offset
        if self._staging.cancels:
            self._take_in(now_ms)

    def _schedule(
        self,
        parsed: Parsed,
        plan: Plan,
        message: Message,
        source_headers: Headers,
        offset: int,
        timestamp_ms: int,
        now_ms: int,
    ) -> None:
        """A record to deliver: into the next transaction, onto disk, or nowhere, being done or cancelled."""
        topic, partition, headers, uniq_key, due_ms, roll_times, origin_offset, not_before_ms, roll_after_ms = parsed
        replayed = offset < self._replay_until
        window_ms = _rolls_from_ms(plan)
        # The wheel that it comes to may span less than the one that it was postponed by.
        act_ms, rolls = max(due_ms, min(not_before_ms, timestamp_ms + window_ms)), False
        if due_ms - timestamp_ms >= window_ms:
            act_ms, rolls = plan.act_at(timestamp_ms, due_ms, roll_after_ms)
        if origin_offset != offset:
            if self._staging.cancels:  # one of them may have to stay in force for it
                self._take_in(now_ms)
            if self._is_cancelled_copy(Schedule(*parsed), offset):
                return
        if replayed and (act_ms, offset) <= self._watermark:
            return
        if rolls:
            next_roll_ms = 0
            if roll_times and plan.is_old(timestamp_ms, now_ms):
                next_roll_ms = plan.next_roll_ms(act_ms, now_ms)
                if self._cancels.is_on_its_way(uniq_key):
                    self._clock_ahead.copy_was_old(self._told_ms - timestamp_ms)
            record = self._copies.rolled(Schedule(*parsed), message, source_headers, offset, act_ms, next_roll_ms)
        else:
            headers.append((_UNIQ_KEY, uniq_key))
            headers.append((_TIMER_OUT_MS, b"%d" % due_ms))
            if roll_times:
                headers.append((_TIMER_ROLL_TIMES, b"%d" % roll_times))
            if self._trace:
                headers.append((_TIMER_ENQUEUE_MS, b"%d" % now_ms))
            if act_ms < timestamp_ms and origin_offset == offset and not replayed:
                act_ms = _asked_for_late(act_ms, timestamp_ms, now_ms)
            record = topic, partition, message.key(), message.value(), headers, act_ms, offset, source_headers
        if act_ms <= now_ms and not replayed:
            self._apply_cancels_before(offset, now_ms)
            self._arriving.append(record)
        else:
            self._staging.schedules.append((for_disk(record), act_ms, timestamp_ms, uniq_key, topic, rolls))

    def _take_in(self, now_ms: int) -> None:
        """Apply what is staged; what it brings is left in ``_arriving``. Raises what `Staging.take_in` does."""
        self._late.add(now_ms, self._arriving)
        self._arriving = []
        staging = self._staging
        # Where some of it has to be in for anything to be sent, all of it has: sending makes the room.
        within_quota = bool(staging) and staging.first_offset >= self._sends_from
        for cancels, hits in staging.take_in(self._watermark, within_quota=within_quota):
            self._decisions.applied(cancels, hits, self.position, now_ms, is_behind=self._is_behind)

    @property
    def _is_behind(self) -> bool:
        """Whether something holds back the committed offset."""
        return bool(self._late or self._arriving)

    def _block(self, error: OSError | SlotConflict, now_ms: int) -> None:
        """Go back to the first record that is not taken in; it is read again once there is room."""
        self._late.add(now_ms, self._arriving)
        self._arriving = []
        if self._staging:
            self.position = self._staging.first_offset
            self._staging.forget_from(self.position)
            self._late.drop(lambda record: record[6] >= self.position)
        self._decisions.undo_from(self.position)
        self._brought = {offset: at for offset, at in self._brought.items() if at < self.position}
        self._pause.begin(error, now_ms)

    # --- cancels ------------------------------------------------------------------------------------------------------

    def _is_cancelled_copy(self, copy: Schedule, offset: int) -> bool:
        """A copy has come, of a roll or a replacement: whether a cancel before it takes it out."""
        self._copies_read.append((offset, copy.uniq_key))
        hit = self._cancels.copy_read(copy, offset)
        if hit is None:
            return False
        self._decisions.copy_taken_out(hit, offset)
        return True

    def _is_in_hand(self, request: Cancel | Replace) -> bool:
        """Whether something that it names is in the transaction in hand."""
        if self._in_hand is None:
            self._in_hand = {}
            for record in self._taken:
                if not isinstance(record[0], Rejection):
                    uniq_key = next((value for name, value in record[4] if name == _UNIQ_KEY and value), b"")
                    self._in_hand.setdefault(uniq_key, set()).add(self._view.real_topic(record))
        return any(speaks_of(request, topic) for topic in self._in_hand.get(request.uniq_key, ()))

    def _hold(self, taken: list[Outgoing]) -> None:
        self._taken, self._in_hand = taken, None
        self._is_waiting_for_hand = False

    def _bring(self, replacement: Pending, deciding_offset: int) -> None:
        """A replacement is carried out: its message goes out."""
        self._brought[replacement.offset] = deciding_offset
        self._arriving.append(self._copies.brought(replacement, deciding_offset))

    def _expire_cancels(self, now_ms: int) -> None:
        self._decisions.expire(self.position, now_ms)
        self._late.add(now_ms, self._arriving)
        self._arriving = []

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When there is something to publish; None: nothing known, or records are still being read again."""
        if self.is_recovering:
            return None
        arrived_ms = self._late.first_arrived_ms
        if arrived_ms is not None:  # by the watermark, which another replica's clock may have set
            return min(arrived_ms, self._told_ms)
        if not self._ready.loaded_until_ms:
            return 0
        times = [time_ms for time_ms in (self._ready.next_ms, self._next_slot_ms()) if time_ms is not None]
        return min(times, default=None)

    @property
    def _at_hand(self) -> tuple[int, int]:
        """Records with their payloads in memory, and their bytes, about."""
        return self._ready.joined + self._late.count, self._ready.joined_bytes + self._late.size_bytes

    @property
    def _is_held(self) -> bool:
        """Whether intake waits for something that may take long."""
        return bool(self._pause) or self._is_waiting_for_late

    @property
    def is_full(self) -> bool:
        at_hand, size_bytes = self._at_hand
        return self._is_held or (
            not self.is_recovering and (at_hand > self._at_hand_records or size_bytes > self._at_hand_bytes)
        )

    @property
    def has_room(self) -> bool:
        at_hand, size_bytes = self._at_hand
        return not self._is_held and (
            self.is_recovering or (2 * at_hand <= self._at_hand_records and 2 * size_bytes <= self._at_hand_bytes)
        )

    @property
    def trouble(self) -> str:
        if self.is_recovering:
            return f"reads again what is committed, at offset {self.position} of {self._sends_from}"
        return f"intake is paused: {self._pause.reason}" if self._pause.reason else ""

    @property
    def note(self) -> str:
        """What an operator should know of it though nothing is held up; empty when there is nothing."""
        plan_is_old = (
            f"settings have changed {len(self._plans.since)} times since the oldest pending message was written: "
            "roll_window, precision_ms, max_delay and levels change again at a start after it is delivered"
        )
        notes = self._clock_ahead.in_words, plan_is_old if self._is_plan_old else ""
        return "; ".join(note for note in notes if note)

    @property
    def is_disk_full(self) -> bool:
        """Whether intake is paused for want of room and nothing else."""
        return self._pause.is_disk_full

    @property
    def replayed(self) -> tuple[int, int]:
        """Offsets read again since the start, and of how many."""
        until = max(self._replay_from, self._sends_from)
        return min(self.position, until) - self._replay_from, until - self._replay_from

    @property
    def waiting(self) -> int:
        """Records at hand, those on disk only not counted."""
        return self._late.count + self._ready.waiting

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """What is due, for one transaction; `confirm` or `put_back` must follow."""
        if self.is_recovering:
            return []
        self._now_ms = max(self._now_ms, now_ms)
        now_ms = max(now_ms, self._watermark[0])
        records: list[Outgoing] = []
        watermark = self._watermark
        while max_records > 0 and max_bytes > 0:
            # 1. Stored records in order: by now, or what was due before the first of those that arrived due came.
            arrived_ms = self._late.first_arrived_ms
            until_ms = now_ms if arrived_ms is None else arrived_ms
            self._ready.load(until_ms, max_records)
            stored = self._ready.take(until_ms, max_records, max_bytes)
            if stored:
                watermark = max(watermark, (stored[-1][5], stored[-1][6]))
                records = records + stored if records else stored
                max_records -= len(stored)
            if arrived_ms is None or max_records <= 0 or self._is_more_due(until_ms):
                break
            max_bytes -= bytes_of(stored)
            if max_bytes <= 0:
                break
            # 2. Then those.
            _, late, late_bytes = self._late.take(max_records, max_bytes)
            watermark = max(watermark, _last_key(late))
            records = records + late if records else late
            max_records -= len(late)
            max_bytes -= late_bytes
        if self._outages:
            records = self._outages.postponed(records, now_ms, self.partition)
        for uniq_key in self._copies.ids_among(records):
            self._cancels.rolled(uniq_key)
        self._hold(records)
        self._taken_watermark = max(watermark, (self._quiet_until_ms(), -1))
        self._taken_position = self._done_below
        self._taken_lowest_needed = self._lowest_needed(self._taken_position)
        self._mark()
        return records

    def _mark(self) -> None:
        """Remember where the logs end: they hold nothing from ``position`` on, and all before it but what is late.

        That is done when the committed offset has passed it.
        """
        if self._marks and self._marks[-1].offset == self.position:
            self._marks.pop()
        if len(self._marks) < MARKS_MAX:
            self._marks.append(Complete(self.position, self._store.marks()))

    @property
    def _done_below(self) -> int:
        """The first offset that is neither on disk nor sent with what has been taken."""
        first = self._late.first_offset
        return self.position if first is None else min(first, self.position)

    def prepare(self, max_records: int, max_bytes: int) -> None:
        self._ready.prepare(max_records, max_bytes)

    @property
    def progress(self) -> tuple[int, str]:
        """Offset and metadata to commit with what was taken."""
        offset, lowest_needed = self._taken_position, self._taken_lowest_needed
        buried = self._cancels.buried_from(lowest_needed, self._replacements_buried)[-BURIED_MAX:]
        return offset, WheelProgress(
            watermark=self._taken_watermark,
            lowest_needed=lowest_needed,
            plans=self._plans.without_those_before(lowest_needed),
            hits_ahead=tuple(hit - offset for hit in self._decisions.hits_ahead(offset)),
            buried=tuple(replacement - lowest_needed for replacement in buried),
        ).encode()

    @property
    def _replacements_buried(self) -> list[int]:
        found = [brought_by(record, self.topic) for record in self._buried]
        return [offset for offset in found if offset is not None]

    @property
    def has_progress(self) -> bool:
        """Whether a commit would move I or L: a retention may take what lies before L."""
        if self.is_recovering:
            return False
        done_below = self._done_below
        return done_below > self._committed or self._lowest_needed(done_below) > self._committed_lowest_needed

    def confirm(self) -> None:
        self._ready.confirm()
        self._late.confirm()
        self._watermark, self._committed = self._taken_watermark, self._taken_position
        self._committed_lowest_needed = self._taken_lowest_needed
        self._brought = {offset: at for offset, at in self._brought.items() if at >= self._committed}
        self._cancels.passed(self._committed_lowest_needed)
        self._cancels.bury(self._replacements_buried, self._committed_lowest_needed)
        for uniq_key in self._copies.ids_among(self._buried):  # of those that roll, no copy will come
            self._cancels.not_rolled(uniq_key)
        while self._marks and self._marks[0].offset <= self._committed:
            self._committed_marks = self._marks.popleft()
        self._store.advance(self._watermark[0])
        self._hold([])
        self._is_waiting_for_late = self._is_waiting_for_late and bool(self._late)
        self._tell_outcomes(self._decisions.confirm(self._committed), self._committed)
        self._is_checkpointed = False
        self._buried = []

    def bury(self, records: list[Outgoing]) -> None:
        """These of what was taken go to the dead letters; told before `progress` is asked for."""
        self._buried = records

    def put_back(self) -> None:
        self._ready.put_back()
        self._late.put_back()
        self._buried = []
        for uniq_key in self._copies.ids_among(self._taken):
            self._cancels.not_rolled(uniq_key)
        self._hold([])

    def _next_slot_ms(self) -> int | None:
        return self._store.next_slot_ms(self._ready.loaded_until_ms)

    def _is_more_due(self, now_ms: int) -> bool:
        next_ms, slot_ms = self._ready.next_ms, self._next_slot_ms()
        return (next_ms is not None and next_ms <= now_ms) or (slot_ms is not None and slot_ms <= now_ms)

    def _quiet_until_ms(self) -> int:
        """A time before which nothing is pending, with half a lap to spare.

        Without it the watermark would stay where the last message was sent, and what was cancelled since would hold its
        place on the wheel for ever.
        """
        if not self._ready.loaded_until_ms:
            return -1
        # Slots beyond those that are loaded may be more than a lap away, where `_next_slot_ms` sees nothing.
        times = (self._now_ms, self._ready.loaded_until_ms, self._ready.next_ms, self._next_slot_ms())
        return min(time_ms for time_ms in times if time_ms is not None) - self._store.lap_ms // 2

    # --- questions ----------------------------------------------------------------------------------------------------

    def pending(self, query: PendingQuery) -> Generator[None, None, PendingAnswer]:
        """How many messages wait, and the first of them; in steps of some ms, between which all else may go on."""
        return self._view.pending(query)

    def count_by_time(self, window: Window, now_ms: int) -> Generator[None, None, TimeCounts]:
        """How many messages are acted on in each stretch of time; see `time_counts`."""
        return count_by_time(self._store, self._ready, self._late, window, now_ms)

    @property
    def figures(self) -> WheelFigures:
        """For metrics."""
        return self._view.figures()

    # --- housekeeping -------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Between transactions: load the next slot ahead of its time, now and then a checkpoint."""
        self._told_ms = now_ms
        self._now_ms = max(self._now_ms, now_ms)
        self._pause.tick(now_ms)
        if self.is_recovering:
            return
        self._store.advance(self._quiet_until_ms())
        self._store.warm()
        self._ready.load(now_ms + self._store.precision_ms, self._at_hand_records)
        if self._looking is None and now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            self._looking = self._look(now_ms)
        if self._looking is not None and next(self._looking, "over"):
            self._looking = None
        if now_ms - self._checkpointed_ms >= CHECKPOINT_EVERY_MS and not self._is_checkpointed:
            self._checkpointed_ms = now_ms
            self._checkpoint()

    def close(self) -> None:
        """Flush and close; the directory is clean where everything that was read is committed."""
        settled = self._committed == self.position and not self._late and not self._staging
        settled = settled and not self.is_recovering and not self._cancels.is_any_open
        try:
            self._store.close(self._committed if settled else None, self._extra())
        except (OSError, StoreError) as error:
            log.warning(
                "wheel not closed cleanly",
                partition=self.partition,
                reason=str(error),
                operator_action="check the disk under data_dir; the next start reads more of Kafka again",
            )

    def _checkpoint(self) -> None:
        # A cancel in force is nowhere but in memory and in Kafka, as what a replacement brings, until that is sent: no
        # checkpoint may lie behind it.
        offset, marks = self._committed_marks
        is_bringing = any(replacement < offset for replacement in self._brought)
        if is_bringing or self._cancels.is_any_open or self._cancels.is_any_across(offset):
            return
        try:
            self._store.checkpoint(offset, marks, self._extra())
        except OSError as error:
            log.warning(
                "checkpoint failed",
                partition=self.partition,
                reason=str(error),
                operator_action="check the disk under data_dir; the checkpoint before stays, a start takes longer",
            )
        else:
            self._is_checkpointed = True

    def _extra(self) -> dict[str, object]:
        return {
            "tombstones": [list(tombstone) for tombstone in self._cancels.tombstones],
            "topics": self._view.topics_to_keep,
        }

    def _lowest_needed(self, committed: int) -> int:
        # A message that is brought is nowhere else but in its replacement.
        brought = [offset for offset, at in self._brought.items() if at >= committed]
        return self._cancels.lowest_needed(min([self._oldest_pending, *brought]), committed)

    def _look(self, now_ms: int) -> Generator[None, None, None]:
        """Look at the whole wheel, a step a tick; what is stored meanwhile has higher offsets than ``committed``."""
        committed = self._committed
        oldest = yield from self._view.look(now_ms, self._watermark[0])
        found = committed if oldest is None else min(oldest, committed)
        # Never back: a retention has taken what was told as not needed, and after a start a slot holds it again.
        self._oldest_pending = max(self._oldest_pending, found)


def _asked_for_late(due_ms: int, timestamp_ms: int, now_ms: int) -> int:
    """Since when a record is due whose time had passed when it was written: lateness counts from then."""
    return timestamp_ms if timestamp_ms <= now_ms else max(due_ms, now_ms)


def _rolls_from_ms(plan: Plan) -> int:
    """A record rolls that is due so long after its timestamp."""
    return plan.roll_window_ms - plan.precision_ms


def _last_key(records: list[Outgoing]) -> tuple[int, int]:
    """A key that no record that arrived already due lies behind, and no other of that time; rejected ones have none."""
    last_ms = max([record[5] for record in records if type(record[0]) is str], default=-1)
    return last_ms, records[-1][6]
