"""What an operator's choice of where a partition goes on becomes."""

import msgspec
import pytest
from confluent_kafka import Message, TopicPartition

from connectors.contract import DelayLevels, TopicNames
from connectors.header_names import TIMER_DELIVER_MS
from connectors.testing import InMemoryKafka
from sidecar.cli.progress import _place
from sidecar.cli.progress_choice import (
    Chosen,
    Log,
    Stamp,
    at_offset,
    due_after,
    first_undelivered,
    of_this_log,
    remaining,
    stamped_by_ms,
    stamps_of,
)
from sidecar.dispatch.levels import LevelProgress
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.errors import UsageError
from sidecar.intake.progress import SET_BY_OPERATOR, LastRead, Mark
from sidecar.plan import Plans
from sidecar.settings import load_settings
from tests.support.one_wheel import PLAN

NAMES, LEVELS = TopicNames(), DelayLevels.parse("1s 10s")
WHEEL, LEVEL, SEND_BACK = (NAMES.wheel, 0), (NAMES.level(2), 0), (NAMES.send_back, 0)
MARK = Mark("topic", LastRead(7, 70, 1))
PROGRESS = WheelProgress(watermark=(900, 4), lowest_needed=2, plans=Plans(((0, PLAN),)), begun_ms=3)
METADATA = MARK.put_on(PROGRESS.encode())


def committed(place: tuple[str, int], offset: int, metadata: str) -> TopicPartition:
    return TopicPartition(*place, offset, metadata)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX-2", "orders", "t3.SCHEDULE_TOPIC_XXXX-redriven", "t3.RETRY-g"])
def test_a_topic_that_is_no_schedule_topic_of_this_sidecar_is_refused(topic: str) -> None:
    """Whoever forgets the prefix would believe that it has worked."""
    kafka = InMemoryKafka()
    kafka.create_topic(topic)
    kafka.create_topic("t3.SCHEDULE_TOPIC_XXXX-2")
    settings, admin = load_settings({"topic_prefix": "t3."}), kafka.admin()
    with pytest.raises(UsageError, match="is no schedule topic of this sidecar, whose wheel topic is t3"):
        _place(settings, admin, topic, 0)  # type: ignore[arg-type]
    place = _place(settings, admin, "t3.SCHEDULE_TOPIC_XXXX-2", 0)  # type: ignore[arg-type]
    assert (place.topic, place.partition) == ("t3.SCHEDULE_TOPIC_XXXX-2", 0)


def test_a_level_counts_from_when_its_records_were_stamped() -> None:
    due_by = [stamped_by_ms(NAMES, LEVELS, topic, 100_000) for topic, _ in (WHEEL, LEVEL, SEND_BACK)]
    assert due_by == [100_000, 90_000, 100_000]


def stamps(*stamped_ms: int) -> list[Stamp]:
    return [Stamp(5 + number, at_ms) for number, at_ms in enumerate(stamped_ms)]


@pytest.mark.parametrize("topic", [LEVEL[0], SEND_BACK[0]])
@pytest.mark.parametrize(
    ("stamped_ms", "offset"),
    [
        *(((), None), ((101, 90, 102), 5), ((999, 100, 101, 99), 7), ((200, 999), 5), ((999, 90), 5)),
        *(((90, 100), None), ((90, 101), 6), ((90, 999), 6)),
    ],
)
def test_the_first_record_of_a_level_that_is_stamped_later_held_up_those_behind_it(
    topic: str, stamped_ms: tuple[int, ...], offset: int | None
) -> None:
    """A stamp from the future holds up nothing. What ends a transaction may be stamped later than all behind it."""
    assert first_undelivered(NAMES, topic, stamps(*stamped_ms), by_ms=100, until_ms=200) == offset


@pytest.mark.parametrize(
    ("stamped_ms", "offset"),
    [((), None), ((101, 102), 5), ((101, 90, 102), 7), ((999, 100), 7), ((101, 102, 100, 103), 8)],
)
def test_the_wheel_waits_for_nobody_and_all_was_read_before_the_last_that_is_stamped_by_then(
    stamped_ms: tuple[int, ...], offset: int | None
) -> None:
    assert first_undelivered(NAMES, WHEEL[0], stamps(*stamped_ms), by_ms=100, until_ms=200) == offset


@pytest.mark.parametrize(("deliver_ms", "offset"), [(None, 8), (101, 8), (100, 6), (0, 6)])
def test_what_was_due_before_it_was_made_may_not_have_been_read(deliver_ms: int | None, offset: int) -> None:
    stamped = [Stamp(5, 101), Stamp(6, 102, deliver_ms), Stamp(7, 99), Stamp(8, 103, 4)]
    assert first_undelivered(NAMES, WHEEL[0], stamped, by_ms=100, until_ms=200) == offset


@pytest.mark.parametrize("place", [LEVEL, SEND_BACK])
@pytest.mark.parametrize(("undelivered", "offset"), [(5, 5), (None, 9)])
def test_due_after_a_time_a_log_is_read_from_what_is_not_delivered(
    place: tuple[str, int], undelivered: int | None, offset: int
) -> None:
    chosen = due_after(NAMES, place, Log(2, 9), undelivered, LevelProgress(4).encode(), 1_000, 2_000)
    assert chosen[:2] == (offset, SET_BY_OPERATOR)


def test_due_after_a_time_the_wheel_is_read_again_from_the_logs_beginning() -> None:
    chosen = due_after(NAMES, WHEEL, Log(2, 9), 5, METADATA, 1_000, 2_000)
    read = WheelProgress.read(chosen.metadata, chosen.offset)
    assert (chosen.offset, read.lowest_needed, read.watermark) == (5, 2, (1_001, -1))
    assert (read.plans, read.begun_ms, Mark.of(chosen.metadata)) == (PROGRESS.plans, 2_000, Mark())
    assert "what was due after 1970-01-01T00:00:01.000+00:00 waits" in chosen.words


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_copy_of_another_clusters_log_is_known_for_one(is_copied: bool) -> None:
    chosen = due_after(NAMES, WHEEL, Log(2, 9), 5, "", 1_000, 2_000, is_copied=is_copied)
    assert WheelProgress.read(chosen.metadata, chosen.offset).copied_below == (5 if is_copied else 0)


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [(METADATA, ""), (Mark("this").put_on("{}"), '{"t":"this"}'), (PROGRESS.encode(), PROGRESS.encode()), (None, "")],
)
def test_progress_of_another_topic_tells_nothing_of_this_one(metadata: str | None, kept: str) -> None:
    """As a mirror brings it that translates offsets: it leaves the metadata as it is."""
    assert of_this_log(metadata, "this") == kept


@pytest.mark.parametrize(
    ("place", "offset", "metadata", "log", "expected"),
    [
        (WHEEL, 8, METADATA, Log(0, 9), (8, METADATA)),
        (WHEEL, 8, METADATA, Log(5, 9), (8, MARK.put_on(msgspec.structs.replace(PROGRESS, lowest_needed=5).encode()))),
        (WHEEL, 8, METADATA, Log(9, 12), (9, SET_BY_OPERATOR)),
        (WHEEL, 8, SET_BY_OPERATOR, Log(5, 9), (8, SET_BY_OPERATOR)),
        (LEVEL, 8, '{"r":11}', Log(9, 12), (9, '{"r":11}')),
        (LEVEL, 10, '{"r":11}', Log(9, 12), (10, '{"r":11}')),
        (LEVEL, 10, "", Log(9, 12), (10, SET_BY_OPERATOR)),
    ],
)
def test_with_what_remains_a_partition_goes_on_as_before(
    place: tuple[str, int], offset: int, metadata: str, log: Log, expected: tuple[int, str]
) -> None:
    chosen = remaining(NAMES, place, log, committed(place, offset, metadata))
    assert chosen[0] == expected[0]
    assert msgspec.json.decode(chosen[1]) == msgspec.json.decode(expected[1])


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "has no committed progress"),
        (committed(WHEEL, 10, METADATA), "has progress beyond its log"),
        (committed(WHEEL, 5, "another's"), "committed metadata is not Timewheel's"),
    ],
)
def test_where_nobody_knows_what_remains_another_choice_is_asked_for(found: TopicPartition | None, reason: str) -> None:
    with pytest.raises(UsageError, match=f"{reason}.*--due-after"):
        remaining(NAMES, WHEEL, Log(0, 9), found)


def test_stamps_of_records_whatever_their_headers_are() -> None:
    headers = [None, [], *([(TIMER_DELIVER_MS, value)] for value in (b"17", None, b"", b"-1", b"soon", b"9" * 5_000))]
    records = [
        Message(topic=WHEEL[0], partition=0, offset=offset, headers=told, timestamp=(1, 100 + offset))
        for offset, told in enumerate(headers)
    ]
    told = list(stamps_of(records))
    assert [stamp.deliver_ms for stamp in told] == [None, None, 17, None, None, None, None, None]
    assert told[3][:2] == (3, 103)


def test_any_offset_says_what_it_skips_of_the_wheel() -> None:
    assert at_offset(NAMES, LEVEL, 4) == Chosen(4, SET_BY_OPERATOR, "goes on at offset 4")
    assert "what waits before it is skipped" in at_offset(NAMES, WHEEL, 4).words
