"""The index finds what reading all of the log finds, and reads no more than it must."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.store.files import RealFileSystem
from sidecar.store.id_index import IdIndex
from sidecar.store.layout import Int64Array, RecordArray
from sidecar.store.timer_log import Block, TimerLog
from tests.support.slots import new_records

SEGMENT_BYTES = 1024
"""19 records."""
BLOCK_RECORDS = 8
HASHES = [0, 1, 2, 3 << 32, (3 << 32) + 1, -1, -(1 << 32), 2**63 - 1, -(2**63)]
"""Some share their upper halves, which are all that the index holds."""


class ReadingLog(TimerLog):
    """Notes which blocks are read, and how many single records."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SEGMENT_BYTES, RealFileSystem())
        self.read: list[int] = []
        self.records_read = 0
        self.gathered = 0

    def read_block(self, block: Block) -> RecordArray:
        records = super().read_block(block)
        self.read.append(block.position)
        self.records_read += len(records)
        return records

    def gather_numbers(self, indexes: Int64Array) -> RecordArray:
        self.gathered += len(indexes)
        return super().gather_numbers(indexes)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.store.timer_log.CHUNK_RECORDS", BLOCK_RECORDS)


def records_with(hashes: list[int]) -> RecordArray:
    records = new_records(len(hashes))
    records["reserved"] = hashes
    return records


def found(index: IdIndex, hashes: list[int], start: int) -> list[int]:
    parts = [records["reserved"] for records in index.find(np.array(hashes, np.int64), start)]
    return [int(one) for part in parts for one in part]


STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.sampled_from(HASHES), max_size=30)),
    st.tuples(st.just("find"), st.lists(st.sampled_from(HASHES), max_size=4)),
    st.tuples(st.just("warm"), st.none()),
    st.tuples(st.just("delete"), st.floats(0, 1)),
)


@given(steps=st.lists(STEPS, max_size=25), share=st.floats(0, 1))
def test_it_finds_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]], share: float
) -> None:
    log = TimerLog(tmp_path_factory.mktemp("log"), SEGMENT_BYTES, RealFileSystem())
    index, model = IdIndex(log), list[tuple[int, int]]()
    for step, argument in steps:
        if step == "append":
            positions: Int64Array = log.append(records_with(argument))
            model += zip(positions.tolist(), argument, strict=True)
        elif step == "warm":
            index.warm()
        elif step == "delete" and model:
            log.delete_before(model[int((len(model) - 1) * float(argument))][0])  # type: ignore[arg-type]
            index.forget()
            model = [(position, one) for position, one in model if position >= log.start_position]
        elif step == "find":
            start = model[int((len(model) - 1) * share)][0] if model else log.start_position
            # Whole blocks are looked at: what lies before the start in its block may be told too.
            told, wanted = found(index, argument, start), set(argument)
            begin = next((block.position for block in log.blocks(start)), start)
            assert told == [one for position, one in model if one in wanted and position >= begin]
    log.close()


def test_once_indexed_only_records_that_may_be_it_are_read(tmp_path: Path) -> None:
    log = ReadingLog(tmp_path)
    log.append(records_with([n << 32 for n in range(60)]))
    index = IdIndex(log)
    blocks = [block.position for block in log.blocks(0)]
    for _ in blocks:
        index.warm()
    assert log.read == blocks[:-1]  # the last one is not full
    log.read.clear()
    assert found(index, [n << 32 for n in (58, 30, 8, 9)], 0) == [n << 32 for n in (8, 9, 30, 58)]
    assert (log.read, log.gathered) == (blocks[-1:], 3)
    log.read.clear()
    assert found(index, [(30 << 32) + 1], 0) == []
    assert log.read == [], "the end is kept"
    assert log.gathered == 4, "only the upper half of a hash is known"


def test_what_a_find_has_read_it_need_not_read_again(tmp_path: Path) -> None:
    log = ReadingLog(tmp_path)
    log.append(records_with([n << 32 for n in range(60)]))
    index = IdIndex(log)
    assert found(index, [77 << 32], 0) == []
    assert len(log.read) == len(list(log.blocks(0)))
    log.read.clear()
    assert found(index, [77 << 32], 0) == []
    assert log.read == []
    log.append(records_with([77 << 32]))
    log.records_read = 0
    assert found(index, [77 << 32], 0) == [77 << 32]
    assert log.records_read == 1


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("kept_from", [38, 57])
def test_what_is_deleted_while_it_looks_is_passed_over(tmp_path: Path, is_indexed: bool, kept_from: int) -> None:
    log = TimerLog(tmp_path, SEGMENT_BYTES, RealFileSystem())
    positions = log.append(records_with([7] * 60))
    index = IdIndex(log)
    if is_indexed:
        assert found(index, [8], 0) == []
    search = index.find(np.array([7], np.int64), 0)
    assert len(next(search)) == BLOCK_RECORDS
    log.delete_before(int(positions[kept_from]))
    index.forget()
    assert sum(map(len, search)) == 60 - kept_from
    assert found(index, [7], log.start_position) == [7] * (60 - kept_from)
    log.close()
