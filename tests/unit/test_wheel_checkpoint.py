"""How far a start has to read again: checkpoints while what arrives is always due already."""

from pathlib import Path

import pytest
from confluent_kafka import Message

from sidecar.dispatch.wheel.checkpoints import CHECKPOINT_EVERY_MS, MARKS_MAX
from sidecar.dispatch.wheel.partition import LOOK_EVERY_MS, WheelPartition
from sidecar.store.files import set_aside
from sidecar.store.recovery import Case
from tests.support.one_wheel import NOW_MS, PLAN, due, message, opened, replaced_while_it_rolls, sent, ticks

HOUR_MS = 3_600_000
BATCH = 10


def with_backlog(directory: Path, batches: int) -> tuple[WheelPartition, tuple[int, str], int]:
    """Reads as much as it sends, five batches behind, and stores a record with each; (wheel, committed, now)."""
    wheel, committed, now_ms = opened(directory), (0, ""), NOW_MS
    for number in range(batches):
        now_ms += CHECKPOINT_EVERY_MS
        first = wheel.position
        late = [due(first + n, NOW_MS - 1, uniq_key=b"%d" % (first + n)) for n in range(BATCH - 1)]
        later = due(first + BATCH - 1, NOW_MS + HOUR_MS, uniq_key=b"%d" % (first + BATCH - 1))
        wheel.offer([*late, later], now_ms)
        if number >= 5:
            records, committed = sent(wheel, now_ms, BATCH - 1)
            assert len(records) == BATCH - 1
        wheel.tick(now_ms)
    return wheel, committed, now_ms


@pytest.mark.parametrize("batches", [20, 20 + MARKS_MAX])
def test_a_start_does_not_read_again_what_a_standing_backlog_has_left_behind(tmp_path: Path, batches: int) -> None:
    wheel, committed, now_ms = with_backlog(tmp_path, batches)
    end = wheel.position
    assert end - committed[0] >= 4 * BATCH, "there is a backlog"
    again = opened(tmp_path, *committed, end)
    assert committed[0] - again.position <= 2 * BATCH
    rest = [due(n, NOW_MS + (HOUR_MS if n % BATCH == BATCH - 1 else -1), uniq_key=b"%d" % n) for n in range(end)]
    again.offer(rest[again.position :], now_ms)
    assert not again.is_recovering
    late, _ = sent(again, now_ms)
    assert [record[6] for record in late] == [n for n in range(committed[0], end) if n % BATCH != BATCH - 1]
    assert again.figures.pending == batches
    stored, _ = sent(again, NOW_MS + HOUR_MS)
    assert sorted(record[6] for record in stored) == [n for n in range(end) if n % BATCH == BATCH - 1]


def test_a_cancel_after_an_aborted_transaction_is_not_forgotten_by_a_checkpoint(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 500, uniq_key=b"m"), due(1, NOW_MS + HOUR_MS)], NOW_MS)
    now_ms = NOW_MS + 600
    wheel.tick(now_ms)
    assert [record[6] for record in wheel.take(now_ms, 5_000, 10**7)] == [0]
    wheel.put_back()
    wheel.offer([message(2, ("TIMER_DEL_UNIQKEY", b"m")), due(3, NOW_MS - 1), due(4, NOW_MS - 1)], now_ms)
    committed = 0, ""
    for _ in range(2):
        records, committed = sent(wheel, now_ms, 1)
        assert len(records) == 1
        assert records[0][6] > 2
        now_ms += CHECKPOINT_EVERY_MS
        wheel.tick(now_ms)
    again = opened(tmp_path, *committed, 5)
    assert again.position == committed[0] == 5
    assert sent(again, now_ms)[0] == []
    assert [record[6] for record in sent(again, NOW_MS + HOUR_MS)[0]] == [1]


def with_a_replacement_carried_out(directory: Path) -> tuple[WheelPartition, list[Message]]:
    """Its message waits to be sent; it was decided by records behind it, which were read when it was committed already.

    The partition, in ``directory``/second, and the log.
    """
    log, progress = replaced_while_it_rolls(directory / "first")
    log.append(due(3, NOW_MS + HOUR_MS))
    wheel = opened(directory / "second", *progress, end=4)
    wheel.offer(log[wheel.position : 3], NOW_MS)
    sent(wheel, NOW_MS)
    wheel.tick(NOW_MS + LOOK_EVERY_MS)
    wheel.offer(log[3:], NOW_MS)
    return wheel, log


@pytest.mark.parametrize("is_looked_at", [False, True])
@pytest.mark.parametrize("is_disk_gone", [False, True])
def test_a_replacement_is_not_forgotten_before_its_message_is_sent(
    tmp_path: Path, is_disk_gone: bool, is_looked_at: bool
) -> None:
    wheel, log = with_a_replacement_carried_out(tmp_path)
    if is_looked_at:  # all that lies on the wheel comes after it
        ticks(wheel, NOW_MS + 2 * LOOK_EVERY_MS)
    records, progress = sent(wheel, NOW_MS, most=0)
    assert records == []
    wheel.tick(NOW_MS + 2 * LOOK_EVERY_MS + CHECKPOINT_EVERY_MS)
    again = opened(tmp_path / ("third" if is_disk_gone else "second"), *progress, end=4)
    again.offer(log[again.position :], NOW_MS)
    assert [dict(record[4])["UNIQ_KEY"] for record in sent(again, NOW_MS)[0]] == [b"b"]


def test_a_checkpoint_that_cannot_be_written_is_told_until_one_can(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    now_ms = NOW_MS

    def goes_on() -> None:
        nonlocal now_ms
        now_ms += CHECKPOINT_EVERY_MS
        wheel.offer([due(wheel.position, NOW_MS + HOUR_MS)], now_ms)
        sent(wheel, now_ms)
        wheel.tick(now_ms)

    goes_on()
    assert wheel.note == ""
    (checkpoint,) = tmp_path.rglob("checkpoint")
    in_the_way = set_aside(checkpoint)
    in_the_way.mkdir()  # where the new one is written before it is renamed
    goes_on()
    assert wheel.note.startswith("no checkpoint can be written, so that a start takes longer: ")
    in_the_way.rmdir()
    goes_on()
    assert wheel.note == ""


def test_what_a_cancel_leaves_of_a_loaded_slot_is_still_there_after_a_start(tmp_path: Path) -> None:
    """What is in memory is on disk as well: taken back twice, it would take another's place in the slot's count."""
    wheel = opened(tmp_path)
    wheel.offer([due(0, NOW_MS + 500, uniq_key=b"m"), due(1, NOW_MS + 500)], NOW_MS)
    wheel.tick(NOW_MS)
    assert wheel.waiting == 2
    wheel.offer([message(2, ("TIMER_DEL_UNIQKEY", b"m"))], NOW_MS)
    _, committed = sent(wheel, NOW_MS)
    wheel.tick(NOW_MS + CHECKPOINT_EVERY_MS)
    again = opened(tmp_path, *committed, 3)
    assert (again.position, again.case) == (3, Case.UNCLEAN)
    assert [record[6] for record in sent(again, NOW_MS + 500)[0]] == [1]


def test_a_clean_stop_forgets_no_cancel_that_a_copy_may_come_for(tmp_path: Path) -> None:
    """It is nowhere but in memory and in Kafka."""
    wheel = opened(tmp_path)
    rolling = due(0, NOW_MS + PLAN.roll_window_ms, timestamp_ms=NOW_MS - PLAN.roll_window_ms, uniq_key=b"a")
    cancel = message(1, ("TIMER_DEL_UNIQKEY", b"a"))
    wheel.offer([rolling], NOW_MS)
    (copy,), _ = sent(wheel, NOW_MS)
    wheel.offer([cancel], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    assert progress[0] == wheel.position == 2
    wheel.close()
    again = opened(tmp_path, *progress, end=3)
    again.offer([rolling, cancel, message(2, *copy[4])][again.position :], NOW_MS)
    assert (again.position, again.figures.pending) == (3, 0)
