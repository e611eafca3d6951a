"""Histories and stories without end: python -m tests.simulation.soak --seconds 3600 [--first SEED]

A history is of everything together, or of what Kafka itself loses; a story is of one wheel partition by itself, in
finer steps. Each failure is told as the command that replays it; exit code 1 where there was one.
"""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from tests.simulation import histories, losses, one_partition

TELL_EVERY_S = 60.0
KINDS = {
    "world": histories.go_through,
    "one_partition": one_partition.go_through,
    "losses": losses.go_through,
}
"""By the module that replays it."""


def soak(seconds: float, first: int) -> int:
    """How many from this seed on have failed."""
    processes = os.cpu_count() or 1
    seeds, running = count(first), dict[Future[tuple[int, str | None, object]], str]()
    began_s = told_s = time.monotonic()
    done = failed = 0
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), histories.be_quiet) as pool:
        while running or time.monotonic() - began_s < seconds:
            while time.monotonic() - began_s < seconds and len(running) < 4 * processes:
                seed = next(seeds)
                running |= {pool.submit(go_through, seed): kind for kind, go_through in KINDS.items()}
            for one in wait(running, return_when=FIRST_COMPLETED).done:
                kind = running.pop(one)
                seed, found, _ = one.result()
                done += 1
                if found is not None:
                    failed += 1
                    print(f"python -m tests.simulation.{kind} {seed}  # {found}", flush=True)
            if time.monotonic() - told_s >= TELL_EVERY_S:
                told_s = time.monotonic()
                print(f"{done} histories and stories, {failed} failed", file=sys.stderr, flush=True)
    print(f"{done} histories and stories from seed {first} on in {time.monotonic() - began_s:.0f} s, {failed} failed")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long they are begun (default 60)")
    parser.add_argument(
        "--first",
        type=int,
        default=histories.SEEDS,
        help=f"the first seed (default {histories.SEEDS}: make test has those before)",
    )
    options = parser.parse_args()
    return 1 if soak(options.seconds, options.first) else 0


if __name__ == "__main__":
    sys.exit(main())
