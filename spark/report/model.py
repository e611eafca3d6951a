"""The audit's findings: what ``audit batch --json`` prints, what `DIR/report.json` holds, what every report shows.

Spark fills it, bounded as the constants here say; the renderers only read it. Times are epoch milliseconds (UTC),
but for ``as_of``, ``since`` and ``until``, which people write on the command line. What is left out of a bounded list
is counted beside it (``left_out``), never silently dropped.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

FORMAT: Literal[1] = 1

MAX_FAULTY = 10_000
"""Faulty messages that a report names; the table of verdicts has all of them."""

MAX_TEXT = 1_000
"""Characters of an id, a name or a reason; the rest is cut off. Headers can be a megabyte."""

MAX_ROWS = 100
"""Rows of a list by topic, group or partition."""

MAX_BUCKETS = 1_500
"""Points of a series over time: a day by the minute and some."""

MAX_HEAT_DAYS = 62
"""Days of the heat map, the latest ones."""

BUCKETS_MS = (60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 31 * 86_400_000)
"""Widths of a bucket of time: by the minute, and coarser where minutes would be more than `MAX_BUCKETS`."""

LATENESS_EDGES_MS = (
    *(-1, 0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000),
    *(60_000, 300_000, 900_000, 3_600_000, 86_400_000),
)
"""Upper edges (inclusive) of the lateness histogram; the last bucket has none. Up to -1 is early."""


def bucket_ms_for(first_ms: int, last_ms: int) -> int:
    """The narrowest bucket with which the times from ``first_ms`` to ``last_ms`` make at most `MAX_BUCKETS`."""
    for bucket_ms in BUCKETS_MS:
        if last_ms // bucket_ms - first_ms // bucket_ms < MAX_BUCKETS:
            return bucket_ms
    return (last_ms - first_ms) // (MAX_BUCKETS - 1) + 1


class Verdict(StrEnum):
    """What became of a message; see the contract for the exact conditions."""

    ON_TIME = "on_time"
    LATE = "late"
    MISSING = "missing"
    DUPLICATE = "duplicate"
    EARLY = "early"
    CANCELLED = "cancelled"
    CANCELLED_TOO_LATE = "cancelled_too_late"
    CANCEL_IGNORED = "cancel_ignored"
    REJECTED = "rejected"
    PENDING = "pending"


BROKEN = (Verdict.MISSING, Verdict.DUPLICATE, Verdict.EARLY, Verdict.CANCEL_IGNORED)
"""A promise was broken: exit code 1."""

FAULTY = (*BROKEN, Verdict.LATE)
"""Named one by one, the gravest first."""

_Time = Annotated[
    AwareDatetime,
    AfterValidator(lambda at: utc(epoch_ms(at))),
    PlainSerializer(lambda at: at.isoformat(timespec="milliseconds"), return_type=str),
]
_Text = Annotated[str, AfterValidator(lambda text: text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")]
_Count = Annotated[int, Field(ge=0)]

T = TypeVar("T")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bounded(_Model, Generic[T]):
    """A list that is cut, and how many it lacks."""

    rows: tuple[T, ...] = ()
    left_out: _Count = 0


class Verdicts(_Model):
    """Messages by verdict. One message is one delivery: an id, a destination, a retry, a redrive."""

    on_time: _Count = 0
    late: _Count = 0
    missing: _Count = 0
    duplicate: _Count = 0
    early: _Count = 0
    cancelled: _Count = 0
    cancelled_too_late: _Count = 0
    cancel_ignored: _Count = 0
    rejected: _Count = 0
    pending: _Count = 0

    def __getitem__(self, verdict: Verdict) -> int:
        count: int = getattr(self, verdict.value)
        return count

    @property
    def total(self) -> int:
        return sum(self[verdict] for verdict in Verdict)

    @property
    def broken(self) -> int:
        return sum(self[verdict] for verdict in BROKEN)


class Faulty(_Model):
    """A message that was not delivered once and on time, and where to look it up.

    ``topic``, ``partition``, ``offset`` are the scheduled record's, and of what nobody asked for, those where it came;
    the second copy's, where it is a duplicate, in ``why``. Bytes that are no UTF-8 come as escapes.
    """

    id: _Text
    verdict: Verdict
    topic: _Text
    partition: int
    offset: int
    due_ms: int | None = None
    delivered_ms: int | None = None
    lateness_ms: int | None = None
    destination: _Text | None = None
    why: _Text = ""


class Lateness(_Model):
    """Publish time less due time of ``count`` deliveries, in ms."""

    count: _Count = 0
    p50_ms: int | None = None
    p90_ms: int | None = None
    p99_ms: int | None = None
    p999_ms: int | None = None
    max_ms: int | None = None


class NamedLateness(Lateness):
    """Of one destination topic, or one level (``1`` … ``18``, ``wheel``)."""

    name: _Text


class LatenessAt(Lateness):
    """Of what was due in the bucket that begins at ``at_ms``."""

    at_ms: int


class LatenessBucket(_Model):
    """Deliveries later than the bucket before, and no later than ``up_to_ms`` (None: any later)."""

    up_to_ms: int | None
    count: _Count


class DueAt(_Model):
    """What was due in the bucket that begins at ``at_ms``: how much should have come, and how much did."""

    at_ms: int
    expected: _Count
    delivered: _Count
    faulty: _Count = 0


class Hour(_Model):
    """A cell of the heat map: an hour of a day (UTC)."""

    day: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    hour: Annotated[int, Field(ge=0, le=23)]
    due: _Count
    p99_ms: int | None = None


class RetryDepth(_Model):
    """Messages whose last attempt so far was the ``depth``-th retry."""

    depth: _Count
    messages: _Count
    dead_lettered: _Count = 0


class GroupRetries(_Model):
    """A consumer group's failures: ``messages`` were sent back at least once, ``retries`` times in all.

    A message has succeeded when its last retry was delivered and it was not sent back again. Time to success is from
    its first failure to the delivery of that retry.
    """

    group: _Text
    messages: _Count
    retries: _Count
    max_depth: _Count = 0
    succeeded: _Count = 0
    waiting: _Count = 0
    dead_lettered: _Count = 0
    success_p50_ms: int | None = None
    success_p99_ms: int | None = None

    @property
    def dead_letter_rate(self) -> float:
        return self.dead_lettered / self.messages if self.messages else 0.0


class PendingAt(_Model):
    """What falls due in the bucket that begins at ``at_ms``."""

    at_ms: int
    pending: _Count


class Rolled(_Model):
    """A message that waited longer than the roll window, and how often it was written anew."""

    id: _Text
    topic: _Text
    partition: int
    offset: int
    due_ms: int
    rolls: _Count


class Offender(_Model):
    """Where faults gather: ``name`` is a topic, ``topic/partition``, a level or a group."""

    kind: Literal["topic", "partition", "level", "group"]
    name: _Text
    messages: _Count
    faulty: _Count
    max_lateness_ms: int | None = None


class TopicRead(_Model):
    """A topic that was read: ``facts`` records of it, up to ``until_ms`` (the last one's timestamp)."""

    topic: _Text
    kind: _Text
    facts: _Count
    since_ms: int | None = None
    until_ms: int | None = None


class AuditReport(_Model):
    """All of it. Lists are ordered as they are to be shown: time upwards, otherwise the worst first."""

    format: Literal[1] = FORMAT
    as_of: _Time
    since: _Time | None = None
    until: _Time | None = None
    grace_ms: _Count
    late_after_ms: _Count
    bucket_ms: Annotated[int, Field(gt=0)] = BUCKETS_MS[0]
    forecast_bucket_ms: Annotated[int, Field(gt=0)] = BUCKETS_MS[0]

    verdicts: Verdicts
    faulty: Annotated[tuple[Faulty, ...], Field(max_length=MAX_FAULTY)] = ()
    faulty_left_out: _Count = 0
    notes: Annotated[tuple[_Text, ...], Field(max_length=MAX_ROWS)] = ()
    """What the reader has to know to trust it: what could not be read or judged, a sentence each."""

    lateness: Lateness = Lateness()
    lateness_by_topic: Bounded[NamedLateness] = Bounded()
    lateness_by_level: Bounded[NamedLateness] = Bounded()
    lateness_over_time: Annotated[tuple[LatenessAt, ...], Field(max_length=MAX_BUCKETS)] = ()
    lateness_histogram: Annotated[tuple[LatenessBucket, ...], Field(max_length=len(LATENESS_EDGES_MS) + 1)] = ()
    due_over_time: Annotated[tuple[DueAt, ...], Field(max_length=MAX_BUCKETS)] = ()
    hours: Annotated[tuple[Hour, ...], Field(max_length=24 * MAX_HEAT_DAYS)] = ()
    hours_left_out: _Count = 0

    retries_by_depth: Annotated[tuple[RetryDepth, ...], Field(max_length=MAX_ROWS)] = ()
    """Of the greatest depth that there is a place for, also what is deeper."""
    retries_by_group: Bounded[GroupRetries] = Bounded()

    forecast: Annotated[tuple[PendingAt, ...], Field(max_length=MAX_BUCKETS)] = ()
    forecast_left_out: _Count = 0
    """Pending messages that fall due after the forecast's last bucket."""
    rolled: Bounded[Rolled] = Bounded()
    offenders: Bounded[Offender] = Bounded()
    topics_read: Bounded[TopicRead] = Bounded()

    @property
    def is_kept(self) -> bool:
        """Whether every promise was kept; a late message breaks none."""
        return self.verdicts.broken == 0

    @property
    def as_of_ms(self) -> int:
        return epoch_ms(self.as_of)

    @property
    def since_ms(self) -> int | None:
        return None if self.since is None else epoch_ms(self.since)

    @property
    def until_ms(self) -> int | None:
        return None if self.until is None else epoch_ms(self.until)


FIRST_MS = 0
LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. Due times come from headers, which may say anything."""


def utc(at_ms: int) -> datetime:
    """A time of the calendar; what lies beyond it is its first or last millisecond."""
    return _EPOCH + timedelta(milliseconds=min(max(at_ms, FIRST_MS), LAST_MS))


def epoch_ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
