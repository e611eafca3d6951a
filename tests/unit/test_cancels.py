"""Cancels in force while a partition is read again: what they hold of what they have read."""

import tracemalloc

from sidecar.dispatch.cancels import Cancels
from sidecar.intake.parse_wheel import Schedule

MANY = 10_000
END = 10 * MANY


def copy_of(origin_offset: int) -> Schedule:
    return Schedule("orders", -1, [], b"m", 0, 1, origin_offset, 0, 0)


def test_the_copies_that_are_read_again_take_no_memory() -> None:
    """Of what waits for long a partition holds little else than copies: millions of them."""
    cancels = Cancels(END, [])
    tracemalloc.start()
    try:
        for number in range(MANY):
            assert cancels.copy_read(copy_of(MANY + number), 2 * MANY + number) is None
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < MANY
