"""The payload log: an append-only log of opaque payloads, where RocketMQ's timer points into its CommitLog.

A payload, little-endian:

    Offset  Size  Field    Meaning
    0       4     size     bytes of the payload, at least 1
    4       4     crc32    zlib.crc32 of the payload alone: size is confirmed by whoever asks for it (size_py in the
                           timer log), and a stretch of zeros fails since no payload is empty
    8       size  payload

Positions are global and without gaps; a segment begins where the one before ends. A payload never spans segments: one
that does not fit begins a new segment, and one larger than a segment has a segment of its own.

Worked example, segments of 40 bytes: payloads of 10, 10 and 40 bytes take 18, 18 and 48 bytes and land at positions 0,
18 and 36: two in segment 0, one in segment 36, which is full; the next lands at 84, in segment 84.

The log does not know its own end: that comes from the checkpoint, and whatever lies behind it is cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from sidecar.store.errors import CorruptRecord, EndPositionRequired, IncompleteLog, PositionOutOfRange, StoreError
from sidecar.store.files import FileSystem
from sidecar.store.layout import Int32Array, Int64Array
from sidecar.store.segments import Segments

PAYLOAD_HEADER = np.dtype([("size", "<u4"), ("crc32", "<u4")])
HEADER_BYTES = PAYLOAD_HEADER.itemsize
if HEADER_BYTES != 8:
    raise ImportError(f"the payload header has {HEADER_BYTES} bytes")

PAYLOAD_BYTES_MAX = 2**31 - 1 - HEADER_BYTES
"""size_py in the timer log has 31 bits."""
READ_GAP_BYTES = 4_096
"""Two payloads nearer than this are read together: a page is read anyway."""
READ_BYTES_MAX = 4 << 20
"""Bytes read at a time where payloads lie together."""
CHECK_PROBLEMS_MAX = 100

_HEADER = struct.Struct("<II")
_HEADER_AT = np.arange(HEADER_BYTES)


class PayloadLog:
    """The payload log in `directory`, made where it is absent.

    `end_position` and `start_position` come from the checkpoint; an empty directory needs none. What lies at or above
    `end_position` is removed, and whole segments below `start_position`; with `only_look` nothing is.

    Raises EndPositionRequired for a directory that holds a log when no end is given, IncompleteLog when the files hold
    less than that (nothing is touched then), OSError.
    """

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        fs: FileSystem,
        *,
        end_position: int | None = None,
        start_position: int = 0,
        only_look: bool = False,
    ) -> None:
        if segment_bytes <= HEADER_BYTES:
            raise ValueError(f"a segment of {segment_bytes} bytes takes no payload")
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._segments = Segments(directory, fs)
        self._torn = False
        if end_position is None:
            if self._segments.bases:
                raise EndPositionRequired(f"{directory} holds a log, and only its checkpoint knows where that ends")
            end_position = start_position
        if not 0 <= start_position <= end_position:
            raise PositionOutOfRange(f"{directory}: start {start_position}, end {end_position}")
        self._start = start_position
        self._end = end_position
        try:
            self._adopt(only_look=only_look)
        except (StoreError, OSError):
            self.close()
            raise

    @property
    def start_position(self) -> int:
        """No payload lies below; `end_position` where there is none at all."""
        return self._start

    @property
    def end_position(self) -> int:
        """Where the next payload lands."""
        return self._end

    @property
    def disk_bytes(self) -> int:
        """What the segments take."""
        return self._segments.disk_bytes(self._end)

    def append_batch(self, payloads: Sequence[bytes]) -> tuple[Int64Array, Int32Array]:
        """Append payloads; returns (positions, sizes), both of shape (n,).

        One write per touched segment. Raises ValueError for an empty or too large payload; OSError: the end has then
        not moved, and the next append writes over what may be there.
        """
        self._repair()
        count = len(payloads)
        sizes = np.fromiter(map(len, payloads), np.int64, count)
        if count and not (sizes.min() > 0 and sizes.max() <= PAYLOAD_BYTES_MAX):
            raise ValueError(f"a payload has 1 to {PAYLOAD_BYTES_MAX} bytes, not {sizes.min()} or {sizes.max()}")
        headers = np.empty(count, PAYLOAD_HEADER)
        headers["size"] = sizes
        headers["crc32"] = np.fromiter(map(crc32, payloads), np.uint32, count)
        pieces: list[bytes] = [b""] * (2 * count)
        pieces[::2] = headers.view(f"V{HEADER_BYTES}").tolist()
        pieces[1::2] = payloads
        ends = self._end + np.cumsum(sizes + HEADER_BYTES)

        self._torn = True
        position, begin = self._end, 0
        while begin < count:
            base, stop = self._place(position, ends, begin)
            self._segments.write(base, b"".join(pieces[2 * begin : 2 * stop]), position)
            position, begin = int(ends[stop - 1]), stop
        self._torn = False
        self._end = position
        return ends - sizes - HEADER_BYTES, sizes.astype(np.int32)

    def read(self, position: int, size: int) -> bytes:
        """The payload of `size` bytes at `position`. Raises PositionOutOfRange, CorruptRecord, OSError."""
        self._kept(position, position + HEADER_BYTES + size)
        base = self._segments.base_of(position)
        data = self._segments.read(base, HEADER_BYTES + size, position)
        return self._payload(position, data, 0, size)

    def read_many(self, positions: Int64Array, sizes: Int32Array) -> list[bytes]:
        """The payloads at `positions` (any order), in that order; neighbours are read together.

        Raises PositionOutOfRange, CorruptRecord, OSError.
        """
        count = len(positions)
        if count == 0:
            return []
        order = np.argsort(positions, kind="stable")
        begins = positions[order]
        wanted = sizes[order].astype(np.int64)
        ends = begins + wanted + HEADER_BYTES
        self._kept(int(begins[0]), int(ends.max()))
        bases = np.array(self._segments.bases, np.int64)
        segment = np.searchsorted(bases, begins, side="right") - 1
        apart = (begins[1:] - ends[:-1] > READ_GAP_BYTES) | (np.diff(segment) != 0)
        apart |= np.diff((begins - begins[0]) // READ_BYTES_MAX) != 0
        starts = np.append(0, np.flatnonzero(apart) + 1)
        stops = np.append(starts[1:], count)
        columns = starts, stops, bases[segment[starts]], begins[starts], np.maximum.reduceat(ends, starts)
        stretches = list(zip(*(column.tolist() for column in columns), strict=True))
        self._segments.will_need([(base, behind - first, first) for _, _, base, first, behind in stretches])
        headers: list[bytes] = []
        bodies: list[bytes] = []
        for begin, stop, base, first, behind in stretches:
            data = self._segments.read(base, behind - first, first)
            if len(data) < behind - first:
                raise self._corrupt(first, "the file ends inside it or soon after")
            if stop == begin + 1:  # far from all others, as most are where little is due at a time
                headers.append(data[:HEADER_BYTES])
                bodies.append(data[HEADER_BYTES:])
                continue
            at = begins[begin:stop] - first
            headers.append(np.frombuffer(data, np.uint8)[at[:, None] + _HEADER_AT].tobytes())
            cuts = zip((at + HEADER_BYTES).tolist(), (ends[begin:stop] - first).tolist(), strict=True)
            bodies += [data[body:end] for body, end in cuts]
        self._verify(begins, wanted, np.frombuffer(b"".join(headers), PAYLOAD_HEADER), bodies)
        if (order[1:] > order[:-1]).all():
            return bodies
        payloads = [b""] * count
        for place, payload in zip(order.tolist(), bodies, strict=True):
            payloads[place] = payload
        return payloads

    def truncate(self, end_position: int) -> None:
        """Cut the log back to `end_position`, where a payload began. Raises PositionOutOfRange, OSError.

        After an OSError the end is there all the same, and the next append cuts off what is left behind it.
        """
        self._kept(end_position, end_position)
        self._end = end_position
        self._torn = True
        self._repair()

    def is_any_before(self, position: int) -> bool:
        """Whether there is a segment for `delete_before` to delete."""
        self._kept(position, position)
        return bool(self._segments.bases) and self._segments.bases[0] < self._segments.base_of(position)

    def delete_before(self, position: int) -> int:
        """Delete the segments that lie wholly below `position`, but for the last one; returns how many.

        The caller first writes a checkpoint whose payload_log_start is `position`, as for `TimerLog.delete_before`.
        Raises PositionOutOfRange, OSError.
        """
        self._kept(position, position)
        if not self._segments.bases:
            return 0
        base = self._segments.base_of(position)
        self._start = max(self._start, base)
        return self._segments.forget_before(base)

    def flush(self) -> None:
        """Make what was appended durable; for the caller's checkpoint. Raises OSError."""
        self._segments.flush()

    def check(self) -> list[str]:
        """What is wrong with the log, one sentence each, at most CHECK_PROBLEMS_MAX; reads all of it.

        Where the log was opened with a start inside a segment, that segment is read from there.
        """
        problems: list[str] = []
        for base, stop in self._bounds():
            position = max(base, self._start)
            while position < stop and len(problems) < CHECK_PROBLEMS_MAX:
                try:
                    position = self._check_stretch(base, position, stop)
                except (CorruptRecord, OSError) as error:
                    # Where the next payload begins only this one's size tells: on with the next segment.
                    problems.append(str(error))
                    break
        return problems

    def close(self) -> None:
        """Close the files, without a flush."""
        self._segments.close()

    def _adopt(self, *, only_look: bool) -> None:
        """Check that the files hold start to end, then remove the rest."""
        first = self._start
        if self._start < self._end:
            bases = self._segments.bases
            if not bases or bases[0] > self._start:
                raise IncompleteLog(self.directory, f"no segment holds position {self._start}, its checkpoint needs it")
            first = self._segments.base_of(self._start)
            for base, stop in self._bounds():
                size = self._segments.size(base)
                if size < stop - base:
                    raise IncompleteLog(self._segments.path(base), f"{size} bytes, its checkpoint needs {stop - base}")
        if not only_look:
            self._segments.cut(self._end)
            self._segments.forget_before(first)

    def _bounds(self) -> list[tuple[int, int]]:
        """(base, position behind the last byte that counts) of each segment from the start to the end."""
        bases = [base for base in self._segments.bases if base < self._end]
        bounds = pairwise([*bases, self._end])
        return [(base, stop) for base, stop in bounds if stop > self._start]

    def _place(self, position: int, ends: Int64Array, begin: int) -> tuple[int, int]:
        """(base of the segment that takes payload number `begin` at `position`, number of the first it leaves)."""
        bases = self._segments.bases
        if bases:
            stop = int(np.searchsorted(ends, bases[-1] + self.segment_bytes, side="right"))
            if stop > begin:
                return bases[-1], stop
        stop = int(np.searchsorted(ends, position + self.segment_bytes, side="right"))
        return position, max(stop, begin + 1)

    def _verify(
        self, positions: Int64Array, sizes: Int64Array, headers: npt.NDArray[np.void], payloads: list[bytes]
    ) -> None:
        """Confirm payloads by what stands in their headers. Raises CorruptRecord for the first that differs."""
        crcs = np.fromiter(map(crc32, payloads), np.uint32, len(payloads))
        wrong = (headers["size"] != sizes) | (headers["crc32"] != crcs)
        if not wrong.any():
            return
        at = int(np.flatnonzero(wrong)[0])
        detail = "its CRC does not match"
        if headers["size"][at] != sizes[at]:
            detail = f"it has {headers['size'][at]} bytes, the timer log says {sizes[at]}"
        raise self._corrupt(int(positions[at]), detail)

    def _payload(self, position: int, data: bytes, at: int, size: int) -> bytes:
        payload = data[at + HEADER_BYTES : at + HEADER_BYTES + size]
        if len(payload) < size or len(data) < at + HEADER_BYTES:
            raise self._corrupt(position, "the file ends inside it")
        stored_size, stored_crc = _HEADER.unpack_from(data, at)
        if stored_size != size:
            raise self._corrupt(position, f"it has {stored_size} bytes, the timer log says {size}")
        if crc32(payload) != stored_crc:
            raise self._corrupt(position, "its CRC does not match")
        return payload

    def _check_stretch(self, base: int, position: int, stop: int) -> int:
        """Check the payloads from `position` that one read holds, at least one; returns where the next one begins."""
        data = self._segments.read(base, min(READ_BYTES_MAX, stop - position), position)
        at = 0
        while at + HEADER_BYTES <= len(data):
            size = _HEADER.unpack_from(data, at)[0]
            behind = at + HEADER_BYTES + size
            if size == 0 or position + behind > stop:
                raise self._corrupt(position + at, f"a size of {size} bytes cannot be")
            if behind > len(data):
                break
            self._payload(position + at, data, at, size)
            at = behind
        if at:
            return position + at
        if len(data) < HEADER_BYTES:
            raise self._corrupt(position, f"{len(data)} bytes are left, no payload is so short")
        # Larger than a read, or cut short.
        size = _HEADER.unpack_from(data)[0]
        self.read(position, size)
        return position + HEADER_BYTES + int(size)

    def _repair(self) -> None:
        """Cut off what an append that failed has left behind the end."""
        if self._torn:
            self._segments.cut(self._end)
            self._torn = False

    def _kept(self, begin: int, end: int) -> None:
        if not self._start <= begin <= end <= self._end:
            raise PositionOutOfRange(
                f"{self.directory}: positions {begin} to {end} are not in {self._start} to {self._end}"
            )

    def _corrupt(self, position: int, detail: str) -> CorruptRecord:
        return CorruptRecord(self._segments.path(self._segments.base_of(position)), position, detail)
