"""A checkpoint of a wheel partition whose logs are empty."""

from sidecar.store.checkpoint import Checkpoint
from sidecar.store.recovery import Owner

OWNER = Owner("cluster", "topic", "group", 3, "64x1000ms,parser1")


def a_checkpoint(complete_to_offset: int) -> Checkpoint:
    """Of `OWNER`, in use, and complete up to an offset."""
    return Checkpoint(
        complete_to_offset=complete_to_offset,
        timer_log_end=0,
        timer_log_start=0,
        timer_log_crcs=[],
        payload_log_end=0,
        payload_log_start=0,
        cluster_id=OWNER.cluster_id,
        topic_id=OWNER.topic_id,
        group_id=OWNER.group_id,
        partition=OWNER.partition,
        plan=OWNER.layout,
        slots_total=64,
        precision_ms=1_000,
        wheel_crc=None,
    )
