"""A timer store by itself, with records for one topic."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sidecar.records import Outgoing, encode_record, for_disk
from sidecar.store.files import RealFileSystem
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.opening import open_store
from sidecar.store.recovery import Owner
from sidecar.store.timer_store import Loaded, TimerStore

PRECISION_MS = 1_000


def a_store(directory: Path, slots_total: int) -> TimerStore:
    return open_store(
        directory,
        RealFileSystem(),
        Owner("cluster", "topic", "group", 0, "layout"),
        slots_total=slots_total,
        precision_ms=PRECISION_MS,
        committed_offset=2**40,
        lowest_needed_offset=0,
        live_from_ms=0,
        quota_bytes=None,
    ).store


def record(act_ms: int, offset: int) -> Outgoing:
    return for_disk(("orders", 0, None, b"v", [], act_ms, offset, []))


def put(store: TimerStore, records: Sequence[Outgoing]) -> Loaded:
    """Each has its offset for an id."""
    times_ms = np.array([record[5] for record in records], np.int64)
    return store.put(
        list(map(encode_record, records)),
        times_ms,
        times_ms - 500,
        hash_ids([b"%d" % record[6] for record in records]),
        np.full(len(records), hash_topic("orders"), np.int32),
        np.zeros(len(records), bool),
    )
