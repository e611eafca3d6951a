"""Bounds that a simulation meets more often than a sidecar does."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sidecar.dispatch import wheel
from sidecar.store import timer_wheel


def reads_first_ms(seed: int) -> int:
    """With half of the seeds, after a start what is due does not wait for what was written before.

    So it is where that is more than can be read in time.
    """
    return random.Random(f"{seed}-waits").choice([0, wheel.READS_FIRST_MS])


@contextmanager
def small_stretches(seed: int) -> Iterator[None]:
    """For the wheels that are made meanwhile.

    A look at the whole wheel takes several turns here, too, as it does where a wheel has half a million slots: 64 slots
    are four steps.
    """
    with (
        patch.object(timer_wheel, "_FIRST_CHUNK_SLOTS", 4),
        patch.object(timer_wheel, "_LAST_CHUNK_SLOTS", 16),
        patch.object(wheel, "READS_FIRST_MS", reads_first_ms(seed)),
    ):
        yield
