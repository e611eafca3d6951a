"""``/api/v1/dead-letters``: which groups have some, and what they look like; pages of bounded size, read in threads."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from connectors.dead_letters import (
    DeadLetter,
    DeadLettersError,
    Filter,
    FilterError,
    LetterCursor,
    NoSuchGroupError,
    NotAnsweredError,
    RefusedError,
    Summary,
    TakenOverError,
)
from connectors.dead_letters.letter import LETTER_CURSOR_PATTERN
from sidecar.front.kafka import FrontKafka
from sidecar.front.threads import Threads
from sidecar.web.problems import Kind, ProblemError, described

T = TypeVar("T")

READERS = 2
"""Pages that are read at the same time; each reader takes a connection and some 30 MB."""
READ_WITHIN_S = 30.0
COUNTED_MAX = 50_000
"""With more letters than this their reasons are not counted: all of them would have to be read."""
PAGE_MAX = 200
PAGE_MAX_BYTES = 16 * 2**20
"""Of the letters as they are read: of a value of 1 MB the page shows a little, but all of it has come from Kafka."""
LOOKED_AT_MAX = 20_000
"""Letters that a filter may leave out before the page ends all the same."""
PREVIEW_BYTES = 1_024
PREVIEW_MAX_BYTES = 65_536
HEADERS_SHOWN_MAX = 100
HEADER_SHOWN_CHARACTERS = 1_024
FILTERS_MAX = 20

Group = Annotated[str, Path(description="The consumer group, or its dead-letter topic.", min_length=1, max_length=512)]
Conditions = Annotated[
    list[Annotated[str, Field(max_length=2_048)]],
    Query(
        alias="filter",
        description="reason=…, key=…, id=…, from=ISO8601, to=ISO8601 or header.NAME=…; all of them have to hold.",
        max_length=FILTERS_MAX,
        examples=[["reason=RETRIES_EXHAUSTED"]],
    ),
]


class GroupAnswer(BaseModel):
    """The dead letters of a group."""

    group: str
    topic: str
    total: int
    exact: bool = Field(description="Whether the letters have been counted; else `total` may be a little high.")
    redriven: int | None = Field(default=None, description="None: not counted.")
    waiting: int | None = Field(default=None, description="Those that have not been redriven; None: not counted.")
    reasons: dict[str, int] | None = Field(default=None, description="Of those that wait; None: not counted.")


class GroupsAnswer(BaseModel):
    """A page of groups, by name."""

    groups: list[GroupAnswer]
    next: str | None = Field(description="`after` of the next page; null: this is the last.")


class LetterAnswer(BaseModel):
    """A dead letter; key and value as text, or in base64 where they are none."""

    partition: int
    offset: int
    timestamp_ms: int = Field(description="When it was buried.")
    id: str
    reason: str
    is_redriven: bool
    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    value_bytes: int | None = Field(description="How large the value is; more than is shown where it has been cut.")
    is_cut: bool = Field(description="Whether key, value or headers are not shown whole.")
    headers: list[tuple[str, str | None]]


class LettersAnswer(BaseModel):
    """A page of dead letters, the oldest of each partition first."""

    group: str
    letters: list[LetterAnswer]
    next: str | None = Field(
        description="`after` of the next page; null: this is the last. Large letters make a page shorter than `limit`, "
        "and one with a filter may be empty and not the last."
    )


def dead_letters_router(kafka: FrontKafka) -> APIRouter:
    """Reads the dead-letter topics."""
    router = APIRouter()
    readers = Threads("dead-letters", READERS)

    async def read(call: Callable[[], T]) -> T:
        return await answered(readers.run(call))

    @router.get(
        "/api/v1/dead-letters",
        summary="The groups that have dead letters, how many, and why",
        responses=described(Kind.INVALID),
    )
    async def groups(
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
        after: Annotated[str, Query(max_length=512, description="`next` of the page before.")] = "",
    ) -> GroupsAnswer:
        return await read(lambda: _groups(kafka, limit, after))

    @router.get(
        "/api/v1/dead-letters/{group}",
        summary="The dead letters of a group",
        responses=described(Kind.NO_SUCH_GROUP, Kind.INVALID),
        response_model_exclude_unset=True,
    )
    async def letters(
        group: Group,
        conditions: Conditions = [],  # noqa: B006
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 20,
        after: Annotated[
            str | None, Query(pattern=LETTER_CURSOR_PATTERN, description="`next` of the page before.")
        ] = None,
        with_redriven: Annotated[bool, Query(description="Also those that have been redriven.")] = False,
        preview_bytes: Annotated[
            int, Query(ge=0, le=PREVIEW_MAX_BYTES, description="How much of a key or value is shown.")
        ] = PREVIEW_BYTES,
    ) -> LettersAnswer:
        chosen = chosen_by(conditions)
        place = None if after is None else LetterCursor.parse(after)

        def page() -> LettersAnswer:
            dead = kafka.dead_letters()
            told = dead.browse(
                group,
                chosen,
                limit=limit,
                after=place,
                with_redriven=with_redriven,
                look_at=LOOKED_AT_MAX,
                max_bytes=PAGE_MAX_BYTES,
            )
            following = None if told.next is None else str(told.next)
            shown = [LetterAnswer.model_validate(_shown(letter, preview_bytes)) for letter in told.letters]
            return LettersAnswer(group=dead.group_of(group), letters=shown, next=following)

        return await read(page)

    return router


def chosen_by(conditions: list[str]) -> Filter:
    """Raises ProblemError."""
    try:
        return Filter.parse(conditions)
    except (FilterError, OverflowError) as error:
        raise ProblemError.of_fields([("filter", str(error))]) from None


async def answered(reading: Awaitable[T]) -> T:
    """What a thread tells of dead letters. Raises ProblemError."""
    try:
        async with asyncio.timeout(READ_WITHIN_S):
            told = await reading
    except TimeoutError:
        raise ProblemError(
            Kind.UNAVAILABLE, f"Kafka has not told the dead letters within {READ_WITHIN_S:.0f} s"
        ) from None
    except DeadLettersError as error:
        raise problem_of(error) from None
    return told


def problem_of(error: DeadLettersError) -> ProblemError:
    """What is wrong with a question about dead letters."""
    if isinstance(error, NoSuchGroupError):
        return ProblemError(Kind.NO_SUCH_GROUP, str(error))
    if isinstance(error, NotAnsweredError):
        return ProblemError(Kind.UNAVAILABLE, f"Kafka does not answer: {error}")
    if isinstance(error, RefusedError):
        return ProblemError(Kind.REFUSED, str(error))
    if isinstance(error, TakenOverError):
        return ProblemError(Kind.IN_PROGRESS, str(error))
    return ProblemError.of_fields([("to", str(error))])


def _groups(kafka: FrontKafka, limit: int, after: str) -> GroupsAnswer:
    letters = kafka.dead_letters()
    spans = letters.spans()
    names = sorted(name for name in spans if name > after)
    told, budget = [], COUNTED_MAX
    for name in names[:limit]:
        span = spans[name]
        if span > budget:
            topic = letters.topic_of(name)
            told.append(GroupAnswer(group=name, topic=topic, total=span, exact=False))
            continue
        budget -= span
        told.append(_group(letters.summary(name)))
    return GroupsAnswer(groups=told, next=names[limit - 1] if len(names) > limit else None)


def _group(summary: Summary) -> GroupAnswer:
    return GroupAnswer(
        group=summary.group,
        topic=summary.topic,
        total=summary.total,
        exact=True,
        redriven=summary.redriven,
        waiting=summary.waiting,
        reasons=dict(summary.reasons),
    )


def _shown(letter: DeadLetter, preview_bytes: int) -> dict[str, Any]:
    key, key_is_cut = _text("key", letter.key, preview_bytes)
    value, value_is_cut = _text("value", letter.value, preview_bytes)
    headers = [(name[:HEADER_SHOWN_CHARACTERS], _header(raw)) for name, raw in letter.headers[:HEADERS_SHOWN_MAX]]
    headers_are_cut = len(headers) < len(letter.headers) or any(
        len(name) > HEADER_SHOWN_CHARACTERS or len(raw or b"") > HEADER_SHOWN_CHARACTERS for name, raw in letter.headers
    )
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "id": letter.id[:HEADER_SHOWN_CHARACTERS],
        "reason": letter.reason[:HEADER_SHOWN_CHARACTERS],
        "is_redriven": letter.is_redriven,
        **key,
        **value,
        "value_bytes": None if letter.value is None else len(letter.value),
        "is_cut": key_is_cut or value_is_cut or headers_are_cut,
        "headers": headers,
    }


def _text(name: str, raw: bytes | None, most: int) -> tuple[dict[str, str | None], bool]:
    """A key or value, or the beginning of it, under its name; as base64 under ``NAME_base64`` where it is no text."""
    if raw is None:
        return {name: None}, False
    shown = raw[:most]
    try:
        raw.decode()
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(shown).decode()}, len(shown) < len(raw)
    return {name: shown.decode(errors="ignore")}, len(shown) < len(raw)


def _header(raw: bytes | None) -> str | None:
    return None if raw is None else raw[:HEADER_SHOWN_CHARACTERS].decode(errors="backslashreplace")
