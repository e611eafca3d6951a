"""One partition of the wheel topic: any delay, exactly once.

    offer     what is read is stored, or waits in memory for the next transaction (`intake`)
    take      what is due, in (time, offset) order; what arrived already due after what was due before it arrived
    confirm   the transaction is final: watermark and offset move

The state that must not be lost is in Kafka (`progress`); the files are a cache of it. After a start, records
between the checkpoint and the committed offset are read again (replay): what the watermark says is done is passed over,
the rest is stored, and nothing is published before that is through (`start_gate`).

What arrived already due (`late`) waits in memory, and the committed offset stands at the first of it. Before it go the
stored records that were due by its arrival, whose offsets are all lower; after it the others, which may be higher. So
the watermark never passes a stored record below the committed offset, and no record above that is sent.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog
from confluent_kafka import Message

from sidecar.cancel_outcomes import CancelOutcome
from sidecar.dispatch.late import Late
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.wheel.cancels import Cancels
from sidecar.dispatch.wheel.checkpoints import WheelCheckpoints, tombstones_of, topic_names_of
from sidecar.dispatch.wheel.clock_ahead import told_early
from sidecar.dispatch.wheel.copies import WheelCopies
from sidecar.dispatch.wheel.figures import WheelFigures
from sidecar.dispatch.wheel.in_hand import InHand
from sidecar.dispatch.wheel.intake import WheelIntake
from sidecar.dispatch.wheel.progress import BURIED_MAX, WheelProgress, fitting
from sidecar.dispatch.wheel.ready import Ready
from sidecar.dispatch.wheel.staging import Staging
from sidecar.dispatch.wheel.start_gate import Stage, StartGate
from sidecar.dispatch.wheel.taking_out import TakingOut
from sidecar.dispatch.wheel.time_counts import TimeCounts, Window, count_by_time
from sidecar.dispatch.wheel.view import WheelView
from sidecar.intake.copies import Copies
from sidecar.intake.parse_wheel import WheelParser
from sidecar.intake.progress import Start
from sidecar.pending import PendingAnswer, PendingQuery
from sidecar.plan import Plan
from sidecar.records import DUE_MS, OFFSET, TOPIC, Outgoing, Rejection, brought_by, due_ms_of, topic_of
from sidecar.sizes import bytes_of
from sidecar.store.errors import StoreError
from sidecar.store.files import FileSystem
from sidecar.store.opening import Opened, open_store
from sidecar.store.recovery import Owner

BUSY_MS = 100
"""While something is due so soon, a slot is loaded a few milliseconds at a time."""

LONG_FULL_MS = 10_000
"""Memory that is full for so long of what is due later is told: with slots of a second it is for two at most."""

LOOK_EVERY_MS = 10_000
"""How often the whole wheel is looked at, some 10 ms in all: for the oldest pending record, and for metrics."""

_FINER_SLOTS = (
    "lower precision_ms, so that less comes for slots that are loaded; or raise read_ahead_records and read_ahead_bytes"
)

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
    """As `at_hand_records`, for their bytes, about."""
    directory: Path
    trace: bool = False


class WheelPartition:
    """See the module's docstring.

    Args:
        start: committed offset and metadata, and the log's end.
        copies: what this group's own records on the wheel topic carry.
        outages: destinations that take nothing just now.
        owner: whose the directory is; when its progress began is told by the start.
        tell_outcomes: told after each commit what it made final, and the committed offset: by the offset of the
            cancel, ``cancelled``, ``too_late`` or ``unknown``.
        monotonic_ms: a clock that never steps, for what is done now and then: the time that is told stands still after
            a step back. None: it is the time that is told.
        was_unreadable: as `open_store` takes it.

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
        tell_outcomes: Callable[[Mapping[int, CancelOutcome], int], None],
        monotonic_ms: Callable[[], float] | None = None,
        was_unreadable: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._name = f"{topic}-{partition}"
        self._now_ms = now_ms
        """The highest time that has been told."""
        self._told_ms = now_ms
        """The time as it was last told, which may lie behind one that was told before."""
        self._monotonic_ms: Callable[[], float] = monotonic_ms or (lambda: self._told_ms)
        self._outages = outages
        self._at_hand_records = settings.at_hand_records
        self._at_hand_bytes = settings.at_hand_bytes
        self._tell_outcomes = tell_outcomes
        # 1. What was committed.
        progress = WheelProgress.decode(start.metadata, start.offset, settings.plan, now_ms)
        self._committed = self._taken_position = start.offset
        self._taken_watermark = progress.watermark
        self._committed_lowest_needed = self._taken_lowest_needed = progress.lowest_needed
        self._oldest_pending = progress.lowest_needed
        self._begun_ms = progress.begun_ms
        self._is_plan_old = progress.plans.since[-1][1] != settings.plan
        """Whether the settings hold only after a later start."""
        # 2. What is on disk.
        opened = open_store(
            settings.directory / f"wheel-{partition}",
            fs,
            owner._replace(begun_ms=self._begun_ms),
            slots_total=settings.slots_total,
            precision_ms=settings.plan.precision_ms,
            quota_bytes=settings.disk_quota_bytes,
            committed_offset=start.offset,
            lowest_needed_offset=progress.lowest_needed,
            live_from_ms=progress.watermark[0],
            was_unreadable=was_unreadable,
        )
        self.case = opened.case
        self._store = opened.store
        # 3. What waits.
        self._ready = Ready(self._store, progress.watermark)
        self._late = Late()
        self._view = WheelView(topic, partition, self._store, self._ready, self._late, topic_names_of(opened.extra))
        self._in_hand = InHand(self._view.real_topic)
        self._buried: list[Outgoing] = []
        """Which of the records in hand go to the dead letters."""
        # 4. What is read.
        buried = [progress.lowest_needed + ahead for ahead in progress.buried]
        open_from = 0 if progress.open_below is None else start.offset - progress.open_below
        known_from = max(start.offset, start.end_offset)
        self._cancels = Cancels(known_from, tombstones_of(opened.extra), buried, open_from)
        self._copies = WheelCopies(topic, partition, copies)
        self._parser = parser
        self._are_strange_copies_told = False
        taking_out = TakingOut(self._store, self._ready, self._late, self._view.real_topic)
        self._staging = Staging(self._store, self._ready, self._view, taking_out)
        self._intake = WheelIntake(
            self._name,
            start=start,
            progress=progress,
            read_from=opened.complete_to_offset,
            parser=parser,
            copies=self._copies,
            cancels=self._cancels,
            staging=self._staging,
            late=self._late,
            in_hand=self._in_hand,
            monotonic_ms=self._monotonic_ms,
            trace=settings.trace,
        )
        self._gate = StartGate(self._intake, self._cancels, start.end_offset, self._monotonic_ms)
        # 5. What is done now and then.
        self._checkpoints = WheelCheckpoints(
            self._name, self._store, self._cancels, self._view, position=self.position, began_ms=self._monotonic_ms()
        )
        self._full_since_ms: float | None = None
        self._looking: Generator[None, None, None] | None = None
        # Due at once: a process that never lives long must not leave it where it is.
        self._looked_ms = self._monotonic_ms() - LOOK_EVERY_MS
        self._log_opening(opened, owner, start, progress)

    def _log_opening(self, opened: Opened, owner: Owner, start: Start, progress: WheelProgress) -> None:
        log.info(
            "wheel opened",
            partition=self._name,
            found=str(opened.case),
            read_from=self.position,
            committed=start.offset,
            lowest_needed=progress.lowest_needed,
        )
        if opened.was_of is not None and opened.was_of[:3] != owner[:3]:
            log.warning(
                "files of another",
                partition=self._name,
                cluster_id=opened.was_of.cluster_id,
                topic_id=opened.was_of.topic_id,
                group_id=opened.was_of.group_id,
                operator_action="nothing, if the topic was made anew, or the directory is another's; if topic_prefix, "
                "group_id or bootstrap_servers was changed, what waits there is delivered only by a sidecar that has "
                "them as they were",
            )
        if start.offset > start.begin_offset and start.is_offset_alone:
            log.warning(
                "wheel begins anew",
                partition=self._name,
                committed=start.offset,
                operator_action="nothing: 'timewheel progress set' skips what waits before; to "
                "have it delivered, stop all sidecars of the group, and choose an earlier offset",
            )
        if self._is_plan_old:
            log.warning(
                "settings not taken over",
                partition=self._name,
                plans=len(progress.plans.since),
                lowest_needed=progress.lowest_needed,
                operator_action="start again once the oldest pending messages are delivered; until then roll_window, "
                "roll_spread, precision_ms, max_delay and levels hold here as they did before",
            )

    # --- intake -------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset to be read."""
        return self._intake.position

    @property
    def is_best_read_whole(self) -> bool:
        """Where there are cancels: each batch of them is looked up at once, or found beside what it takes out."""
        return self._intake.has_cancels

    @property
    def is_recovering(self) -> bool:
        """Whether records before the committed offset, or what they need, are still being read again."""
        return self._stage in (Stage.REPLAY, Stage.DOUBTS)

    @property
    def _stage(self) -> Stage:
        return self._gate.stage(has_room=self.has_room)

    @property
    def replayed(self) -> tuple[int, int]:
        return self._intake.replayed

    def offer(self, messages: Sequence[Message], now_ms: int) -> None:
        """Take in records of this partition, in offset order.

        Where the disk is full, ``trouble`` says so, and ``position`` stays at the first record that is not taken in.
        """
        self._told_ms = now_ms
        self._now_ms = max(now_ms, self._now_ms, self._intake.watermark[0])
        self._intake.offer(messages, self._now_ms, now_ms)
        if self._parser.strange_copies and not self._are_strange_copies_told:
            self._are_strange_copies_told = True
            log.warning(
                "copies of another group",
                partition=self._name,
                operator_action="nothing, if a mirror has copied them from another cluster; else let a single group_id "
                "read these schedule topics: every roll of a second one is a new message to the first, and the other "
                "way round; if the other is gone, its last copies come once more",
            )

    def reached_end(self, offset: int) -> None:
        """There is nothing to read below ``offset``: markers and aborted records leave offsets that hold no record."""
        self._now_ms = max(self._now_ms, self._intake.watermark[0])
        self._intake.reached_end(offset, self._now_ms)
        self._gate.reached_end(offset)

    def lost_end(self, offset: int) -> None:
        self._intake.lost_end(offset)

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When there is something to publish; None: nothing known, or records are still being read again."""
        if self._stage is not Stage.OPEN:
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
    def is_full(self) -> bool:
        at_hand, size_bytes = self._at_hand
        return self._intake.is_held or (
            not self._intake.is_recovering and (at_hand > self._at_hand_records or size_bytes > self._at_hand_bytes)
        )

    @property
    def _is_long_full(self) -> bool:
        return self._full_since_ms is not None and self._monotonic_ms() - self._full_since_ms >= LONG_FULL_MS

    def _look_whether_it_is_full(self) -> None:
        """Of what is due later: sending makes no room then."""
        is_full = self.is_full and not self._intake.is_held and (self.next_due_ms or 0) > self._told_ms
        if not is_full:
            self._full_since_ms = None
        elif self._full_since_ms is None:
            self._full_since_ms = self._monotonic_ms()

    @property
    def has_room(self) -> bool:
        at_hand, size_bytes = self._at_hand
        return not self._intake.is_held and (
            self._intake.is_recovering
            or (2 * at_hand <= self._at_hand_records and 2 * size_bytes <= self._at_hand_bytes)
        )

    @property
    def trouble(self) -> str:
        if self._stage is Stage.DOUBTS:
            return f"reads on, at offset {self.position}, to see which replacements have been carried out"
        if self._is_long_full:
            return (
                f"intake is paused, cancels included: {self._at_hand[0]} messages in memory, which came for slots that "
                f"are loaded, leave no room until {self.next_due_ms} ms since 1970, when the first is due"
            )
        return self._intake.trouble

    @property
    def remedy(self) -> str:
        return _FINER_SLOTS if self._is_long_full else self._intake.pause.remedy

    @property
    def note(self) -> str:
        changes = len(self._intake.plans.since)
        plan_is_old = (
            f"settings have changed {changes} times since the oldest pending message was written: "
            "roll_window, roll_spread, precision_ms, max_delay and levels change again at a start after it is delivered"
        )
        early = told_early(self._intake.watermark[0] - self._told_ms)
        strange = self._parser.strange_copies
        strange_copies = (
            f"copies of another group come in ({strange} so far), and each is delivered as a message of its own"
        )
        notes = (
            self._intake.clock_ahead.in_words,
            early,
            plan_is_old if self._is_plan_old else "",
            strange_copies if strange else "",
            self._checkpoints.failure,
        )
        return "; ".join(note for note in notes if note)

    @property
    def waits_for_delivery(self) -> bool:
        return self.is_full

    @property
    def is_disk_full(self) -> bool:
        return self._intake.pause.is_disk_full

    @property
    def waiting(self) -> int:
        """Records at hand, those on disk only not counted."""
        return self._late.count + self._ready.waiting

    def take(self, now_ms: int, max_records: int, max_bytes: int) -> list[Outgoing]:
        """What is due, for one transaction; `confirm` or `put_back` must follow."""
        if self.is_recovering:
            return []
        self._now_ms = max(self._now_ms, now_ms)
        now_ms = max(now_ms, self._intake.watermark[0])
        records: list[Outgoing] = []
        watermark = self._intake.watermark
        while max_records > 0 and max_bytes > 0:
            # 1. Stored records in order: by now, or what was due before the first of those that arrived due came.
            arrived_ms = self._late.first_arrived_ms
            until_ms = now_ms if arrived_ms is None else arrived_ms
            self._ready.load(until_ms, max_records)
            stored = self._ready.take(until_ms, max_records, max_bytes)
            if stored:
                watermark = max(watermark, (stored[-1][DUE_MS], stored[-1][OFFSET]))
                records = records + stored if records else stored
                max_records -= len(stored)
            if arrived_ms is None or max_records <= 0 or self._is_more_due(until_ms):
                break
            max_bytes -= bytes_of(stored)
            if max_bytes <= 0:
                break
            # 2. Then what arrived due itself.
            _, late, late_bytes = self._late.take(max_records, max_bytes)
            watermark = max(watermark, _last_key(late))
            records = records + late if records else late
            max_records -= len(late)
            max_bytes -= late_bytes
        if self._outages:
            records = self._outages.postponed(records, now_ms, self.partition)
        for uniq_key in self._copies.ids_among(records):
            self._cancels.rolled(uniq_key)
        self._in_hand.hold(records)
        if self.is_disk_full:
            watermark = self._past_its_slot(watermark)
        self._taken_watermark = max(watermark, (self._quiet_until_ms(), -1))
        self._taken_position = self._done_below
        self._taken_lowest_needed = self._lowest_needed(self._taken_position)
        self._checkpoints.transaction_begins(self.position)
        return records

    @property
    def _sent_below(self) -> int:
        """The first offset that is neither on disk nor sent with what has been taken."""
        first = self._late.first_offset
        return self.position if first is None else min(first, self.position)

    @property
    def _done_below(self) -> int:
        """The offset to commit, which never goes back: what a replacement from before the start brings stands below."""
        return max(self._committed, self._sent_below)

    def prepare(self, until_ms: int, max_records: int, max_bytes: int) -> None:
        self._ready.prepare(until_ms, max_records, max_bytes)

    @property
    def progress(self) -> tuple[int, str]:
        """Offset and metadata to commit with what was taken."""
        offset, lowest_needed = self._taken_position, self._taken_lowest_needed
        buried = self._cancels.buried_from(lowest_needed, self._replacements_buried)[-BURIED_MAX:]
        return offset, WheelProgress(
            watermark=self._taken_watermark,
            lowest_needed=lowest_needed,
            plans=self._intake.plans.without_those_before(lowest_needed),
            hits_ahead=tuple(hit - offset for hit in self._intake.decisions.hits_ahead(offset)),
            buried=tuple(replacement - lowest_needed for replacement in buried),
            in_doubt=fitting(replacement - lowest_needed for replacement in self._intake.in_doubt(self._sent_below)),
            open_below=offset - self._cancels.open_from(lowest_needed, offset),
            begun_ms=self._begun_ms,
            copied_below=self._intake.copied_below if lowest_needed < self._intake.copied_below else 0,
        ).encode()

    @property
    def _replacements_buried(self) -> list[int]:
        found = [brought_by(record, self.topic) for record in self._buried]
        return [offset for offset in found if offset is not None]

    @property
    def has_progress(self) -> bool:
        """Whether a commit would move I or L, for a retention may take what lies before L; or would make room."""
        if self.is_recovering:
            return False
        done_below = self._done_below
        if done_below > self._committed or self._lowest_needed(done_below) > self._committed_lowest_needed:
            return True
        return self.is_disk_full and self._past_its_slot(self._intake.watermark) > self._intake.watermark

    def confirm(self) -> None:
        self._ready.confirm()
        self._late.confirm()
        self._committed = self._taken_position
        self._committed_lowest_needed = self._taken_lowest_needed
        self._cancels.passed(self._committed_lowest_needed)
        self._cancels.bury(self._replacements_buried, self._committed_lowest_needed)
        for uniq_key in self._copies.ids_among(self._buried):  # of those that roll, no copy will come
            self._cancels.not_rolled(uniq_key)
        self._buried = []
        self._checkpoints.committed(self._committed)
        self._store.advance(self._taken_watermark[0])
        self._in_hand.hold([])
        self._tell_outcomes(self._intake.confirm(self._taken_watermark, self._committed), self._committed)

    def bury(self, records: Sequence[Outgoing]) -> None:
        self._buried = list(records)

    def unsee(self) -> bool:
        """Never: due times do not depend on the clock."""
        return False

    def put_back(self) -> None:
        self._ready.put_back()
        self._late.put_back()
        self._buried = []
        for uniq_key in self._copies.ids_among(self._in_hand.records):
            self._cancels.not_rolled(uniq_key)
        self._in_hand.hold([])

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
        # Slots that are not loaded begin no sooner than those end that are.
        times = (self._now_ms, self._ready.loaded_until_ms, self._ready.next_ms)
        return min(time_ms for time_ms in times if time_ms is not None) - self._store.lap_ms // 2

    def _past_its_slot(self, watermark: tuple[int, int]) -> tuple[int, int]:
        """A watermark behind its slot, where all of that is done; else the same.

        While it lies within, a start needs the slot's first record, and with it all that was stored since. When intake
        waits for that room, nothing may come any more that moves the watermark on.
        """
        end_ms = self._store.slot_time_ms(max(0, watermark[0])) + self._store.precision_ms
        next_ms = self._ready.next_ms
        is_done = end_ms <= min(self._told_ms, self._ready.loaded_until_ms) and (next_ms is None or end_ms <= next_ms)
        return (end_ms, -1) if is_done and self._store.num(watermark[0]) > 0 else watermark

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
        self._intake.pause.tick()
        self._look_whether_it_is_full()
        if self.is_recovering:
            return
        self._store.advance(self._quiet_until_ms())
        self._store.warm()
        self._ready.load(now_ms + self._store.precision_ms, self._at_hand_records, busy_by_ms=now_ms + BUSY_MS)
        self._store.look_ahead()
        self._gate.tick(is_needed=not self.is_full and bool(self._store.pending_count or self._ready.waiting))
        monotonic_ms = self._monotonic_ms()
        if self._looking is None and monotonic_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = monotonic_ms
            self._looking = self._look(now_ms)
        if self._looking is not None and next(self._looking, "over"):
            self._looking = None
        self._checkpoints.tick(monotonic_ms, self._intake.brought, is_disk_full=self.is_disk_full)

    def close(self) -> None:
        """Flush and close; the directory is clean where everything that was read is committed."""
        settled = self._committed == self.position and not self._late.is_unconfirmed and not self._staging
        # What a replacement brings is on disk nowhere, and what it has taken out is not there any more.
        settled = settled and not self.is_recovering and not self._cancels.is_any_open and not self._intake.brought
        try:
            self._store.close(self._committed if settled else None, self._checkpoints.extra)
        except (OSError, StoreError) as error:
            log.warning(
                "wheel not closed cleanly",
                partition=self._name,
                reason=str(error),
                operator_action="check the disk under data_dir; the next start reads more of Kafka again",
            )

    def _lowest_needed(self, committed: int) -> int:
        # A message that is brought is nowhere else but in its replacement.
        brought = [offset for offset, at in self._intake.brought.items() if at >= self._sent_below]
        return self._cancels.lowest_needed(min([self._oldest_pending, *brought]), committed)

    def _look(self, now_ms: int) -> Generator[None, None, None]:
        """Look at the whole wheel, a step a tick; what is stored meanwhile has higher offsets than ``committed``."""
        committed = self._committed
        oldest = yield from self._view.look(now_ms, self._intake.watermark[0])
        found = committed if oldest is None else min(oldest, committed)
        # Never back: a retention has taken what was told as not needed, and after a start a slot holds it again.
        self._oldest_pending = max(self._oldest_pending, found)


def _last_key(records: Sequence[Outgoing]) -> tuple[int, int]:
    """Where the watermark stands once these records, which arrived already due, are sent.

    Neither they nor others that are due at that time lie beyond it. Rejected records have no due time.
    """
    due = records
    if Rejection in set(map(type, map(topic_of, records))):
        due = [record for record in records if not isinstance(record[TOPIC], Rejection)]
    return max(map(due_ms_of, due), default=-1), records[-1][OFFSET]
