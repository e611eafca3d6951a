"""Faults put into the sidecar by hand: what the simulation has to find."""

from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.contract import Headers
from sidecar.clock import HighWaterClock
from sidecar.dispatch import outages
from sidecar.dispatch.late import Late
from sidecar.dispatch.transactions import ExactlyOnce, TransactionAbortedError
from sidecar.dispatch.wheel import intake_pause, taking_out
from sidecar.dispatch.wheel.cancels import CancelRead, Cancels
from sidecar.dispatch.wheel.checkpoints import WheelCheckpoints
from sidecar.dispatch.wheel.copies import WheelCopies
from sidecar.dispatch.wheel.intake import WheelIntake
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.dispatch.wheel.ready import Ready
from sidecar.dispatch.wheel.start_gate import Stage
from sidecar.dispatch.wheel.taking_out import Named
from sidecar.intake import parse_wheel
from sidecar.intake.alike import Alike
from sidecar.intake.copies import Copied, Copies
from sidecar.intake.enqueue_get import EnqueueGet
from sidecar.intake.parse_wheel import Schedule
from sidecar.plan import Plan
from sidecar.records import Outgoing
from sidecar.store import opening, timer_log, timer_store
from sidecar.store.checkpoint import Checkpoint
from sidecar.store.files import FileSystem
from sidecar.store.id_index import Fingerprints, IndexedBlock
from sidecar.store.layout import Int64Array
from sidecar.store.payload_log import PayloadLog
from sidecar.store.recovery import Case, Owner, judge
from sidecar.store.segments import Segments
from sidecar.store.timer_log import Block
from sidecar.store.timer_store import Loaded, TimerStore
from sidecar.store.timer_wheel import TimerWheel
from tests.simulation import stretches

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]


def _nothing_is_read_first(patch: Patch) -> None:
    """With the wait after a start, what shows the fault is read in time nearly always."""
    patch.setattr(stretches, "reads_first_ms", lambda _seed: 0)


# --- progress and transactions ----------------------------------------------------------------------------------------


def progress_is_committed_before_its_records(patch: Patch) -> None:
    commit = ExactlyOnce.commit

    def without_offsets(self: ExactlyOnce, offsets: list[TopicPartition]) -> None:
        commit(self, [])

    patch.setattr(ExactlyOnce, "commit", without_offsets)


def a_commit_that_times_out_counts_as_aborted(patch: Patch) -> None:
    until_answered = ExactlyOnce._until_answered

    def impatient(self: ExactlyOnce, call: Callable[[float], object], name: str) -> None:
        def once(timeout_s: float) -> object:
            try:
                return call(timeout_s)
            except KafkaException as exception:
                if exception.args[0].code() == KafkaError._TIMED_OUT and name == "commit_transaction":
                    raise TransactionAbortedError(exception.args[0]) from exception
                raise

        until_answered(self, once, name)

    patch.setattr(ExactlyOnce, "_until_answered", impatient)

    def unheard(self: ExactlyOnce) -> list[Any]:
        self._turn += 1
        return []

    patch.setattr(ExactlyOnce, "abort", unheard)


def the_lowest_needed_offset_is_the_committed_one(patch: Patch) -> None:
    patch.setattr(WheelPartition, "_lowest_needed", lambda _self, committed: committed)


def a_quiet_partition_keeps_its_lowest_needed_offset(patch: Patch) -> None:
    def is_behind(self: WheelPartition) -> bool:
        return not self.is_recovering and self._done_below > self._committed

    patch.setattr(WheelPartition, "has_progress", property(is_behind))


def a_plan_holds_for_what_was_read_before_it(patch: Patch) -> None:
    patch.setattr(
        WheelProgress,
        "decode",
        classmethod(
            lambda cls, metadata, offset, plan, now_ms, decode=WheelProgress.decode.__func__: _with_plan(
                decode(cls, metadata, offset, plan, now_ms), plan
            )
        ),
    )


def _with_plan(progress: WheelProgress, plan: Plan) -> WheelProgress:
    return WheelProgress(
        watermark=progress.watermark,
        lowest_needed=progress.lowest_needed,
        plans=type(progress.plans)(((0, plan),)),
        begun_ms=progress.begun_ms,
    )


def rolls_are_spread_anew_at_each_start(patch: Patch) -> None:
    opens, act_at = WheelPartition.__init__, Plan.act_at
    starts = 0

    def counts(self: WheelPartition, *args: Any, **options: Any) -> None:
        nonlocal starts
        starts += 1
        opens(self, *args, **options)

    def anew(self: Plan, timestamp_ms: int, due_ms: int, offset: int, roll_after_ms: int = 0) -> tuple[int, bool]:
        return act_at(self, timestamp_ms, due_ms, offset + starts, roll_after_ms)

    patch.setattr(WheelPartition, "__init__", counts)
    patch.setattr(Plan, "act_at", anew)


# --- the watermark ----------------------------------------------------------------------------------------------------


def what_arrives_due_overtakes_what_is_stored_and_due(patch: Patch) -> None:
    patch.setattr(Late, "first_arrived_ms", property(lambda self: 0 if self else None))
    patch.setattr(WheelPartition, "_is_more_due", lambda _self, _now_ms: False)


def the_watermark_is_a_time_without_an_offset(patch: Patch) -> None:
    def removed(self: Ready, loaded: Loaded) -> Loaded:
        return loaded.where(loaded.act_ms > self._watermark[0])

    patch.setattr(Ready, "_behind_watermark_removed", removed)


def what_arrived_due_is_forgotten_by_an_abort(patch: Patch) -> None:
    patch.setattr(Late, "put_back", Late.confirm)


def records_go_out_a_little_early(patch: Patch) -> None:
    take = Ready.take
    patch.setattr(Ready, "take", lambda self, now_ms, *limits: take(self, now_ms + 20, *limits))


def time_is_not_held_when_the_clock_steps_back(patch: Patch) -> None:
    patch.setattr(HighWaterClock, "now_ms", lambda self: self._clock.now_ms() + 1_000)


# --- cancels ----------------------------------------------------------------------------------------------------------


def cancels_are_not_kept_for_roll_copies(patch: Patch) -> None:
    patch.setattr(Cancels, "keep", lambda _self, _pending, _position: False)


def tombstones_are_not_kept(patch: Patch) -> None:
    copy_read = Cancels.copy_read

    def without_trace(self: Cancels, schedule: Schedule, offset: int) -> CancelRead | None:
        hit = copy_read(self, schedule, offset)
        self._tombstones.clear()
        return hit

    patch.setattr(Cancels, "copy_read", without_trace)


def a_commit_tells_of_no_cancel_that_a_copy_may_come_for(patch: Patch) -> None:
    patch.setattr(Cancels, "open_from", lambda _self, _lowest_needed, committed: committed)


def cancels_are_not_written_down(patch: Patch) -> None:
    deletes = timer_store._deletes
    patch.setattr(timer_store, "_deletes", lambda targets: deletes(targets)[:0])


def a_cancel_that_could_not_be_written_down_leaves_a_gap(patch: Patch) -> None:
    patch.setattr(Ready, "restore", lambda _self, _snapshot: None)


def a_checkpoint_lies_between_a_cancel_and_its_copy(patch: Patch) -> None:
    patch.setattr(Cancels, "is_any_across", lambda _self, _offset: False)


def reading_and_sending_wait_for_each_other(patch: Patch) -> None:
    def stage(self: WheelPartition) -> Stage:
        return self._gate.stage(has_room=not self.is_full)

    patch.setattr(WheelPartition, "_stage", property(stage))


def cancels_hit_what_comes_after_them(patch: Patch) -> None:
    hit = Named.hit

    def hits_behind(self: Named, uniq_key: bytes | None, topic: str, offset: int) -> bool:
        return hit(self, uniq_key, topic, offset - 50)

    patch.setattr(Named, "hit", hits_behind)


def what_is_cancelled_with_its_batch_is_stored_all_the_same(patch: Patch) -> None:
    patch.setattr(Named, "__contains__", lambda _self, _uniq_key: False)


def a_cancel_forgets_its_topic(patch: Patch) -> None:
    patch.setattr(taking_out, "speaks_of", lambda _request, _topic: True)


# --- headers ----------------------------------------------------------------------------------------------------------


def a_roll_loses_headers(patch: Patch) -> None:
    headers = WheelCopies._headers

    def instructions_only(self: WheelCopies, schedule: Schedule, copied: Copied) -> Headers:
        return headers(self, schedule._replace(carried=[]), copied)

    patch.setattr(WheelCopies, "_headers", instructions_only)


def headers_of_an_earlier_life_stay(patch: Patch) -> None:
    patch.setattr(parse_wheel, "_NOTED", parse_wheel._NOTED - {"TIMER_OUT_MS", "TIMER_ROLL_TIMES"})


def anybody_may_write_roll_copies(patch: Patch) -> None:
    patch.setattr(Copies, "_proof", lambda *_: b"0123456789abcdef")


# --- files ------------------------------------------------------------------------------------------------------------


def a_checkpoint_names_the_files_of_now_and_the_offset_of_then(patch: Patch) -> None:
    checkpoint = TimerStore.checkpoint

    def eager(self: TimerStore, offset: int, _marks: object, extra: dict[str, Any]) -> None:
        checkpoint(self, offset, self.marks(), extra)

    patch.setattr(TimerStore, "checkpoint", eager)


def a_checkpoint_runs_ahead_of_the_commit(patch: Patch) -> None:
    begins = WheelCheckpoints.transaction_begins

    def is_over(self: WheelCheckpoints, position: int) -> None:
        begins(self, position)
        self.committed(position)

    def trusting(*args: Any, **more: Any) -> Case:
        case = judge(*args, **more)
        return Case.UNCLEAN if case is Case.AHEAD else case

    patch.setattr(WheelCheckpoints, "transaction_begins", is_over)
    patch.setattr(opening, "judge", trusting)


def a_checkpoint_lets_go_of_slots_that_are_on_the_wheel(patch: Patch) -> None:
    survey = TimerStore.survey
    patch.setattr(
        TimerStore,
        "survey",
        lambda self, from_ms, pending_from_ms, *figures: survey(
            self, max(from_ms, pending_from_ms), pending_from_ms, *figures
        ),
    )


def an_old_disk_is_trusted(patch: Patch) -> None:
    def trusting(checkpoint: Any, owner: Owner, boot_id: str, committed: int, _lowest: int, **more: Any) -> Case:
        return judge(checkpoint, owner, boot_id, committed, 0, **more)

    patch.setattr(opening, "judge", trusting)


def a_wheel_is_taken_for_whole_unseen(patch: Patch) -> None:
    def trusting(directory: Path, fs: FileSystem, checkpoint: Checkpoint) -> TimerWheel | None:
        if fs.size(directory / "timerwheel") is None:
            return None
        return TimerWheel(directory / "timerwheel", checkpoint.slots_total, checkpoint.precision_ms, fs)

    patch.setattr(opening, "_whole_wheel", trusting)
    patch.setattr(TimerStore, "_check_wheel", lambda *_: None)


def the_timer_log_is_not_checked(patch: Patch) -> None:
    patch.setattr(timer_log, "crc32", lambda *_: 0)


def payloads_are_not_checked(patch: Patch) -> None:
    patch.setattr(PayloadLog, "_verify", lambda *_: None)


def a_full_disk_loses_what_could_not_be_stored(patch: Patch) -> None:
    block = WheelIntake._block

    def go_on(self: WheelIntake, error: Any, now_ms: int) -> None:
        position = self.position
        block(self, error, now_ms)
        self.position = position

    patch.setattr(WheelIntake, "_block", go_on)


def a_full_disk_stops_intake_for_good(patch: Patch) -> None:
    patch.setattr(intake_pause, "TRY_AGAIN_MS", 10**12)


def slots_lose_their_order(patch: Patch) -> None:
    load = TimerStore.load

    def shuffled(self: TimerStore, slot_ms: int) -> Generator[None, None, Loaded]:
        loaded = yield from load(self, slot_ms)
        backwards: Int64Array = np.arange(len(loaded.act_ms) - 1, -1, -1)
        return loaded.where(backwards)

    patch.setattr(TimerStore, "load", shuffled)


# --- destinations that take nothing -----------------------------------------------------------------------------------


def what_is_postponed_is_due_beyond_the_wheel(patch: Patch) -> None:
    patch.setattr(outages, "POSTPONED_AT_LEAST_MS", 10**7)
    patch.setattr(outages, "POSTPONED_AT_MOST_MS", 10**7)


def what_is_postponed_is_not_known_to_be_on_its_way(patch: Patch) -> None:
    ids_among = WheelCopies.ids_among

    def of_rolls_only(self: WheelCopies, records: Iterable[Outgoing]) -> list[bytes]:
        return ids_among(self, [record for record in records if not outages.is_postponed(record)])

    patch.setattr(WheelCopies, "ids_among", of_rolls_only)


def what_a_cancel_had_taken_out_is_sent_by_a_rebuild(patch: Patch) -> None:
    """Before the cancel, which lies ahead of the committed offset, is read again."""
    _nothing_is_read_first(patch)
    patch.setattr(WheelIntake, "is_recovering", property(lambda self: self.position < self._replay_until))


def what_is_buried_in_place_of_a_copy_is_not_remembered(patch: Patch) -> None:
    """A rebuild finds no copy of the replacement's message, and brings it again."""
    patch.setattr(Cancels, "buried_from", lambda self, lowest_needed, now: [])


def a_copy_of_an_earlier_process_counts_as_ones_own(patch: Patch) -> None:
    """A cancel of the same id no longer waits for the one that is on its way."""
    _nothing_is_read_first(patch)
    copy_taken_in = Cancels.copy_taken_in
    patch.setattr(Cancels, "copy_taken_in", lambda self, uniq_key, _: copy_taken_in(self, uniq_key, 2**62))


def what_waits_for_the_end_of_a_transaction_is_forgotten(patch: Patch) -> None:
    patch.setattr(EnqueueGet, "go_on", lambda self: [reading.take_left() for reading in self._readings.values()])


# --- segments ---------------------------------------------------------------------------------------------------------


def an_id_is_found_in_the_last_block_alone(patch: Patch) -> None:
    """A cancel passes over what stands before it."""

    def finds_nothing(_self: IndexedBlock, _wanted: Fingerprints, _block: Block) -> Int64Array:
        return np.empty(0, np.int64)

    patch.setattr(IndexedBlock, "with_ids", finds_nothing)


def a_log_forgets_a_segment_too_many(patch: Patch) -> None:
    forget_before = Segments.forget_before

    def and_the_next(self: Segments, base: int) -> int:
        removed = forget_before(self, base)
        if removed and len(self.bases) > 1:
            self._remove(0)
        return removed

    patch.setattr(Segments, "forget_before", and_the_next)


def a_look_takes_what_is_loaded_for_done(patch: Patch) -> None:
    """What a rebuild needs seems to be less than it is, while a slot is being sent."""
    survey = TimerStore.survey

    def loaded_is_done(self: TimerStore, from_ms: int, pending_from_ms: int, *bounds: Any) -> Any:
        return survey(self, from_ms, max(pending_from_ms, self.loaded_until_ms), *bounds)

    patch.setattr(TimerStore, "survey", loaded_is_done)


# --- batches ----------------------------------------------------------------------------------------------------------


def a_batch_ends_with_its_first_piece(patch: Patch) -> None:
    """The others are read, and handed over to nobody."""
    read, read_piece, hand_over = EnqueueGet.read, EnqueueGet._read_piece, EnqueueGet._hand_over
    pieces = 0

    def reads(self: EnqueueGet, timeout_s: float) -> int:
        nonlocal pieces
        pieces = 0
        return read(self, timeout_s)

    def counts(self: EnqueueGet, most: int, timeout_s: float) -> tuple[int, int]:
        nonlocal pieces
        pieces += 1
        return read_piece(self, most, timeout_s)

    patch.setattr(EnqueueGet, "read", reads)
    patch.setattr(EnqueueGet, "_read_piece", counts)
    patch.setattr(EnqueueGet, "_hand_over", lambda self, runs: hand_over(self, runs if pieces < 2 else []))


def those_that_are_alike_get_the_next_ones_time(patch: Patch) -> None:
    outgoing = Alike.outgoing

    def mixed_up(self: Alike, messages: Any, due_ms: Sequence[int], source_headers: Any) -> list[Outgoing]:
        return outgoing(self, messages, [*due_ms[1:], due_ms[0]], source_headers)

    patch.setattr(Alike, "outgoing", mixed_up)


def those_that_are_alike_are_read_again_as_new(patch: Patch) -> None:
    """A rebuild schedules what is done."""
    stage_columns = WheelIntake._stage_columns

    def stages(self: WheelIntake, *args: Any) -> None:
        watermark, self.watermark = self.watermark, (-1, -1)
        stage_columns(self, *args)
        self.watermark = watermark

    patch.setattr(WheelIntake, "_stage_columns", stages)


MUTATIONS: Sequence[Mutation] = (
    progress_is_committed_before_its_records,
    a_commit_that_times_out_counts_as_aborted,
    the_lowest_needed_offset_is_the_committed_one,
    a_quiet_partition_keeps_its_lowest_needed_offset,
    a_plan_holds_for_what_was_read_before_it,
    rolls_are_spread_anew_at_each_start,
    what_arrives_due_overtakes_what_is_stored_and_due,
    the_watermark_is_a_time_without_an_offset,
    what_arrived_due_is_forgotten_by_an_abort,
    records_go_out_a_little_early,
    time_is_not_held_when_the_clock_steps_back,
    cancels_are_not_kept_for_roll_copies,
    tombstones_are_not_kept,
    a_commit_tells_of_no_cancel_that_a_copy_may_come_for,
    cancels_are_not_written_down,
    a_cancel_that_could_not_be_written_down_leaves_a_gap,
    a_checkpoint_lies_between_a_cancel_and_its_copy,
    reading_and_sending_wait_for_each_other,
    cancels_hit_what_comes_after_them,
    what_is_cancelled_with_its_batch_is_stored_all_the_same,
    a_cancel_forgets_its_topic,
    a_roll_loses_headers,
    headers_of_an_earlier_life_stay,
    anybody_may_write_roll_copies,
    a_checkpoint_names_the_files_of_now_and_the_offset_of_then,
    a_checkpoint_runs_ahead_of_the_commit,
    a_checkpoint_lets_go_of_slots_that_are_on_the_wheel,
    an_old_disk_is_trusted,
    a_wheel_is_taken_for_whole_unseen,
    the_timer_log_is_not_checked,
    payloads_are_not_checked,
    a_full_disk_loses_what_could_not_be_stored,
    a_full_disk_stops_intake_for_good,
    slots_lose_their_order,
    what_is_postponed_is_due_beyond_the_wheel,
    what_is_postponed_is_not_known_to_be_on_its_way,
    what_a_cancel_had_taken_out_is_sent_by_a_rebuild,
    what_is_buried_in_place_of_a_copy_is_not_remembered,
    a_copy_of_an_earlier_process_counts_as_ones_own,
    what_waits_for_the_end_of_a_transaction_is_forgotten,
    an_id_is_found_in_the_last_block_alone,
    a_log_forgets_a_segment_too_many,
    a_look_takes_what_is_loaded_for_done,
    a_batch_ends_with_its_first_piece,
    those_that_are_alike_get_the_next_ones_time,
    those_that_are_alike_are_read_again_as_new,
)
