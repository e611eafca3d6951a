"""The floors: plain loops with the same client, options, value and headers in and out.

``python -m benchmarks.floors KIND BOOTSTRAP SOURCE DESTINATION COUNT VALUE_BYTES [BATCH]``

BATCH is the most records in one transaction: `FLOOR_BATCH`, or as many as the sidecar's. Larger ones suit floors, too:
with 10,000 instead of 5,000 a bare producer is faster by half, a relay by a seventh.

Fair means that nothing is left out that a relay needs to lose nothing: transactions with the offsets in them, one open
at a time (the progress of a second would hang on the outcome of the first), on two producers in turn, because a
transaction begun after a commit on the same producer waits for that one's markers. And fast means what was tried:

- `relay-retry` and `relay-redriven` are `relay` with the headers that a retry, and a redriven message, cannot do
  without.
- `relay` commits and then reads. With the commit in a second thread while the next batch is read, as the sidecar does,
  it is slower on two cores: 4.6 instead of 3.9 µs of CPU a record, for the interpreter lock that the two then share.
- They are written as anyone writes them, with ``headers=``. Timewheel passes all arguments by position, which takes
  0.14 µs less of a call's 0.7. A floor's record takes 2.5 to 4 µs: with floors that did so too, the ratios to them
  would be 0.02 to 0.04 lower.
- `produce` with one producer instead of two in turn has 0.7 of the rate. Filling a second transaction while the first
  commits gains next to nothing, with the rule above broken.
- `consume` counts from the assignment to the last record, not from the first batch: what librdkafka fetches meanwhile
  is part of the work. It touches every part of every record. 2,000,000 records give 0.8 to 0.9 of the rate of 300,000,
  so what is fetched ahead (32 MB) hardly flatters it. `consume-default` is the same with librdkafka's own defaults for
  fetching, what a plain client gets: it sleeps up to a second (``fetch.queue.backoff.ms``) whenever 100,000 records
  have been fetched ahead, and comes to a third of the rate.
"""

import resource
import struct
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.process import ready, tame_garbage_collection, tell
from benchmarks.workload import BATCH_BYTES, FLOOR_BATCH, KEYS, Headers
from connectors.kafka import consumer_config, transactional_config

_ID = ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-1-0-1234567")
_DUE = ("TIMER_OUT_MS", b"1800000000000")
_RETRY: Headers = [
    ("REAL_TOPIC", b"RETRY-billing"),
    ("CONSUMER_GROUP", b"billing"),
    ("RETRY_TOPIC", b"orders"),
    ("RECONSUME_TIME", b"1"),
    ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-sendback-0-1234567"),
    ("ORIGIN_MESSAGE_ID", b"SCHEDULE_TOPIC_XXXX-sendback-0-1234567"),
]
_LIBRDKAFKA_DEFAULTS = {
    "fetch.queue.backoff.ms": 1_000,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,
}


class Task(NamedTuple):
    """The command line."""

    bootstrap_servers: str
    source: str
    destination: str
    records: int
    value_bytes: int
    batch_records: int = FLOOR_BATCH

    @property
    def batch(self) -> int:
        """Records in one transaction, limited by number and bytes as the sidecar's are."""
        return max(1, min(self.batch_records, BATCH_BYTES // self.value_bytes))


def relay(task: Task) -> None:
    """Consume a batch, produce it with two headers, one transaction a batch with the offsets."""
    _relay(task, [_ID, _DUE])


def relay_retry(task: Task) -> None:
    """Consume a batch, produce it with the headers of a retry, one transaction a batch with the offsets."""
    _relay(task, _RETRY)


def relay_redriven(task: Task) -> None:
    """Consume a batch, produce it with the headers of a redriven message, one transaction a batch with the offsets."""
    _relay(task, [*_RETRY[1:3], *_RETRY[4:], ("REDRIVE_COUNT", b"1")])


def _relay(task: Task, headers: Headers) -> None:
    producers, consumer = _producers(task), _consumer(task)
    ready()
    done = turn = 0
    while done < task.records:
        messages = _batch(consumer, task.batch)
        producer = producers[turn % 2]
        turn += 1
        producer.begin_transaction()
        produce = producer.produce
        for message in messages:
            produce(task.destination, message.value(), message.key(), headers=headers)
        _commit(producer, consumer, messages)
        done += len(messages)


def produce(task: Task) -> None:
    """Produce records with two headers, one transaction a batch."""
    producers = _producers(task)
    value = b"x" * task.value_bytes
    ready()
    for turn, begin in enumerate(range(0, task.records, task.batch)):
        producer = producers[turn % 2]
        producer.begin_transaction()
        produce = producer.produce
        for number in range(begin, min(begin + task.batch, task.records)):
            produce(task.destination, value, KEYS[number % 100], headers=[_ID, _DUE])
        producer.commit_transaction()


def consume(task: Task) -> None:
    """Consume as the sidecar is set, and look at every part of each record."""
    _consume(task, _consumer(task, assign=False))


def consume_default(task: Task) -> None:
    """Consume with librdkafka's own defaults for fetching."""
    _consume(task, _consumer(task, _LIBRDKAFKA_DEFAULTS, assign=False))


def echo(task: Task) -> None:
    """Send each record on at once; due, in its value, becomes the time it was appended to the source.

    So its lateness is what receiving, one transaction and reading cost at this rate.
    """
    producers, consumer = _producers(task), _consumer(task)
    pack = struct.Struct("<q").pack
    ready()
    done = turn = 0
    while done < task.records:
        messages = _batch(consumer, task.batch)
        producer = producers[turn % 2]
        turn += 1
        producer.begin_transaction()
        for message in messages:
            appended_ms = message.timestamp()[1]
            value = pack(appended_ms) + (message.value() or b"")[8:]
            due = ("TIMER_OUT_MS", b"%d" % appended_ms)
            producer.produce(task.destination, value, message.key(), headers=[_ID, due])
        _commit(producer, consumer, messages)
        done += len(messages)


def _producers(task: Task) -> list[Producer]:
    name = f"floor-{time.time_ns()}"
    producers = [
        Producer(
            transactional_config(
                task.bootstrap_servers, {}, transactional_id=f"{name}-{turn}", transaction_timeout_ms=10_000
            )
        )
        for turn in (0, 1)
    ]
    for producer in producers:
        producer.init_transactions()
    return producers


def _consumer(task: Task, options: dict[str, int] | None = None, *, assign: bool = True) -> Consumer:
    config = consumer_config(
        task.bootstrap_servers, {}, group_id=f"floor-{time.time_ns()}", instance_id=None, session_timeout_ms=10_000
    )
    consumer = Consumer({**config, "enable.partition.eof": False, **(options or {})})
    if assign:
        consumer.assign([TopicPartition(task.source, 0, 0)])
    return consumer


def _consume(task: Task, consumer: Consumer) -> None:
    ready()
    began_s = time.monotonic()
    consumer.assign([TopicPartition(task.source, 0, 0)])
    done = 0
    while done < task.records:
        messages = _batch(consumer, task.batch)
        for message in messages:
            message.offset(), message.timestamp(), message.headers(), message.key(), message.value()
        done += len(messages)
    tell(per_second=task.records / (time.monotonic() - began_s))


def _batch(consumer: Consumer, most: int) -> list[Message]:
    while True:
        messages = consumer.consume(most, 0)
        if messages:
            return messages
        first = consumer.poll(1)
        if first is not None:
            return [first, *consumer.consume(most - 1, 0)]


def _commit(producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    last = messages[-1]
    place = TopicPartition(last.topic() or "", last.partition() or 0, (last.offset() or 0) + 1)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
    producer.commit_transaction()


LOOPS: dict[str, Callable[[Task], None]] = {
    "relay": relay,
    "relay-retry": relay_retry,
    "relay-redriven": relay_redriven,
    "produce": produce,
    "consume": consume,
    "consume-default": consume_default,
    "echo": echo,
}


def main() -> None:
    tame_garbage_collection()
    kind, bootstrap_servers, source, destination, *numbers = sys.argv[1:]
    used = resource.getrusage(resource.RUSAGE_SELF)
    before_s = used.ru_utime + used.ru_stime
    LOOPS[kind](Task(bootstrap_servers, source, destination, *map(int, numbers)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    tell(cpu_s=used.ru_utime + used.ru_stime - before_s)


if __name__ == "__main__":
    main()
