"""A wheel partition whose progress an operator has set: an offset with nothing beside it that tells what waits."""

from pathlib import Path

import pytest

from sidecar.intake.progress import SET_BY_OPERATOR
from tests.support.logged import logged
from tests.support.one_wheel import NOW_MS, due, opened, sent

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
    assert sorted(record[6] for record in records) == list(range(end))
    assert not [line for line in logs if line["event"] == "wheel begins anew"]


def test_a_directory_from_before_knows_nothing_however_far_the_new_progress_has_come(tmp_path: Path) -> None:
    """Another replica's, which had read further than what is needed now, and no further than what is committed."""
    end, here, there = half_delivered(tmp_path / "there"), tmp_path / "here", tmp_path / "there"
    wheel = opened(here, 10, SET_BY_OPERATOR, end, now_ms=SET_MS)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(10, end + 5)], SET_MS)
    wheel.tick(SOON_MS)
    records, committed = sent(wheel, SOON_MS)
    assert [record[6] for record in records] == [11, 13, 15, 17, 19, 21, 23]
    wheel.close()
    wheel = opened(there, *committed, end + 5, now_ms=SOON_MS)
    assert (wheel.case, wheel.position) == ("begun-anew", 10)
    wheel.offer([due(offset, SOON_MS if offset % 2 else LATER_MS) for offset in range(10, end + 5)], LATER_MS)
    wheel.tick(LATER_MS)
    assert [record[6] for record in sent(wheel, LATER_MS)[0]] == [10, 12, 14, 16, 18, 20, 22, 24]
