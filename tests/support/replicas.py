"""Two sidecars of one group, each with a directory of its own, that share the partitions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

PARTITIONS = 6
ASSIGNED = 3 * PARTITIONS
"""Those of the wheel, of the one level, and of the send-back topic."""


@contextmanager
def two_replicas(
    bootstrap_servers: tuple[str, str], prefix: str, directory: Path, **settings: Any
) -> Iterator[list[SidecarProcess]]:
    """Running ones, each with its way to Kafka, small transactions and a short session."""
    processes = []
    for name, servers in zip(("one", "other"), bootstrap_servers, strict=True):
        (directory / name).mkdir()
        common = {
            "topic_prefix": prefix,
            "group_id": f"{prefix}timewheel",
            "levels": "1s",
            "partitions": PARTITIONS,
            "slots_total": 3_600,
            "roll_window": "6s",
            "batch_records": 500,
            "session_timeout": "6s",  # the least that a broker accepts unless told otherwise
        }
        processes.append(SidecarProcess(servers, directory / name, **{**common, **settings}))
    with processes[0], processes[1]:
        yield processes


def assigned(replica: SidecarProcess) -> float:
    return replica.metric("timewheel_assigned_partitions")


def has_noticed(replica: SidecarProcess) -> bool:
    """Whether Kafka has refused a replica what it went on with: it has made new clients, and asks for the progress."""
    return replica.metric("timewheel_client_restarts_total") > 0


def wait_shared(replicas: list[SidecarProcess], timeout_s: float = 30.0) -> None:
    def shared() -> bool:
        counts = [assigned(replica) for replica in replicas]
        return min(counts) > 0 and sum(counts) == ASSIGNED

    wait_until(shared, "both have their partitions", timeout_s)
