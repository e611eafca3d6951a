"""Options that are times and durations."""

from datetime import datetime

from connectors.durations import DurationError, parse_duration_ms
from sidecar.errors import UsageError


def time_of(option: str, text: str) -> datetime:
    """An option's ISO 8601 time, with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} '{text}' is not an ISO 8601 time, such as 2030-01-31T09:00:00+01:00") from error
    if at.utcoffset() is None:
        raise UsageError(f"{option} '{text}' has no time zone; add one, such as {at.isoformat()}+00:00")
    return at


def time_ms(option: str, text: str | None) -> int | None:
    """As epoch milliseconds; None where none is given."""
    return None if text is None else int(time_of(option, text).timestamp() * 1000)


def duration_ms(option: str, text: str) -> int:
    """An option's duration in milliseconds."""
    try:
        return parse_duration_ms(text)
    except DurationError as error:
        raise UsageError(f"{option}: {error}") from error
