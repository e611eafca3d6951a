"""Records of the timer log, and slots of the wheel, by themselves."""

import numpy as np
import numpy.typing as npt

from sidecar.store.layout import (
    BLANK,
    MAGIC_DEFAULT,
    RECORD_BYTES,
    TIMER_LOG_RECORD,
    Int64Array,
    RecordArray,
)
from sidecar.store.timer_wheel import TimerWheel


def new_records(count: int) -> RecordArray:
    """Zeros, but for what makes them valid."""
    records = np.zeros(count, TIMER_LOG_RECORD)
    records["size"] = RECORD_BYTES
    records["prev_pos"] = BLANK
    records["magic"] = MAGIC_DEFAULT
    return records


def put(
    wheel: TimerWheel, times_ms: npt.ArrayLike, positions: npt.ArrayLike, num_deltas: npt.ArrayLike = 1
) -> Int64Array:
    """Put a batch on the wheel as the store does, once its log has taken it; returns each record's prev_pos.

    `num_deltas` may be one for all.
    """
    times_ms = np.asarray(times_ms, np.int64)
    deltas = np.broadcast_to(np.asarray(num_deltas, np.int32), times_ms.shape)
    batch = wheel.prepare_batch(times_ms, np.asarray(positions, np.int64), deltas)
    wheel.apply(batch)
    return batch.prev_positions
