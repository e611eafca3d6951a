"""Threads of an application may share a producer, or have one each; nothing is lost between them."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message

from connectors.testing import InMemoryKafka, InMemoryProducer

THREADS, RECORDS = 4, 2_000


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns between any two lines."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.usefixtures("impatient")
def test_every_record_of_every_thread_is_there_and_reported_once(is_shared: bool) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("orders", 3)
    shared = kafka.producer({})
    producers = [shared if is_shared else kafka.producer({}) for _ in range(THREADS)]
    reported: Counter[bytes | None] = Counter()
    telling = threading.Lock()

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None
        with telling:
            reported[message.value()] += 1

    def work(number: int, producer: InMemoryProducer) -> None:
        for record in range(RECORDS):
            producer.produce("orders", b"%d-%d" % (number, record), on_delivery=report)
            producer.poll(0)

    threads = [threading.Thread(target=work, args=numbered) for numbered in enumerate(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for producer in producers:
        assert producer.flush() == 0
    logs = [log for partition in range(3) if (log := kafka.log("orders", partition)) is not None]
    assert sum(log.end for log in logs) == THREADS * RECORDS
    assert set(reported.values()) == {1}
    assert len(reported) == THREADS * RECORDS
