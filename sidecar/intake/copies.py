"""Copies: what the sidecar itself writes to the wheel topic, and how it tells them from imitations.

    rolled        due beyond the window: written anew to the end of its partition, so that no retention takes it
    replaced      the message that a replacement brings
    postponed     due, but its destination takes nothing just now: tried again later

Each carries what its message has to keep, and a proof that only sidecars of one group can make.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from connectors.contract import Headers
from connectors.header_names import (
    TIMER_DELIVER_MS,
    TIMER_NOT_BEFORE_MS,
    TIMER_ORIGIN_OFFSET,
    TIMER_ROLL_AFTER_MS,
    TIMER_ROLL_PROOF,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from sidecar.intake.parse import whole_number


class Copied(NamedTuple):
    """What a copy says of itself."""

    origin_offset: int | None
    """The offset of what it is a copy of, on its own partition; None: that stands elsewhere, on a level topic."""
    roll_times: int = 0
    """How often it has been rolled."""
    not_before_ms: int = 0
    """Until when it is postponed, beyond its due time; 0: it is not."""
    roll_after_ms: int = 0
    """Until when it is not rolled again; 0: its timestamp alone decides."""


class Copies:
    """Writes and reads what copies carry.

    Args:
        proof_key: what tells this group's own copies from records of others that carry their headers.
    """

    def __init__(self, proof_key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=hashlib.blake2b(proof_key).digest(), digest_size=8)

    @classmethod
    def of(cls, wheel_id: str, group_id: str) -> "Copies":
        """A group's on a wheel topic, which is known by its id: made anew, it takes none of those before."""
        return cls(f"{wheel_id} {group_id}".encode())

    def headers(self, uniq_key: bytes, due_ms: int, copied: Copied) -> Headers:
        """What a copy carries besides its message's own headers and its destination."""
        headers: Headers = [(UNIQ_KEY, uniq_key), (TIMER_DELIVER_MS, b"%d" % due_ms)]
        if copied.origin_offset is not None:
            headers.append((TIMER_ROLL_TIMES, b"%d" % copied.roll_times))
            headers.append((TIMER_ORIGIN_OFFSET, b"%d" % copied.origin_offset))
        headers.append((TIMER_ROLL_PROOF, self._proof(uniq_key, copied)))
        if copied.not_before_ms:
            headers.append((TIMER_NOT_BEFORE_MS, b"%d" % copied.not_before_ms))
        if copied.roll_after_ms:
            headers.append((TIMER_ROLL_AFTER_MS, b"%d" % copied.roll_after_ms))
        return headers

    def read(self, control: Mapping[str, bytes | None], offset: int, uniq_key: bytes) -> Copied | None:
        """What the record at this offset is a copy of; None where it is none of ours."""
        origin, times = whole_number(control.get(TIMER_ORIGIN_OFFSET)), whole_number(control.get(TIMER_ROLL_TIMES))
        not_before = whole_number(control.get(TIMER_NOT_BEFORE_MS))
        if origin is None and times is None and not_before:
            copied = Copied(None, 0, not_before)
        elif origin is None or times is None or not 0 <= origin < offset or times < 0:
            return None
        else:
            copied = Copied(origin, times, not_before or 0, whole_number(control.get(TIMER_ROLL_AFTER_MS)) or 0)
        return copied if control.get(TIMER_ROLL_PROOF) == self._proof(uniq_key, copied) else None

    def _proof(self, uniq_key: bytes, copied: Copied) -> bytes:
        keyed = self._keyed.copy()
        origin = -1 if copied.origin_offset is None else copied.origin_offset
        if copied.not_before_ms:
            keyed.update(b"not before %d " % copied.not_before_ms)
        if copied.roll_after_ms:
            keyed.update(b"roll after %d " % copied.roll_after_ms)
        keyed.update(b"%d %d " % (origin, copied.roll_times) + uniq_key)
        return keyed.hexdigest().encode()
