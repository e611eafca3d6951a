"""Scheduling without waiting for each record: `ScheduledProducer.begin_send` and a bare producer with the same headers.

``python -m benchmarks.scheduling KIND BOOTSTRAP PREFIX COUNT VALUE_BYTES``

The bare producer makes an id for each record, as it has to have one, and hears of every delivery: the same promise.
Both have librdkafka's defaults otherwise.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.figures import CPU, RATE, Measure, Values
from benchmarks.process import Process, tell
from benchmarks.workload import KEYS, Cluster, Headers, Load
from connectors import ScheduledProducer, TopicNames

DESTINATION = "orders"


class Task(NamedTuple):
    """The command line."""

    bootstrap_servers: str
    prefix: str
    records: int
    value_bytes: int


def scheduled(task: Task) -> float:
    """Seconds that `ScheduledProducer` takes."""
    names = TopicNames(task.prefix)
    producer = ScheduledProducer({"bootstrap.servers": task.bootstrap_servers}, names=names)
    value = b"x" * task.value_bytes
    producer.send(DESTINATION, value, delay="1h")  # connected, as the bare one is
    began_s = time.monotonic()
    begin_send = producer.begin_send
    for number in range(task.records):
        begin_send(DESTINATION, value, key=KEYS[number % 100], delay="1h")
    assert producer.flush(120) == 0
    return time.monotonic() - began_s


def bare(task: Task) -> float:
    """Seconds that confluent-kafka's own producer takes."""
    topic = TopicNames(task.prefix).wheel
    producer = Producer(
        {"bootstrap.servers": task.bootstrap_servers, "enable.idempotence": True, "partitioner": "murmur2_random"}
    )
    value = b"x" * task.value_bytes
    delivered = [0]

    def on_delivery(_error: object, _message: object) -> None:
        delivered[0] += 1

    producer.produce(topic, value)
    producer.flush()
    began_s = time.monotonic()
    produce = producer.produce
    real_topic, delay = ("REAL_TOPIC", DESTINATION.encode()), ("TIMER_DELAY_MS", b"3600000")
    for number in range(task.records):
        headers: Headers = [("UNIQ_KEY", b"%032x" % number), real_topic, delay]
        while True:
            try:
                produce(topic, value, KEYS[number % 100], headers=headers, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    assert delivered[0] == task.records
    return time.monotonic() - began_s


KINDS: dict[str, Callable[[Task], float]] = {"scheduled": scheduled, "bare": bare}


def producer(kind: str) -> Measure:
    """One of them, in a process of its own."""

    def measure(cluster: Cluster, load: Load) -> Values:
        with cluster.room() as prefix:
            cluster.create(TopicNames(prefix).wheel)
            arguments = (kind, cluster.bootstrap_servers, prefix, load.records, load.value_bytes)
            with Process("scheduling", *arguments) as process:
                told = process.result()
        return {RATE: load.records / told["seconds"], CPU: told["cpu_s"] / load.records * 1e6}

    return measure


def main() -> None:
    kind, bootstrap_servers, prefix, count, value_bytes = sys.argv[1:]
    used = resource.getrusage(resource.RUSAGE_SELF)
    before_s = used.ru_utime + used.ru_stime
    seconds = KINDS[kind](Task(bootstrap_servers, prefix, int(count), int(value_bytes)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    tell(seconds=seconds, cpu_s=used.ru_utime + used.ru_stime - before_s)


if __name__ == "__main__":
    main()
