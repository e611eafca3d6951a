"""What a row of the table is: a measurement of product and floor, and the figures that come of it."""

import statistics
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from benchmarks.workload import Cluster, Load

RATE = "records/s"
CPU = "CPU, µs a record"

Values = dict[str, float]
"""By the figure's name."""

Measure = Callable[[Cluster, Load], Values]


class Pair(NamedTuple):
    """One run of the product and one of its floor, one after the other."""

    product: Values
    floor: Values


class Held(StrEnum):
    """How a figure is held against its floor, and on which side of the goal it should be."""

    RATIO = "ratio"  # product / floor, at least
    EXTRA = "extra"  # product - floor, at most
    ALONE = "alone"  # the product's own, at most


class Figure(NamedTuple):
    """One line of a row."""

    name: str
    held: Held = Held.ALONE
    goal: float | None = None
    form: str = ",.0f"
    is_wish: bool = False
    """The goal is wished for, not promised."""

    def compare(self, pair: Pair) -> float:
        """The value that the goal speaks of."""
        product = pair.product[self.name]
        if self.held is Held.ALONE:
            return product
        floor = pair.floor[self.name]
        return product / floor if self.held is Held.RATIO else product - floor

    def is_reached(self, pairs: Sequence[Pair]) -> bool | None:
        """Whether the median of the pairs meets the goal; None where there is none."""
        if self.goal is None:
            return None
        median = statistics.median(map(self.compare, pairs))
        return median >= self.goal if self.held is Held.RATIO else median <= self.goal


class Row(NamedTuple):
    """Figures that come of one measurement."""

    name: str
    measure: Callable[[Cluster, Load], Pair]
    floor_name: str
    figures: Sequence[Figure]
    load: Callable[[Load], Load] = lambda load: load
    """What the row makes of the load that the command line says."""
    is_long: bool = False
    """Measured once, without a warm-up, where nothing else is said."""
    is_extra: bool = False
    """Measured only where it is named."""


class Result(NamedTuple):
    """A row and its measured pairs."""

    row: Row
    pairs: Sequence[Pair]


def in_turn(product: Measure, floor: Measure) -> Callable[[Cluster, Load], Pair]:
    """Floor and product right after each other: whatever slows the machine down slows both."""

    def measure(cluster: Cluster, load: Load) -> Pair:
        floor_values = floor(cluster, load)
        return Pair(product(cluster, load), floor_values)

    return measure
