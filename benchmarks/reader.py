"""A user of the destination: a ``read_committed`` consumer that judges every record, and how late it came.

``python -m benchmarks.reader BOOTSTRAP TOPIC PARTITIONS COUNT [WINDOW_S]``

Lateness is receipt minus due: the instant at which this process holds the record, so with the append, the commit, its
markers and the fetch in it. That is what users see; the destination's own timestamp is taken before the commit. It is
told of the steady part: the first and last seconds, in which the rate rises and falls, are left out. Early is judged by
the append, of every record: it comes before receipt, so it is the stricter of the two. All clocks are this machine's.

Tells ``p50_ms``, ``p99_ms``, ``highest_ms``; and ``lost``, ``twice``, ``early``. With a window also the first three of
each window of due times, as ``p50_ms.0`` and so on.
"""

import sys
import time
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaException

from benchmarks.generator import HEAD
from benchmarks.process import ready, tame_garbage_collection, tell
from benchmarks.workload import Cluster

RAMP_MS = 3_000
"""The difference of the longest and the shortest delay: after it, records come due at the full rate."""

SILENCE_S = 1.0
"""After the last record, this long is waited for one that comes twice."""
GIVE_UP_S = 30.0

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Batch(NamedTuple):
    """What arrived together, packed: nothing is computed while records come."""

    received_ns: int
    heads: bytes
    appended_ms: Ints


def read(consumer: Consumer, count: int) -> list[Batch]:
    """Every record there is, up to a silence."""
    batches: list[Batch] = []
    seen = 0
    while (first := consumer.poll(SILENCE_S if seen >= count else GIVE_UP_S)) is not None:
        messages = [first, *consumer.consume(10_000, 0)]
        received_ns = time.time_ns()
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        heads = b"".join([message.value()[: HEAD.size] for message in messages])  # type: ignore[index]
        appended_ms = np.array([message.timestamp()[1] for message in messages], np.int64)
        batches.append(Batch(received_ns, heads, appended_ms))
        seen += len(messages)
    return batches


def judge(batches: list[Batch], count: int, window_s: float | None = None) -> dict[str, float]:
    """Lateness of the steady part, of each window of it too where there is one, and faults of the whole."""
    heads: Ints = np.frombuffer(b"".join(batch.heads for batch in batches), "<i8").reshape(-1, 2)
    due_ms, numbers = heads[:, 0], heads[:, 1]
    appended_ms = np.concatenate([batch.appended_ms for batch in batches])
    received_ns = np.repeat([batch.received_ns for batch in batches], [len(batch.appended_ms) for batch in batches])
    steady = (due_ms >= due_ms.min() + RAMP_MS) & (due_ms <= due_ms.max() - RAMP_MS)
    late_ms = received_ns[steady] / 1e6 - due_ms[steady]
    told = _lateness(late_ms)
    if window_s is not None:
        begun_ms = due_ms[steady] - due_ms[steady].min()
        windows = (begun_ms / (window_s * 1_000)).astype(np.int64)
        for window in np.unique(windows).tolist():
            told |= _lateness(late_ms[windows == window], f".{window}")
    different = len(np.unique(numbers))
    faults = {
        "lost": count - different,
        "twice": len(numbers) - different,
        "early": int((appended_ms < due_ms).sum()),
    }
    return told | faults


def _lateness(late_ms: np.ndarray[tuple[int, ...], np.dtype[np.float64]], of: str = "") -> dict[str, float]:
    told = np.percentile(late_ms, [50, 99, 100]).tolist()
    return {f"{name}{of}": figure for name, figure in zip(("p50_ms", "p99_ms", "highest_ms"), told, strict=True)}


def main() -> None:
    tame_garbage_collection()
    bootstrap_servers, topic, partitions, count, *window = sys.argv[1:]
    consumer = Cluster(bootstrap_servers).reader(topic, int(partitions))
    ready()
    batches = read(consumer, int(count))
    if not batches:
        sys.exit(f"no record in {topic} within {GIVE_UP_S:.0f} s")
    tell(**judge(batches, int(count), float(window[0]) if window else None))


if __name__ == "__main__":
    main()
