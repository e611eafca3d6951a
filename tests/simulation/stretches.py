"""Bounds that a simulation meets more often than a sidecar does."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from sidecar import leftovers, plan
from sidecar.dispatch import levels, send_back
from sidecar.dispatch.wheel import intake as wheel_intake
from sidecar.dispatch.wheel import partition as wheel
from sidecar.dispatch.wheel import start_gate
from sidecar.intake import columns, enqueue_get
from sidecar.store import opening, slot_walks, timer_log, timer_store, timer_wheel


def reads_first_ms(seed: int) -> int:
    """With half of the seeds, after a start what is due does not wait for what was written before.

    So it is where that is more than can be read in time.
    """
    return random.Random(f"{seed}-waits").choice([0, start_gate.BACKLOG_MS])


def piece_records(seed: int) -> int:
    """With half of the seeds, a batch is read in several pieces."""
    return random.Random(f"{seed}-pieces").choice([2, enqueue_get.PIECE_RECORDS])


def is_read_in_columns(seed: int) -> bool:
    """With half of the seeds, two or three neighbours are enough to be read column by column."""
    return random.Random(f"{seed}-columns").choice([True, False])


def looks_for_leftovers_ms(seed: int) -> int:
    """With half of the seeds, what another replica has by now is removed while the history lasts."""
    return random.Random(f"{seed}-leftovers").choice([10_000, leftovers.LOOK_EVERY_MS])


def is_walked(seed: int) -> bool:
    """With half of the seeds, every slot is followed from record to record."""
    return random.Random(f"{seed}-walks").choice([True, False])


def segment_bytes(seed: int) -> tuple[int, int]:
    """With a quarter of the seeds, a segment of the timer log holds a few records, and one of the payload log some.

    So logs are deleted from their beginning, cut back across segments, and searched by the index of full blocks.
    """
    chance = random.Random(f"{seed}-segments")
    if chance.random() < 0.75:
        return timer_store.TIMER_LOG_SEGMENT_BYTES, timer_store.PAYLOAD_LOG_SEGMENT_BYTES
    return chance.choice([120, 300, 1_000]), chance.choice([9, 600, 2_000])


def read_ahead(seed: int) -> dict[str, int]:
    """With a third of the seeds, memory for what is due is full with a few records; settings."""
    chance = random.Random(f"{seed}-ahead")
    if chance.random() < 2 / 3:
        return {}
    return {
        "read_ahead_records": chance.choice([1, 2, 4]),
        "read_ahead_bytes": chance.choice([1_024, 4_096, 8 * 2**20]),
    }


def disk_quota_bytes(seed: int) -> int:
    """With half of the seeds, the least that there is: where segments are small, what waits uses it up."""
    return random.Random(f"{seed}-quota").choice([0, 1])


def looks_every_ms(seed: int) -> int:
    """With a quarter of the seeds, the whole wheel is looked at twice a second: while slots are being sent, too."""
    return random.Random(f"{seed}-looks").choice([wheel.LOOK_EVERY_MS] * 3 + [500])


def roll_spread_ms(seed: int, roll_window_ms: int) -> int:
    """With half of the seeds, rolls are spread as widely as may be."""
    return random.Random(f"{seed}-spread").choice([0, roll_window_ms // 4])


@contextmanager
def small_stretches(seed: int) -> Iterator[None]:
    """For the wheels that are made meanwhile.

    A look at the whole wheel takes several turns here, too, as it does where a wheel has half a million slots: 64 slots
    are four steps.
    """
    with ExitStack() as patches:
        bounds = [
            (timer_wheel, "_FIRST_CHUNK_SLOTS", 4),
            (timer_wheel, "_LAST_CHUNK_SLOTS", 16),
            (start_gate, "BACKLOG_MS", reads_first_ms(seed)),
            (wheel, "LOOK_EVERY_MS", looks_every_ms(seed)),
            (enqueue_get, "PIECE_RECORDS", piece_records(seed)),
            (plan, "NEIGHBOURS", 1),
            (leftovers, "LOOK_EVERY_MS", looks_for_leftovers_ms(seed)),
        ]
        if is_read_in_columns(seed):
            bounds += [(columns, "MANY", 3), *((reader, "FEW", 1) for reader in (levels, send_back, wheel_intake))]
        if is_walked(seed):
            bounds += [(timer_log, "FILTER_RECORDS_PER_CHAIN_STEP", 0), (slot_walks, "STEPS_AT_A_TIME", 2)]
        timer_log_bytes, payload_log_bytes = segment_bytes(seed)
        for module in (opening, timer_store):
            bounds += [
                (module, "TIMER_LOG_SEGMENT_BYTES", timer_log_bytes),
                (module, "PAYLOAD_LOG_SEGMENT_BYTES", payload_log_bytes),
            ]
        for module, name, bound in bounds:
            patches.enter_context(patch.object(module, name, bound))
        yield
