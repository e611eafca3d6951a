"""What the loop answers to whoever asks what waits, of a partition that is closed before it has told all."""

from pathlib import Path

import pytest

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.time_counts import Window
from sidecar.loop import Loop
from sidecar.pending import PendingQuery
from sidecar.store.errors import CorruptFile
from tests.simulation.test_loop_on_fake import World, run
from tests.support.steps import result_of

WINDOW = Window(0, 1_000_000, 1_000)


class WheelWorld(World):
    """Two wheel partitions, and no records."""

    def __init__(self, directory: Path) -> None:
        super().__init__(0)
        self.settings = self.settings.model_copy(update={"data_dir": directory})
        self.kafka.create_topic(self.names.wheel, 2, {"message.timestamp.type": "LogAppendTime"})

    def wheels(self, loop: Loop) -> list[WheelPartition]:
        return [source for source in loop.sources if isinstance(source, WheelPartition)]

    def begun(self) -> Loop:
        loop = self.sidecar()
        return run(self, loop, lambda: len(self.wheels(loop)) == 2)


def test_an_answer_leaves_out_the_partitions_that_were_given_up_meanwhile(tmp_path: Path) -> None:
    world = WheelWorld(tmp_path)
    loop = world.begun()
    pending, counts = loop.pending(PendingQuery()), loop.count_by_time(WINDOW)
    next(pending)
    next(counts)
    before = world.wheels(loop)
    world.kafka.rebalance("g")
    run(world, loop, lambda: len(world.wheels(loop)) == 2 and not set(before) & set(world.wheels(loop)))
    assert result_of(pending)[1] == []
    assert result_of(counts)[1] == []


def test_a_partition_whose_files_are_found_damaged_by_a_question_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WheelWorld(tmp_path)
    loop = world.begun()
    damaged, other = world.wheels(loop)

    def broken(_query: PendingQuery) -> None:
        raise CorruptFile(tmp_path, "not what was written")

    monkeypatch.setattr(damaged._view, "pending", lambda query: (broken(query) for _ in "1"))
    assert result_of(loop.pending(PendingQuery()))[1] == [other.partition]
    run(world, loop, lambda: len(world.wheels(loop)) == 2)
    assert damaged not in world.wheels(loop)
    assert result_of(loop.pending(PendingQuery()))[1] == [0, 1]
