"""Replacements of which a start does not know whether they have been carried out, while something is sent already."""

from pathlib import Path

import pytest

from connectors.contract import Headers
from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.dispatch.wheel.progress import IN_DOUBT_MAX_BYTES, WheelProgress, fitting
from sidecar.plan import Plans
from sidecar.records import HEADERS, KEY, OFFSET, TOPIC, VALUE
from tests.support.one_wheel import NOW_MS, PLAN, REAL_TOPIC, WHEEL, due, message, opened, sent

SOON_MS, LATER_MS = NOW_MS + 1_000, NOW_MS + 60_000
REPLACING = 2
NAMES: Headers = [("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELIVER_MS", b"%d" % LATER_MS)]
LOG = [
    due(0, SOON_MS, uniq_key=b"a"),
    due(1, SOON_MS + 1),
    message(REPLACING, REAL_TOPIC, *NAMES, value=b"instead"),
]
"""Nothing of it has been delivered, and nobody has read the replacement, when progress is set behind it."""
END = 9
"""Of the log: what follows cannot be read yet, because of another's open transaction."""


def test_while_it_can_be_read_on_nothing_is_sent(tmp_path: Path) -> None:
    """And then what replaces goes out before what might be taken for the end of it."""
    set_ms = WheelProgress.due_after(NOW_MS, 0, "", NOW_MS).encode()
    wheel = opened(tmp_path, len(LOG), set_ms, END)
    wheel.offer(LOG, NOW_MS)
    wheel.tick(SOON_MS + 1)
    assert wheel.is_recovering
    assert "to see which replacements have been carried out" in wheel.trouble
    assert sent(wheel, SOON_MS + 1)[0] == []
    wheel.reached_end(END)
    assert not wheel.is_recovering
    assert [record[OFFSET] for record in sent(wheel, SOON_MS + 1)[0]] == [REPLACING, 1]


def sends_while_in_doubt(directory: Path) -> tuple[int, str]:
    """A process sends what is due after that which is replaced, and ends; its progress."""
    set_ms = WheelProgress.due_after(NOW_MS, 0, "", NOW_MS).encode()
    wheel = opened(directory, len(LOG), set_ms, END)
    wheel.offer(LOG, NOW_MS)
    wheel.reached_end(len(LOG))
    wheel.tick(SOON_MS + 1)
    records, progress = sent(wheel, SOON_MS + 1)
    assert [record[OFFSET] for record in records] == [1]
    return progress


def begun_again(directory: Path, progress: tuple[int, str]) -> WheelPartition:
    """By another process, whose disk is empty, which reads the same."""
    wheel = opened(directory, *progress, END, now_ms=SOON_MS + 2)
    wheel.offer(LOG, SOON_MS + 2)
    return wheel


def test_its_message_comes_although_what_it_replaces_counts_as_sent(tmp_path: Path) -> None:
    wheel = begun_again(tmp_path / "2", sends_while_in_doubt(tmp_path / "1"))
    wheel.reached_end(END)
    records, _ = sent(wheel, SOON_MS + 2)
    assert [(record[TOPIC], record[KEY], record[VALUE]) for record in records] == [(WHEEL, b"k", b"instead")]
    assert ("UNIQ_KEY", b"b") in records[0][HEADERS]
    assert sent(wheel, SOON_MS + 3)[0] == []


@pytest.mark.parametrize("is_aborted", [False, True])
def test_until_that_is_sent_every_commit_says_so(tmp_path: Path, is_aborted: bool) -> None:
    wheel = begun_again(tmp_path / "2", sends_while_in_doubt(tmp_path / "1"))
    wheel.reached_end(END)
    if is_aborted:
        assert len(wheel.take(SOON_MS + 2, 10, 2**20)) == 1
        wheel.put_back()
    progress = sent(wheel, SOON_MS + 2, most=0)[1]
    wheel = begun_again(tmp_path / "3", progress)
    wheel.reached_end(END)
    records, (committed, metadata) = sent(wheel, SOON_MS + 2)
    assert [record[VALUE] for record in records] == [b"instead"]
    assert WheelProgress.read(metadata, committed).in_doubt == ()


def test_it_does_not_come_again_where_its_copy_is_behind_what_could_not_be_read(tmp_path: Path) -> None:
    progress = sends_while_in_doubt(tmp_path / "1")
    wheel = begun_again(tmp_path / "2", progress)
    wheel.reached_end(END)
    (copy,), _ = sent(wheel, SOON_MS + 2)
    wheel = begun_again(tmp_path / "3", progress)
    wheel.offer([message(END - 1, *copy[HEADERS], value=b"instead")], SOON_MS + 2)
    wheel.reached_end(END)
    assert sent(wheel, SOON_MS + 3)[0] == []
    wheel.tick(LATER_MS)
    assert [record[VALUE] for record in sent(wheel, LATER_MS)[0]] == [b"instead"]


def test_a_commit_tells_of_as_many_as_there_is_room_for() -> None:
    assert fitting(range(5)) == (0, 1, 2, 3, 4)
    told = fitting(range(10**9, 10**9 + 1_000))
    assert told == tuple(range(10**9, 10**9 + len(told)))
    assert IN_DOUBT_MAX_BYTES - 12 < len(",".join(map(str, told))) < IN_DOUBT_MAX_BYTES


def test_where_an_operator_has_it_read_anew_it_is_carried_out_once(tmp_path: Path) -> None:
    """It lies behind where the partition goes on; what it replaces is found, or not, as if nobody had read either."""
    committed, metadata = sends_while_in_doubt(tmp_path / "1")
    assert WheelProgress.read(metadata, committed).in_doubt == (REPLACING,)
    set_ms = WheelProgress.due_after(SOON_MS + 1, 0, metadata, SOON_MS + 2).encode()
    wheel = begun_again(tmp_path / "2", (REPLACING, set_ms))
    wheel.reached_end(END)
    assert sent(wheel, SOON_MS + 2)[0] == []


def test_an_operators_choice_forgets_none_that_the_log_still_holds() -> None:
    progress = WheelProgress(lowest_needed=10, plans=Plans(((0, PLAN),)), in_doubt=(0, 3, 8))
    assert progress.kept_from(13).in_doubt == (0, 5)
    assert WheelProgress.due_after(NOW_MS, 5, progress.encode(), NOW_MS).in_doubt == (5, 8, 13)
