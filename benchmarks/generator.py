"""Writes records to the wheel at a steady rate, due 1 to 4 s later at random.

``python -m benchmarks.generator BOOTSTRAP SOURCE DESTINATION RATE SECONDS VALUE_BYTES [SHORTEST_MS LONGEST_MS]``

A value begins with two little-endian int64, due time (epoch ms) and number: the reader trusts no header that somebody
else wrote. Tells ``per_second``, the rate that was reached.
"""

import struct
import sys
import time

import numpy as np
from confluent_kafka import Producer

from benchmarks.process import ready, tame_garbage_collection, tell
from benchmarks.workload import KEYS, Headers

DELAYS_MS = (1_000, 4_000)
TICK_S = 0.005
"""Records are written in little heaps this far apart; finer costs more CPU than what is measured."""

HEAD = struct.Struct("<qq")


def generate(
    bootstrap_servers: str,
    source: str,
    destination: str,
    rate: int,
    seconds: float,
    value_bytes: int,
    delays_ms: tuple[int, int] = DELAYS_MS,
) -> None:
    """Write ``rate * seconds`` records to partition 0, each when its turn has come."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 1, "delivery.report.only.error": True})
    producer.list_topics(source, timeout=10)
    count = int(rate * seconds)
    delays = np.random.default_rng().integers(*delays_ms, count, np.int32, endpoint=True)
    filler = b"x" * (value_bytes - HEAD.size)
    real_topic = ("REAL_TOPIC", destination.encode())
    ready()
    began_s = time.monotonic()
    written = 0
    while written < count:
        until = min(count, int((time.monotonic() - began_s + TICK_S) * rate))
        now_ms = time.time_ns() // 1_000_000
        for number, delay_ms in enumerate(delays[written:until].tolist(), written):
            due_ms = now_ms + delay_ms
            headers: Headers = [real_topic, ("TIMER_DELIVER_MS", b"%d" % due_ms)]
            producer.produce(source, HEAD.pack(due_ms, number) + filler, KEYS[number % 100], 0, headers=headers)
        written = until
        producer.poll(0)
        time.sleep(max(0.0, began_s + written / rate - time.monotonic()))
    tell(per_second=count / (time.monotonic() - began_s))
    if left := producer.flush(30):
        sys.exit(f"{left} records could not be written")


def main() -> None:
    tame_garbage_collection()
    bootstrap_servers, source, destination, rate, seconds, value_bytes, *delays_ms = sys.argv[1:]
    shortest_ms, longest_ms = map(int, delays_ms or DELAYS_MS)
    where = bootstrap_servers, source, destination
    generate(*where, int(rate), float(seconds), int(value_bytes), (shortest_ms, longest_ms))


if __name__ == "__main__":
    main()
