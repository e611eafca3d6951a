"""Times as people and JSON write them: ISO 8601, never without a zone.

>>> epoch_ms(parse_time("2030-01-31T09:00:00+01:00"))
1896076800000
"""

from datetime import UTC, datetime, timedelta

HOW_TO_WRITE = "write an ISO 8601 time with its zone, such as 2030-01-31T09:00:00+01:00"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class TimeError(ValueError):
    """It is no time, or has no zone."""


def parse_time(text: object, remedy: str = HOW_TO_WRITE) -> datetime:
    """The time that ``text`` says; its ``T`` and ``Z`` may be small, as RFC 3339 has it (5.6).

    Args:
        text: of JSON, anything.
        remedy: what to write, where more than a time will do.

    Raises:
        TimeError: with the remedy.
    """
    try:
        time = datetime.fromisoformat(text.strip().upper())  # type: ignore[attr-defined]
    except (ValueError, AttributeError):
        raise TimeError(f"{text!r} is not a time; {remedy}") from None
    if time.utcoffset() is None:
        raise TimeError(f"{text!r} has no time zone; {remedy}")
    return time


def epoch_ms(time: datetime) -> int:
    """A time with its zone in epoch ms, rounded up: never early."""
    return -((_EPOCH - time) // _MS)
