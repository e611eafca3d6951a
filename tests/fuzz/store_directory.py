"""`open_store` and `check_store` on a directory that somebody has been at.

    byte 0   bit 0: the checkpoint's CRC is made right again; bit 1: the directory is of a life that was killed
    then     changes, each of: which file, what is done, where (2), how long, the bytes

Unless the CRC has been made right, the store either holds what was written or says that it does not, and in all cases
it is of use afterwards.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
from zlib_ng.zlib_ng import crc32

from sidecar.store.errors import StoreError
from sidecar.store.id_hash import hash_ids, hash_topic
from sidecar.store.opening import Opened, check_store, open_store
from sidecar.store.recovery import Case, Owner
from sidecar.store.timer_store import TimerStore
from tests.fuzz.memory_disk import memory_disk
from tests.simulation.disk import Mount
from tests.support.steps import result_of

DIRECTORY = Path("/data")
OWNER = Owner("cluster", "topic", "group", 3, "layout")
SLOTS, PRECISION_MS = 8, 1_000
CHANGES_MAX = 16
_SEGMENTS = {"TIMER_LOG_SEGMENT_BYTES": 400, "PAYLOAD_LOG_SEGMENT_BYTES": 150}
"""So that a few records fill several."""
_PAYLOADS = {number: b"payload %d" % number for number in range(12)}
DICTIONARY = ('"timer_log_end":', '"slots_total":', '"precision_ms":', "9223372036854775807", "null", '"extra":{')


def _open(fs: Mount, live_from_ms: int = 0) -> Opened:
    with patch.multiple("sidecar.store.opening", **_SEGMENTS):
        return open_store(
            DIRECTORY,
            fs,
            OWNER,
            slots_total=SLOTS,
            precision_ms=PRECISION_MS,
            committed_offset=100,
            lowest_needed_offset=0,
            live_from_ms=live_from_ms,
        )


def _put(store: TimerStore, numbers: list[int]) -> None:
    act_ms = np.array([1_000 + 700 * number for number in numbers], np.int64)
    store.put(
        [_PAYLOADS[number] for number in numbers],
        act_ms,
        act_ms - 500,
        hash_ids([b"id%d" % number for number in numbers]),
        np.full(len(numbers), hash_topic("orders"), np.int32),
        np.zeros(len(numbers), bool),
    )


def _pending(store: TimerStore) -> Iterator[bytes]:
    """All payloads in order of time. Raises StoreError."""
    slot_ms = store.first_slot_ms(0)
    for _ in range(4 * SLOTS):
        if slot_ms is None:
            return
        loaded = result_of(store.load(slot_ms))
        yield from store.read(loaded.payload_pos, loaded.payload_size)
        slot_ms = store.first_slot_ms(slot_ms + PRECISION_MS)
    raise AssertionError("slots without end")


def _written(*, is_killed: bool) -> dict[Path, bytes]:
    fs = memory_disk({})
    store = _open(fs).store
    _put(store, [0, 3, 1, 2, 7, 5, 4, 6])
    store.checkpoint(8, store.marks(), {})
    _put(store, [8, 9, 10, 11])
    store.delete(store.find(hash_ids([b"id2", b"id9"]), 0))
    if is_killed:
        store.checkpoint(14, store.marks(), {"tombstones": []})
    store.close(None if is_killed else 14, {"tombstones": []})
    return {path: bytes(inode.data) for path, inode in fs.disk.files.items()}


_FILES = {is_killed: _written(is_killed=is_killed) for is_killed in (False, True)}
_EXPECTED = [payload for number, payload in _PAYLOADS.items() if number not in (2, 9)]
_NAMES = sorted(_FILES[False])
SEEDS = (
    b"\0",
    b"\2",
    *(
        bytes([flags, file, how, 0, 40, 4]) + b"\xff\0\1\2"
        for flags in (0, 1)
        for file in range(len(_NAMES))
        for how in range(5)
    ),
    b"\1" + bytes([_NAMES.index(DIRECTORY / "checkpoint"), 0, 0, 60, 3]) + b"999",
)


def fuzz_one(data: bytes) -> None:
    flags = data[0] if data else 0
    is_made_right, is_killed = bool(flags & 1), bool(flags & 2)
    files = dict(_FILES[is_killed])
    _change(files, data[1:])
    checkpoint = DIRECTORY / "checkpoint"
    if is_made_right and checkpoint in files:
        files[checkpoint] = _made_right(files[checkpoint])
    fs = memory_disk(files)
    with patch.multiple("sidecar.store.opening", **_SEGMENTS):
        problems = check_store(DIRECTORY, fs)
    assert all(type(problem) is str and problem for problem in problems)
    assert {path: bytes(inode.data) for path, inode in fs.disk.files.items()} == files, "looking has changed it"
    found = _open(fs)
    with suppress(StoreError):
        held = list(_pending(found.store))
        if found.case.is_usable and not is_made_right:
            assert held == _EXPECTED
            assert found.complete_to_offset == 14
        elif not found.case.is_usable:
            assert not held
            assert found.complete_to_offset == 0
    found.store.close(None, {})
    _check_that_it_is_of_use(fs)


def _check_that_it_is_of_use(fs: Mount) -> None:
    """What could be read is taken over, or made anew; either way the next life begins with it."""
    fs.disk.files.pop(DIRECTORY / "checkpoint", None)
    store = _open(fs).store
    _put(store, [1, 0])
    store.close(2, {})
    again = _open(fs)
    assert again.case is Case.CLEAN
    assert list(_pending(again.store)) == [_PAYLOADS[0], _PAYLOADS[1]]
    again.store.close(None, {})


def _change(files: dict[Path, bytes], data: bytes) -> None:
    for _ in range(CHANGES_MAX):
        if len(data) < 5:
            return
        path = _NAMES[data[0] % len(_NAMES)]
        how, at, length = data[1] % 5, int.from_bytes(data[2:4], "big"), data[4]
        given, data = data[5 : 5 + length], data[5 + length :]
        held = files.get(path, b"")
        at = min(at, len(held))
        if how == 0:
            files[path] = held[:at] + given + held[at + len(given) :]
        elif how == 1:
            files[path] = held[:at]
        elif how == 2:
            files.pop(path, None)
        elif how == 3:
            files[path] = held[:at] + given + held[at:]
        elif given:
            name = given[:40].decode(errors="replace").replace("/", "-").replace("\0", "-")
            files[path.parent / name] = held


def _made_right(data: bytes) -> bytes:
    head, body = data[:26], data[35:]
    return b"%b%08x\n%b" % (head, crc32(body, crc32(head)), body)
