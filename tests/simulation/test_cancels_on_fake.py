"""Cancels written in good time while no sidecar was there, of messages that fell due meanwhile."""

from pathlib import Path

import pytest

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.start_gate import BACKLOG_MS
from tests.simulation.test_loop_on_fake import World, begin, run

DELAY_MS = 60_000


class WheelWorld(World):
    """A wheel partition, and producers that write to it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(0)
        self.settings = self.settings.model_copy(update={"data_dir": directory})
        self.kafka.create_topic(self.names.wheel, 1, {"message.timestamp.type": "LogAppendTime"})
        self.writer = self.kafka.producer({})

    def write(self, *headers: tuple[str, bytes]) -> None:
        self.writer.produce(self.names.wheel, b"v", b"k", headers=list(headers))
        while self.writer.flush(1):
            pass

    def schedule_as(self, name: bytes) -> None:
        self.write(("REAL_TOPIC", b"orders"), ("UNIQ_KEY", name), ("TIMER_DELAY_MS", b"%d" % DELAY_MS))

    def committed_offset(self) -> int:
        return int(self.kafka.committed("g").get((self.names.wheel, 0), (0, ""))[0])


@pytest.fixture
def world(tmp_path: Path) -> WheelWorld:
    """Two messages wait, and the sidecar is killed."""
    world = WheelWorld(tmp_path)
    loop = begin(world)
    world.schedule_as(b"a")
    world.schedule_as(b"b")
    run(world, loop, lambda: world.committed_offset() == 2)
    world.processes["sidecar"].kill()
    return world


def test_what_was_cancelled_in_good_time_is_not_delivered_by_a_start(world: WheelWorld) -> None:
    world.clock.advance(DELAY_MS // 2)
    world.write(("TIMER_DEL_UNIQKEY", b"a"))
    world.clock.advance(DELAY_MS)
    run(world, begin(world), lambda: world.committed_offset() == 3 and bool(world.delivered()))
    assert len(world.delivered()) == 1


def test_what_is_due_does_not_wait_for_long(world: WheelWorld) -> None:
    """Intake may be stopped, or there may be more to read than in a few seconds."""
    world.clock.advance(DELAY_MS // 2)
    world.write(("TIMER_DEL_UNIQKEY", b"a"))
    world.clock.advance(DELAY_MS)
    loop = begin(world)
    run(world, loop, lambda: bool(loop.sources))
    (wheel,) = (source for source in loop.sources if isinstance(source, WheelPartition))
    loop._switches.stop_enqueue = True
    began_ms = world.clock.monotonic_ms()
    run(world, loop, lambda: len(world.delivered()) == 2)
    assert wheel.position == 2
    assert world.clock.monotonic_ms() - began_ms < BACKLOG_MS + 1_000
