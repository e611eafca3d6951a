"""What becomes of the records of a wheel topic's partition when they are read, batch by batch.

    already due          ──► `late`, for the next transaction
    due later            ──► `staging`: payload log, timer log, wheel
    cancel, replacement  ──► `staging`: it takes out what is pending
    of no use            ──► `late`, as a dead letter

A batch is staged in memory and then put on disk at once. Where that fails, ``position`` goes back to the first record
that is not on disk, which is read again later with all that follows it.

Records below the offset that was committed at the start have been read by an earlier process, and are read again. Those
that the watermark has passed are done; the others go to disk, even if they are due: nothing is sent before all of them
are read.
"""

from collections.abc import Callable, Sequence
from itertools import compress, count, repeat
from operator import ge

from confluent_kafka import Message

from connectors.contract import Headers
from connectors.header_names import TIMER_ENQUEUE_MS, TIMER_OUT_MS, TIMER_ROLL_TIMES, UNIQ_KEY
from connectors.kafka import BY_KEY
from sidecar.cancel_outcomes import CancelOutcome
from sidecar.dispatch.late import Late
from sidecar.dispatch.wheel.cancels import BEYOND_ALL_OFFSETS, CancelRead, Cancels
from sidecar.dispatch.wheel.clock_ahead import ClockAhead
from sidecar.dispatch.wheel.copies import WheelCopies
from sidecar.dispatch.wheel.decisions import Decisions
from sidecar.dispatch.wheel.in_hand import InHand
from sidecar.dispatch.wheel.in_seconds import TEN_DIGITS, InSeconds
from sidecar.dispatch.wheel.intake_pause import IntakePause
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.dispatch.wheel.staging import Staging
from sidecar.intake.alike import Alike
from sidecar.intake.columns import FEW, stretches
from sidecar.intake.copies import ELSEWHERE
from sidecar.intake.headers import UNREADABLE, UNREADABLE_HEADERS, read_headers
from sidecar.intake.parse_wheel import Cancel, Parsed, Replace, Schedule, WheelParser
from sidecar.intake.progress import Start
from sidecar.plan import Plan
from sidecar.records import DUE_MS, OFFSET, Outgoing, Rejection, encode_headers, for_disk
from sidecar.store.errors import SlotConflict, is_disk_full

HITS_AHEAD_MAX_BYTES = 1_400
"""Cancels are read ahead of records that came due and wait, as long as a commit's metadata has room for them: so much
of the 4,096 bytes that brokers keep (``offset.metadata.max.bytes``), which is enough for some 200."""


class WheelIntake:
    """Takes in what is read of one partition; see the module's docstring.

    Args:
        start, progress: what was committed, and the log's end.
        read_from: the first offset that the files do not hold.
        monotonic_ms: a clock that never steps.
        trace: whether each message is to carry the time when it was read.
    """

    def __init__(
        self,
        partition: str,
        *,
        start: Start,
        progress: WheelProgress,
        read_from: int,
        parser: WheelParser,
        copies: WheelCopies,
        cancels: Cancels,
        staging: Staging,
        late: Late,
        in_hand: InHand,
        monotonic_ms: Callable[[], float],
        trace: bool,
    ) -> None:
        self.position = self._replay_from = read_from
        """The next offset to be read."""
        self._replay_until = start.offset
        self._committed = start.offset
        self.watermark = progress.watermark
        """All up to it and below the committed offset is done."""
        self.plans = progress.plans
        """By which records are read."""
        self.copied_below = progress.copied_below
        """As `WheelProgress.copied_below`."""
        self._parser = parser
        self._copies = copies
        self._cancels = cancels
        self._staging = staging
        self._late = late
        self._in_hand = in_hand
        self._trace = trace
        self._told_ms = 0
        """The clock when the batch in work came: ``now_ms`` never goes back, and may lie ahead of it."""
        self.pause = IntakePause(partition, monotonic_ms)
        self.clock_ahead = ClockAhead(partition)
        self._in_seconds = InSeconds(partition)
        ahead = {start.offset + ahead for ahead in progress.hits_ahead}
        self._hit_before = {offset for offset in ahead if offset < start.end_offset}  # the others have been lost
        in_doubt = {progress.lowest_needed + ahead for ahead in progress.in_doubt}
        self._hit_before |= {offset for offset in in_doubt if offset < start.offset}  # the others are read anew
        self._sends_from = self._behind_hits()
        """Nothing is sent before this offset is reached: what the cancels in ``_hit_before`` had taken out is pending
        again until they are read again, too."""
        self.decisions = Decisions(cancels, start.offset, self._hit_before, self._bring)
        self.brought: dict[int, int] = {}
        """Replacements whose message waits to be sent: their offset, and the one that the message stands at."""
        self._arriving: list[Outgoing] = []
        """Records of the batch in work that are due already, in offset order."""
        self._before_all: list[Outgoing] = []
        """What replacements in doubt bring, which goes out before anything else."""
        self._copies_read: list[tuple[int, bytes]] = []
        """Offset and id of each roll copy in the batch in work."""
        self.has_cancels = False
        """Whether there were any among the records offered last."""
        self._is_waiting_for_late = False
        """Whether nothing more is taken in until what arrived already due has been sent."""

    @property
    def is_recovering(self) -> bool:
        """Whether records before the committed offset, or what they need, are still being read again."""
        return self.position < self._sends_from

    @property
    def replayed(self) -> tuple[int, int]:
        """Offsets read again since the start, and of how many."""
        until = max(self._replay_from, self._sends_from)
        return min(self.position, until) - self._replay_from, until - self._replay_from

    @property
    def is_held(self) -> bool:
        """Whether intake waits for something that may take long."""
        return bool(self.pause) or self._is_waiting_for_late

    @property
    def trouble(self) -> str:
        if self.is_recovering:
            why = f"; {self.pause.reason}" if self.pause.reason else ""
            return f"reads again what is committed, at offset {self.position} of {self._sends_from}{why}"
        return f"intake is paused: {self.pause.reason}" if self.pause.reason else ""

    # --- batches ------------------------------------------------------------------------------------------------------

    def offer(self, messages: Sequence[Message], now_ms: int, told_ms: int) -> None:
        """Take in records of this partition, in offset order.

        Args:
            now_ms: the highest time that was ever told.
            told_ms: the clock.
        """
        if self.is_held or self._in_hand.is_awaited:
            return  # what follows the first record that is not taken in is read again with it
        self._told_ms = told_ms
        self.has_cancels = False
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
            if self.is_recovering and not is_disk_full(error):
                raise  # nothing is sent before the end of the recovery, so that waiting mends nothing
        else:
            self.pause.is_over()
        for offset, uniq_key in self._copies_read:
            if offset < self.position:  # else it is read again, and what takes it out has to stay in force
                self._cancels.copy_taken_in(uniq_key, offset)
        self._copies_read.clear()
        self._in_seconds.tell()
        if messages:
            self.clock_ahead.record_read(told_ms - messages[-1].timestamp()[1])
        self._expire_cancels(now_ms)

    def reached_end(self, offset: int, now_ms: int) -> None:
        """There is nothing to read below ``offset``: markers and aborted records leave offsets that hold no record.

        Args:
            now_ms: the highest time that was ever told.
        """
        if self.is_held or self._in_hand.is_awaited:  # there is: from the first record that is not taken in
            return
        self.position = max(self.position, offset)
        self._expire_cancels(now_ms)

    def lost_end(self, offset: int) -> None:
        """The cancels from there on that had taken something out are gone; others stand in their place."""
        self._hit_before -= {hit for hit in self._hit_before if hit >= offset}
        self._sends_from = self._behind_hits()

    def _behind_hits(self) -> int:
        return max([self._replay_until, *(hit + 1 for hit in self._hit_before)])

    def confirm(self, watermark: tuple[int, int], committed: int) -> dict[int, CancelOutcome]:
        """The transaction in hand is final, and the progress with it.

        Returns:
            By the offset of the cancel, the outcomes that are final now.
        """
        self.watermark = watermark
        self._committed = committed
        first = self._late.first_offset
        self.brought = {offset: at for offset, at in self.brought.items() if first is not None and at >= first}
        self._is_waiting_for_late = self._is_waiting_for_late and bool(self._late)
        return self.decisions.confirm(committed)

    def in_doubt(self, sent_below: int) -> list[int]:
        """As `WheelProgress.in_doubt`, by their offsets.

        Args:
            sent_below: the first offset that is neither on disk nor sent.
        """
        unsent = [offset for offset, at in self.brought.items() if offset < self._replay_until and at >= sent_below]
        return sorted([*self._cancels.in_doubt, *unsent])

    # --- staging ------------------------------------------------------------------------------------------------------

    def _stage_alike(self, messages: Sequence[Message], headers: Sequence[Headers | None], now_ms: int) -> bool:
        """Stage records that are alike, all at once; False: nothing is done, they have to be staged one by one."""
        plan_from, plan = self.plans.since[-1]
        first, last = messages[0].offset() or 0, messages[-1].offset() or 0
        is_of_one_kind = (first < self._replay_until) == (last < self._replay_until)  # read again, or new, all of them
        if len(messages) <= FEW or self._trace or first < plan_from or not is_of_one_kind:
            return False
        alike = self._parser.alike(messages, headers)
        if alike is None or alike.longest_delay_ms > plan.max_delay_ms:
            return False
        is_rolling = alike.longest_delay_ms >= _rolls_from_ms(plan)
        self._stage_columns(messages, headers, alike, plan if is_rolling else None, now_ms)
        self.position = last + 1
        return True

    def _stage_columns(
        self,
        messages: Sequence[Message],
        headers: Sequence[Headers | None],
        alike: Alike,
        rolling: Plan | None,
        now_ms: int,
    ) -> None:
        """Stage records that are alike, at least one.

        Args:
            rolling: by which some of them may roll; None: none does.
        """
        first = messages[0].offset() or 0
        is_replayed = first < self._replay_until
        act_ms: Sequence[int] = alike.due_ms
        rolls: Sequence[bool] = ()
        if rolling is not None:
            act_ms, rolls = zip(*map(rolling.act_at, alike.timestamps_ms, alike.due_ms, alike.offsets), strict=True)
        earliest_ms = min(act_ms)
        is_any_due = not is_replayed and earliest_ms <= now_ms
        if is_any_due:
            if earliest_ms < TEN_DIGITS.stop:
                for due_ms, offset in zip(act_ms, alike.offsets, strict=True):
                    self._in_seconds.look(due_ms, offset)
            act_ms = _due_since(act_ms, alike.timestamps_ms, now_ms)
        is_all_due = is_any_due and max(act_ms) <= now_ms
        told = headers if is_all_due else list(map(encode_headers, headers))  # type: ignore[arg-type]
        records = alike.outgoing(messages, act_ms, told)
        for number in compress(count(), rolls):
            said = alike.topics[number], alike.delivered[number], alike.ids[number] or b"", alike.due_ms[number]
            schedule = Schedule(*_parsed_of(*said, alike.offsets[number]))
            records[number] = self._copies.rolled(schedule, records[number])
        times_and_ids = act_ms, alike.timestamps_ms, alike.ids, alike.topics
        staged = zip(records, *times_and_ids, rolls or repeat(False), strict=False)
        schedules = self._staging.schedules
        if is_replayed:
            schedules += [one for one in staged if (one[1], one[0][OFFSET]) > self.watermark]
        elif not is_any_due:
            schedules += staged
        else:
            self._apply_cancels_before(first, now_ms)
            if not is_all_due:
                schedules += [one for one in staged if one[1] > now_ms]
                records = [record for record in records if record[DUE_MS] <= now_ms]
            self._arriving += records

    def _stage_each(self, messages: Sequence[Message], headers: Sequence[Headers | None], now_ms: int) -> bool:
        """Stage any records, one by one; False: one of them has to be read again, with all that follows it."""
        plain, replay_until, watermark = self._parser.plain, self._replay_until, self.watermark
        schedules, cancels = self._staging.schedules, self._staging.cancels
        last_from, last_plan = self.plans.since[-1]
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
                    self._in_seconds.look(due_ms, offset)
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
                parsed = _parsed_of(topic, delivered, uniq_key, due_ms, offset)
                self._schedule(parsed, last_plan, message, own_headers, offset, timestamp_ms, now_ms)
        self.position = offset + 1
        return True

    def _stage(self, message: Message, headers: Headers, offset: int, timestamp_ms: int, now_ms: int) -> bool:
        """Stage any record; False: it has to be read again, with all that follows it."""
        if headers is UNREADABLE_HEADERS:
            self._reject(UNREADABLE, message, [], offset, now_ms)
            return True
        plan = self.plans.of(offset)
        request = self._parser.parse(headers, offset, timestamp_ms, plan, is_copied=offset < self.copied_below)
        if isinstance(request, Rejection):
            self._reject(request, message, headers, offset, now_ms)
            return True
        if isinstance(request, Cancel):
            return self._stage_cancel(CancelRead(offset, request), now_ms)
        if isinstance(request, Replace):
            return self._stage_cancel(CancelRead(offset, request, message.key(), message.value(), headers), now_ms)
        self._schedule(request, plan, message, headers, offset, timestamp_ms, now_ms)
        return True

    def _reject(self, rejection: Rejection, message: Message, headers: Headers, offset: int, now_ms: int) -> None:
        """Stage a record that goes to the dead letters."""
        if offset >= self._replay_until:
            self._apply_cancels_before(offset, now_ms)
            self._arriving.append((rejection, BY_KEY, message.key(), message.value(), [], now_ms, offset, headers))

    def _stage_cancel(self, pending: CancelRead, now_ms: int) -> bool:
        """Stage a cancel or a replacement; False: it has to be read again, with all that follows it."""
        staging, offset, request = self._staging, pending.offset, pending.request
        self.has_cancels = True
        # What is read again is applied by itself: only what follows it has to be remembered.
        is_apart = bool(staging.cancels) and staging.cancels[-1].offset < self._replay_until <= offset
        if is_apart or staging.brings(request.uniq_key):
            self._take_in(now_ms)
        if self._in_hand.records and self._in_hand.holds_back(request):  # whether it comes in time is not known yet
            return False
        # Whether something holds back the committed offset, or will when these are applied.
        is_behind = self._is_behind or staging.is_bringing or isinstance(request, Replace)
        if is_behind and offset >= self._sends_from and self._are_enough_ahead(offset):
            if staging.cancels:  # few of them may have to be remembered
                self._take_in(now_ms)
                return self._stage_cancel(pending, now_ms)
            self._is_waiting_for_late = True
            return False
        staging.cancel(pending)
        return True

    def _are_enough_ahead(self, offset: int) -> bool:
        """Whether the cancels that a commit may have to tell of leave no room in it for one at ``offset``."""
        ahead = self.decisions.ahead + len(self._staging.cancels)
        # They are counted from the committed offset, which only comes nearer: none takes more than the last.
        bytes_each = len(f"{offset - self._committed},")
        return ahead > 0 and (ahead + 1) * bytes_each > HITS_AHEAD_MAX_BYTES

    def _apply_cancels_before(self, offset: int, now_ms: int) -> None:
        """A record comes that is due, and will hold back the committed offset: first apply the cancels before it."""
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
        """Stage a record to deliver: for the next transaction or the disk, unless it is done or cancelled."""
        topic, partition, headers, uniq_key, due_ms, roll_times, origin_offset, not_before_ms, roll_after_ms = parsed
        replayed = offset < self._replay_until
        window_ms = _rolls_from_ms(plan)
        # The wheel that it comes to may span less than the one that it was postponed by.
        act_ms, rolls = max(due_ms, min(not_before_ms, timestamp_ms + window_ms)), False
        if due_ms - timestamp_ms >= window_ms:
            act_ms, rolls = plan.act_at(timestamp_ms, due_ms, offset, roll_after_ms)
        if origin_offset != offset:
            if self._staging.cancels:  # one of them may have to stay in force for it, or bring it
                self._take_in(now_ms)
            if origin_offset == ELSEWHERE:
                origin_offset = self._cancels.replaced_by(Schedule(*parsed), offset)
                parsed = (*parsed[:6], origin_offset, *parsed[7:])
            if origin_offset != offset and self._is_cancelled_copy(Schedule(*parsed), offset):
                return
        if replayed and (act_ms, offset) <= self.watermark:
            return
        next_roll_ms = 0
        if not rolls:
            headers.append((UNIQ_KEY, uniq_key))
            headers.append((TIMER_OUT_MS, b"%d" % due_ms))
            if roll_times:
                headers.append((TIMER_ROLL_TIMES, b"%d" % roll_times))
            if self._trace:
                headers.append((TIMER_ENQUEUE_MS, b"%d" % now_ms))
            if act_ms < timestamp_ms and origin_offset == offset and not replayed:
                self._in_seconds.look(act_ms, offset)
                act_ms = _asked_for_late(act_ms, timestamp_ms, now_ms)
        elif roll_times and plan.is_old(timestamp_ms, now_ms):
            next_roll_ms = plan.next_roll_ms(act_ms, now_ms)
            if self._cancels.is_on_its_way(uniq_key):
                self.clock_ahead.copy_was_old(self._told_ms - timestamp_ms)
        record: Outgoing = topic, partition, message.key(), message.value(), headers, act_ms, offset, source_headers
        if rolls:
            record = self._copies.rolled(Schedule(*parsed), record, next_roll_ms)
        if act_ms <= now_ms and not replayed:
            self._apply_cancels_before(offset, now_ms)
            self._arriving.append(record)
        else:
            self._staging.schedules.append((for_disk(record), act_ms, timestamp_ms, uniq_key, topic, rolls))

    # --- to disk ------------------------------------------------------------------------------------------------------

    def _take_in(self, now_ms: int) -> None:
        """Apply what is staged; what it brings is left in ``_arriving``. Raises what `Staging.take_in` does."""
        self._hand_over(now_ms)
        staging = self._staging
        # Where some of it has to be in for anything to be sent, all of it has: sending makes the room.
        within_quota = bool(staging) and staging.first_offset >= self._sends_from
        for cancels, hits in staging.take_in(self.watermark, within_quota=within_quota):
            self.decisions.applied(cancels, hits, self.position, now_ms, is_behind=self._is_behind)

    def _hand_over(self, now_ms: int) -> None:
        """What is due already waits for the next transaction."""
        if self._before_all:
            self._late.add_first(self.watermark[0] - 1, self._before_all)
            self._before_all = []
        self._late.add(now_ms, self._arriving)
        self._arriving = []

    @property
    def _is_behind(self) -> bool:
        """Whether something holds back the committed offset, or will if the transaction in hand is aborted."""
        return self._late.is_unconfirmed or bool(self._arriving)

    def _block(self, error: OSError | SlotConflict, now_ms: int) -> None:
        """Go back to the first record that is not taken in; it is read again once there is room."""
        self._hand_over(now_ms)
        if self._staging:
            self.position = self._staging.first_offset
            self._staging.forget_from(self.position)
            self._late.drop(lambda record: record[OFFSET] >= self.position)
        self.decisions.undo_from(self.position)
        self.brought = {offset: at for offset, at in self.brought.items() if at < self.position}
        self.pause.begin(error)

    # --- cancels ------------------------------------------------------------------------------------------------------

    def _is_cancelled_copy(self, copy: Schedule, offset: int) -> bool:
        """A copy has come, of a roll or a replacement: whether a cancel before it takes it out."""
        self._copies_read.append((offset, copy.uniq_key))
        hit = self._cancels.copy_read(copy, offset)
        if hit is None:
            return False
        self.decisions.copy_taken_out(hit, offset)
        return True

    def _bring(self, replacement: CancelRead, deciding_offset: int) -> None:
        """A replacement is carried out: its message goes out.

        That of one from before the start first of all: what it has taken out is below the committed offset, and were
        the watermark beyond that, the next start would not find it, and not carry out what replaces it.
        """
        is_old = replacement.offset < self._replay_until
        at = self._replay_until - 1 if is_old else deciding_offset
        self.brought[replacement.offset] = at
        (self._before_all if is_old else self._arriving).append(self._copies.brought(replacement, at))

    def _expire_cancels(self, now_ms: int) -> None:
        self.decisions.expire(self.position, now_ms)
        self._hand_over(now_ms)


def _due_since(act_ms: Sequence[int], timestamps_ms: Sequence[int], now_ms: int) -> Sequence[int]:
    """When each of them became due, or will: of those that were asked for too late, `_asked_for_late`."""
    if all(map(ge, act_ms, timestamps_ms)):
        return act_ms
    if max(act_ms) <= min(timestamps_ms) and max(timestamps_ms) <= now_ms:
        return timestamps_ms
    times = zip(act_ms, timestamps_ms, strict=True)
    return [act if act >= at else _asked_for_late(act, at, now_ms) for act, at in times]


def _asked_for_late(due_ms: int, timestamp_ms: int, now_ms: int) -> int:
    """Since when a record is due whose time had passed when it was written: lateness counts from then."""
    return timestamp_ms if timestamp_ms <= now_ms else max(due_ms, now_ms)


def _parsed_of(topic: str, delivered: Headers, uniq_key: bytes, due_ms: int, offset: int) -> Parsed:
    """What `WheelParser.parse` says of a plain record: what it is delivered with ends with its id and its due time."""
    return topic, BY_KEY, delivered[:-2], uniq_key, due_ms, 0, offset, 0, 0


def _rolls_from_ms(plan: Plan) -> int:
    """A record rolls that is due so long after its timestamp."""
    return plan.roll_window_ms - plan.precision_ms
