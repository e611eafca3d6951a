"""Copies: what the sidecar itself writes to the wheel topic, and how it tells them from imitations.

    rolled        due beyond the window: written anew to the end of its partition, so that no retention takes it
    replaced      the message that a replacement brings
    postponed     due, but its destination takes nothing just now: tried again later

Each carries what its message has to keep, and a proof that only sidecars of one group can make, of one topic.

Copies of another topic, or of another group, come where a mirror has copied a wheel topic to another cluster, or where
two groups read one. Each is a message of its own. But one that a mirror has copied tells that a replacement has been
carried out, and it waits as it did where it was made: else a replaced message would come once for the replacement and
once for its copy, and one that was postponed would count as delivered with the time at which it was due.
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


ELSEWHERE = -1
"""The `Copied.origin_offset` of another topic's copies: theirs is an offset of a log that is not this one."""

STRANGER_POSTPONED_AT_MOST_MS = 120_000
"""Nobody else can postpone a message for longer after it was written: twice as long as a sidecar does at once."""


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
        copied = _claimed(control)
        if copied is None or (copied.origin_offset is not None and copied.origin_offset >= offset):
            return None
        return copied if control.get(TIMER_ROLL_PROOF) == self._proof(uniq_key, copied) else None

    @staticmethod
    def read_another(control: Mapping[str, bytes | None], timestamp_ms: int) -> Copied | None:
        """What a record says that is a copy, and none of ours; None where it says nothing of the kind."""
        copied = _claimed(control)
        if copied is None:
            return None
        not_before_ms = min(copied.not_before_ms, timestamp_ms + STRANGER_POSTPONED_AT_MOST_MS)
        return Copied(None if copied.origin_offset is None else ELSEWHERE, 0, not_before_ms)

    def _proof(self, uniq_key: bytes, copied: Copied) -> bytes:
        keyed = self._keyed.copy()
        origin = -1 if copied.origin_offset is None else copied.origin_offset
        if copied.not_before_ms:
            keyed.update(b"not before %d " % copied.not_before_ms)
        if copied.roll_after_ms:
            keyed.update(b"roll after %d " % copied.roll_after_ms)
        keyed.update(b"%d %d " % (origin, copied.roll_times) + uniq_key)
        return keyed.hexdigest().encode()


def _claimed(control: Mapping[str, bytes | None]) -> Copied | None:
    """What a record says of itself; None where that is nothing that a copy says."""
    origin, times = whole_number(control.get(TIMER_ORIGIN_OFFSET)), whole_number(control.get(TIMER_ROLL_TIMES))
    not_before = whole_number(control.get(TIMER_NOT_BEFORE_MS))
    if origin is None and times is None and not_before:
        return Copied(None, 0, not_before)
    if origin is None or times is None or origin < 0 or times < 0:
        return None
    return Copied(origin, times, not_before or 0, whole_number(control.get(TIMER_ROLL_AFTER_MS)) or 0)
