"""The bytes of RIP-43's record and slot."""

import numpy as np

from sidecar.store import layout


def test_constants_are_rocketmqs() -> None:
    assert (layout.RECORD_BYTES, layout.SLOT_BYTES, layout.MIN_BLANK_BYTES) == (52, 32, 16)
    assert (layout.BLANK, layout.MAGIC_BLANK) == (-1, -1)
    assert (layout.MAGIC_DEFAULT, layout.MAGIC_ROLL, layout.MAGIC_DELETE) == (1, 2, 4)


def test_record_fields_follow_one_another_without_padding() -> None:
    fields = layout.TIMER_LOG_RECORD.fields
    assert fields is not None
    assert {name: (field[1], field[0].str) for name, field in fields.items()} == {
        "size": (0, "<i4"),
        "prev_pos": (4, "<i8"),
        "magic": (12, "<i4"),
        "curr_write_time": (16, "<i8"),
        "delayed_time": (24, "<i4"),
        "offset_py": (28, "<i8"),
        "size_py": (36, "<i4"),
        "topic_hash": (40, "<i4"),
        "reserved": (44, "<i8"),
    }


def test_slot_fields_follow_one_another_without_padding() -> None:
    fields = layout.TIMER_WHEEL_SLOT.fields
    assert fields is not None
    assert {name: (field[1], field[0].str) for name, field in fields.items()} == {
        "time_ms": (0, "<i8"),
        "first_pos": (8, "<i8"),
        "last_pos": (16, "<i8"),
        "num": (24, "<i4"),
        "magic": (28, "<i4"),
    }


def test_blank_record_is_the_head_of_a_record() -> None:
    record, blank = layout.TIMER_LOG_RECORD.fields, layout.TIMER_LOG_BLANK.fields
    assert record is not None
    assert blank is not None
    assert {name: record[name] for name in blank} == dict(blank)


def test_a_record_is_due_at_write_time_plus_delay() -> None:
    records = np.zeros(2, layout.TIMER_LOG_RECORD)
    records["curr_write_time"] = [10_000, 1_700_000_000_000]
    records["delayed_time"] = [2_500, 2**31 - 1]
    due = layout.due_ms(records)
    assert due.dtype == np.int64
    assert due.tolist() == [12_500, 1_700_000_000_000 + 2**31 - 1]
