"""Millions of records that wait: what they take, and how long stops, starts and a rebuild take with them.

One wheel partition, due in one hour to three days, so that nothing is delivered but the canaries. In this order:

    raw consume ─► first start, intake ─► rest: memory, disk ─► SIGTERM ─► start ─► SIGKILL ─► start
                                                             ─► SIGKILL, directory removed ─► start: rebuild

After each start: the time until ``/readyz``, and until a canary, due at once and written last, has been delivered. The
second is the one that counts: nothing is delivered before everything that comes before it is known again.
"""

import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.figures import Pair, Values
from benchmarks.machine import unwritten_bytes
from benchmarks.process import Process
from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster, Headers, Load

INTAKE, INTAKE_BESIDE_DEFAULTS = "intake, records/s", "  intake, beside default options"
REBUILD, REBUILD_BESIDE_DEFAULTS = "rebuild from nothing, records/s", "  rebuild, beside default options"
REBUILD_S = "rebuild from nothing, s to the first delivery"
RSS, ANONYMOUS, MAPPED = "memory at rest, MB", "  of it its own, MB", "  of it pages of files, MB"
PEAK, PEAK_LATER = "highest memory, MB", "highest memory after a rebuild, MB"
DISK = "disk, bytes a record"
STOP = "SIGTERM to exit, s"
READY, DELIVERING = "start after it, s to ready", "start after it, s to the first delivery"
READY_KILLED, DELIVERING_KILLED = "start after SIGKILL, s to ready", "start after SIGKILL, s to the first delivery"

VALUE_BYTES = 100
NEAREST_MS, SPREAD_MS = 3_600_000, 71 * 3_600_000
SLOWEST_PER_SECOND = 10_000
"""Below this rate something is wrong."""

WRITTEN_BYTES = 50_000_000
"""So much is always on its way to the disk."""

_MB = 1e6


def pending(cluster: Cluster, load: Load) -> Pair:
    """Everything in the module's docstring, once."""
    timeout_s = 60 + load.pending / SLOWEST_PER_SECOND
    with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
        source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
        canaries = Canaries(cluster, source, cluster.create(f"{prefix}canaries"))
        fill_waiting(cluster, source, load.pending, canaries.destination)
        consumed, consumed_default = (
            _consume(cluster, kind, source, load.pending) for kind in ("consume", "consume-default")
        )
        sidecar = Sidecar(cluster.bootstrap_servers, Path(directory), topic_prefix=prefix, levels="1ms")
        with sidecar:
            values = {INTAKE: sidecar.intake_rate(sidecar.wait_until_assigned(), load.pending, timeout_s)}
            sidecar.wait_until_idle()
            values |= _at_rest(sidecar, load.pending)
            # As after hours: a stop makes durable what the kernel has not, which right after so much is all of it.
            sidecar.wait_until(lambda: -unwritten_bytes(), -WRITTEN_BYTES, "what the kernel has to write", timeout_s)
            values[STOP] = sidecar.stop()
            values[READY], values[DELIVERING] = _start(sidecar, canaries, timeout_s)
            sidecar.wait_until_idle()
            sidecar.kill()
            values[READY_KILLED], values[DELIVERING_KILLED] = _start(sidecar, canaries, timeout_s)
            sidecar.wait_until_idle()
            sidecar.kill()
            shutil.rmtree(sidecar.data_dir)
            values |= _rebuild(sidecar, canaries, load.pending, timeout_s)
        canaries.close()
        values |= {INTAKE_BESIDE_DEFAULTS: values[INTAKE], REBUILD_BESIDE_DEFAULTS: values[REBUILD]}
        floors = dict.fromkeys((INTAKE, REBUILD), consumed)
        floors |= dict.fromkeys((INTAKE_BESIDE_DEFAULTS, REBUILD_BESIDE_DEFAULTS), consumed_default)
        return Pair(values, floors)


class Canaries:
    """Records that are due at once, to a topic of their own."""

    def __init__(self, cluster: Cluster, source: str, destination: str) -> None:
        self.destination = destination
        self._source = source
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        self._reader = cluster.reader(destination)

    def close(self) -> None:
        self._reader.close()

    def send(self) -> None:
        """Write one."""
        headers: Headers = [("REAL_TOPIC", self.destination.encode()), ("TIMER_DELAY_MS", b"0")]
        self._producer.produce(self._source, b"canary", b"canary", 0, headers=headers)
        self._producer.flush(30)

    def wait(self, timeout_s: float) -> float:
        """Wait for the next one; the monotonic time of that in seconds."""
        message = self._reader.poll(timeout_s)
        if message is None or message.error() is not None:
            raise RuntimeError(f"no canary within {timeout_s:.0f} s: {message and message.error()}")
        return time.monotonic()


def fill_waiting(cluster: Cluster, source: str, count: int, destination: str) -> None:
    """Schedule records on the wheel, none of which is due within the hour."""
    real_topic = ("REAL_TOPIC", destination.encode())
    nearest_ms = time.time_ns() // 1_000_000 + NEAREST_MS

    def headers(number: int) -> Headers:
        return [real_topic, ("TIMER_DELIVER_MS", b"%d" % (nearest_ms + number * 7_919_003 % SPREAD_MS))]

    cluster.fill(source, count, VALUE_BYTES, headers)


def _consume(cluster: Cluster, kind: str, source: str, count: int) -> float:
    with Process("floors", kind, cluster.bootstrap_servers, source, "-", count, VALUE_BYTES) as floor:
        return floor.result()["per_second"]


def _at_rest(sidecar: Sidecar, count: int) -> Values:
    memory = sidecar.memory()
    # What is taken up on the device: the wheel's file is sparse.
    used_bytes = sum(path.stat().st_blocks * 512 for path in sidecar.data_dir.rglob("*") if path.is_file())
    return {
        RSS: memory.rss / _MB,
        ANONYMOUS: memory.anonymous / _MB,
        MAPPED: memory.mapped / _MB,
        PEAK: memory.peak / _MB,
        DISK: used_bytes / count,
    }


def _start(sidecar: Sidecar, canaries: Canaries, timeout_s: float) -> tuple[float, float]:
    """Seconds from the start of the process to ready, and to the first delivery."""
    canaries.send()
    began_s = sidecar.start()
    ready_s = sidecar.wait_until_ready(timeout_s)
    return ready_s - began_s, canaries.wait(timeout_s) - began_s


def _rebuild(sidecar: Sidecar, canaries: Canaries, count: int, timeout_s: float) -> Values:
    canaries.send()
    began_s = sidecar.start()
    rate = sidecar.intake_rate(sidecar.wait_until_assigned(), count, timeout_s)
    delivered_s = canaries.wait(timeout_s)
    return {REBUILD: rate, REBUILD_S: delivered_s - began_s, PEAK_LATER: sidecar.memory().peak / _MB}
