"""Partitions that cannot be had now: closed, and opened anew after a while, which grows with every failure.

Their local store has failed, or no broker leads them. Kafka holds all there is to know of a partition, so beginning
again from the committed progress loses nothing; and a disk that is broken or full, or a broker that is lost, must not
stop the partitions and levels that do not need it.
"""

import errno
from typing import NamedTuple

from confluent_kafka import KafkaException

from connectors.contract import Place
from sidecar.clock import Clock
from sidecar.errors import to_keep
from sidecar.intake.progress import NoLeaderError
from sidecar.observability.health import Cause
from sidecar.store.errors import SlotConflict, is_disk_full

WAIT_MS_MIN = 500
WAIT_MS_MAX = 30_000
FORGIVEN_AFTER_MS = 60_000
"""A failure this long after the one before counts as the first."""


_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Whoever copied the files or mounted the disk did that as another user, or to be read alone."""


class Failure(NamedTuple):
    """The last failure of a partition."""

    error: Exception
    failed_ms: float
    wait_ms: int
    is_closed: bool


class Reopening:
    """Which partitions have failed, and when they are to be tried again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Place, Failure] = {}

    def failed(self, place: Place, error: Exception) -> int:
        """A partition is closed; after how many ms it is opened anew."""
        now_ms = self._clock.monotonic_ms()
        before = self._failures.get(place)
        wait_ms = WAIT_MS_MIN
        if before is not None and now_ms - before.failed_ms < FORGIVEN_AFTER_MS:
            wait_ms = min(2 * before.wait_ms, WAIT_MS_MAX)
        self._failures[place] = Failure(to_keep(error), now_ms, wait_ms, True)
        return wait_ms

    def due(self) -> list[Place]:
        """The partitions to be opened now."""
        now_ms = self._clock.monotonic_ms()
        return [
            place
            for place, failure in self._failures.items()
            if failure.is_closed and now_ms - failure.failed_ms >= failure.wait_ms
        ]

    def opened(self, place: Place) -> None:
        """A partition is open; its failures are remembered for when it fails again."""
        if place in self._failures:
            self._failures[place] = self._failures[place]._replace(is_closed=False)

    def last_error(self, place: Place) -> Exception | None:
        """What it failed of the last time, if it has."""
        failure = self._failures.get(place)
        return failure.error if failure is not None else None

    def forget(self, place: Place) -> None:
        """The partition is no longer ours."""
        self._failures.pop(place, None)

    @property
    def closed(self) -> dict[Place, Cause]:
        """The partitions that wait to be opened, and why."""
        return {
            place: Cause(str(failure.error), remedy(failure.error))
            for place, failure in self._failures.items()
            if failure.is_closed
        }

    @property
    def without_disk(self) -> list[Place]:
        """Of the partitions that wait to be opened, those that lack nothing but room on the disk."""
        return [place for place, failure in self._failures.items() if failure.is_closed and is_disk_full(failure.error)]


def remedy(error: Exception) -> str:
    """What an operator can do about what a partition has failed of."""
    if isinstance(error, NoLeaderError):
        return "bring the broker back that holds the partition"
    if isinstance(error, KafkaException):
        return "check the brokers, and that the sidecar may describe topics"
    if isinstance(error, SlotConflict):
        return (
            "what waits spans more time than the wheel holds: set slots_total and precision_ms to what they were, or "
            "to more, until it is delivered"
        )
    if isinstance(error, OSError) and error.errno in _NOT_ALLOWED:
        return (
            "let this user write to all that is under data_dir, or empty it while the sidecar is stopped: it is a "
            "cache of what Kafka holds"
        )
    return "check the disk under data_dir"
