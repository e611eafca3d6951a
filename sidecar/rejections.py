"""Rejected records in the log: the first of each kind one by one, then how many more there were.

A producer that gets a header wrong gets it wrong a million times, and the dead letters hold every one of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from connectors.contract import ErrorCode
from sidecar.clock import Clock
from sidecar.dispatch.dequeue_put import Coordinates, coordinates_of
from sidecar.records import KEY, VALUE, Outgoing, Rejection
from sidecar.source import Draft

WINDOW_MS = 60_000
LINES_PER_WINDOW = 10
"""For each error code."""

SHOWN_BYTES = 200

log = structlog.get_logger("timewheel.dispatch")


class RejectionLog:
    """Logs rejections, a bounded number of lines per error code and window.

    Args:
        group: whose dead letters they have become.
        with_records: whether keys and the beginnings of values are logged.
    """

    def __init__(self, clock: Clock, group: str, *, with_records: bool = False) -> None:
        self._clock = clock
        self._action = (
            f"see them with 'timewheel dlq show {group}', fix the producer or the destination, "
            f"then 'timewheel dlq redrive {group}'"
        )
        self._with_records = with_records
        self._since_ms = clock.monotonic_ms()
        self._told: Counter[ErrorCode] = Counter()
        self._untold: Counter[ErrorCode] = Counter()

    def tell(self, rejections: Mapping[Coordinates, Rejection], drafts: Sequence[Draft]) -> None:
        """What a committed transaction has turned into dead letters."""
        self.tick()
        records = _by_coordinates(drafts) if self._with_records else {}
        for coordinates, rejection in rejections.items():
            code = rejection.code
            if self._told[code] >= LINES_PER_WINDOW:
                self._untold[code] += 1
                continue
            self._told[code] += 1
            topic, partition, offset = coordinates
            log.warning(
                "record rejected",
                topic=topic,
                partition=partition,
                offset=offset,
                code=str(code),
                reason=rejection.message,
                operator_action=self._action,
                **_shown(records.get(coordinates)),
            )

    def tick(self) -> None:
        """Say how many were not told one by one, once their window is over."""
        if self._clock.monotonic_ms() - self._since_ms >= WINDOW_MS:
            self.close()

    def close(self) -> None:
        """Say it now."""
        over_s = round((self._clock.monotonic_ms() - self._since_ms) / 1000)
        for code, count in sorted(self._untold.items()):
            log.warning(
                "more records rejected", code=str(code), count=count, over_s=over_s, operator_action=self._action
            )
        self._since_ms = self._clock.monotonic_ms()
        self._told.clear()
        self._untold.clear()


def _by_coordinates(drafts: Sequence[Draft]) -> dict[Coordinates, Outgoing]:
    return {coordinates_of(source, record): record for source, records in drafts for record in records}


def _shown(record: Outgoing | None) -> dict[str, Any]:
    return {} if record is None else {"key": _text(record[KEY]), "value": _text(record[VALUE])}


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data[:SHOWN_BYTES].decode(errors="backslashreplace")
    return text if len(data) <= SHOWN_BYTES else f"{text}… ({len(data)} bytes)"
