"""What Kafka itself loses, through 100 random histories; and faults that these find."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor

import pytest
from confluent_kafka import TopicPartition

from sidecar.intake.reading import Reading
from tests.simulation.histories import look_for
from tests.simulation.losses import SEEDS, Went, go_through
from tests.simulation.mutations import Mutation, Patch

HAPPENINGS = {
    *("end lost", "end of a destination lost", "progress goes back", "retention", "deleted", "stopped"),
    *("settings changed", "clock set", "files are gone", "SIGKILL", "SIGTERM"),
    *("--to beginning", "--to end", "--to offset", "--to remaining", "--to due-after"),
}


def reading_begins_at_a_bare_offset(patch: Patch) -> None:
    """So that librdkafka does not ask whether the log still holds what was read."""

    def bare(self: Reading, offset: int) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition, offset)

    patch.setattr(Reading, "_with_epoch", bare)


def reading_begins_behind_the_markers(patch: Patch) -> None:
    patch.setattr(Reading, "first", property(lambda self: self._with_epoch(self.source.position)))


def what_is_read_again_is_not_compared(patch: Patch) -> None:
    patch.setattr(Reading, "other_from", lambda _self, _messages: None)


FAULTS: Mapping[Mutation, int] = {
    reading_begins_at_a_bare_offset: 80,
    reading_begins_behind_the_markers: 430,
    what_is_read_again_is_not_compared: 95,
}
"""With the seed from which to look for them."""
HISTORIES = 50


@pytest.fixture(scope="module")
def went(pool: ProcessPoolExecutor) -> list[Went]:
    """By seed, all that have been gone through."""
    return list(pool.map(go_through, range(SEEDS), chunksize=10))


@pytest.fixture(scope="module")
def found(pool: ProcessPoolExecutor) -> Mapping[Mutation, Future[int | None]]:
    return look_for(pool, FAULTS, HISTORIES, go_through)


def test_what_kafka_still_has_arrives_once_or_somebody_is_told(went: list[Went]) -> None:
    told = "\n".join(f"python -m tests.simulation.losses {seed}  # {found}" for seed, found, _ in went if found)
    assert not told, f"seeds that fail:\n{told}"


def test_all_that_may_happen_has_happened(went: list[Went]) -> None:
    met: Counter[str] = Counter()
    for _, _, one in went:
        met.update(one)
    assert {what for what in HAPPENINGS if met[what] < 5} == set()


@pytest.mark.parametrize("mutation", FAULTS, ids=[mutation.__name__ for mutation in FAULTS])
def test_the_fault_is_found(found: Mapping[Mutation, Future[int | None]], mutation: Mutation) -> None:
    assert found[mutation].result() is not None, f"not in {HISTORIES} histories"
