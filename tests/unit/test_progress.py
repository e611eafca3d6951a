"""Where reading a partition begins: every row of the table, and every combination of what decides."""

from itertools import product

import msgspec
import pytest

from connectors.kafka import NO_TOPIC_IDS
from sidecar.intake import progress
from sidecar.intake.progress import (
    FORMAT,
    SET_BY_OPERATOR,
    LastRead,
    LogRange,
    Mark,
    Start,
    Stop,
    decide_start,
)

NOW_MS, RETENTION_MS = 1_000_000, 1_000
DEEP = '{"x":' * 3_000
YOUNG_MS, OLD_MS = NOW_MS - RETENTION_MS + 1, NOW_MS - RETENTION_MS


def decide(
    committed: int | None, begin: int, end: int, first_ms: int | None = None, metadata: str | None = None
) -> Start | Stop:
    return decide_start(committed, metadata, LogRange(begin, end, first_ms), NOW_MS, RETENTION_MS)


@pytest.mark.parametrize("committed", [5, 7, 9])
def test_an_ordinary_restart_begins_at_what_was_committed(committed: int) -> None:
    assert decide(committed, 5, 9, metadata='{"r":8}') == Start(committed, '{"r":8}', 9, 5)


def test_progress_without_metadata_reads_as_empty_metadata() -> None:
    assert decide(5, 0, 9, metadata=None) == Start(5, "", 9)


@pytest.mark.parametrize(
    ("start", "is_offset_alone", "is_set_unawares"),
    [
        (Start(5, '{"l":5}', 9, 0), False, False),
        (Start(5, SET_BY_OPERATOR, 9, 0), True, False),
        (Start(5, "", 9, 0), True, True),
        (Start(5, "", 9, 5), True, False),
    ],
)
def test_an_offset_that_stands_alone_passes_over_records_unless_it_is_the_first(
    start: Start, is_offset_alone: bool, is_set_unawares: bool
) -> None:
    assert (start.is_offset_alone, start.is_set_unawares) == (is_offset_alone, is_set_unawares)


@pytest.mark.parametrize("offset", [0, 12])
def test_a_new_topic_or_group_begins_at_the_end_of_an_empty_log(offset: int) -> None:
    assert decide(None, offset, offset) == Start(offset, "", offset, offset)


def test_a_new_group_on_a_topic_in_use_begins_at_the_logs_beginning() -> None:
    assert decide(None, 3, 9, YOUNG_MS) == Start(3, "", 9, 3)


def test_a_first_record_from_the_near_future_is_young() -> None:
    assert decide(None, 3, 9, NOW_MS + RETENTION_MS - 1) == Start(3, "", 9, 3)


@pytest.mark.parametrize("first_ms", [OLD_MS, 0, None, NOW_MS + RETENTION_MS])
def test_progress_that_may_have_expired_stops_the_partition(first_ms: int | None) -> None:
    verdict = decide(None, 3, 9, first_ms)
    assert isinstance(verdict, Stop)
    assert "older than the brokers keep progress" in verdict.reason


@pytest.mark.parametrize("end", [3, 9])
def test_records_that_retention_removed_before_they_were_read_stop_the_partition(end: int) -> None:
    verdict = decide(2, 3, end, YOUNG_MS)
    assert isinstance(verdict, Stop)
    assert "progress is at offset 2, but the log begins at 3" in verdict.reason


@pytest.mark.parametrize("begin", [0, 9])
def test_a_topic_made_anew_stops_the_partition(begin: int) -> None:
    verdict = decide(10, begin, 9, YOUNG_MS)
    assert isinstance(verdict, Stop)
    assert "progress is at offset 10, but the log ends at 9" in verdict.reason


def test_every_combination_starts_where_nothing_is_lost_or_sent_twice_or_else_stops() -> None:
    committed_offsets: list[int | None] = [None, *range(6)]
    first_timestamps: list[int | None] = [None, OLD_MS, YOUNG_MS]
    for committed, begin, end, first_ms, metadata in product(
        committed_offsets, range(6), range(6), first_timestamps, (None, "", "m")
    ):
        if begin > end:
            continue
        verdict = decide(committed, begin, end, first_ms, metadata)
        if committed is not None:
            may_start, at = begin <= committed <= end, committed
        else:
            may_start, at = begin == end or first_ms == YOUNG_MS, begin
        assert isinstance(verdict, Start) == may_start
        if isinstance(verdict, Start):
            assert verdict == Start(at, (metadata or "") if committed is not None else "", end, begin)
        else:
            assert verdict.reason


@pytest.mark.parametrize("metadata", ["", "{}", '{"r":8}', '{"w":[1,2],"l":0}'])
@pytest.mark.parametrize("mark", [Mark("one"), Mark("one", LastRead(7, 8, 9)), Mark("", LastRead(7, 8, 9))])
def test_a_commit_says_of_which_log_it_is(metadata: str, mark: Mark) -> None:
    marked = mark.put_on(metadata)
    assert Mark.of(marked) == mark
    fields = msgspec.json.decode(marked)
    assert {name: fields[name] for name in fields if name not in "te"} == msgspec.json.decode(metadata or "{}")
    assert Mark().put_on(metadata) == metadata


@pytest.mark.parametrize(
    "metadata",
    [None, "", "{}", SET_BY_OPERATOR, "somebody else's", "[]", '{"t":1}', '{"e":[1,2]}', '{"e":[-1,2,3]}', DEEP],
)
def test_what_does_not_say_of_which_log_it_is_is_of_any(metadata: str | None) -> None:
    assert Mark.of(metadata) == Mark()
    verdict = decide_start(5, metadata, LogRange(0, 9, None), NOW_MS, RETENTION_MS, "one")
    assert verdict == Start(5, metadata or "", 9, 0, Mark("one"))


def test_progress_of_a_newer_version_stops_the_partition_for_that_one_to_go_on() -> None:
    known = decide(5, 0, 9, metadata=f'{{"f":{FORMAT}}}')
    assert isinstance(known, Start)
    assert known.offset == 5
    newer = decide(5, 0, 9, metadata=f'{{"l":4,"f":{FORMAT + 1},"what":"decides"}}')
    assert isinstance(newer, Stop)
    assert "of a newer version" in newer.reason
    assert newer.remedy.startswith("start the newer version")


def test_what_a_newer_version_commits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(progress, "FORMAT", FORMAT + 1)
        metadata = Mark("one").put_on('{"l":4}')
        assert isinstance(decide(5, 0, 9, metadata=metadata), Start)
    assert isinstance(decide(5, 0, 9, metadata=metadata), Stop)


def test_progress_in_another_topic_of_the_name_stops_the_partition() -> None:
    """A sidecar that read the other has committed once more, after Kafka had forgotten its progress with the topic."""

    def verdict(committed: int, topic_id: str) -> Start | Stop:
        return decide_start(committed, '{"l":4,"t":"one"}', LogRange(4, 9, None), NOW_MS, RETENTION_MS, topic_id)

    assert verdict(5, "one") == Start(5, '{"l":4,"t":"one"}', 9, 4, Mark("one"))
    assert verdict(4, "other") == Start(4, "", 9, 4, Mark("other")), "nothing is passed over"
    stop = verdict(5, "other")
    assert isinstance(stop, Stop)
    assert "of another topic of this name" in stop.reason
    for unknown in ("", NO_TOPIC_IDS):
        assert verdict(5, unknown) == Start(5, '{"l":4,"t":"one"}', 9, 4)


@pytest.mark.parametrize(
    ("later_offset", "later_epoch", "is_cut", "is_kept"),
    [
        (-1, -1, False, True),  # nothing has come since
        (8, 4, False, True),  # what has come since was written under another leader, as ever so often
        (3, 3, False, True),  # an earlier record has a later timestamp: a producer's
        (4, 4, True, False),
        (6, 4, False, False),  # the end is gone of what was read ahead, and nothing that is done
    ],
)
def test_a_log_that_has_lost_its_end_and_grown_again_stops_the_partition(
    later_offset: int, later_epoch: int, is_cut: bool, is_kept: bool
) -> None:
    """Read up to 7, under the leader's epoch 3; committed is 5."""
    metadata = Mark("one", LastRead(7, 100, 3)).put_on("{}")
    log = LogRange(0, 20, None, later_offset, later_epoch)
    verdict = decide_start(5, metadata, log, NOW_MS, RETENTION_MS, "one")
    assert isinstance(verdict, Stop) == is_cut
    if isinstance(verdict, Stop):
        assert "lost its end in an unclean election" in verdict.reason
    else:
        last = LastRead(7, 100, 3)
        assert verdict == Start(5, metadata, 20, 0, Mark("one", last if is_kept else None), last)
