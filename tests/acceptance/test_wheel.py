"""Any time: the wheel topic, driven as users drive it, with RocketMQ's own scenarios among the tests."""

import pytest

from tests.support.kafka import Headers, Kafka, Record, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import cancel, now_ms, timed

pytestmark = pytest.mark.kafka


def ids(delivered: list[Record]) -> list[str]:
    return sorted(record.text("UNIQ_KEY") for record in delivered)


@pytest.fixture
def wheel(sidecar: SidecarProcess) -> SidecarProcess:
    """A sidecar with a small wheel that rolls after seconds."""
    sidecar.settings |= {"levels": "1s", "slots_total": 3_600, "roll_window": "4s"}
    return sidecar


def test_relative_and_absolute_times_arrive_once_and_on_time(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    topics = [kafka.create_topic(f"{prefix}orders{number}") for number in range(10)]
    sidecar.start()
    due_ms = now_ms() + 3_000
    batch = []
    for number in range(50):
        when = ("TIMER_DELAY_SEC", 3) if number % 2 else ("TIMER_DELIVER_MS", due_ms)
        batch.append(timed(prefix, topics[number % 10], str(number), when))
    kafka.produce(batch)
    delivered = kafka.read(topics, 50)
    verdict = judge(map(str, range(50)), delivered)
    verdict.assert_exactly_once()
    assert verdict.percentile(0.99) < 500  # the first records for ten new topics


def test_what_is_overdue_arrives_at_once(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    began_ms = now_ms()
    kafka.produce([timed(prefix, destination, str(n), ("TIMER_DELIVER_MS", began_ms - 1_000)) for n in range(10)])
    delivered = kafka.read([destination], 10)
    judge(map(str, range(10)), delivered).assert_exactly_once()
    assert max(record.timestamp_ms for record in delivered) - began_ms < 2_000


def test_cancelled_messages_do_not_arrive_and_others_do(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings["partitions"] = 3
    sidecar.start()
    due_ms = now_ms() + 4_000
    batch = [timed(prefix, destination, f"m{n}", ("TIMER_DELIVER_MS", due_ms + n)) for n in range(20)]
    batch += [
        cancel(prefix, "m0"),
        cancel(prefix, "m1", ("TIMER_DELIVER_MS", b"%d" % (due_ms + 1))),
        cancel(prefix, "m2", ("TIMER_DELIVER_MS", b"12345")),
        cancel(prefix, "m3", ("REAL_TOPIC", destination.encode())),
        cancel(prefix, "m4", ("REAL_TOPIC", b"another")),
        cancel(prefix, "nobody"),
    ]
    kafka.produce(batch)
    delivered = kafka.read([destination], 16)
    assert ids(delivered) == sorted(f"m{n}" for n in range(4, 20))
    wait_until(lambda: sidecar.metric("timewheel_cancels_total", outcome="cancelled") == 4, "four cancels counted")
    assert sidecar.metric("timewheel_cancels_total", outcome="unknown") == 2


def test_a_replacement_takes_the_place_of_a_pending_message_once(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    topic = f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"
    new: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"m"), ("TIMER_REPLACE_UNIQKEY", b"m")]
    late: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"x"), ("TIMER_REPLACE_UNIQKEY", b"x")]
    kafka.produce(
        [
            timed(prefix, destination, "m", ("TIMER_DELAY_SEC", 600)),
            (topic, b"m", b"new", [*new, ("TIMER_DELAY_SEC", b"2")]),
            (topic, b"x", b"nothing to replace", [*late, ("TIMER_DELAY_SEC", b"1")]),
        ]
    )
    (record,) = kafka.read([destination], 1)
    assert (record.key, record.value, record.text("UNIQ_KEY")) == (b"m", b"new", "m")
    assert sidecar.metric("timewheel_cancels_total", outcome="too_late") == 1


@pytest.mark.long
def test_a_message_beyond_the_window_rolls_and_arrives_once(kafka: Kafka, prefix: str, wheel: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    wheel.start()
    kafka.produce([timed(prefix, destination, str(n), ("TIMER_DELAY_MS", 2_000 + 500 * n)) for n in range(20)])
    delivered = kafka.read([destination], 20)
    judge(map(str, range(20)), delivered).assert_exactly_once()
    rolled = {record.text("UNIQ_KEY"): record.text("TIMER_ROLL_TIMES") for record in delivered}
    assert rolled["0"] == ""
    assert rolled["5"] == "1"
    assert int(rolled["19"]) >= 2


@pytest.mark.long
def test_a_rolled_message_can_be_cancelled(kafka: Kafka, prefix: str, wheel: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    wheel.start()
    kafka.produce([timed(prefix, destination, str(n), ("TIMER_DELAY_MS", 8_000)) for n in range(4)])
    wait_until(lambda: wheel.metric("timewheel_rolls_total") >= 4, "the messages rolled", 20)
    kafka.produce([cancel(prefix, "1"), cancel(prefix, "2")])
    assert ids(kafka.read([destination], 2)) == ["0", "3"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([], "NO_DELIVERY_TIME"),
        ([("TIMER_DELIVER_MS", b"soon")], "ILLEGAL_DELIVERY_TIME"),
        ([("TIMER_DELAY_MS", b"-1")], "ILLEGAL_DELIVERY_TIME"),
        ([("DELAY", b"0"), ("TIMER_DELAY_MS", b"1")], "ILLEGAL_DELIVERY_TIME"),
        ([("TIMER_DELAY_SEC", b"99999999999")], "DELAY_TOO_LONG"),
        ([("TIMER_DEL_UNIQKEY", b"")], "MISSING_UNIQ_KEY"),
    ],
)
def test_records_without_a_usable_time_go_to_the_dead_letters(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, headers: Headers, code: str
) -> None:
    sidecar.start()
    kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", b"k", b"v", [("REAL_TOPIC", b"orders"), *headers])])
    (letter,) = kafka.read([f"{prefix}DLQ-{sidecar.settings['group_id']}"], 1)
    assert letter.text("ERROR_CODE") == code
    assert letter.value == b"v"
