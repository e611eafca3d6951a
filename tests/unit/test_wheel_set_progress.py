"""A wheel partition whose progress an operator has set: an offset with nothing beside it that tells what waits."""

from pathlib import Path

import msgspec
import pytest

from sidecar.dispatch.wheel.progress import WheelProgress, needed_from
from sidecar.intake.progress import SET_BY_OPERATOR, ProgressError
from sidecar.plan import Plans
from sidecar.records import OFFSET
from tests.support.logged import logged
from tests.support.one_wheel import NOW_MS, PLAN, due, opened, sent

SET_MS, SOON_MS, LATER_MS = NOW_MS + 500, NOW_MS + 1_000, NOW_MS + 60_000


def half_delivered(directory: Path) -> int:
    """Of twenty messages ten are out, and the others wait; the log's end."""
    wheel = opened(directory, end=20)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(20)], NOW_MS)
    wheel.tick(SOON_MS)
    records, _ = sent(wheel, SOON_MS)
    assert len(records) == 10
    wheel.close()
    return 20


@pytest.mark.parametrize("is_disk_kept", [True, False])
def test_to_the_end_all_is_skipped_and_nothing_comes_again(tmp_path: Path, is_disk_kept: bool) -> None:
    end = half_delivered(tmp_path)
    with logged() as logs:
        wheel = opened(tmp_path if is_disk_kept else tmp_path / "another", end, SET_BY_OPERATOR, end, now_ms=SET_MS)
    wheel.reached_end(end)
    wheel.tick(LATER_MS)
    assert sent(wheel, LATER_MS)[0] == []
    assert [line["committed"] for line in logs if line["event"] == "wheel begins anew"] == [end]


def test_to_the_beginning_all_comes_again_and_nothing_is_said_of_what_is_skipped(tmp_path: Path) -> None:
    end = half_delivered(tmp_path)
    with logged() as logs:
        wheel = opened(tmp_path, 0, SET_BY_OPERATOR, end, now_ms=SET_MS)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(end)], LATER_MS)
    wheel.tick(LATER_MS)
    records = [*sent(wheel, LATER_MS)[0], *sent(wheel, LATER_MS)[0]]
    assert sorted(record[OFFSET] for record in records) == list(range(end))
    assert not [line for line in logs if line["event"] == "wheel begins anew"]


def test_a_directory_from_before_knows_nothing_however_far_the_new_progress_has_come(tmp_path: Path) -> None:
    """Another replica's, which had read further than what is needed now, and no further than what is committed."""
    end, here, there = half_delivered(tmp_path / "there"), tmp_path / "here", tmp_path / "there"
    wheel = opened(here, 10, SET_BY_OPERATOR, end, now_ms=SET_MS)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(10, end + 5)], SET_MS)
    wheel.tick(SOON_MS)
    records, committed = sent(wheel, SOON_MS)
    assert [record[OFFSET] for record in records] == [11, 13, 15, 17, 19, 21, 23]
    wheel.close()
    wheel = opened(there, *committed, end + 5, now_ms=SOON_MS)
    assert (wheel.case, wheel.position) == ("begun-anew", 10)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(10, end + 5)], LATER_MS)
    wheel.tick(LATER_MS)
    assert [record[OFFSET] for record in sent(wheel, LATER_MS)[0]] == [10, 12, 14, 16, 18, 20, 22, 24]


@pytest.mark.parametrize("is_disk_kept", [True, False])
def test_after_a_time_what_was_due_by_then_counts_as_sent_and_nothing_else(tmp_path: Path, is_disk_kept: bool) -> None:
    """Behind it stands what came later: that has not been sent, however long ago it was due."""
    end = half_delivered(tmp_path)
    metadata = WheelProgress.due_after(SOON_MS, 0, "", SET_MS).encode()
    wheel = opened(tmp_path if is_disk_kept else tmp_path / "another", end, metadata, end + 2, now_ms=LATER_MS)
    assert wheel.position == 0
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(end)], LATER_MS)
    wheel.offer([due(end, NOW_MS, timestamp_ms=SOON_MS + 1), due(end + 1, LATER_MS)], LATER_MS)
    wheel.tick(LATER_MS)
    records, (committed, told) = sent(wheel, LATER_MS)
    assert sorted(record[OFFSET] for record in records) == [*range(0, end, 2), end, end + 1]
    assert committed == end + 2
    assert not WheelProgress.read(told, committed).is_set
    assert WheelProgress.read(told, committed).plans.since[0] == (0, PLAN)


def test_what_was_committed_of_how_records_are_timed_goes_on_to_hold() -> None:
    old = msgspec.structs.replace(PLAN, levels="7s")
    committed = WheelProgress(lowest_needed=3, plans=Plans(((3, old),)), buried=(1, 4)).encode()
    progress = WheelProgress.decode(WheelProgress.due_after(1, 5, committed, SET_MS).encode(), 9, PLAN, LATER_MS)
    assert progress.plans == Plans(((3, old), (9, PLAN)))
    assert (progress.begun_ms, progress.lowest_needed, progress.buried) == (SET_MS, 5, (2,))


def test_nothing_but_what_an_operator_has_set_may_lack_the_plans() -> None:
    with pytest.raises(ProgressError):
        WheelProgress.decode('{"l":0}', 5, PLAN, NOW_MS)


def test_what_retention_has_left_goes_on_as_before(tmp_path: Path) -> None:
    """The directory is lost, and the first four records of the log: two of those that wait."""
    half_delivered(tmp_path / "lost")
    wheel = opened(tmp_path / "lost", end=20)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(20)], NOW_MS)
    wheel.tick(SOON_MS)
    _, (committed, metadata) = sent(wheel, SOON_MS)
    kept = WheelProgress.read(metadata, committed).kept_from(4)
    assert (kept.lowest_needed, kept.watermark) == (4, WheelProgress.read(metadata, committed).watermark)
    wheel = opened(tmp_path / "new", committed, kept.encode(), 20, now_ms=LATER_MS)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(4, 20)], LATER_MS)
    wheel.tick(LATER_MS)
    assert [record[OFFSET] for record in sent(wheel, LATER_MS)[0]] == [4, 6, 8, 10, 12, 14, 16, 18]


def test_replacements_that_are_dead_letters_are_counted_from_what_is_left() -> None:
    progress = WheelProgress(lowest_needed=10, plans=Plans(((0, PLAN),)), buried=(0, 3, 8))
    assert progress.kept_from(13) == WheelProgress(lowest_needed=13, plans=progress.plans, buried=(0, 5))
    assert progress.kept_from(7) == progress


@pytest.mark.parametrize(
    ("metadata", "needed"),
    [(WheelProgress(lowest_needed=3).encode(), 3), (SET_BY_OPERATOR, 7), ("another's", None), ("", None)],
)
def test_it_is_told_from_where_a_rebuild_reads(metadata: str, needed: int | None) -> None:
    assert needed_from(metadata, 7) == needed
