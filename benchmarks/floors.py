"""The floors: the fastest plain loop with the same client, batch, acknowledgements, value and headers in and out.

Each runs in a process of its own, as the sidecar does:
``python -m benchmarks.floors relay BOOTSTRAP SOURCE DESTINATION COUNT``.
"""

import gc
import resource
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.workload import BATCH
from connectors.kafka import consumer_config, transactional_config

_ID = ("UNIQ_KEY", b"SCHEDULE_TOPIC_XXXX-1-0-1234567")
_DUE = ("TIMER_OUT_MS", b"1800000000000")


def relay(bootstrap_servers: str, source: str, destination: str, count: int) -> None:
    """Consume a batch, produce it with two headers, one transaction a batch with the offsets, two producers in turn."""
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
    config = consumer_config(bootstrap_servers, {}, group_id=name, instance_id=None, session_timeout_ms=10_000)
    consumer = Consumer({**config, "enable.partition.eof": False})
    consumer.assign([TopicPartition(source, 0, 0)])
    done = turn = 0
    while done < count:
        messages = consumer.consume(BATCH, 0)
        if not messages:
            first = consumer.poll(1)
            if first is None:
                continue
            messages = [first, *consumer.consume(BATCH - 1, 0)]
        producer = producers[turn % 2]
        turn += 1
        producer.begin_transaction()
        produce = producer.produce
        for message in messages:
            produce(destination, message.value(), message.key(), headers=[_ID, _DUE])
        offset = (messages[-1].offset() or 0) + 1
        producer.send_offsets_to_transaction([TopicPartition(source, 0, offset)], consumer.consumer_group_metadata())
        producer.commit_transaction()
        done += len(messages)


def main() -> None:
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
    kind, bootstrap_servers, source, destination, count = sys.argv[1:]
    used = resource.getrusage(resource.RUSAGE_SELF)
    before_s = used.ru_utime + used.ru_stime
    {"relay": relay}[kind](bootstrap_servers, source, destination, int(count))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"cpu_s={used.ru_utime + used.ru_stime - before_s:.3f}")


if __name__ == "__main__":
    main()
