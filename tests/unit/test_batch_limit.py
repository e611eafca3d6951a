"""What goes into a transaction where brokers take little: less until it comes through, and all again afterwards."""

import pytest

from sidecar.dispatch.batch_limit import LEAST_BYTES, LONG_MS, QUICK_MS, BatchLimit

MOST = 16 * 2**20


def test_over_a_link_of_any_speed_it_comes_to_transactions_that_get_through_and_stays_with_them() -> None:
    for bytes_per_s in (20_000, 300_000, 3_000_000, 10**9):
        limit, failures = BatchLimit(MOST), 0
        for number in range(100):
            took_ms = 1_000 * limit.bytes / bytes_per_s
            if took_ms > 5_000:
                limit.failed()
                failures += 1
                assert number < 20
            else:
                limit.committed(took_ms)
        assert failures <= 11
        assert 1_000 * limit.bytes / bytes_per_s <= LONG_MS
        assert limit.bytes == MOST or 1_000 * limit.bytes / bytes_per_s > QUICK_MS / 2


def test_it_is_whole_again_soon_after_an_outage() -> None:
    limit = BatchLimit(MOST)
    for _ in range(1_000):
        limit.failed()
    assert limit.bytes == LEAST_BYTES
    for _ in range(10):
        limit.committed(5)
    assert limit.bytes == MOST


@pytest.mark.parametrize("most_bytes", [1_024, LEAST_BYTES, MOST])
def test_it_is_never_more_than_the_setting(most_bytes: int) -> None:
    limit = BatchLimit(most_bytes)
    limit.committed(1)
    assert limit.bytes == most_bytes
    limit.failed()
    assert limit.bytes <= most_bytes
