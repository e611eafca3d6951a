"""A call of a transaction is made again while Kafka is silent, and no longer than that helps."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.testing import ManualClock
from connectors.testing.errors import failure
from connectors.until_answered import until_answered

SILENT = failure(KafkaError._TIMED_OUT, retriable=True)


class Call:
    """Fails with one exception after the other, taking a second each, and then succeeds."""

    def __init__(self, clock: ManualClock, *failures: KafkaException) -> None:
        self._clock = clock
        self._failures = list(failures)
        self.count = 0

    def __call__(self, timeout_s: float) -> None:
        assert timeout_s > 0
        self.count += 1
        if self._failures:
            self._clock.advance(1_000)
            raise self._failures.pop(0)


def test_it_is_repeated_until_kafka_answers() -> None:
    clock = ManualClock()
    call = Call(clock, SILENT, SILENT)
    until_answered(call, 10, clock)
    assert call.count == 3


def test_silence_is_told_when_the_time_is_over() -> None:
    clock = ManualClock()
    call = Call(clock, *[SILENT] * 10)
    with pytest.raises(KafkaException, match=r"_TIMED_OUT"):
        until_answered(call, 3, clock)
    assert call.count == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(failure(KafkaError._FENCED, fatal=True), id="fatal"),
        pytest.param(failure(KafkaError.INVALID_TXN_STATE, abort=True), id="has to be aborted"),
        pytest.param(failure(KafkaError.TOPIC_AUTHORIZATION_FAILED), id="refused"),
    ],
)
def test_an_answer_is_not_asked_for_again(answer: KafkaException) -> None:
    clock = ManualClock()
    call = Call(clock, answer)
    with pytest.raises(KafkaException) as raised:
        until_answered(call, 10, clock)
    assert raised.value is answer
    assert call.count == 1
