"""Histories without end: python -m tests.simulation.soak --seconds 3600 [--first SEED]

Each failure is told as the command that replays it; exit code 1 where there was one.
"""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from tests.simulation.histories import SEEDS, Went, be_quiet, go_through

TELL_EVERY_S = 60.0


def soak(seconds: float, first: int) -> int:
    """How many of the histories from this seed on have failed."""
    processes = os.cpu_count() or 1
    seeds, running = count(first), set[Future[Went]]()
    began_s = told_s = time.monotonic()
    done = failed = 0
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), be_quiet) as pool:
        while running or time.monotonic() - began_s < seconds:
            while time.monotonic() - began_s < seconds and len(running) < 4 * processes:
                running.add(pool.submit(go_through, next(seeds)))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                seed, found, _ = one.result()
                done += 1
                if found is not None:
                    failed += 1
                    print(f"python -m tests.simulation.world {seed}  # {found}", flush=True)
            if time.monotonic() - told_s >= TELL_EVERY_S:
                told_s = time.monotonic()
                print(f"{done} histories, {failed} failed", file=sys.stderr, flush=True)
    print(f"{done} histories from seed {first} on in {time.monotonic() - began_s:.0f} s, {failed} failed")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long histories are begun (default 60)")
    parser.add_argument(
        "--first", type=int, default=SEEDS, help=f"the first seed (default {SEEDS}: make test has those before)"
    )
    options = parser.parse_args()
    return 1 if soak(options.seconds, options.first) else 0


if __name__ == "__main__":
    sys.exit(main())
