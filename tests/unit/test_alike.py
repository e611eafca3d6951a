"""Records read column by column: what is said of all at once is what is said of each by itself."""

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from connectors.contract import CONTROL_HEADERS, GENERATED_HEADERS, DelayLevels, ErrorCode, Headers, TopicNames
from connectors.kafka import BY_KEY
from sidecar.dispatch.levels import LevelPartition, LevelProgress
from sidecar.dispatch.send_back import SendBackPartition
from sidecar.dispatch.wheel.intake import _asked_for_late, _due_since
from sidecar.dispatch.wheel.progress import WheelProgress
from sidecar.intake.columns import FEW, MANY
from sidecar.intake.copies import Copies
from sidecar.intake.headers import UNREADABLE_HEADERS, read_headers
from sidecar.intake.parse import Parser
from sidecar.intake.parse_send_back import SendBackParser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.plan import Plan, Plans
from sidecar.records import Rejection, source_headers
from tests.support.one_wheel import NOW_MS, REAL_TOPIC, WHEEL, message, opened
from tests.support.outages import no_outages

MAX_DELAY_MS = 10**10
PLAN = Plan(roll_window_ms=100_000_000, precision_ms=1_000, max_delay_ms=MAX_DELAY_MS, levels="1s 5s")
SHORT = Plan(roll_window_ms=3_000, precision_ms=1_000, max_delay_ms=MAX_DELAY_MS, levels="1s 5s")
"""By which about half of these records roll."""
FIRST = 1_000

times = st.integers(NOW_MS - 2_000, NOW_MS + 2_000)
usual_values = {
    "REAL_TOPIC": st.sampled_from([b"orders", b"payments"]),
    "TIMER_DELIVER_MS": times.map(lambda time_ms: b"%d" % time_ms),
    "TIMER_DELAY_MS": st.integers(0, 3_000).map(lambda delay_ms: b"%d" % delay_ms),
    "UNIQ_KEY": st.sampled_from([*(b"%d" % n for n in range(12)), b"", None]),
    "TAGS": st.binary(max_size=2) | st.none(),
    "é": st.binary(max_size=2),
}
odd_values = st.none() | st.sampled_from([b"", b"x", b"007", b"-1", b"0", b"1" * 19, b"9" * 18, b"schedule/it"])
odd_names = st.sampled_from(sorted(CONTROL_HEADERS | GENERATED_HEADERS | {"TIMER_DEL_UNIQKEY", "TAGS", "UNIQ_KEY"}))
usual_shapes = st.builds(
    lambda time, others: ["REAL_TOPIC", time, *others],
    st.sampled_from(["TIMER_DELIVER_MS", "TIMER_DELAY_MS"]),
    st.lists(st.sampled_from(["UNIQ_KEY", "TAGS", "é"]), max_size=3),
).flatmap(st.permutations)
shapes = usual_shapes | usual_shapes | usual_shapes | st.lists(odd_names, max_size=4)


@st.composite
def batches(draw: st.DrawFn) -> list[Headers]:
    """Headers of one shape, or of almost one."""
    shape = draw(shapes)
    count = draw(st.integers(1, 6))
    batch: list[Headers] = [[(name, draw(usual_values.get(name, odd_values))) for name in shape] for _ in range(count)]
    if draw(st.integers(0, 3)) == 3 and shape:
        odd = draw(st.integers(0, count - 1))
        batch[odd] = draw(
            st.sampled_from([[], batch[odd][1:], batch[odd][::-1], [(name, draw(odd_values)) for name in shape]])
            | st.lists(st.tuples(odd_names, odd_values), max_size=3)
        )
    return batch


def made(headers: Headers, offset: int, timestamp_ms: int) -> Message:
    return message(offset, *headers, timestamp_ms=timestamp_ms, value=b"v%d" % offset)


def a_parser() -> WheelParser:
    parser = WheelParser(Parser(TopicNames()), WHEEL, 3, Copies(b"key"))
    for topic in (b"orders", b"payments"):  # it knows them now
        parser.parse([("REAL_TOPIC", topic), ("TIMER_DELIVER_MS", b"1")], 0, NOW_MS, PLAN)
    return parser


@given(batches(), st.lists(times, min_size=6, max_size=6))
def test_it_says_of_all_what_is_said_of_each(batch: list[Headers], timestamps_ms: list[int]) -> None:
    parser = a_parser()
    messages = [made(headers, FIRST + n, timestamps_ms[n]) for n, headers in enumerate(batch)]
    before = [list(headers) for headers in batch]
    read = read_headers(messages)
    alike = parser.alike(messages, read)
    assert [headers or [] for headers in read] == before
    each = [parser.plain(headers, FIRST + n, timestamps_ms[n], MAX_DELAY_MS) for n, headers in enumerate(batch)]
    if alike is None:
        # Not for nothing: they differ in their names, or one is not plain, or says its time in another length.
        names = [[name for name, _ in headers] for headers in batch]
        differ = any(other != names[0] for other in names) or len(set(names[0])) < len(names[0])
        lengths = {len(dict(headers).get("TIMER_DELIVER_MS") or b"") for headers in batch}
        assert differ or None in each or len(lengths) > 1
        return
    rows = zip(alike.topics, alike.delivered, alike.ids, alike.due_ms, strict=True)
    for row, plain, headers, offset, timestamp_ms in zip(rows, each, batch, alike.offsets, timestamps_ms, strict=False):
        if plain is not None:
            assert row == plain
            continue
        # Said the long way, or beyond what is allowed.
        topic, delivered, uniq_key, due_ms = row
        parsed = parser.parse(headers, offset, timestamp_ms, PLAN)
        if isinstance(parsed, Rejection):
            assert due_ms - timestamp_ms > MAX_DELAY_MS
            assert alike.longest_delay_ms > MAX_DELAY_MS
        else:
            assert parsed == (topic, BY_KEY, delivered[:-2], uniq_key, due_ms, 0, offset, 0, 0)
    records = alike.outgoing(messages, alike.due_ms, read)
    assert [record[2:4] for record in records] == [(b"k", b"v%d" % (FIRST + n)) for n in range(len(batch))]
    assert [list(source_headers(record)) for record in records] == before


@pytest.mark.parametrize(
    ("name", "texts", "due_ms"),
    [
        ("TIMER_DELIVER_MS", [b"1700000000000", b"1700000000001"], [1_700_000_000_000, 1_700_000_000_001]),
        ("TIMER_DELIVER_MS", [b"9", b"1"], [9, 1]),
        ("TIMER_DELIVER_MS", [b"9" * 14, b"1" * 14], [int("9" * 14), int("1" * 14)]),
        ("TIMER_DELIVER_MS", [b"1" * 18, b"1" * 18], None),
        ("TIMER_DELIVER_MS", [b"9", b"10"], None),
        ("TIMER_DELIVER_MS", [b"01700000000000", b"11700000000001"], None),
        ("TIMER_DELIVER_MS", [b"1" * 19, b"1" * 19], None),
        ("TIMER_DELIVER_MS", [b"-1", b"10"], None),
        ("TIMER_DELIVER_MS", [b"", b""], None),
        ("TIMER_DELIVER_MS", [b"1", None], None),
        ("TIMER_DELAY_MS", [b"007", b"1000"], [NOW_MS + 7, NOW_MS + 1_000]),
        ("TIMER_DELAY_MS", [b"1" * 19, b"1"], None),
        ("TIMER_DELAY_MS", [b"x", b"1"], None),
        ("TIMER_DELAY_MS", [None, b"1"], None),
    ],
)
def test_a_time_is_read_where_it_is_told_as_it_came(
    name: str, texts: list[bytes | None], due_ms: list[int] | None
) -> None:
    messages = [message(n, REAL_TOPIC, (name, text)) for n, text in enumerate(texts)]
    alike = a_parser().alike(messages, read_headers(messages))
    assert (alike and alike.due_ms) == due_ms
    if alike is not None:
        assert [headers[-1] for headers in alike.delivered] == [("TIMER_OUT_MS", b"%d" % due) for due in alike.due_ms]


several = st.tuples(batches(), st.integers(FEW // 2, 2 * FEW)).map(lambda drawn: drawn[0] * drawn[1])
only_one = several.map(lambda only: [only])
stretches = only_one | only_one | st.lists(several, min_size=1, max_size=3)


def outcome(
    plan: Plan, batch: list[Message], committed: int, watermark: tuple[int, int], now_ms: int, at_once: int
) -> Any:
    """What a wheel makes of records that it is offered so many at a time."""
    progress = WheelProgress(watermark=watermark, lowest_needed=FIRST, plans=Plans(((0, plan),))).encode()
    with TemporaryDirectory() as directory:
        wheel = opened(Path(directory), committed, progress, end=FIRST + len(batch), now_ms=now_ms, plan=plan)
        wheel._intake._replay_from = wheel._intake.position = FIRST  # what is read again, too
        for topic in (b"orders", b"payments"):
            wheel._intake._parser._parser.topic(topic)  # it knows them from before
        for begin in range(0, len(batch), at_once):
            wheel.offer(batch[begin : begin + at_once], now_ms)
        sent = []
        for until_ms in (now_ms, NOW_MS + 2_000, NOW_MS + 5_000, NOW_MS + 10**9):
            records = wheel.take(until_ms, 10**6, 2**30)
            sent.append([(*record[:4], list(record[4]), *record[5:7], source_headers(record)) for record in records])
            told = wheel.progress
            wheel.confirm()
        position, figures = wheel.position, wheel.figures
        wheel.close()
    return sent, told, position, figures


@given(
    st.sampled_from([PLAN, SHORT]),
    stretches,
    st.lists(times, min_size=7, max_size=7),
    st.sampled_from([0, 2, 1]),
    st.none() | st.tuples(times, st.integers(FIRST, FIRST + 50)),
    times,
)
def test_a_wheel_makes_the_same_of_a_batch_as_of_one_record_after_the_other(
    plan: Plan,
    drawn: list[list[Headers]],
    timestamps_ms: list[int],
    halves_replayed: int,
    watermark: tuple[int, int] | None,
    now_ms: int,
) -> None:
    batch = [
        made(headers, FIRST + n, timestamps_ms[n % 7])
        for n, headers in enumerate(headers for stretch in drawn for headers in stretch)
    ]
    committed = FIRST + len(batch) * halves_replayed // 2
    told = plan, batch, committed, watermark or (-1, -1), now_ms
    assert outcome(*told, len(batch)) == outcome(*told, 1)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=4), times)
def test_since_when_records_are_due_is_the_same_of_many_as_of_each(acts_and_times: Any, now_ms: int) -> None:
    act_ms, timestamps_ms = zip(*acts_and_times, strict=True)
    each = [act if act >= at else _asked_for_late(act, at, now_ms) for act, at in acts_and_times]
    assert list(_due_since(act_ms, timestamps_ms, now_ms)) == each


LEVEL, LEVEL_DELAY_MS, SKEW_MS = "SCHEDULE_TOPIC_XXXX-2", 1_000, 1_500


def outcome_on_a_level(batch: list[Message], now_ms: int, at_once: int) -> Any:
    """What a level makes of records that it is offered so many at a time."""
    parser = Parser(TopicNames())
    for topic in (b"orders", b"payments"):
        parser.topic(topic)  # it knows them from before
    level = LevelPartition(
        LEVEL,
        3,
        LEVEL_DELAY_MS,
        start_offset=FIRST + 2,
        progress=LevelProgress(),
        parser=parser,
        outages=no_outages(),
        max_delay_ms=MAX_DELAY_MS,
        max_clock_skew_ms=SKEW_MS,
        max_records=10**6,
        max_bytes=2**30,
    )
    for begin in range(0, len(batch), at_once):
        level.offer(batch[begin : begin + at_once], now_ms)
    waiting = level.position, level.waiting
    sent = []
    for until_ms in (now_ms, NOW_MS + 1_500, NOW_MS + 10**9):
        sent.append([(*record[:4], list(record[4]), *record[5:]) for record in level.take(until_ms, 10**6, 2**30)])
        told = level.progress
        level.confirm()
    return waiting, sent, told


@given(stretches, st.lists(times, min_size=7, max_size=7), times)
def test_a_level_makes_the_same_of_a_batch_as_of_one_record_after_the_other(
    drawn: list[list[Headers]], timestamps_ms: list[int], now_ms: int
) -> None:
    timeless = [[header for header in headers if "TIMER" not in header[0]] for one in drawn for headers in one]
    batch = [made(headers, FIRST + n, timestamps_ms[n // 5 % 7]) for n, headers in enumerate(timeless)]
    assert outcome_on_a_level(batch, now_ms, len(batch)) == outcome_on_a_level(batch, now_ms, 1)


SEND_BACK = "SCHEDULE_TOPIC_XXXX-sendback"
sent_back_values = {
    "CONSUMER_GROUP": [b"billing", b"orders"],
    "RETRY_TOPIC": [b"orders", b"payments", b"RETRY-billing"],
    "RECONSUME_TIME": [b"0", b"1", b"2"],
    "MAX_RECONSUME_TIMES": [None, b"1", b"2"],
    "DELAY": [b"0", b"2", b"9"],
    "REAL_TOPIC": [b"RETRY-billing"],
    "TIMER_OUT_MS": [b"1"],
    "UNIQ_KEY": [b"id", None, b""],
    "ORIGIN_MESSAGE_ID": [b"origin", None, b""],
    "TAGS": [b"a", b"b", None],
}
odd_sent_back_values = [b"", None, b"x", b"-1", b"timewheel", b"__consumer_offsets"]
failure_shapes = st.sets(st.sampled_from(sorted(sent_back_values))).flatmap(
    lambda others: st.permutations(sorted(others | {"CONSUMER_GROUP", "RETRY_TOPIC"}))
)


@st.composite
def failures(draw: st.DrawFn) -> list[Headers]:
    """Headers of failed messages, most of one shape."""
    shape = draw(failure_shapes)
    batch: list[Headers] = [
        [(name, draw(st.sampled_from(sent_back_values[name]))) for name in shape]
        for _ in range(draw(st.integers(1, 5)))
    ]
    kind = draw(st.integers(0, 5))
    if kind == 5:
        batch[-1] = draw(st.sampled_from([[], batch[-1][1:], batch[-1][::-1], batch[-1] + batch[-1][:1]]))
    elif kind == 4:
        name, odd = draw(st.sampled_from(shape)), draw(st.sampled_from(odd_sent_back_values))
        batch[-1] = [(name, odd) if header[0] == name else header for header in batch[-1]]
    return batch * draw(st.integers(FEW // 2, 2 * FEW))


def outcome_of_failures(batch: list[Message], now_ms: int, at_once: int) -> Any:
    """What a send-back partition makes of records that it is offered so many at a time."""
    asked_for: set[str] = set()

    def judge_all(topics: Collection[str]) -> dict[str, int | Rejection]:
        return {topic: judge(topic) for topic in topics}

    def judge(topic: str) -> int | Rejection:
        asked_for.add(topic)
        return 1 if topic == "RETRY-billing" else Rejection(ErrorCode.DESTINATION_NOT_ALLOWED, topic)

    parser = SendBackParser(TopicNames(), DelayLevels.parse("1s 5s 10s 30s"), "timewheel")
    told = {"start_offset": FIRST + 2, "max_records": 10**6, "max_bytes": 2**30}
    partition = SendBackPartition(SEND_BACK, 3, parser=parser, judge_all=judge_all, **told)
    for one in batch:  # the routes are known from before
        parser.parse(one.headers() or [], b"", 0)
    for begin in range(0, len(batch), at_once):
        partition.offer(batch[begin : begin + at_once], now_ms)
    waiting = partition.position, partition.waiting
    sent = []
    while records := partition.take(now_ms, 10**6, 2**30):
        sent += [(*record[:4], list(record[4]), *record[5:]) for record in records]
    return waiting, sent, asked_for, partition.progress


@given(failures(), st.lists(times, min_size=7, max_size=7), times)
def test_failures_go_the_same_way_in_a_batch_as_one_after_the_other(
    drawn: list[Headers], timestamps_ms: list[int], now_ms: int
) -> None:
    batch = [made(headers, FIRST + n, timestamps_ms[n // 5 % 7]) for n, headers in enumerate(drawn)]
    assert outcome_of_failures(batch, now_ms, len(batch)) == outcome_of_failures(batch, now_ms, 1)


@pytest.mark.parametrize("ids", [[], ["UNIQ_KEY"], ["ORIGIN_MESSAGE_ID"], ["ORIGIN_MESSAGE_ID", "UNIQ_KEY"]])
def test_failures_on_known_routes_are_read_at_once(ids: list[str]) -> None:
    parser = SendBackParser(TopicNames(), DelayLevels.parse("1s 5s 10s 30s"), "timewheel")
    group: Headers = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", b"orders")]
    given = [[b"1", b"2"], [None, b"2"], [b"1", b""], [b"", None]]
    batch: list[Headers] = [
        [*group, *zip(ids, values, strict=False), ("TAGS", b"%d" % n), ("RECONSUME_TIME", b"%d" % (n % 2))]
        for n, values in enumerate(given)
    ]
    assert parser.parse_alike(batch, b"p-", range(4)) is None, "it does not know the routes yet"
    each = [parser.parse(headers, b"p-", n) for n, headers in enumerate(batch)]
    assert parser.parse_alike([[], []], b"p-", range(2)) is None
    alike = parser.parse_alike(batch, b"p-", range(4))
    assert alike is not None
    assert [(route.topic, route.retry_topic, carried) for route, carried in zip(*alike, strict=True)] == each


def test_of_what_is_read_again_only_that_is_stored_which_the_watermark_has_not_passed() -> None:
    many = 2 * FEW
    headers: list[Headers] = [[REAL_TOPIC, ("TIMER_DELIVER_MS", b"%d" % (NOW_MS + n // 2))] for n in range(many)]
    batch = [made(each, FIRST + n, NOW_MS + 1) for n, each in enumerate(headers)]
    told = PLAN, batch, FIRST + many, (NOW_MS + 5, FIRST + 10), NOW_MS + 10**6
    sent, *rest = outcome(*told, many)
    assert [record[5:7] for records in sent for record in records] == [
        (NOW_MS + n // 2, FIRST + n) for n in range(11, many)
    ]
    assert [sent, *rest] == list(outcome(*told, 1))


@pytest.mark.parametrize("wait_ms", [1_000, 7_000])
def test_those_among_them_that_roll_keep_their_places(tmp_path: Path, wait_ms: int) -> None:
    """With what is due, and what is due later: on disk as on the way, all stand in the order of their offsets."""
    count, delays_ms = 8 * FEW, (0, 1_500, 2_999, 9_000)
    headers: list[Headers] = [[REAL_TOPIC, ("TIMER_DELAY_MS", b"%d" % delays_ms[n % 4])] for n in range(count)]
    batch = [made(each, FIRST + n, NOW_MS) for n, each in enumerate(headers)]
    now_ms = NOW_MS + wait_ms
    assert outcome(SHORT, batch, FIRST, (-1, -1), now_ms, count) == outcome(SHORT, batch, FIRST, (-1, -1), now_ms, 1)
    intake = opened(tmp_path, plan=SHORT, now_ms=now_ms)._intake
    intake._parser._parser.topic(b"orders")  # it is known from before
    assert intake._stage_alike(batch, headers, now_ms)
    stored, arrived = [staged[0][6] for staged in intake._staging.schedules], [record[6] for record in intake._arriving]
    assert (stored, arrived) == (sorted(stored), sorted(arrived))
    assert sorted(stored + arrived) == list(range(FIRST, FIRST + count))
    rolled = {
        record[6] % 4
        for record in [*intake._arriving, *(staged[0] for staged in intake._staging.schedules)]
        if record[0] == WHEEL
    }
    assert rolled == {3}  # the third are just short of it
    assert bool(stored) == (wait_ms == 1_000)


def test_names_in_another_order_are_not_alike() -> None:
    due = ("TIMER_DELIVER_MS", b"%d" % NOW_MS)
    messages = [
        message(0, REAL_TOPIC, due, ("UNIQ_KEY", b"a"), ("TAGS", b"b")),
        message(1, REAL_TOPIC, due, ("TAGS", b"c"), ("UNIQ_KEY", b"d")),
    ]
    assert a_parser().alike(messages, read_headers(messages)) is None


def test_one_odd_record_among_many_costs_none_of_them(tmp_path: Path) -> None:
    due = ("TIMER_DELIVER_MS", b"%d" % NOW_MS)
    batch = [message(offset, REAL_TOPIC, due) for offset in range(2 * MANY)]
    batch[3] = message(3, ("TAGS", b"no topic"))
    batch[MANY + 3] = message(MANY + 3, ("TIMER_DEL_UNIQKEY", b"nobody"))
    wheel = opened(tmp_path)
    wheel.offer(batch, NOW_MS)
    records = wheel.take(NOW_MS, 10**6, 2**30)
    assert [record[6] for record in records] == [n for n in range(2 * MANY) if n != MANY + 3]
    assert [record[6] for record in records if isinstance(record[0], Rejection)] == [3]


class Unreadable(Message):
    """Asked a second time, it answers garbage, as confluent-kafka's does."""

    asked = 0

    def headers(self) -> Any:
        if self.set:
            return super().headers()
        self.asked += 1
        assert self.asked == 1
        raise SystemError("<method 'headers' of 'cimpl.Message' objects> returned a result with an exception set")

    set = False

    def set_headers(self, value: Any) -> None:
        self.set = True
        super().set_headers(value)


@pytest.mark.parametrize("many", [3, 3 * FEW])
def test_a_record_with_unreadable_headers_is_asked_once_and_holds_up_none(tmp_path: Path, many: int) -> None:
    due = ("TIMER_DELIVER_MS", b"%d" % NOW_MS)
    batch = [message(offset, REAL_TOPIC, due) for offset in range(many)]
    batch[1] = Unreadable(topic=WHEEL, partition=0, offset=1, key=b"k", value=b"v", timestamp=(2, NOW_MS))
    assert read_headers(batch)[1] is read_headers(batch)[1] is UNREADABLE_HEADERS
    wheel = opened(tmp_path)
    wheel.offer(batch, NOW_MS)
    records = wheel.take(NOW_MS, 10**6, 2**30)
    assert [record[6] for record in records] == list(range(many))
    (letter,) = (record for record in records if isinstance(record[0], Rejection))
    assert (letter[0][0], *letter[2:5], letter[6], letter[7]) == ("UNREADABLE_HEADERS", b"k", b"v", [], 1, [])


def test_of_several_times_that_all_of_them_say_the_delay_counts() -> None:
    times = ("TIMER_DELIVER_MS", b"%d" % (NOW_MS + 500)), ("TIMER_DELAY_MS", b"30")
    for both in (times, times[::-1]):
        messages = [message(n, REAL_TOPIC, *both) for n in range(2)]
        alike = a_parser().alike(messages, read_headers(messages))
        assert alike is not None
        assert alike.due_ms == [NOW_MS + 30] * 2
