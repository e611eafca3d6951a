"""What is told of brokers that delay their answers."""

from types import SimpleNamespace
from typing import Any, cast

from connectors.testing import ManualClock
from sidecar.kafka.throttling import TOLD_FOR_MS, Throttling
from tests.support.logged import logged


def event(broker_id: int, throttle_time: float) -> Any:
    """librdkafka's; the class itself cannot be filled."""
    return cast(
        Any,
        SimpleNamespace(broker_name=f"b{broker_id}:9092/{broker_id}", broker_id=broker_id, throttle_time=throttle_time),
    )


def test_brokers_that_delay_their_answers_are_told_for_a_minute() -> None:
    clock = ManualClock()
    throttling = Throttling(clock)
    assert (throttling.longest_s, throttling.in_words) == (0, "")
    throttling.throttled(event(3, 0.25))
    clock.advance(TOLD_FOR_MS / 2)
    throttling.throttled(event(1, 1.5))
    why = "a quota of this sidecar's user or client is used up"
    assert throttling.in_words == f"brokers 1, 3 delay their answers by up to 1s500ms: {why}"
    assert throttling.longest_s == 1.5
    clock.advance(TOLD_FOR_MS / 2)
    assert throttling.in_words.startswith("broker 1 delays its answers")
    clock.advance(TOLD_FOR_MS / 2)
    assert (throttling.longest_s, throttling.in_words) == (0, "")


def test_an_answer_that_was_not_delayed_does_not_end_it_at_once() -> None:
    """It depends on which second of the quota's window it came in."""
    throttling = Throttling(ManualClock())
    throttling.throttled(event(1, 0.4))
    throttling.throttled(event(1, 0.0))
    assert throttling.longest_s == 0.4


def test_it_is_logged_when_it_begins_and_when_it_is_over() -> None:
    clock = ManualClock()
    throttling = Throttling(clock)
    with logged() as lines:
        throttling.tell()
        for broker_id in (2, 1):
            throttling.throttled(event(broker_id, 0.1))
            throttling.tell()
        clock.advance(TOLD_FOR_MS)
        throttling.tell()
        throttling.tell()
    told = [(line["event"], line.get("brokers"), line.get("delay_ms")) for line in lines]
    assert told == [("throttled by kafka", [2], 100), ("no longer throttled by kafka", None, None)]
