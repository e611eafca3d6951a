"""Durations as people write them: whole numbers with a unit, compounds allowed, never bare.

>>> parse_duration_ms("1h30m")
5400000
>>> format_duration(5_400_000)
'1h30m'
"""

import re

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

MAX_DURATION_MS = 36_500 * UNITS_MS["d"]
"""A hundred years: no time that is calculated with it leaves 64 bits."""

_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_MAX_DIGITS = 18
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


class DurationError(ValueError):
    """The text is no duration."""


def parse_duration_ms(text: str) -> int:
    """Milliseconds of ``text``, such as ``250ms``, ``90s`` or ``1h30m``.

    Raises:
        DurationError: bare numbers, signs, fractions, unknown or repeated units, units out of order, beyond
            `MAX_DURATION_MS`.
    """
    text = text.strip()
    if not _DURATION.fullmatch(text):
        raise DurationError(
            f"'{text}' is not a duration; write a whole number with ms, s, m, h or d, such as 90s or 1h30m"
        )
    total_ms = 0
    last_unit_ms: int | None = None
    for number, unit in _PART.findall(text):
        unit_ms = UNITS_MS[unit]
        if last_unit_ms is not None and unit_ms >= last_unit_ms:
            raise DurationError(
                f"'{text}' is not a duration; write its units once each, the largest first, as in 1h30m"
            )
        last_unit_ms = unit_ms
        total_ms += int(number) * unit_ms if len(number) <= _MAX_DIGITS else MAX_DURATION_MS + 1
    if total_ms > MAX_DURATION_MS:
        raise DurationError(f"'{text[:40]}' is too long; the longest duration is {format_duration(MAX_DURATION_MS)}")
    return total_ms


def format_duration(duration_ms: int) -> str:
    """The shortest text that `parse_duration_ms` turns back into ``duration_ms``."""
    if duration_ms == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, duration_ms = divmod(duration_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
