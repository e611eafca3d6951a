"""What bounds read-aheads counts all that a record brings: value, key and headers."""

import pytest

from connectors.kafka import BY_KEY
from sidecar.records import Outgoing, encode_headers, for_disk
from sidecar.sizes import RECORD_OVERHEAD_BYTES, SAMPLED, bytes_of, size_of

BIG = b"x" * 100_000


def record(key: bytes | None = None, value: bytes | None = None, header: bytes | None = None) -> Outgoing:
    return "orders", BY_KEY, key, value, [], 0, 0, [("note", header)]


@pytest.mark.parametrize("big", [record(key=BIG), record(value=BIG), record(header=BIG)])
def test_every_part_of_a_record_counts(big: Outgoing) -> None:
    assert size_of(big) == RECORD_OVERHEAD_BYTES + len("note") + len(BIG)
    assert bytes_of([big] * 120) == 120 * size_of(big)


def test_headers_count_encoded_too() -> None:
    big = record(header=BIG)
    assert size_of(for_disk(big)) == RECORD_OVERHEAD_BYTES + len(encode_headers([("note", BIG)]))


def test_of_many_values_count_exactly_and_the_rest_by_a_sample() -> None:
    records = [record()] * (2 * SAMPLED)
    small = bytes_of(records)
    records[1] = record(value=BIG)
    assert bytes_of(records) == small + len(BIG)
    records[SAMPLED] = record(key=BIG)
    assert bytes_of(records) == small + len(BIG) + SAMPLED * len(BIG)


def test_of_none_there_is_nothing() -> None:
    assert bytes_of([]) == 0
