"""What a partition tells of as pending, also of what was due when it arrived and waits for delivery to go on."""

from pathlib import Path

import pytest

from sidecar.dispatch.wheel.partition import WheelPartition
from sidecar.pending import Cursor, PendingAnswer, PendingQuery, id_bytes, id_text
from sidecar.store.id_hash import hash_topic
from tests.support.one_wheel import NOW_MS, PLAN, REAL_TOPIC, due, message, opened, sent
from tests.support.steps import result_of

LATER_MS = NOW_MS + 60_000
FAR_MS = NOW_MS + 5 * PLAN.roll_window_ms


@pytest.fixture
def wheel(tmp_path: Path) -> WheelPartition:
    """Two that are due, since they arrived; one that is rejected, one that is due later."""
    wheel = opened(tmp_path)
    messages = [
        due(0, NOW_MS - 1_000, uniq_key=b"first"),
        due(1, LATER_MS, uniq_key=b"third"),
        message(2, ("REAL_TOPIC", b"orders")),
        message(3, ("REAL_TOPIC", b"bills"), ("TIMER_DELIVER_MS", b"%d" % (NOW_MS - 2_000)), ("UNIQ_KEY", b"second")),
    ]
    wheel.offer(messages, NOW_MS)
    return wheel


def asked(wheel: WheelPartition, query: PendingQuery = PendingQuery()) -> PendingAnswer:  # noqa: B008
    return result_of(wheel.pending(query))


def ids(answer: PendingAnswer) -> list[str]:
    return [each.id for each in answer.messages]


def test_what_was_due_when_it_arrived_is_pending_until_it_is_sent(wheel: WheelPartition) -> None:
    answer = asked(wheel)
    assert (answer.total, ids(answer)) == (3, ["first", "second", "third"])
    second = answer.messages[1]
    assert (second.topic, second.deliver_ms, second.act_ms, second.offset) == ("bills", NOW_MS - 2_000, NOW_MS, 3)
    sent(wheel, NOW_MS)
    answer = asked(wheel)
    assert (answer.total, ids(answer)) == (1, ["third"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (PendingQuery(topic="orders"), ["first", "third"]),
        (PendingQuery(topic="nothing"), []),
        (PendingQuery(id="second"), ["second"]),
        (PendingQuery(id="second", topic="orders"), []),
        (PendingQuery(until_ms=NOW_MS + 1), ["first", "second"]),
        (PendingQuery(from_ms=NOW_MS + 1), ["third"]),
    ],
)
def test_those_that_are_asked_for(wheel: WheelPartition, query: PendingQuery, expected: list[str]) -> None:
    answer = asked(wheel, query)
    assert (answer.total, ids(answer)) == (len(expected), expected)


@pytest.mark.parametrize("at_ms", [NOW_MS - 1_000, LATER_MS], ids=["waiting to be sent", "on the wheel"])
def test_an_id_that_is_no_text_is_not_taken_for_one_that_looks_like_it(tmp_path: Path, at_ms: int) -> None:
    wheel = opened(tmp_path)
    keys = {b"\xff\xfe": False, rb"\xff\xfe": True, "\ufffd\ufffd".encode(): True}
    wheel.offer([due(offset, at_ms, uniq_key=key) for offset, key in enumerate(keys)], NOW_MS)
    for offset, (key, is_text) in enumerate(keys.items()):
        (found,) = asked(wheel, PendingQuery(id=id_text(key))).messages
        assert (found.offset, id_bytes(found.id), found.has_text_id) == (offset, key, is_text)


def test_page_by_page(wheel: WheelPartition) -> None:
    pages = [asked(wheel, PendingQuery(limit=1))]
    while (cursor := pages[-1].next) is not None:
        pages.append(asked(wheel, PendingQuery(limit=1, after=cursor)))
    assert [(page.total, ids(page)) for page in pages] == [(3, ["first"]), (2, ["second"]), (1, ["third"])]


def test_what_was_due_before_it_could_be_read_is_told_in_the_order_of_its_times(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    times_ms = [NOW_MS - 100, NOW_MS - 300, NOW_MS - 200]
    wheel.offer(
        [due(n, due_ms, uniq_key=b"%d" % n, timestamp_ms=NOW_MS - 9_000) for n, due_ms in enumerate(times_ms)], NOW_MS
    )
    pages = [asked(wheel, PendingQuery(limit=1))]
    while (cursor := pages[-1].next) is not None:
        pages.append(asked(wheel, PendingQuery(limit=1, after=cursor)))
    assert [(page.total, ids(page), page.messages[0].act_ms) for page in pages] == [
        (3, ["1"], NOW_MS - 300),
        (2, ["2"], NOW_MS - 200),
        (1, ["0"], NOW_MS - 100),
    ]


def test_what_a_replacement_brings_is_pending_before_it_is_on_the_wheel(wheel: WheelPartition) -> None:
    replacement = message(
        4, REAL_TOPIC, ("TIMER_REPLACE_UNIQKEY", b"third"), ("UNIQ_KEY", b"new"), ("TIMER_DELAY_MS", b"90000")
    )
    wheel.offer([replacement], NOW_MS + 10)
    answer = asked(wheel)
    assert (answer.total, ids(answer)) == (3, ["first", "second", "new"])
    assert (answer.messages[2].topic, answer.messages[2].deliver_ms) == ("orders", NOW_MS + 90_000)


@pytest.mark.parametrize("at_ms", [NOW_MS + 500, LATER_MS], ids=["at hand", "on disk"])
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_topic_with_the_same_hash_is_another_one(tmp_path: Path, at_ms: int, limit: int) -> None:
    assert hash_topic("plumless") == hash_topic("buckeroo")
    wheel = opened(tmp_path)
    topics = [b"plumless", b"buckeroo"]
    wheel.offer(
        [message(n, ("REAL_TOPIC", topics[n % 2]), ("TIMER_DELIVER_MS", b"%d" % at_ms)) for n in range(4)], NOW_MS
    )
    wheel.tick(NOW_MS)
    told, cursor = [], None
    while not told or cursor is not None:
        answer = asked(wheel, PendingQuery(topic="plumless", limit=limit, after=cursor))
        told += [(each.topic, each.offset) for each in answer.messages]
        cursor = answer.next
    assert told == [("plumless", 0), ("plumless", 2)]
    assert answer.total == len(answer.messages), "what is not meant does not count once it has been read"


def test_a_message_that_is_due_as_its_slot_begins_is_told_though_all_before_it_is_at_hand(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(n, NOW_MS + 1_000 * n, uniq_key=b"%d" % n) for n in range(1, 5)], NOW_MS)
    for now_ms in range(NOW_MS, NOW_MS + 4_000, 500):
        wheel.tick(now_ms)
        answer = asked(wheel)
        assert (answer.total, ids(answer)) == (4, ["1", "2", "3", "4"])


@pytest.mark.parametrize("limit", [1, 2, 10])
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_what_is_loaded_while_it_is_asked_for_is_told_once(tmp_path: Path, limit: int, steps: int) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(n, NOW_MS + 1_000 * n, uniq_key=b"%d" % n) for n in range(1, 5)], NOW_MS)
    pending = wheel.pending(PendingQuery(limit=limit))
    for _ in range(steps):
        next(pending)
    assert len(wheel.take(NOW_MS + 3_000, 100, 100_000)) == 3
    wheel.put_back()
    answer = result_of(pending)
    assert (answer.total, ids(answer)) == (4, ["1", "2", "3", "4"][:limit])


@pytest.mark.parametrize("steps", [1, 2])
def test_what_is_loaded_and_sent_while_it_is_asked_for_is_not_told(tmp_path: Path, steps: int) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(n, NOW_MS + 1_000 * n, uniq_key=b"%d" % n) for n in range(1, 5)], NOW_MS)
    pending = wheel.pending(PendingQuery())
    for _ in range(steps):
        next(pending)
    assert len(sent(wheel, NOW_MS + 3_000)[0]) == 3
    answer = result_of(pending)
    assert (answer.total, ids(answer)) == (1, ["4"])


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_page_is_not_the_last_because_what_it_would_tell_is_sent_meanwhile(
    tmp_path: Path, limit: int, steps: int
) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(n, NOW_MS + 1_000 * n, uniq_key=b"%d" % n) for n in range(1, 7)], NOW_MS)
    pending = wheel.pending(PendingQuery(limit=limit))
    for _ in range(steps):
        next(pending)
    assert len(sent(wheel, NOW_MS + 3_000)[0]) == 3
    answer = result_of(pending)
    assert (answer.total, ids(answer)) == (3, ["4", "5", "6"][:limit])


def test_within_a_millisecond_they_are_told_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    """Also of those that have come for a slot that was loaded already, in another order."""
    wheel = opened(tmp_path)
    wheel.tick(NOW_MS)
    times_ms = [NOW_MS + 900, NOW_MS + 900, NOW_MS + 500, NOW_MS + 900, NOW_MS + 500]
    for offset, due_ms in enumerate(times_ms):
        wheel.offer([due(offset, due_ms, uniq_key=b"%d" % offset)], NOW_MS)
    pages = [asked(wheel, PendingQuery(limit=1))]
    while (cursor := pages[-1].next) is not None:
        pages.append(asked(wheel, PendingQuery(limit=1, after=cursor)))
    assert [(page.total, ids(page)) for page in pages] == [
        (5, ["2"]),
        (4, ["4"]),
        (3, ["0"]),
        (2, ["1"]),
        (1, ["3"]),
    ]


@pytest.mark.parametrize("are_loaded", [False, True], ids=["on disk", "at hand"])
def test_the_bounds_are_kept_to_the_millisecond(tmp_path: Path, are_loaded: bool) -> None:
    wheel = opened(tmp_path)
    wheel.offer([due(n, NOW_MS + n, uniq_key=b"%d" % n) for n in range(1, 4)], NOW_MS)
    if are_loaded:
        assert len(wheel.take(NOW_MS + 10, 10, 10_000)) == 3
        wheel.put_back()
    for begin in range(5):
        for end in range(begin, 5):
            answer = asked(wheel, PendingQuery(from_ms=NOW_MS + begin, until_ms=NOW_MS + end))
            expected = [str(n) for n in range(1, 4) if begin <= n < end]
            assert (answer.total, ids(answer)) == (len(expected), expected)


@pytest.mark.parametrize("are_loaded", [False, True], ids=["on disk", "at hand"])
def test_a_cursor_of_another_partition_passes_over_what_is_before_it_in_the_order_of_all(
    tmp_path: Path, are_loaded: bool
) -> None:
    """Within a millisecond the partitions come one after the other; this one has the number 0."""
    wheel = opened(tmp_path)
    wheel.offer([due(n, NOW_MS + 500 + n // 2, uniq_key=b"%d" % n) for n in range(4)], NOW_MS)
    if are_loaded:
        assert len(wheel.take(NOW_MS + 1_000, 10, 10_000)) == 4
        wheel.put_back()
    for act_ms, expected in ((NOW_MS + 499, ["0", "1", "2", "3"]), (NOW_MS + 500, ["2", "3"]), (NOW_MS + 501, [])):
        answer = asked(wheel, PendingQuery(after=Cursor(act_ms, 1, 0)))
        assert (answer.total, ids(answer)) == (len(expected), expected)
        assert asked(wheel, PendingQuery(after=Cursor(act_ms + 1, -1, 9))) == answer


def far(tmp_path: Path) -> WheelPartition:
    """Three that are due beyond the roll window, one of them at its roll now; and one that is due when those roll."""
    wheel = opened(tmp_path)
    messages = [
        due(0, FAR_MS, uniq_key=b"far"),
        due(1, FAR_MS + 1_000, uniq_key=b"later", timestamp_ms=NOW_MS - 60_000),
        due(2, FAR_MS, uniq_key=b"rolls now", timestamp_ms=NOW_MS - PLAN.roll_window_ms),
        due(3, NOW_MS + PLAN.roll_window_ms - 1_500, uniq_key=b"near"),
    ]
    wheel.offer(messages, NOW_MS)
    return wheel


BEYOND_MS = NOW_MS + 2 * PLAN.roll_window_ms


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (PendingQuery(from_ms=BEYOND_MS), ["rolls now", "later", "far"]),
        (PendingQuery(from_ms=FAR_MS, until_ms=FAR_MS + 1), ["rolls now", "far"]),
        (PendingQuery(from_ms=FAR_MS + 1), ["later"]),
        (PendingQuery(from_ms=FAR_MS + 1_001), []),
        (PendingQuery(until_ms=BEYOND_MS), ["near"]),
        (PendingQuery(from_ms=NOW_MS, until_ms=BEYOND_MS), ["near"]),
        (PendingQuery(from_ms=FAR_MS, topic="orders"), ["rolls now", "later", "far"]),
        (PendingQuery(from_ms=FAR_MS, topic="bills"), []),
        (PendingQuery(from_ms=FAR_MS, id="far"), ["far"]),
        (PendingQuery(until_ms=FAR_MS, id="far"), []),
        (PendingQuery(from_ms=FAR_MS, by_act=True), []),
        (PendingQuery(from_ms=NOW_MS, until_ms=NOW_MS + 1, by_act=True), ["rolls now"]),
        (PendingQuery(until_ms=BEYOND_MS, by_act=True), ["rolls now", "later", "near", "far"]),
    ],
)
@pytest.mark.parametrize("are_loaded", [False, True], ids=["on disk", "at hand"])
def test_what_rolls_is_asked_for_by_when_it_is_delivered(
    tmp_path: Path, query: PendingQuery, expected: list[str], are_loaded: bool
) -> None:
    wheel = far(tmp_path)
    if are_loaded:
        assert len(wheel.take(NOW_MS + PLAN.roll_window_ms, 10, 10_000)) == 4
        wheel.put_back()
    answer = asked(wheel, query)
    assert (answer.total, ids(answer)) == (len(expected), expected)


@pytest.mark.parametrize("query", [PendingQuery(), PendingQuery(from_ms=FAR_MS), PendingQuery(until_ms=FAR_MS)])
@pytest.mark.parametrize("are_loaded", [False, True], ids=["on disk", "at hand"])
@pytest.mark.parametrize("limit", [1, 10])
def test_the_total_is_of_those_that_are_asked_for_also_beyond_the_page(
    tmp_path: Path, query: PendingQuery, are_loaded: bool, limit: int
) -> None:
    wheel = opened(tmp_path)
    rolls_ms, topics = NOW_MS - PLAN.roll_window_ms, [b"orders", b"bills"]
    times_ms = [FAR_MS - 1, FAR_MS, NOW_MS + 100]
    wheel.offer(
        [
            message(
                n,
                ("REAL_TOPIC", topics[n % 2]),
                ("TIMER_DELIVER_MS", b"%d" % times_ms[n % 3]),
                ("UNIQ_KEY", b"%d" % (n % 2)),
                timestamp_ms=rolls_ms + 100 if n % 3 < 2 else NOW_MS,
            )
            for n in range(12)
        ],
        NOW_MS,
    )
    if are_loaded:
        assert len(wheel.take(NOW_MS + 1_000, 100, 100_000)) == 12
        wheel.put_back()
    meant = [n for n in range(12) if query.spans(times_ms[n % 3])]
    for asked_for in ({}, {"id": "0"}, {"topic": "bills"}, {"id": "0", "topic": "bills"}):
        named = [n for n in meant if asked_for.get("id", str(n % 2)) == str(n % 2)]
        named = [n for n in named if asked_for.get("topic", topics[n % 2].decode()) == topics[n % 2].decode()]
        answer = asked(wheel, query._replace(limit=limit, **asked_for))
        assert (answer.total, len(answer.messages)) == (len(named), min(limit, len(named)))


@pytest.mark.parametrize("query", [PendingQuery(), PendingQuery(from_ms=FAR_MS - 1)], ids=["all", "some"])
@pytest.mark.parametrize("loaded", [0, 3, 6])
def test_what_rolls_is_told_on_one_page(tmp_path: Path, loaded: int, query: PendingQuery) -> None:
    """Two roll at a time, and some of them are not meant where there are bounds."""
    wheel = opened(tmp_path)
    rolled_ms = [NOW_MS + 10_000 * (n // 2) - PLAN.roll_window_ms for n in range(12)]
    wheel.offer([due(n, FAR_MS - n % 3, uniq_key=b"%d" % n, timestamp_ms=rolled_ms[n]) for n in range(1, 12)], NOW_MS)
    if loaded:
        assert wheel.take(NOW_MS + 10_000 * loaded // 2, 100, 100_000)
        wheel.put_back()
    expected = [n for n in range(1, 12) if n % 3 < 2 or not query.is_by_out]
    query = query._replace(limit=1)
    pages = [asked(wheel, query)]
    while (cursor := pages[-1].next) is not None:
        pages.append(asked(wheel, query._replace(after=cursor)))
    told = [(page.total, ids(page)) for page in pages]
    assert told == [(len(expected) - passed, [str(n)]) for passed, n in enumerate(expected)]


def test_what_a_replacement_brings_is_asked_for_by_when_it_is_delivered(wheel: WheelPartition) -> None:
    names = ("TIMER_REPLACE_UNIQKEY", b"third"), ("UNIQ_KEY", b"new"), ("TIMER_DELIVER_MS", b"%d" % FAR_MS)
    wheel.offer([message(4, REAL_TOPIC, *names)], NOW_MS + 10)
    assert ids(asked(wheel, PendingQuery(from_ms=FAR_MS))) == ["new"]
    assert ids(asked(wheel, PendingQuery(until_ms=FAR_MS))) == ["first", "second"]
