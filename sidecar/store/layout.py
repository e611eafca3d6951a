"""Bytes of the TimerLog record and the TimerWheel slot (RIP-43), little-endian, without padding or file header.

Their format version stands in the checkpoint.

TimerLog record, 52 bytes (`TimerLog.UNIT_SIZE`):

    Offset  Size  Field            Meaning
    0       4     size             52; in a blank record the bytes left in its segment
    4       8     prev_pos         position of the slot's record before this one, -1 for the first
    12      4     magic            MAGIC_DEFAULT, with MAGIC_ROLL or MAGIC_DELETE; MAGIC_BLANK closes a segment
    16      8     curr_write_time  epoch ms from which delayed_time counts
    24      4     delayed_time     ms
    28      8     offset_py        position in the payload log (RocketMQ: in the CommitLog)
    36      4     size_py          bytes of the payload there
    40      4     topic_hash       32-bit hash of the real topic
    44      8     reserved         64-bit hash of UNIQ_KEY

The blank record is the first 16 bytes of that (size, prev_pos 0, magic), padded with zeros to the segment's end.

TimerWheel slot, 32 bytes (`Slot.SIZE`):

    Offset  Size  Field      Meaning
    0       8     time_ms    epoch ms at which the slot begins, -1 for none
    8       8     first_pos  TimerLog position of the slot's oldest record
    16      8     last_pos   TimerLog position of the slot's newest record
    24      4     num        messages in the slot, cancelled ones not counted; 0 or less: the slot is empty
    28      4     magic      0, or what was there; it has no use in RocketMQ either

Worked example: with slots of 1,000 ms a record written at 10,000 with delayed_time 2,500 is due at 12,500 and belongs
to the slot with time_ms 12,000. RocketMQ keeps `time_ms / precision` in the slot; here the field is what its name says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
RecordArray = npt.NDArray[np.void]
"""A structured array: of TIMER_LOG_RECORD or of TIMER_WHEEL_SLOT."""

FORMAT_VERSION = 4
"""Of all files of the store; a change of any layout, or hash, is a new version and a new golden file."""

BLANK = -1
"""A position or time that is none (`TimerWheel.BLANK`)."""
MAGIC_BLANK = -1
"""The magic of the record that closes a segment (`TimerLog.BLANK_MAGIC_CODE`)."""
MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
MAGIC_ALL = MAGIC_DEFAULT | MAGIC_ROLL | MAGIC_DELETE

TIMER_LOG_RECORD = np.dtype(
    [
        ("size", "<i4"),
        ("prev_pos", "<i8"),
        ("magic", "<i4"),
        ("curr_write_time", "<i8"),
        ("delayed_time", "<i4"),
        ("offset_py", "<i8"),
        ("size_py", "<i4"),
        ("topic_hash", "<i4"),
        ("reserved", "<i8"),
    ]
)
TIMER_LOG_BLANK = np.dtype([("size", "<i4"), ("prev_pos", "<i8"), ("magic", "<i4")])
TIMER_WHEEL_SLOT = np.dtype(
    [("time_ms", "<i8"), ("first_pos", "<i8"), ("last_pos", "<i8"), ("num", "<i4"), ("magic", "<i4")]
)

RECORD_BYTES = TIMER_LOG_RECORD.itemsize
MIN_BLANK_BYTES = TIMER_LOG_BLANK.itemsize
SLOT_BYTES = TIMER_WHEEL_SLOT.itemsize

if (RECORD_BYTES, MIN_BLANK_BYTES, SLOT_BYTES) != (52, 16, 32):
    raise ImportError(f"TimerLog and TimerWheel layouts have sizes {RECORD_BYTES}, {MIN_BLANK_BYTES}, {SLOT_BYTES}")


class Slot(NamedTuple):
    """One slot of the wheel, copied out of it."""

    time_ms: int
    first_pos: int
    last_pos: int
    num: int
    magic: int


EMPTY_SLOT = Slot(time_ms=BLANK, first_pos=BLANK, last_pos=BLANK, num=0, magic=0)


def due_ms(records: RecordArray) -> Int64Array:
    """When each record leaves the wheel, epoch ms: to its destination, or to roll."""
    due: Int64Array = records["curr_write_time"] + records["delayed_time"]
    return due
