"""Every test of this room runs twice: on the in-memory Kafka and on a real broker."""

from collections.abc import Iterator

import pytest

from tests.contract.cluster import Bench, Cluster, FakeCluster, RealCluster


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    cluster: Cluster = (
        FakeCluster() if request.param == "fake" else RealCluster(request.getfixturevalue("kafka").bootstrap_servers)
    )
    bench = Bench(cluster)
    yield bench
    bench.close()


@pytest.fixture
def fake_bench() -> Iterator[Bench]:
    """For what a real client library does not survive in one process."""
    bench = Bench(FakeCluster())
    yield bench
    bench.close()
