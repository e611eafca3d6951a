"""A record with a header whose name is not UTF-8, where somebody asks for it."""

from typing import Any

import pytest
from confluent_kafka import Message

from connectors import Receipt, ScheduledProducer, ScheduleError
from connectors.testing import InMemoryKafka
from sidecar.cli import roundtrip


class Unreadable(Message):
    def headers(self) -> Any:
        raise SystemError("<method 'headers' of 'cimpl.Message' objects> returned a result with an exception set")


def test_a_receipt_of_such_a_record_says_where_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = Receipt(
        schedule_topic="SCHEDULE_TOPIC_XXXX-wheel", partition=2, offset=7, id="m", topic="t", deliver_ms=1
    )
    monkeypatch.setattr(ScheduledProducer, "_read", lambda *_: Unreadable(key=b"k", value=b"v"))
    producer = ScheduledProducer({}, clients=InMemoryKafka())
    with pytest.raises(ScheduleError, match=r"SCHEDULE_TOPIC_XXXX-wheel-2, offset 7: .*not UTF-8.* send the message"):
        producer.reschedule(receipt, delay="1h")


def test_a_round_trip_passes_over_what_another_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = [("UNIQ_KEY", b"mine"), ("TIMER_OUT_MS", b"1000")]
    found = [Unreadable(topic="t"), Message(topic="t", headers=headers, timestamp=(2, 1_005))]  # type: ignore[arg-type]

    class Reader:
        def poll(self, wait_s: float) -> Message:
            return found.pop(0)

    reader: Any = Reader()
    now_s = roundtrip.time.monotonic()
    (delivered,) = roundtrip._wait_for(reader, {"mine": "level 1"}, now_s + 60)
    assert delivered == roundtrip.Delivered("level 1", 5)
