"""A dead letter: what it says of itself, and which ones a question is about.

There are two kinds. A consumer's has failed too often, or its consumer has given it up: it came through the send-back
topic and says where it is from (``RETRY_TOPIC``). A rejected one never got as far as its destination: the sidecar wrote
it, with the reason (``ERROR_CODE``) and the coordinates of the record (``ERROR_TOPIC``, …).
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from connectors.arguments import argument_bytes
from connectors.contract import DEFAULT_MAX_RECONSUME_TIMES, Headers
from connectors.header_names import (
    ERROR_CODE,
    ERROR_OFFSET,
    ERROR_PARTITION,
    ERROR_TOPIC,
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    UNIQ_KEY,
)
from connectors.times import TimeError, epoch_ms, parse_time

Told = Mapping[str, bytes | None]
"""Headers by name; of one that comes twice the last."""

_DIGITS_MAX = 18


class LetterCursor(NamedTuple):
    """A dead letter's place in its topic, where a page begins; as text ``PARTITION-OFFSET``."""

    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> "LetterCursor":
        """What `str` writes. Raises ValueError, which says how it looks."""
        if re.fullmatch(LETTER_CURSOR_PATTERN, text) is None:
            raise ValueError(f"'{text}' is not PARTITION-OFFSET, such as 0-42")
        return cls(*map(int, text.split("-")))

    def __str__(self) -> str:
        return "-".join(map(str, self))


LETTER_CURSOR_PATTERN = r"^[0-9]{1,10}-[0-9]{1,18}$"


class Reason(StrEnum):
    """Why a message is dead; for a rejected one, in place of these, its ``ERROR_CODE``."""

    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    """It has failed once more than it may be retried."""
    GIVEN_UP = "GIVEN_UP"
    """Its consumer wanted no further attempt."""
    UNKNOWN = "UNKNOWN"
    """It was not the sidecar that wrote it."""


class DeadLetter(NamedTuple):
    """A record of a dead-letter topic."""

    partition: int
    offset: int
    timestamp_ms: int
    """When it was buried."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_redriven: bool
    """Whether it has been sent to a destination again, or parked."""

    @property
    def id(self) -> str:
        """``UNIQ_KEY``, or what would have become of it; empty where there is none."""
        return (id_of(dict(self.headers)) or b"").decode(errors="backslashreplace")

    @property
    def reason(self) -> str:
        return reason_of(dict(self.headers))

    @property
    def size_bytes(self) -> int:
        """The size of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def is_rejected(told: Told) -> bool:
    """Whether the sidecar rejected it; headers with such names may also be an application's own.

    What the sidecar adds stands behind what came: a rejected retry has ``ERROR_OFFSET`` behind its ``RECONSUME_TIME``.
    A consumer that reads dead letters and fails has it before: its letter carries the errors that it was told of.
    """
    if not (told.get(ERROR_CODE) and told.get(ERROR_TOPIC) and told.get(ERROR_OFFSET)):
        return False
    names = list(told)
    return RECONSUME_TIME not in told or names.index(RECONSUME_TIME) < names.index(ERROR_OFFSET)


def count_of(value: bytes | None) -> int | None:
    """The number that a header's value is the text of; None where it is none, or has more than 18 digits."""
    return int(value) if value is not None and len(value) <= _DIGITS_MAX and value.isdigit() else None


def reason_of(told: Told) -> str:
    """A `Reason`, or an ``ERROR_CODE``."""
    if is_rejected(told):
        return (told.get(ERROR_CODE) or b"").decode(errors="backslashreplace")
    failures, most = count_of(told.get(RECONSUME_TIME)), count_of(told.get(MAX_RECONSUME_TIMES))
    if failures is None:
        return Reason.UNKNOWN
    allowed = DEFAULT_MAX_RECONSUME_TIMES if most is None else most
    return Reason.RETRIES_EXHAUSTED if failures > allowed else Reason.GIVEN_UP


def id_of(told: Told) -> bytes | None:
    """The message's id: its own, or the one that it was to get on its schedule topic."""
    if uniq_key := told.get(UNIQ_KEY):
        return uniq_key
    if not is_rejected(told):
        return None
    return b"-".join(told.get(name) or b"" for name in (ERROR_TOPIC, ERROR_PARTITION, ERROR_OFFSET))


class FilterError(ValueError):
    """The filter cannot be read."""


class Filter(NamedTuple):
    """Which dead letters are meant: those that meet every condition.

    >>> Filter.parse(["reason=GIVEN_UP", "header.TAGS=vip"])
    Filter(reason='GIVEN_UP', key=None, id=None, from_ms=None, to_ms=None, headers=(('TAGS', b'vip'),))
    """

    reason: str | None = None
    key: bytes | None = None
    id: bytes | None = None
    from_ms: int | None = None
    """Buried at this time or later."""
    to_ms: int | None = None
    """Buried before this time."""
    headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def parse(cls, conditions: Iterable[str]) -> "Filter":
        """Read ``reason=``, ``key=``, ``id=``, ``from=`` and ``to=`` (ISO 8601 with a zone), ``header.NAME=``.

        Of two times of one kind the narrower holds; two reasons, keys or ids that differ are met by no letter.

        Raises:
            FilterError: names the condition, and what to write.
        """
        chosen = cls()
        for condition in conditions:
            name, separator, value = condition.partition("=")
            if not separator:
                raise FilterError(f"'{condition}' is not NAME=VALUE, such as reason=GIVEN_UP")
            match name:
                case "reason":
                    chosen = chosen._replace(reason=_only(condition, chosen.reason, value.upper()))
                case "key":
                    chosen = chosen._replace(key=_only(condition, chosen.key, argument_bytes(value)))
                case "id":
                    chosen = chosen._replace(id=_only(condition, chosen.id, argument_bytes(value)))
                case "from":
                    from_ms = _time_ms(condition, value)
                    chosen = chosen._replace(
                        from_ms=from_ms if chosen.from_ms is None else max(from_ms, chosen.from_ms)
                    )
                case "to":
                    to_ms = _time_ms(condition, value)
                    chosen = chosen._replace(to_ms=to_ms if chosen.to_ms is None else min(to_ms, chosen.to_ms))
                case _ if name.startswith("header.") and len(name) > len("header."):
                    header = name.removeprefix("header."), argument_bytes(value)
                    chosen = chosen._replace(headers=(*chosen.headers, header))
                case _:
                    raise FilterError(f"'{condition}': there are reason=, key=, id=, from=, to= and header.NAME=")
        return chosen

    def matches(self, timestamp_ms: int, key: bytes | None, headers: Headers) -> bool:
        """Whether a dead letter is meant."""
        told = dict(headers)
        return (
            (self.from_ms is None or timestamp_ms >= self.from_ms)
            and (self.to_ms is None or timestamp_ms < self.to_ms)
            and (self.key is None or key == self.key)
            and all(header in headers for header in self.headers)
            and (self.id is None or id_of(told) == self.id)
            and (self.reason is None or reason_of(told) == self.reason)
        )


T = TypeVar("T")


def _only(condition: str, before: T | None, value: T) -> T:
    """A condition that cannot be met beside another one of its kind is a slip, and no wish for nothing."""
    if before is not None and before != value:
        name = condition.partition("=")[0]
        raise FilterError(f"'{condition}': {name}= stands there already, and no letter has two; ask for one at a time")
    return value


def _time_ms(condition: str, text: str) -> int:
    try:
        return epoch_ms(parse_time(text))
    except TimeError as error:
        raise FilterError(f"'{condition}': {error}") from None
