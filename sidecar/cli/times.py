"""Options that are times and durations."""

from datetime import datetime

from connectors.durations import DurationError, parse_duration_ms
from connectors.times import TimeError, epoch_ms, parse_time
from sidecar.errors import UsageError


def time_of(option: str, text: str) -> datetime:
    """An option's ISO 8601 time, with its zone."""
    try:
        return parse_time(text)
    except TimeError as error:
        raise UsageError(f"{option} {error}") from error


def time_ms(option: str, text: str | None) -> int | None:
    """As epoch milliseconds; None where none is given."""
    return None if text is None else epoch_ms(time_of(option, text))


def duration_ms(option: str, text: str) -> int:
    """An option's duration in milliseconds."""
    try:
        return parse_duration_ms(text)
    except DurationError as error:
        raise UsageError(f"{option}: {error}") from error
