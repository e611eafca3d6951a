"""Times as people and JSON write them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.times import HOW_TO_WRITE, TimeError, epoch_ms, parse_time

NINE = datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-31T09:00:00Z",
        "2030-01-31t09:00:00z",
        "2030-01-31 09:00Z",
        "2030-01-31T10:00:00.000+01:00",
        "20300131T090000Z",
        "2030-W05-4T09:00Z",
        "\t2030-01-31T04:00:00-05\n",
    ],
)
def test_one_moment_may_be_written_in_many_ways(text: str) -> None:
    assert parse_time(text) == NINE


@pytest.mark.parametrize("said", ["", "soon", "2030-02-30T09:00:00Z", 1_896_080_400_000, None, True, []])
def test_what_is_no_time_is_named_with_how_to_write_one(said: object) -> None:
    with pytest.raises(TimeError) as told:
        parse_time(said)
    assert str(told.value) == f"{said!r} is not a time; {HOW_TO_WRITE}"


@pytest.mark.parametrize("text", ["2030-01-31T09:00:00", "2030-01-31", "2030-01-31 09:00"])
def test_a_time_has_its_zone(text: str) -> None:
    with pytest.raises(TimeError, match="has no time zone; say when"):
        parse_time(text, "say when")


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1969-12-31T23:59:59.999999Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
        ("9999-12-31T23:59:59.999-23:59", 253_402_387_139_999),
    ],
)
def test_a_fraction_of_a_millisecond_counts_as_the_next(text: str, at_ms: int) -> None:
    assert epoch_ms(parse_time(text)) == at_ms


@given(st.datetimes(timezones=st.timezones()))
def test_no_time_is_told_as_an_earlier_one(time: datetime) -> None:
    late = timedelta(milliseconds=epoch_ms(time)) - (time - datetime(1970, 1, 1, tzinfo=UTC))
    assert timedelta() <= late < timedelta(milliseconds=1)
