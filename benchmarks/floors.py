"""The floors: the fastest plain loops with the same client, batch, acknowledgements, value and headers in and out.

Each runs in a process of its own, as the sidecar does:
``python -m benchmarks.floors KIND BOOTSTRAP SOURCE DESTINATION COUNT``.
"""

import gc
import resource
import sys
import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.workload import BATCH, KEYS, VALUE_BYTES
from connectors.kafka import consumer_config, transactional_config

_ID = ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-1-0-1234567")
_DUE = ("TIMER_OUT_MS", b"1800000000000")


def relay(bootstrap_servers: str, source: str, destination: str, count: int) -> None:
    """Consume a batch, produce it with two headers, one transaction a batch with the offsets, two producers in turn."""
    producers = _producers(bootstrap_servers)
    consumer = _consumer(bootstrap_servers, source)
    done = turn = 0
    while done < count:
        messages = _batch(consumer)
        producer = producers[turn % 2]
        turn += 1
        producer.begin_transaction()
        produce = producer.produce
        for message in messages:
            produce(destination, message.value(), message.key(), headers=[_ID, _DUE])
        _commit(producer, consumer, messages)
        done += len(messages)


def produce(bootstrap_servers: str, source: str, destination: str, count: int) -> None:
    """Produce records with two headers, one transaction a batch, two producers in turn."""
    producers = _producers(bootstrap_servers)
    value = b"x" * VALUE_BYTES
    keys = [b"k%d" % number for number in range(KEYS)]
    for turn in range(count // BATCH):
        producer = producers[turn % 2]
        producer.begin_transaction()
        for number in range(BATCH):
            producer.produce(destination, value, keys[number % KEYS], headers=[_ID, _DUE])
        producer.commit_transaction()


def consume(bootstrap_servers: str, source: str, destination: str, count: int) -> None:
    """Consume, and look at every part of each record."""
    consumer = _consumer(bootstrap_servers, source)
    done = 0
    began_s = 0.0
    while done < count:
        messages = _batch(consumer)
        began_s = began_s or time.monotonic()
        for message in messages:
            message.offset(), message.timestamp(), message.headers(), message.key(), message.value()
        done += len(messages)
    print(f"per_second={count / (time.monotonic() - began_s):.0f}")


def echo(bootstrap_servers: str, source: str, destination: str, count: int) -> None:
    """Send each record on at once, with its own timestamp as the time it was due: the latency of a bare transaction."""
    producers = _producers(bootstrap_servers)
    consumer = _consumer(bootstrap_servers, source)
    done = turn = 0
    while done < count:
        messages = _batch(consumer)
        producer = producers[turn % 2]
        turn += 1
        producer.begin_transaction()
        for message in messages:
            due = ("TIMER_OUT_MS", b"%d" % message.timestamp()[1])
            producer.produce(destination, message.value(), message.key(), headers=[_ID, due])
        _commit(producer, consumer, messages)
        done += len(messages)


def _producers(bootstrap_servers: str) -> list[Producer]:
    name = f"floor-{time.time_ns()}"
    producers = [
        Producer(
            transactional_config(
                bootstrap_servers, {}, transactional_id=f"{name}-{turn}", transaction_timeout_ms=10_000
            )
        )
        for turn in (0, 1)
    ]
    for producer in producers:
        producer.init_transactions()
    return producers


def _consumer(bootstrap_servers: str, source: str) -> Consumer:
    name = f"floor-{time.time_ns()}"
    config = consumer_config(bootstrap_servers, {}, group_id=name, instance_id=None, session_timeout_ms=10_000)
    consumer = Consumer({**config, "enable.partition.eof": False})
    consumer.assign([TopicPartition(source, 0, 0)])
    return consumer


def _batch(consumer: Consumer) -> list[Message]:
    while True:
        messages = consumer.consume(BATCH, 0)
        if messages:
            return messages
        first = consumer.poll(1)
        if first is not None:
            return [first, *consumer.consume(BATCH - 1, 0)]


def _commit(producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    last = messages[-1]
    place = TopicPartition(last.topic() or "", last.partition() or 0, (last.offset() or 0) + 1)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
    producer.commit_transaction()


def main() -> None:
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
    kind, bootstrap_servers, source, destination, count = sys.argv[1:]
    used = resource.getrusage(resource.RUSAGE_SELF)
    before_s = used.ru_utime + used.ru_stime
    loops = {"relay": relay, "produce": produce, "consume": consume, "echo": echo}
    loops[kind](bootstrap_servers, source, destination, int(count))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"cpu_s={used.ru_utime + used.ru_stime - before_s:.3f}")


if __name__ == "__main__":
    main()
