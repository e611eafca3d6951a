"""What the loop tells of its work once a second, for those who show it: written by the loop, read by web threads."""

from dataclasses import dataclass
from typing import NamedTuple

from sidecar.dispatch.wheel.figures import WheelFigures


class PlaceTold(NamedTuple):
    """One partition that is read."""

    topic: str
    partition: int
    queue: str
    """A level's number, ``wheel`` or ``sendback``."""
    waiting: int
    """Records read and not yet sent: on the wheel all of them, else those in memory."""
    next_due_ms: int | None
    """When the next of them is due; 0: at once; None: nothing is known to be due."""
    trouble: str
    """What it does not do just now, in words; empty when all is well."""


@dataclass
class Told:
    """Single assignments only, so that readers need no lock."""

    places: tuple[PlaceTold, ...] = ()
    wheel: WheelFigures | None = None
    """All wheel partitions together; None before the first look."""
