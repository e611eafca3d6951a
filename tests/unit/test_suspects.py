"""How a batch that Kafka refuses is parted, and how it grows again."""

from typing import Any

import pytest

from sidecar.dispatch.suspects import Suspects
from sidecar.source import Draft

BATCH = 1_024


class ASource:
    """Any."""


class Bench:
    """One source with a backlog, some of whose transactions Kafka refuses."""

    def __init__(self, records: int) -> None:
        self.suspects = Suspects(BATCH)
        self.source: Any = ASource()
        self.left = list(range(records))
        self.refused = 0
        self.taken = 0

    def turn(self, is_refused: Any) -> None:
        assert self.suspects.chosen([self.source]) == [self.source]
        batch = self.left[: self.suspects.limit(self.source)]
        draft: Any = [Draft(self.source, batch)]  # type: ignore[arg-type]
        if is_refused(batch):
            self.refused += 1
            is_news = self.suspects.refused(draft)
            assert is_news == (self.refused == 1)
            if len(batch) == 1:
                self.left = self.left[1:]  # a dead letter
        else:
            self.taken += 1
            self.left = self.left[len(batch) :]
            self.suspects.committed(draft)

    def run(self, is_refused: Any) -> None:
        while self.left:
            self.turn(is_refused)


def test_where_a_topic_has_no_room_for_a_batch_few_transactions_are_refused() -> None:
    bench = Bench(20_000)
    bench.run(lambda batch: len(batch) > 500)
    assert bench.taken < 2 * 20_000 / 256
    assert bench.refused <= 8


@pytest.mark.parametrize("at", [0, 1, 511, 512, 700, 1_023])
def test_a_single_record_is_found_in_as_many_steps_as_halves(at: int) -> None:
    bench = Bench(100_000)
    bench.run(lambda batch: at in batch)
    assert bench.refused <= 20
    assert bench.suspects.limit(bench.source) == BATCH
    assert bench.taken < 100_000 / BATCH + 200


def test_a_batch_of_several_is_asked_one_by_one_first() -> None:
    suspects = Suspects(BATCH)
    one, other = ASource(), ASource()
    both: Any = [Draft(one, [1] * 10), Draft(other, [1] * 10)]  # type: ignore[arg-type, list-item]
    sources: Any = [one, other]
    assert suspects.chosen(sources) == sources
    assert suspects.refused(both)
    assert suspects.chosen(sources) == [one]
    assert suspects.limit(sources[0]) == BATCH
    assert suspects.committed(both[:1]) == [one]
    assert suspects.chosen(sources) in ([one], [other])
