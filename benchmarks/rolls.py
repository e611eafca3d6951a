"""How late records come at a steady rate while many others, which were scheduled at once, roll.

    generator ──► wheel topic ──► sidecar ──► three partitions ──► reader    due: a random time, 1 to 4 s ahead
    the many  ──►     │    ▲         │
                      └────┼─────────┘                                       due: far beyond the roll window
                           └── their copies

The window is two minutes here, and the spread a quarter of it: what was written within six seconds rolls within
half a minute. The floor is the same with no others.
"""

import tempfile
import time
from pathlib import Path

from benchmarks.figures import CPU, Measure, Values
from benchmarks.lateness import PARTITIONS, trickle
from benchmarks.process import Process
from benchmarks.sidecar import Sidecar
from benchmarks.workload import Cluster, Load

MANY, WRITTEN_PER_S = 600_000, 100_000
ROLL_WINDOW_S, ROLL_SPREAD_S = 120, 30
DUE_AFTER_MS = ROLL_WINDOW_S * 4 // 3 * 1_000 + 10_000
"""From four thirds of a window on, a record rolls after the whole of it."""
MARGIN_S = 5


def beside_rolls(rate: int, *, many: int = MANY, spread_s: int = ROLL_SPREAD_S) -> Measure:
    """The steady records alone are judged."""

    def measure(cluster: Cluster, load: Load) -> Values:
        with cluster.room() as prefix, tempfile.TemporaryDirectory() as directory:
            source = cluster.create(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel")
            destination = cluster.create(f"{prefix}out", partitions=PARTITIONS)
            later = cluster.create(f"{prefix}later")
            settings = {"levels": "1ms", "roll_window": f"{ROLL_WINDOW_S}s", "roll_spread": f"{spread_s}s"}
            servers = cluster.bootstrap_servers
            with Sidecar(servers, Path(directory), topic_prefix=prefix, **settings) as sidecar:
                sidecar.wait_until_ready()
                seconds = float(ROLL_SPREAD_S + many / WRITTEN_PER_S + 2 * MARGIN_S)
                if many:
                    written = servers, source, later, WRITTEN_PER_S, many / WRITTEN_PER_S, load.value_bytes
                    with Process("generator", *written, DUE_AFTER_MS, DUE_AFTER_MS) as generator:
                        generator.wait_until_ready()
                        began_s = time.monotonic()
                        generator.result()
                    time.sleep(began_s + ROLL_WINDOW_S - ROLL_SPREAD_S - MARGIN_S - time.monotonic())
                before_s = sidecar.cpu_s()
                values = trickle(cluster, load._replace(seconds=seconds), rate, source, destination)
                if (rolled := sidecar.metric("timewheel_rolls_total")) < many:
                    raise RuntimeError(f"{rolled:,.0f} of {many:,} have rolled meanwhile")
                return {**values, CPU: (sidecar.cpu_s() - before_s) / (rate * seconds + many) * 1e6}

    return measure
