"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.durations import MAX_DURATION_MS, DurationError, format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("2m", 120_000),
        ("3h", 10_800_000),
        ("4d", 345_600_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("0s", 0),
        ("0001s", 1_000),
        (" 5s ", 5_000),
        ("36500d", MAX_DURATION_MS),
    ],
)
def test_a_duration_is_whole_numbers_with_units(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    ["", "1", "90", "s", "1x", "1.5s", "-1s", "+1s", "1 s", "1h 30m", "1S", "1M", "1s,", "1h30", "²s", "١s", "1e3s"],
)
def test_what_is_bare_signed_broken_or_blank_is_no_duration(text: str) -> None:
    with pytest.raises(DurationError, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["30m1h", "1s1s", "1ms1s", "1h2d"])
def test_units_stand_once_each_and_the_largest_first(text: str) -> None:
    with pytest.raises(DurationError, match="the largest first"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["36500d1ms", "9" * 18 + "d", "9" * 19 + "ms", "9" * 5_000 + "d"])
def test_a_duration_ends_at_a_hundred_years(text: str) -> None:
    with pytest.raises(DurationError, match="too long; the longest duration is 36500d"):
        parse_duration_ms(text)


@pytest.mark.parametrize(("duration_ms", "text"), [(0, "0s"), (1, "1ms"), (5_400_000, "1h30m"), (86_400_000, "1d")])
def test_a_duration_is_shown_with_as_few_units_as_it_takes(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text


@given(st.integers(0, MAX_DURATION_MS))
def test_what_is_shown_reads_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms
