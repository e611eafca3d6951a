"""How late records come at a steady rate where what waits is more than memory holds.

    generator ──► wheel topic ──► sidecar ──► three partitions ──► reader    due: a random time, 15 to 45 s ahead
                                   its files ◄── the page cache is emptied all the while

All are written before the first is due, so that nothing new brings their pages back. The floor is the same with the
pages left where they are. Slots are of 100 ms, so that as few of the neighbours in the logs are due together as with
slots of a second and delays of five minutes.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.figures import CPU, Measure, Values
from benchmarks.lateness import PARTITIONS, judged
from benchmarks.process import Process
from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster, Load

PRECISION_MS = 100
NEAREST_MS, SPREAD_MS = 15_000, 30_000
SLOWEST_INTAKE_PER_S = 40_000
"""So that all are taken in before the first is due, and the reader is ready."""
EVERY_S = 0.2
"""How long a page stays in memory at most."""


def strewn(rate: int, *, is_cold: bool) -> Measure:
    """Records of which about so many are due in a second."""

    def measure(cluster: Cluster, load: Load) -> Values:
        count = rate * SPREAD_MS // 1_000
        with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
            source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
            destination = cluster.create(f"{prefix}out", partitions=PARTITIONS)
            settings = {"topic_prefix": prefix, "levels": "1ms", "precision_ms": PRECISION_MS}
            servers = cluster.bootstrap_servers
            with Sidecar(servers, Path(directory), **settings) as sidecar:
                sidecar.wait_until_ready()
                delays = NEAREST_MS, NEAREST_MS + SPREAD_MS
                written = servers, source, destination, SLOWEST_INTAKE_PER_S, count / SLOWEST_INTAKE_PER_S
                with Process("generator", *written, load.value_bytes, *delays) as generator:
                    generator.wait_until_ready()
                    generator.result()
                sidecar.wait_for("timewheel_ingested_records_total", count)
                before_s = sidecar.cpu_s()
                with (
                    _emptied(sidecar.data_dir) if is_cold else nullcontext(),
                    Process("reader", servers, destination, PARTITIONS, count) as reader,
                ):
                    reader.wait_until_ready()
                    figures = judged(reader.result(), rate, destination)
                return {**figures, CPU: (sidecar.cpu_s() - before_s) / count * 1e6}

    return measure


@contextmanager
def _emptied(directory: Path) -> Iterator[None]:
    """No page of the files stays in memory for long."""
    is_over = threading.Event()

    def empty() -> None:
        while not is_over.wait(EVERY_S):
            for path in directory.rglob("*"):
                try:
                    descriptor = os.open(path, os.O_RDONLY)
                except OSError:  # a checkpoint that was replaced
                    continue
                if path.is_file():
                    os.fdatasync(descriptor)  # what is not on disk cannot leave memory
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)

    thread = threading.Thread(target=empty, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
