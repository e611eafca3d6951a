"""The findings in words: the verdict on top, and how numbers, times and texts from Kafka are shown."""

from dataclasses import dataclass
from enum import StrEnum

from spark.report.model import FIRST_MS, LAST_MS, AuditReport, Verdict, utc

MEANING = {
    Verdict.ON_TIME: "delivered once, when it was due",
    Verdict.LATE: "delivered once, but late",
    Verdict.MISSING: "due, and not delivered as asked for",
    Verdict.DUPLICATE: "came or was rejected more than once, or without being asked for",
    Verdict.EARLY: "delivered before it was due",
    Verdict.CANCELLED: "cancelled or replaced, and not delivered",
    Verdict.CANCELLED_TOO_LATE: "a cancel or a replacement came too late",
    Verdict.CANCEL_IGNORED: "cancelled in time, and yet delivered",
    Verdict.REJECTED: "refused, with a reason, as a dead letter",
    Verdict.PENDING: "not due yet",
}


def verdict_name(verdict: Verdict) -> str:
    return verdict.value.replace("_", " ")


class State(StrEnum):
    """What a reader wants to know first."""

    KEPT = "kept"
    LATE = "late"
    BROKEN = "broken"
    EMPTY = "empty"


@dataclass(frozen=True)
class Headline:
    """The verdict on all of it: one sentence, and what else there was."""

    state: State
    sentence: str
    rest: str


def headline(report: AuditReport) -> Headline:
    """The verdict in words. A message that is pending, cancelled or rejected is not one that arrived."""
    verdicts = report.verdicts
    rest = _rest(report)
    if verdicts.broken:
        broken = f"{verdicts.broken:,} of {messages(verdicts.total)} broke the promise"
        return Headline(State.BROKEN, f"{broken}: {_kinds(report)}.", rest)
    if verdicts.late:
        arrived = f"All {messages(verdicts.on_time + verdicts.late)} that had to arrive did so once"
        return Headline(State.LATE, f"{arrived}, but {verdicts.late:,} came late.", rest)
    if verdicts.on_time:
        one = verdicts.on_time == 1
        which = "The one message" if one else f"Every one of {messages(verdicts.on_time)}"
        rejoined = " that had to arrive" if rest else ""
        return Headline(State.KEPT, f"{which}{rejoined} arrived once and on time.", rest)
    return Headline(State.EMPTY, "No message had to arrive, so nothing has been proved.", rest)


def _kinds(report: AuditReport) -> str:
    words = {
        Verdict.MISSING: "missing",
        Verdict.DUPLICATE: "too often or unasked",
        Verdict.EARLY: "too early",
        Verdict.CANCEL_IGNORED: "delivered though cancelled",
    }
    return _listed(
        [f"{report.verdicts[verdict]:,} {word}" for verdict, word in words.items() if report.verdicts[verdict]]
    )


def _rest(report: AuditReport) -> str:
    verdicts = report.verdicts
    counted = [(verdicts.pending, "still waiting"), (verdicts.cancelled, "cancelled"), (verdicts.rejected, "rejected")]
    counted.append((verdicts.cancelled_too_late, "cancelled or replaced too late"))
    if verdicts.broken:
        counted.append((verdicts.late, "late"))
    told = [f"{count:,} {what}" for count, what in counted if count]
    return f"Besides: {_listed(told)}." if told else ""


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def duration(duration_ms: int | None) -> str:
    """A length of time to three figures: ``-4 ms``, ``1.24 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if duration_ms is None:
        return "–"
    if duration_ms < 0:
        return f"-{duration(-duration_ms)}"
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{min(duration_ms / 1_000, 59.9):.3g} s"
    seconds = duration_ms // 1_000
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            whole, left = divmod(seconds, unit)
            return f"{whole:,} {name}" + (f" {left // part} {part_name}" if left // part else "")
    raise AssertionError(duration_ms)


def bucket(bucket_ms: int) -> str:
    """The width of a bucket as one says it: ``minute``, ``5 minutes``, ``hour``, ``day``."""
    for unit_ms, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if bucket_ms % unit_ms == 0:
            return name if bucket_ms == unit_ms else f"{bucket_ms // unit_ms} {name}s"
    return duration(bucket_ms)


def moment(at_ms: int | None) -> str:
    """A time in UTC, to the millisecond."""
    if at_ms is None:
        return "–"
    if not FIRST_MS <= at_ms <= LAST_MS:
        return f"{at_ms} ms"
    return utc(at_ms).strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"


def shown(text: str, width: int = 200) -> str:
    """A text from Kafka for people: what cannot be seen, or turns text around, as escapes; cut to ``width``."""
    visible = "".join(letter if letter.isprintable() else _escaped(letter) for letter in text[: width + 1])
    return visible if len(visible) <= width else visible[: width - 1] + "…"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
