"""The store against a dictionary: whatever is put, cancelled, sent, crashed and reopened, it tells what that tells."""

import errno
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.store.errors import CorruptFile, SlotConflict, StoreError
from sidecar.store.files import ReadOnlyFileSystem, RealFile, RealFileSystem
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.layout import TIMER_LOG_RECORD
from sidecar.store.opening import Opened, check_store, open_store
from sidecar.store.recovery import Case, Owner
from sidecar.store.timer_log import TimerLog
from sidecar.store.timer_store import Loaded, Marks, Surveyed, TimerStore, quota_bytes_min
from tests.support.steps import result_of

SLOTS, PRECISION_MS = 10, 1_000
LAP_SLOTS = 2 * SLOTS
OWNER = Owner("cluster", "topic", "group", 3, "layout")
TOPICS = ["orders", "bills", "never"]
SMALL = {
    "sidecar.store.opening.TIMER_LOG_SEGMENT_BYTES": 400,
    "sidecar.store.opening.PAYLOAD_LOG_SEGMENT_BYTES": 150,
    "sidecar.store.timer_log.CHUNK_RECORDS": 4,
    "sidecar.store.timer_log.CHAIN_STEPS_MAX": 2,
    "sidecar.store.timer_log.FILTER_RECORDS_PER_CHAIN_STEP": 3,
    "sidecar.store.query.ROLLS_AT_ONCE": 2,
    "sidecar.store.slot_walks.STEPS_AT_A_TIME": 2,
    "sidecar.store.timer_wheel._FIRST_CHUNK_SLOTS": 2,
    "sidecar.store.timer_wheel._LAST_CHUNK_SLOTS": 4,
}
"""So that a few records fill segments, blocks and pieces, and a look at the wheel has several steps."""


class Message(NamedTuple):
    act_ms: int
    id: bytes
    topic: str
    payload: bytes
    rolls: bool = False

    @property
    def slot(self) -> int:
        return self.act_ms // PRECISION_MS


Pending = dict[int, Message]
"""By payload position, so in the order of arrival."""


def opened(directory: Path, *, live_from_ms: int = 0, committed: int = 2**40, quota_bytes: int | None = None) -> Opened:
    return open_store(
        directory,
        RealFileSystem(),
        OWNER,
        slots_total=SLOTS,
        precision_ms=PRECISION_MS,
        committed_offset=committed,
        lowest_needed_offset=0,
        live_from_ms=live_from_ms,
        quota_bytes=quota_bytes,
    )


def put(store: TimerStore, messages: list[Message], *, within_quota: bool = True) -> Loaded:
    act_ms = np.array([message.act_ms for message in messages], np.int64)
    return store.put(
        [message.payload for message in messages],
        act_ms,
        act_ms - 500,
        hash_ids([message.id for message in messages]),
        np.array([hash_topic(message.topic) for message in messages], np.int32),
        np.array([message.rolls for message in messages], bool),
        within_quota=within_quota,
    )


def surveyed(store: TimerStore, from_ms: int) -> Surveyed:
    return result_of(store.survey(from_ms, from_ms, from_ms, []))


def is_even(payload: bytes) -> bool:
    return int(payload) % 2 == 0


def is_meant(
    message: Message, from_ms: int, until_ms: int, rolls_from_ms: int, rolls_wanted: Callable[[bytes], bool] | None
) -> bool:
    """Whether a query with these bounds is for it."""
    if message.rolls and rolls_wanted is not None:
        return rolls_from_ms <= message.act_ms < max(from_ms, until_ms) and rolls_wanted(message.payload)
    return from_ms <= message.act_ms < until_ms


def by_time(messages: Pending) -> list[int]:
    """Payload positions by time and then arrival."""
    return sorted(messages, key=lambda position: (messages[position].act_ms, position))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, value in SMALL.items():
            self.patch.setattr(name, value)
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name)
        self.now_slot = 1_000
        self.numbers = itertools.count()
        self.offset = 0
        self.pending: Pending = {}
        self.taken: list[tuple[int, Marks, Pending]] = []
        self.durable: Pending | None = None
        """What the checkpoint holds; None: there is none."""
        self.looking: tuple[Generator[None, None, Surveyed], Pending] | None = None
        """A look that is under way, and what was pending when it began."""
        self.loading: tuple[int, Generator[None, None, Loaded]] | None = None
        """A slot that is being loaded."""
        self.reopen(Case.EMPTY)

    def reopen(self, case: Case) -> None:
        found = opened(self.directory, live_from_ms=self.now_ms + 300)
        assert found.case is case
        self.store = found.store
        self.taken, self.looking, self.loading = [], None, None
        self.pending = {at: message for at, message in self.pending.items() if message.slot >= self.now_slot}

    @property
    def now_ms(self) -> int:
        return self.now_slot * PRECISION_MS

    # --- intake -------------------------------------------------------------------------------------------------------

    @rule(
        batch=st.lists(
            st.tuples(
                st.integers(0, LAP_SLOTS * PRECISION_MS * 3 // 2),
                st.integers(0, 3),
                st.sampled_from(TOPICS[:2]),
                st.booleans(),
            ),
            max_size=12,
        )
    )
    def put(self, batch: list[tuple[int, int, str, bool]]) -> None:
        messages = [
            Message(self.now_ms + delay, b"id%d" % number, topic, b"%d" % next(self.numbers), rolls)
            for delay, number, topic, rolls in batch
        ]
        places = {message.slot % LAP_SLOTS: message.slot for message in self.pending.values()}
        slots = [message.slot for message in messages]
        in_the_way = any(places.setdefault(slot % LAP_SLOTS, slot) != slot for slot in slots)
        before = self.store.marks(), self.store.disk_bytes
        if in_the_way:
            with pytest.raises(SlotConflict):
                put(self.store, messages)
            assert (self.store.marks(), self.store.disk_bytes) == before
            return
        stored = put(self.store, messages)
        self.pending |= zip(stored.payload_pos.tolist(), messages, strict=True)
        self.offset += len(messages)

    @rule(numbers=st.sets(st.integers(0, 3), max_size=3), share=st.integers(1, 3))
    def cancel(self, numbers: set[int], share: int) -> None:
        ids = {b"id%d" % number for number in numbers}
        found = self.store.find(hash_ids(sorted(ids)), self.now_ms)
        named = {at for at, message in self.pending.items() if message.id in ids}
        assert sorted(found.payload_pos.tolist()) == sorted(named)
        targets = found.where(np.arange(len(found.act_ms)) % share == 0)
        self.store.delete(targets)
        for position in targets.payload_pos.tolist():
            del self.pending[position]
        self.offset += 1

    # --- dispatch -----------------------------------------------------------------------------------------------------

    @rule()
    def load(self) -> None:
        begin_ms = max(self.store.loaded_until_ms, self.now_ms)
        waiting = {at: message for at, message in self.pending.items() if message.slot * PRECISION_MS >= begin_ms}
        slot_ms = self.store.first_slot_ms(begin_ms)
        assert slot_ms == min((message.slot * PRECISION_MS for message in waiting.values()), default=None)
        if slot_ms is None:
            return
        if slot_ms < begin_ms + LAP_SLOTS * PRECISION_MS:
            assert self.store.next_slot_ms(begin_ms) == slot_ms
        self.is_loaded(slot_ms, result_of(self.store.load(slot_ms)))

    @precondition(lambda self: self.loading is None)
    @rule()
    def begin_to_load(self) -> None:
        slot_ms = self.store.first_slot_ms(max(self.store.loaded_until_ms, self.now_ms))
        if slot_ms is not None:
            self.loading = slot_ms, self.store.load(slot_ms)

    @precondition(lambda self: self.loading is not None)
    @rule()
    def load_on(self) -> None:
        """What has come and gone since it began counts."""
        assert self.loading is not None
        slot_ms, steps = self.loading
        if slot_ms != self.store.first_slot_ms(max(self.store.loaded_until_ms, self.now_ms)):
            self.loading = None  # it was loaded at once meanwhile, or an earlier one has come
            return
        try:
            next(steps)
        except StopIteration as end:
            self.loading = None
            self.is_loaded(slot_ms, end.value)

    @rule()
    def look_ahead(self) -> None:
        self.store.look_ahead()

    def is_loaded(self, slot_ms: int, loaded: Loaded) -> None:
        mine = {at: message for at, message in self.pending.items() if message.slot * PRECISION_MS == slot_ms}
        assert loaded.payload_pos.tolist() == by_time(mine)
        assert loaded.act_ms.tolist() == [mine[at].act_ms for at in by_time(mine)]
        assert loaded.topic_hash.tolist() == [hash_topic(mine[at].topic) for at in by_time(mine)]
        assert loaded.rolls.tolist() == [mine[at].rolls for at in by_time(mine)]
        assert self.store.read(loaded.payload_pos, loaded.payload_size) == [mine[at].payload for at in by_time(mine)]

    @rule(slots=st.integers(1, LAP_SLOTS + 3))
    def send(self, slots: int) -> None:
        begin_ms = max(self.store.loaded_until_ms, self.now_ms)
        self.now_slot += slots
        while (slot_ms := self.store.first_slot_ms(begin_ms)) is not None and slot_ms < self.now_ms:
            result_of(self.store.load(slot_ms))
            begin_ms = self.store.loaded_until_ms
        self.store.loaded_until_ms = max(begin_ms, self.now_ms)
        self.store.advance(self.now_ms)
        self.pending = {at: message for at, message in self.pending.items() if message.slot >= self.now_slot}

    # --- checkpoints and ends -----------------------------------------------------------------------------------------

    @rule()
    def take(self) -> None:
        self.taken.append((self.offset, self.store.marks(), dict(self.pending)))

    @rule(ends=st.lists(st.integers(0, LAP_SLOTS * PRECISION_MS), max_size=3).map(sorted))
    def look(self, ends: list[int]) -> None:
        found = result_of(
            self.store.survey(self.now_ms, self.now_ms, self.now_ms, [self.now_ms + end_ms for end_ms in ends])
        )
        assert (found.oldest is None) == (not self.pending)
        if found.oldest is not None:
            assert self.number_at(*found.oldest) <= min(int(message.payload) for message in self.pending.values())
        slots_ms = [message.slot * PRECISION_MS for message in self.pending.values()]
        assert found.last_ms == max(slots_ms, default=None)
        ahead_ms = [slot_ms - self.now_ms for slot_ms in slots_ms]
        stretches = zip([0, *ends], ends, strict=False)
        assert found.counts == [sum(begin <= ahead < end for ahead in ahead_ms) for begin, end in stretches]

    @precondition(lambda self: self.looking is None)
    @rule()
    def begin_to_look(self) -> None:
        self.looking = self.store.survey(self.now_ms, self.now_ms, self.now_ms, []), dict(self.pending)

    @precondition(lambda self: self.looking is not None)
    @rule()
    def look_on(self) -> None:
        """What was pending all the while is found, whatever has come and gone since."""
        assert self.looking is not None
        steps, pending = self.looking
        try:
            next(steps)
        except StopIteration as end:
            oldest = end.value.oldest
        else:
            return
        self.looking = None
        numbers = [int(message.payload) for at, message in pending.items() if at in self.pending]
        if numbers:
            assert oldest is not None
            assert self.number_at(*oldest) <= min(numbers)

    def number_at(self, position: int, size: int) -> int:
        (payload,) = self.store.read(np.array([position]), np.array([size], np.int32))
        return int(payload)

    @precondition(lambda self: self.taken)
    @rule()
    def checkpoint(self) -> None:
        offset, marks, self.durable = self.taken.pop(0)
        self.store.checkpoint(offset, marks, {"note": offset})

    @rule()
    def crash(self) -> None:
        self.store.close(None, {})
        self.pending = self.durable or {}
        self.reopen(Case.EMPTY if self.durable is None else Case.UNCLEAN)

    @rule(damage=st.sampled_from(["none", "none", "gone", "flipped"]))
    def stop(self, damage: str) -> None:
        self.store.close(self.offset, {})
        self.durable = dict(self.pending)
        assert check_store(self.directory, ReadOnlyFileSystem()) == []
        wheel = self.directory / "timerwheel"
        if damage == "gone":
            wheel.unlink()
        elif damage == "flipped":
            data = bytearray(wheel.read_bytes())
            data[self.offset % len(data)] ^= 1
            wheel.write_bytes(data)
        self.reopen(Case.CLEAN if damage == "none" else Case.UNCLEAN)

    @rule()
    def warm(self) -> None:
        self.store.warm()

    # --- questions ----------------------------------------------------------------------------------------------------

    @rule(
        from_ms=st.integers(-3_000, LAP_SLOTS * PRECISION_MS),
        length_ms=st.one_of(st.integers(-100, LAP_SLOTS * PRECISION_MS), st.just(2**62)),
        limit=st.integers(0, 6),
        number=st.one_of(st.none(), st.integers(0, 4)),
        topic=st.one_of(st.none(), st.sampled_from(TOPICS)),
        rolls_wanted=st.one_of(st.none(), st.sampled_from([is_even, lambda _payload: True])),
    )
    def query(
        self,
        from_ms: int,
        length_ms: int,
        limit: int,
        number: int | None,
        topic: str | None,
        rolls_wanted: Callable[[bytes], bool] | None,
    ) -> None:
        until_ms = self.now_ms + from_ms + length_ms
        from_ms = self.now_ms + max(from_ms, 0)
        expected = {
            at: message
            for at, message in self.pending.items()
            if is_meant(message, from_ms, until_ms, self.now_ms, rolls_wanted)
            and number in (None, int(message.id[2:]))
            and topic in (None, message.topic)
        }
        total, first = result_of(
            self.store.query(
                from_ms,
                until_ms,
                limit,
                id_hash=None if number is None else int(hash_ids([b"id%d" % number])[0]),
                topic_hash=None if topic is None else hash_topic(topic),
                rolls_from_ms=self.now_ms,
                rolls_wanted=rolls_wanted,
            )
        )
        assert total == len(expected)
        assert first.payload_pos.tolist() == by_time(expected)[:limit]

    @invariant()
    def figures_are_right(self) -> None:
        counted = [m for m in self.pending.values() if m.slot * PRECISION_MS >= self.store.loaded_until_ms]
        assert self.store.pending_count == len(counted)
        topics = Counter(hash_topic(message.topic) for message in counted)
        assert dict(self.store.pending_by_topic_hash(10)) == topics
        assert [self.store.pending_of_topic(hash_topic(topic)) for topic in TOPICS] == [
            topics[hash_topic(topic)] for topic in TOPICS
        ]
        lap = self.store.counts(self.now_ms, self.now_ms + LAP_SLOTS * PRECISION_MS, PRECISION_MS).tolist()
        slots = Counter(message.slot - self.now_slot for message in self.pending.values())
        assert lap == [slots[ahead] for ahead in range(LAP_SLOTS)]
        on_disk = sum(
            path.stat().st_size for path in self.directory.rglob("*") if path.name[0] in "0t" and path.is_file()
        )
        assert self.store.disk_bytes == on_disk

    def teardown(self) -> None:
        self.store.close(None, {})
        self.temporary.cleanup()
        self.patch.undo()


TestTimerStoreModel = StoreMachine.TestCase
TestTimerStoreModel.settings = settings(max_examples=60, stateful_step_count=40)


# --- one at a time ----------------------------------------------------------------------------------------------------


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(name, value)


def some(count: int, *, at_ms: int = 5_000, topic: str = "orders", first: int = 0) -> list[Message]:
    return [Message(at_ms + n, b"id%d" % (first + n), topic, b"payload %d" % (first + n)) for n in range(count)]


def assert_pending_after_a_crash(directory: Path, store: TimerStore, count: int) -> None:
    store.close(None, {})
    found = opened(directory)
    assert (found.case, found.store.pending_count) == (Case.UNCLEAN, count)
    found.store.close(None, {})


@pytest.mark.usefixtures("_small")
def test_what_a_checkpoint_of_before_needs_is_kept_when_later_cancels_have_freed_it(tmp_path: Path) -> None:
    store = opened(tmp_path).store
    old = put(store, some(8))
    put(store, some(30, at_ms=9_000, first=8))
    marks = store.marks()
    # The cancel is not committed yet when the oldest is looked for and a checkpoint of before is written.
    store.delete(old)
    assert surveyed(store, 0).oldest is not None
    store.checkpoint(38, marks, {})
    store.close(None, {})
    found = opened(tmp_path)
    assert (found.case, found.store.pending_count) == (Case.UNCLEAN, 38)
    assert result_of(found.store.query(0, 6_000, 10))[0] == 8
    # Committed, it holds the log back no longer.
    found.store.delete(found.store.find(hash_ids([b"id%d" % n for n in range(8)]), 0))
    surveyed(found.store, 0)
    before = found.store.disk_bytes
    found.store.checkpoint(46, found.store.marks(), {})
    assert found.store.disk_bytes < before
    found.store.close(None, {})
    again = opened(tmp_path).store
    assert (again.pending_count, result_of(again.query(0, 2**62, 1))[0]) == (30, 30)
    again.close(None, {})


@pytest.mark.usefixtures("_small")
def test_a_cancel_that_comes_while_the_wheel_is_looked_at_frees_nothing_that_a_checkpoint_of_before_needs(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path).store
    old = put(store, some(8, at_ms=9_000))
    put(store, some(30, at_ms=13_000, first=8))
    marks = store.marks()
    steps = store.survey(0, 0, 0, [])
    next(steps)
    store.delete(old)  # its slot has not been looked at
    assert result_of(steps).oldest is not None
    store.checkpoint(38, marks, {})
    assert_pending_after_a_crash(tmp_path, store, 38)


@pytest.mark.usefixtures("_small")
def test_what_comes_while_the_wheel_is_looked_at_is_needed_though_its_slot_had_been_looked_at(tmp_path: Path) -> None:
    store = opened(tmp_path).store
    steps = store.survey(0, 0, 0, [])
    next(steps)
    put(store, some(10, at_ms=1_000))
    put(store, some(10, at_ms=9_000, first=10))
    assert result_of(steps).oldest is None  # of what was there when it began
    store.checkpoint(20, store.marks(), {})
    assert_pending_after_a_crash(tmp_path, store, 20)


def _take_back_all(store: TimerStore) -> None:
    store.delete(store.find(hash_ids([b"id%d" % number for number in range(40)]), 0).where(np.arange(40)))


def _take_back_some(store: TimerStore) -> None:
    store.delete(store.find(hash_ids([b"id%d" % number for number in range(0, 40, 3)]), 0))


def _put_more(store: TimerStore) -> None:
    put(store, some(7, at_ms=5_300, first=100))


def _take_back_what_came(store: TimerStore) -> None:
    _put_more(store)
    store.delete(store.find(hash_ids([b"id%d" % number for number in range(102, 105)]), 0))


def _begin_anew(store: TimerStore) -> None:
    _take_back_all(store)
    _put_more(store)


def _free_its_segments(store: TimerStore) -> None:
    store.delete(store.find(hash_ids([b"id%d" % number for number in (*range(40), 1_000)]), 0))
    put(store, some(1, at_ms=9_000, first=2_000))
    surveyed(store, 0)
    store.checkpoint(1_000, store.marks(), {})


_MEANWHILE = [_put_more, _take_back_some, _take_back_what_came, _take_back_all, _begin_anew, _free_its_segments]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("meanwhile", _MEANWHILE)
@pytest.mark.parametrize("is_looked_ahead", [False, True])
@pytest.mark.parametrize("steps_before", [0, 1, 4])
@pytest.mark.parametrize("others", [0, 10])
def test_what_comes_and_goes_while_its_slot_is_loaded_counts(
    tmp_path: Path, meanwhile: Callable[[TimerStore], None], is_looked_ahead: bool, steps_before: int, others: int
) -> None:
    store = opened(tmp_path).store
    for number in range(40):  # with others between them, the slot is followed from record to record
        put(store, some(1, at_ms=5_000 + 17 * number % 300, first=number))
        put(store, [Message(9_000, b"id1000", "orders", b"another")] * others)
    segments = set(tmp_path.rglob("0*"))
    steps = store.load(5_000)
    for _ in range(steps_before + 1):
        store.look_ahead() if is_looked_ahead else next(steps)
    meanwhile(store)
    assert bool(segments - set(tmp_path.rglob("0*"))) is (meanwhile is _free_its_segments)
    loaded = result_of(steps)
    assert loaded.payload_pos.tolist() == result_of(store.load(5_000)).payload_pos.tolist()
    assert len(loaded.act_ms) == store.num(5_000)


def _put_strewn(store: TimerStore, count: int, *, others: int, first: int) -> None:
    for number in range(first, first + count):
        put(store, some(1, at_ms=5_000, first=number))
        put(store, [Message(9_000, b"id1000", "orders", b"another")] * others)


def _add(store: TimerStore, others: int) -> None:
    _put_strewn(store, 40, others=others, first=100)


def _add_and_take_back(store: TimerStore, others: int) -> None:
    _add(store, others)
    store.delete(store.find(hash_ids([b"id%d" % number for number in range(100, 140)]), 0))


def _replace(store: TimerStore, others: int) -> None:
    store.delete(store.find(hash_ids([b"id0", b"id1"]), 0))
    _add(store, others)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("meanwhile", [_add, _add_and_take_back, _replace])
@pytest.mark.parametrize("others", [0, 10])
def test_what_comes_once_a_walk_has_begun_is_loaded_a_little_at_a_time(
    tmp_path: Path, meanwhile: Callable[[TimerStore, int], None], others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path).store
    _put_strewn(store, 2, others=10, first=0)
    store.look_ahead()
    meanwhile(store, others)
    read, ends = list[int](), [0]
    pread = RealFile.pread
    monkeypatch.setattr(RealFile, "pread", lambda file, *args: read.append(args[0]) or pread(file, *args))
    loaded = result_of(store.load(5_000), lambda: ends.append(sum(read)))
    assert max(np.diff([*ends, sum(read)])) <= 3 * 4 * 52, "three pieces"
    assert len(loaded.act_ms) == store.num(5_000) == {_add: 42, _add_and_take_back: 2, _replace: 40}[meanwhile]
    store.close(None, {})


@pytest.mark.parametrize("is_looked_ahead", [False, True])
def test_a_slot_nearly_all_of_which_was_taken_back_is_not_followed_to_its_end(
    tmp_path: Path, is_looked_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its num tells of two records; its chain has four hundred."""
    store = opened(tmp_path).store
    stored = put(store, [Message(5_000, b"id%d" % number, "orders", b"payload") for number in range(201)])
    store.delete(stored.where(np.arange(200)))
    kept = [int(stored.payload_pos[200]), *put(store, [Message(5_000, b"last", "orders", b"payload")]).payload_pos]
    monkeypatch.setattr("sidecar.store.slot_walks.STEPS_AT_A_TIME", 2)
    monkeypatch.setattr("sidecar.store.timer_log.CHAIN_STEPS_MAX", 2)
    followed: list[int] = []
    link = TimerLog._link
    monkeypatch.setattr(TimerLog, "_link", lambda log, position: followed.append(position) or link(log, position))
    for _ in range(10 * is_looked_ahead):
        store.look_ahead()
    assert result_of(store.load(5_000)).payload_pos.tolist() == kept
    assert len(followed) == 5, "for 402 records to filter, at 100 a step"
    followed.clear()
    assert result_of(store.query(0, 6_000, 10))[1].payload_pos.tolist() == kept
    assert len(followed) == 6, "two at a time"
    store.close(None, {})


@pytest.mark.usefixtures("_small")
def test_a_slot_that_gets_more_at_each_step_is_loaded_nevertheless(tmp_path: Path) -> None:
    store = opened(tmp_path).store
    put(store, some(10))
    numbers = iter(range(100, 120))
    loaded = result_of(store.load(5_000), lambda: put(store, some(2, first=next(numbers))))
    assert len(loaded.act_ms) == store.num(5_000)
    store.close(None, {})


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("rolls_wanted", [None, is_even], ids=["by their roll", "by their payload"])
@pytest.mark.parametrize("topic", [None, "orders"])
@pytest.mark.parametrize("uniq_key", [None, b"id1"])
def test_a_query_tells_what_a_look_at_all_that_is_pending_does(
    tmp_path: Path, uniq_key: bytes | None, topic: str | None, rolls_wanted: Callable[[bytes], bool] | None
) -> None:
    """Of some that were taken back, some that roll, and some of one time in the order of their arrival."""
    store = opened(tmp_path).store
    times_ms = [5_000 + 500 * (7 * n % 11) for n in range(40)]
    messages = [
        Message(at_ms, b"id%d" % (n % 3), TOPICS[n % 2], b"%d" % n, n % 4 < 2) for n, at_ms in enumerate(times_ms)
    ]
    pending: Pending = {}
    for begin in range(0, 40, 8):
        stored = put(store, messages[begin : begin + 8])
        pending |= zip(stored.payload_pos.tolist(), messages[begin : begin + 8], strict=True)
        back = stored.where(np.isin(np.arange(8), (2, 4, 5)))
        store.delete(back)
        for position in back.payload_pos.tolist():
            del pending[position]
    for from_ms, until_ms, limit in itertools.product(
        (0, 5_500, 7_000, 8_250), (7_000, 9_500, 2**62), (0, 1, 2, 3, 100)
    ):
        expected = {
            at: one
            for at, one in pending.items()
            if is_meant(one, from_ms, until_ms, 6_000, rolls_wanted)
            and uniq_key in (None, one.id)
            and topic in (None, one.topic)
        }
        total, first = result_of(
            store.query(
                from_ms,
                until_ms,
                limit,
                id_hash=None if uniq_key is None else int(hash_ids([uniq_key])[0]),
                topic_hash=None if topic is None else hash_topic(topic),
                rolls_from_ms=6_000,
                rolls_wanted=rolls_wanted,
            )
        )
        assert (total, first.payload_pos.tolist()) == (len(expected), by_time(expected)[:limit])
    store.close(None, {})


@pytest.mark.usefixtures("_small")
def test_a_query_goes_on_while_the_store_is_used(tmp_path: Path) -> None:
    """Each message that was there all the while is told once; what was sent meanwhile is not."""
    by_id = int(hash_ids([b"same"])[0])
    for topic, id_hash, rolls in (
        (None, None, False),
        ("orders", None, False),
        (None, by_id, False),
        (None, None, True),
        (None, by_id, True),
    ):
        store = opened(tmp_path / f"{topic}{id_hash}{rolls}").store
        early = [Message(5_000 + n, b"same", "orders", b"early %d" % n, rolls) for n in range(40)]
        late = [Message(15_000 + 10 * n, b"same", "orders", b"late %d" % n, rolls) for n in range(40)]
        put(store, [message for pair in zip(early, late, strict=True) for message in pair])
        steps = store.query(
            0,
            2**62,
            200,
            id_hash=id_hash,
            topic_hash=topic and hash_topic(topic),
            rolls_wanted=(lambda _payload: True) if rolls else None,
        )
        for _ in range(3):
            next(steps)
        # Everything early is sent and its segments are deleted, and new messages come.
        result_of(store.load(5_000))
        store.advance(15_000)
        surveyed(store, 15_000)
        put(store, [Message(18_000, b"same", "orders", b"new")])
        store.checkpoint(80, store.marks(), {})
        _, first = result_of(steps)
        payloads = store.read(first.payload_pos, first.payload_size)
        assert [payload for payload in payloads if payload != b"new"] == [message.payload for message in late]
        store.close(None, {})


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("topic", "uniq_key"), [(None, None), ("orders", None), (None, b"same")])
@pytest.mark.parametrize("rolls", [False, True])
def test_what_a_query_has_found_may_be_cancelled_and_its_place_freed_meanwhile(
    tmp_path: Path, topic: str | None, uniq_key: bytes | None, rolls: bool
) -> None:
    id_hash = None if uniq_key is None else int(hash_ids([uniq_key])[0])
    topic_hash = None if topic is None else hash_topic(topic)
    for count in itertools.count(1):
        store = opened(tmp_path / f"{count}").store
        old = put(store, [Message(5_000 + n, b"same", "orders", b"old %d" % n, rolls) for n in range(20)])
        kept = [Message(15_000 + n, b"same", "orders", b"kept %d" % n, rolls) for n in range(20)]
        put(store, kept)
        wanted = (lambda _payload: True) if rolls else None
        steps = store.query(0, 2**62, 100, id_hash=id_hash, topic_hash=topic_hash, rolls_wanted=wanted)
        if sum(1 for _ in itertools.islice(steps, count)) < count:
            store.close(None, {})
            break
        store.delete(old)
        surveyed(store, 0)
        store.checkpoint(40, store.marks(), {})
        _, found = result_of(steps)
        payloads = store.read(found.payload_pos, found.payload_size)
        assert [payload for payload in payloads if payload.startswith(b"kept")] == [one.payload for one in kept]
        store.close(None, {})
    assert count > 3


@pytest.mark.usefixtures("_small")
def test_an_id_that_is_looked_for_while_segments_are_deleted_is_told_once(tmp_path: Path) -> None:
    store = opened(tmp_path).store
    put(store, [Message(5_000, b"same", "orders", b"early"), *some(23)])
    put(store, [Message(15_000, b"same", "orders", b"late")])
    store.find(hash_ids([b"other"]), 0)  # the end of the log is kept
    steps = store.query(0, 2**62, 10, id_hash=int(hash_ids([b"same"])[0]))
    next(steps)
    result_of(store.load(5_000))
    store.advance(15_000)
    surveyed(store, 15_000)
    store.checkpoint(25, store.marks(), {})
    total, first = result_of(steps)
    assert (total, store.read(first.payload_pos, first.payload_size)) == (2, [b"late"]), "one was sent meanwhile"
    store.close(None, {})


def test_each_step_of_a_query_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", 10)
    store = opened(tmp_path).store
    put(store, some(100))
    for topic_hash in (None, hash_topic("orders")):
        assert len(list(store.query(0, 2**62, 10, topic_hash=topic_hash))) >= 10
    store.close(None, {})


@pytest.mark.usefixtures("_small")
def test_the_place_of_a_slot_that_was_emptied_is_used_again_and_rebuilt_so(tmp_path: Path) -> None:
    store = opened(tmp_path).store
    lap_ms = LAP_SLOTS * PRECISION_MS
    for lap in (0, 1, 2, 0):
        with_neighbour = put(store, some(2, at_ms=5_000 + lap * lap_ms, first=10 * lap))
        for other in (1, 3):
            with pytest.raises(SlotConflict):
                put(store, some(1, at_ms=5_000 + (lap + other) * lap_ms))
        assert result_of(store.load(5_000 + lap * lap_ms)).payload_pos.tolist() == with_neighbour.payload_pos.tolist()
        if lap or store.marks().timer_log.position < 52 * 10:
            store.delete(with_neighbour)
    store.checkpoint(8, store.marks(), {})
    store.close(None, {})
    found = opened(tmp_path)
    assert found.case is Case.UNCLEAN
    assert result_of(found.store.query(0, 2**62, 10))[1].act_ms.tolist() == [5_000, 5_001]
    found.store.close(None, {})


def test_a_put_beyond_the_quota_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("opening", "timer_store"):
        monkeypatch.setattr(f"sidecar.store.{module}.TIMER_LOG_SEGMENT_BYTES", 520)
        monkeypatch.setattr(f"sidecar.store.{module}.PAYLOAD_LOG_SEGMENT_BYTES", 500)
    quota_bytes = quota_bytes_min(SLOTS)
    store = opened(tmp_path, quota_bytes=0).store  # less than the least is the least
    one, kept = some(1), list[Loaded]()
    one_bytes = len(one[0].payload) + 8 + 52
    while store.disk_bytes + one_bytes <= quota_bytes:
        kept.append(put(store, one))
    assert len(kept) > 10
    before = store.marks(), store.disk_bytes
    with pytest.raises(OSError, match="disk quota exceeded") as caught:
        put(store, one)
    assert caught.value.errno == errno.EDQUOT
    assert (store.marks(), store.disk_bytes) == before
    # What needs no room goes on: deletes, deliveries, what had been accepted before.
    store.delete(kept[-1])
    assert len(result_of(store.load(5_000)).act_ms) == len(kept) - 1
    put(store, some(1, at_ms=9_000), within_quota=False)
    result_of(store.load(9_000))
    # All of it sent, there is room again.
    store.advance(10_000)
    assert surveyed(store, 10_000).oldest is None
    store.checkpoint(1, store.marks(), {})
    put(store, some(5, at_ms=12_000))
    store.close(None, {})


def damaged(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


READERS = {
    "load": (lambda store: result_of(store.load(5_000)), "timerlog"),
    "find": (lambda store: store.find(hash_ids([b"id1"]), 0), "timerlog"),
    "query by time": (lambda store: result_of(store.query(0, 2**62, 10)), "timerlog"),
    "query by id": (lambda store: result_of(store.query(0, 2**62, 10, id_hash=int(hash_ids([b"id1"])[0]))), "timerlog"),
    "query by topic": (
        lambda store: result_of(store.query(0, 2**62, 10, topic_hash=hash_topic("orders"))),
        "timerlog",
    ),
    "survey": (lambda store: surveyed(store, 0), "timerlog"),
    "read": (lambda store: store.read(np.array([0]), np.array([9], np.int32)), "payload"),
}


@pytest.mark.parametrize("name", READERS)
def test_damage_that_is_noticed_while_running_leaves_no_checkpoint(tmp_path: Path, name: str) -> None:
    reader, log = READERS[name]
    store = opened(tmp_path).store
    put(store, some(3))
    store.checkpoint(3, store.marks(), {})
    damaged(tmp_path / log / f"{0:020d}", 0)
    with pytest.raises(StoreError):
        reader(store)  # type: ignore[no-untyped-call]
    assert not (tmp_path / "checkpoint").exists()
    store.checkpoint(3, store.marks(), {})
    store.close(3, {})
    found = opened(tmp_path)
    assert (found.case, found.store.pending_count) == (Case.EMPTY, 0)
    found.store.close(None, {})


@pytest.mark.parametrize("shift", [1, 2], ids=["16 s", "70 min"])
@pytest.mark.parametrize("per_step", [1, 1_000], ids=["strewn", "filtered"])
def test_a_time_that_has_changed_on_disk_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int, per_step: int
) -> None:
    """Of a message that waits longer than a page stays in memory: it would come early, late or never."""
    monkeypatch.setattr("sidecar.store.timer_log.FILTER_RECORDS_PER_CHAIN_STEP", per_step)
    store = opened(tmp_path).store
    put(store, [Message(5_000 + 1_000 * (number % 2) + number, b"%d" % number, "orders", b"p") for number in range(8)])
    store.checkpoint(3, store.marks(), {})
    record = 4 * TIMER_LOG_RECORD.itemsize
    damaged(tmp_path / "timerlog" / f"{0:020d}", record + TIMER_LOG_RECORD.fields["delayed_time"][1] + shift)
    with pytest.raises(CorruptFile):
        result_of(store.load(5_000))
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("field", ["time_ms", "num"])
def test_a_slot_that_has_changed_on_disk_before_a_clean_stop_is_damage(tmp_path: Path, field: str) -> None:
    """The CRC of the wheel is of what that stop found."""
    store = opened(tmp_path).store
    put(store, some(3))
    slot = int(np.flatnonzero(store._wheel._slots["num"])[0])
    store._wheel._slots[field][slot] += 1 if field == "num" else 1_000
    store.close(3, {})
    found = opened(tmp_path)
    assert found.case is Case.CORRUPT
    found.store.close(None, {})


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("name", READERS)
def test_a_sector_that_cannot_be_read_is_damage_and_no_other_failure_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    reader, _ = READERS[name]
    store = opened(tmp_path).store
    put(store, some(3))
    store.checkpoint(3, store.marks(), {})

    def unreadable(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as disk:
        disk.setattr(RealFile, "pread", unreadable)
        with pytest.raises(CorruptFile if number == errno.EIO else OSError, match=os.strerror(number)):
            reader(store)  # type: ignore[no-untyped-call]
    assert (tmp_path / "checkpoint").exists() == (number != errno.EIO)
    store.close(3, {})
    found = opened(tmp_path)
    assert found.case is (Case.EMPTY if number == errno.EIO else Case.CLEAN)
    found.store.close(None, {})


def test_a_slot_that_holds_another_number_than_the_timer_log_is_damage(tmp_path: Path) -> None:
    store = opened(tmp_path).store
    put(store, some(3))
    with (tmp_path / "timerwheel").open("r+b") as file:  # under the running store
        file.seek(32 * 5 + 24)
        file.write(b"\x02")
    with pytest.raises(CorruptFile, match="slot 5000 ms: num 2, 3 in the timer log"):
        result_of(store.load(5_000))
    store.close(None, {})
