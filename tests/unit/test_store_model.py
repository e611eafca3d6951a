"""Timer log and wheel against a list: batches, truncations, deletions, rebuilds, openings all give the same slots."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.store.files import RealFileSystem
from sidecar.store.layout import EMPTY_SLOT, due_ms
from sidecar.store.timer_log import Mark, TimerLog, in_log_order
from sidecar.store.timer_wheel import TimerWheel
from tests.support.slots import new_records, put
from tests.support.steps import result_of

SLOTS, PRECISION_MS, SEGMENT_BYTES = 15, 500, 400
LAP_SLOTS = 2 * SLOTS
FS = RealFileSystem()


class StoreMachine(RuleBasedStateMachine):
    """The model: `records` is (due_ms, id) in log order; `gone` of them were deleted from the front."""

    def __init__(self) -> None:
        super().__init__()
        self._temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self._temporary.name)
        self.records: list[tuple[int, int]] = []
        self.marks: list[Mark] = []
        self.gone = 0
        self.next_id = 0

    @initialize(start_slot=st.integers(0, 1_000))
    def start(self, start_slot: int) -> None:
        self.now_slot = start_slot
        self.log = TimerLog(self.directory / "timerlog", SEGMENT_BYTES, FS)
        self.wheel = TimerWheel(self.directory / "timerwheel", SLOTS, PRECISION_MS, FS)
        self.wheel.advance(start_slot * PRECISION_MS)
        self.marks.append(self.log.mark())

    @rule(delays=st.lists(st.integers(0, LAP_SLOTS * PRECISION_MS - 1), max_size=25))
    def append(self, delays: list[int]) -> None:
        now_ms = self.now_slot * PRECISION_MS
        records = new_records(len(delays))
        records["curr_write_time"] = now_ms
        records["delayed_time"] = delays
        records["offset_py"] = np.arange(self.next_id, self.next_id + len(delays))
        records["prev_pos"] = put(self.wheel, due_ms(records), self.log.positions_for(len(delays)))
        self.log.append(records)
        self.records += [(now_ms + delay, self.next_id + at) for at, delay in enumerate(delays)]
        self.next_id += len(delays)
        self.marks.append(self.log.mark())

    @rule(slots=st.integers(1, LAP_SLOTS + 3))
    def advance(self, slots: int) -> None:
        self.now_slot += slots
        self.wheel.advance(self.now_slot * PRECISION_MS)

    @rule(share=st.floats(0, 1))
    def cut_back(self, share: float) -> None:
        kept = [mark for mark in self.marks if mark.position >= self.log.start_position]
        mark = kept[int((len(kept) - 1) * share)]
        del self.records[self.log._index(mark.position) :]
        self.marks = [other for other in self.marks if other.position <= mark.position]
        start, crcs = self.log.start_position, self.log.crcs(self.log.start_position, mark)
        self.log.close()
        self.open_log(start, mark.position, crcs)
        self.make_anew()

    @rule()
    def delete_what_has_left(self) -> None:
        now_ms = self.now_slot * PRECISION_MS
        (needed,) = result_of(self.wheel.survey([now_ms], now_ms, [])).first_pos
        position = self.log.end_position if needed is None else needed
        self.log.delete_before(position)
        assert self.log.start_position <= position
        self.gone = self.log._start

    @rule()
    def make_anew(self) -> None:
        self.wheel.close()
        (self.directory / "timerwheel").unlink()
        self.wheel = TimerWheel(self.directory / "timerwheel", SLOTS, PRECISION_MS, FS)
        now_ms = self.now_slot * PRECISION_MS
        self.wheel.advance(now_ms)
        live = (
            (positions[due_ms(records) >= now_ms], records[due_ms(records) >= now_ms])
            for positions, records in self.log.scan(chunk_records=7)
        )
        self.wheel.fill(live)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        start, end = self.log.start_position, self.log.end_position
        crcs = self.log.crcs(start, self.log.mark())
        self.log.flush()
        self.wheel.flush()
        self.log.close()
        self.open_log(start, end, crcs)
        if not clean:
            self.make_anew()
            return
        self.wheel.close()
        self.wheel = TimerWheel(self.directory / "timerwheel", SLOTS, PRECISION_MS, FS)
        self.wheel.advance(self.now_slot * PRECISION_MS)

    def open_log(self, start: int, end: int, crcs: list[int]) -> None:
        self.log = TimerLog(
            self.directory / "timerlog", SEGMENT_BYTES, FS, end_position=end, start_position=start, crcs=crcs
        )
        assert sum(len(records) for _, _, records in self.log.verified()) == self.log._end - self.log._start

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def slots_hold_what_the_list_holds(self) -> None:
        expected: dict[int, list[int]] = {}
        for due, number in self.records[self.gone :]:
            if due // PRECISION_MS >= self.now_slot:
                expected.setdefault(due // PRECISION_MS, []).append(number)
        for slot_number in range(self.now_slot, self.now_slot + LAP_SLOTS):
            slot = self.wheel.slot(slot_number * PRECISION_MS)
            numbers = expected.get(slot_number, [])
            assert slot.num == len(numbers)
            if not numbers:
                assert slot == EMPTY_SLOT
                continue
            ways = (
                in_log_order(self.log._filtered_pieces(slot, PRECISION_MS)),
                in_log_order(self.log.slot_pieces(slot, PRECISION_MS)),
                tuple(found[::-1] for found in self.log.chain(slot.last_pos, first_pos=slot.first_pos)),
                tuple(found[::-1] for found in self.log.chain(slot.last_pos, num=slot.num)),
            )
            for positions, records in ways:
                assert records["offset_py"].tolist() == numbers
                assert positions.tolist() == [self.log._position(number_at) for number_at in self._places(numbers)]
        now_ms = self.now_slot * PRECISION_MS
        assert self.wheel.next_occupied(now_ms) == (min(expected) * PRECISION_MS if expected else None)
        assert result_of(self.wheel.num_between(now_ms, 2**62)) == sum(map(len, expected.values()))
        counts = self.wheel.counts(now_ms, now_ms + LAP_SLOTS * PRECISION_MS, PRECISION_MS)
        assert counts.tolist() == [len(expected.get(self.now_slot + n, [])) for n in range(LAP_SLOTS)]

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def files_are_sound(self) -> None:
        assert self.log.check(PRECISION_MS) == []
        assert self.wheel.check() == []
        on_disk = [int(number) for _, records in self.log.scan() for number in records["offset_py"]]
        assert on_disk == [number for _, number in self.records[self.gone :]]

    def _places(self, numbers: list[int]) -> list[int]:
        place = {number: at for at, (_, number) in enumerate(self.records)}
        return [place[number] for number in numbers]

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.wheel.close()
        self._temporary.cleanup()


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(max_examples=60, stateful_step_count=30)
