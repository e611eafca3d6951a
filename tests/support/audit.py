"""Audit reports to show: what a day with faults looks like, and one without."""

import math
import random
from datetime import UTC, datetime

from spark.report.model import (
    FAULTY,
    LATENESS_EDGES_MS,
    AuditReport,
    Bounded,
    DueAt,
    Faulty,
    GroupRetries,
    Hour,
    Lateness,
    LatenessAt,
    LatenessBucket,
    NamedLateness,
    Offender,
    PendingAt,
    RetryDepth,
    Rolled,
    TopicRead,
    Verdict,
    Verdicts,
    utc,
)

AS_OF = datetime(2026, 3, 14, 2, 47, 12, tzinfo=UTC)
AS_OF_MS = int(AS_OF.timestamp() * 1000)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def day_with_faults() -> AuditReport:
    """A day's 1.2 million messages of a shop, a few dozen of them faulty; the same every time."""
    dice = random.Random(14)
    begin_ms = AS_OF_MS // MINUTE_MS * MINUTE_MS - DAY_MS
    load = [_load(dice, begin_ms + minute * MINUTE_MS) for minute in range(1440)]
    faulty = [_faulty(dice, number) for number in range(64)]
    bad_minutes = {(message.due_ms or 0) // MINUTE_MS * MINUTE_MS for message in faulty}
    counts = {verdict: sum(message.verdict is verdict for message in faulty) for verdict in FAULTY}
    total = sum(count for _, count in load)
    over_time = [LatenessAt(at_ms=at_ms, **_lateness(dice, count, at_ms in bad_minutes)) for at_ms, count in load]
    return AuditReport(
        as_of=AS_OF,
        since=utc(begin_ms),
        until=AS_OF,
        grace_ms=5_000,
        late_after_ms=1_000,
        verdicts=Verdicts(
            on_time=total - len(faulty),
            pending=31_877,
            cancelled=5_412,
            cancelled_too_late=17,
            rejected=9,
            **{verdict.value: count for verdict, count in counts.items()},
        ),
        faulty=tuple(sorted(faulty, key=lambda message: FAULTY.index(message.verdict))),
        notes=(
            "orders.archive is compacted: what came there and has been replaced by a later record counts as missing.",
        ),
        lateness=Lateness(count=total, p50_ms=11, p90_ms=24, p99_ms=43, p999_ms=188, max_ms=94_210),
        lateness_by_topic=Bounded(
            rows=tuple(
                NamedLateness(name=name, **_lateness(dice, total // part, name == "payments"))
                for name, part in (("payments", 4), ("orders", 2), ("reminders", 8), ("RETRY-billing", 8))
            )
        ),
        lateness_by_level=Bounded(
            rows=tuple(
                NamedLateness(name=name, **_lateness(dice, total // 9, False))
                for name in ("wheel", "3", "4", "5", "14", "16")
            )
        ),
        lateness_over_time=tuple(over_time),
        lateness_histogram=_histogram(total, counts[Verdict.LATE], counts[Verdict.EARLY]),
        due_over_time=tuple(
            DueAt(
                at_ms=at_ms,
                expected=count,
                delivered=count - (at_ms in bad_minutes),
                faulty=int(at_ms in bad_minutes),
            )
            for at_ms, count in load
        ),
        hours=tuple(_hours(dice)),
        retries_by_depth=tuple(
            RetryDepth(depth=depth, messages=int(9_000 * 0.55**depth) + 3, dead_lettered=41 if depth == 16 else 0)
            if depth < 16
            else RetryDepth(depth=depth, messages=52, dead_lettered=41)
            for depth in range(1, 17)
        ),
        retries_by_group=Bounded(
            rows=(
                _group("billing", 8_211, 17_402, 41, 44_000),
                _group("shipping/eu", 1_904, 2_310, 0, 12_000),
                _group("mail", 118, 204, 3, 190_000),
            )
        ),
        forecast=tuple(
            PendingAt(
                at_ms=AS_OF_MS // MINUTE_MS * MINUTE_MS + minute * MINUTE_MS,
                pending=max(
                    0, int(90 + 60 * math.sin(minute / 40) + dice.gauss(0, 12)) + (4_000 if minute == 193 else 0)
                ),
            )
            for minute in range(300)
        ),
        rolled=Bounded(
            rows=tuple(
                Rolled(
                    id=f"subscription-{number}",
                    topic="SCHEDULE_TOPIC_XXXX-wheel",
                    partition=number % 4,
                    offset=88_000 + 7 * number,
                    due_ms=AS_OF_MS + number * DAY_MS,
                    rolls=1 + number // 2,
                )
                for number in range(2, 7)
            ),
            left_out=812,
        ),
        offenders=Bounded(
            rows=(
                Offender(kind="topic", name="payments", messages=total // 4, faulty=38, max_lateness_ms=94_210),
                Offender(kind="partition", name="SCHEDULE_TOPIC_XXXX-wheel/2", messages=total // 5, faulty=29),
                Offender(kind="level", name="wheel", messages=total // 2, faulty=24, max_lateness_ms=94_210),
            )
        ),
        topics_read=Bounded(
            rows=tuple(
                TopicRead(topic=topic, kind=kind, facts=facts, since_ms=begin_ms + 311, until_ms=AS_OF_MS - 87)
                for topic, kind, facts in (
                    ("SCHEDULE_TOPIC_XXXX-wheel", "wheel", 702_118),
                    ("SCHEDULE_TOPIC_XXXX-3", "level", 131_092),
                    ("SCHEDULE_TOPIC_XXXX-sendback", "sendback", 19_916),
                    ("RETRY-billing", "retry", 17_402),
                    ("orders", "destination", 601_551),
                    ("payments", "destination", 300_870),
                )
            )
        ),
    )


def day_without_faults() -> AuditReport:
    """The verdict that everybody wants, and nothing else."""
    return AuditReport(as_of=AS_OF, grace_ms=5_000, late_after_ms=1_000, verdicts=Verdicts(on_time=1_204_233))


def _load(dice: random.Random, at_ms: int) -> tuple[int, int]:
    hour = at_ms % DAY_MS / HOUR_MS
    return at_ms, max(0, int(840 + 620 * math.sin((hour - 9) / 24 * 2 * math.pi) + dice.gauss(0, 40)))


def _lateness(dice: random.Random, count: int, is_bad: bool) -> dict[str, int]:
    p50_ms = 9 + dice.randrange(5)
    p99_ms = 38 + dice.randrange(20) + (400 if is_bad else 0)
    worst_ms = p99_ms * dice.randrange(2, 4) + (9_000 if is_bad else 0)
    return {
        "count": count,
        "p50_ms": p50_ms,
        "p90_ms": 2 * p50_ms,
        "p99_ms": p99_ms,
        "p999_ms": worst_ms * 2 // 3,
        "max_ms": worst_ms,
    }


def _faulty(dice: random.Random, number: int) -> Faulty:
    verdict = dice.choices(FAULTY, weights=(4, 2, 1, 1, 20))[0]
    due_ms = AS_OF_MS - dice.randrange(5 * HOUR_MS, 7 * HOUR_MS)
    lateness_ms = {
        Verdict.MISSING: None,
        Verdict.EARLY: -dice.randrange(5, 900),
        Verdict.LATE: dice.randrange(1_001, 95_000),
    }
    late_ms = lateness_ms.get(verdict, dice.randrange(4, 40))
    why = {
        Verdict.MISSING: "no delivery found up to 2026-03-14 02:47:12",
        Verdict.DUPLICATE: f"2 copies: payments/0/{30_000 + number}, payments/0/{30_007 + number}",
        Verdict.EARLY: "delivered before its time",
        Verdict.CANCEL_IGNORED: f"cancelled by SCHEDULE_TOPIC_XXXX-wheel/2/{61_000 + number}, 41 s before it was due",
        Verdict.LATE: "",
    }
    return Faulty(
        id=f"order-{100_000 + 613 * number}",
        verdict=verdict,
        topic="SCHEDULE_TOPIC_XXXX-wheel" if number % 3 else "SCHEDULE_TOPIC_XXXX-5",
        partition=number % 4,
        offset=52_000 + 311 * number,
        due_ms=due_ms,
        delivered_ms=None if late_ms is None else due_ms + late_ms,
        lateness_ms=late_ms,
        destination="payments" if number % 5 else "orders",
        why=why[verdict],
    )


def _histogram(total: int, late: int, early: int) -> tuple[LatenessBucket, ...]:
    shares = {5: 0.07, 10: 0.36, 20: 0.41, 50: 0.155, 100: 0.003, 200: 0.001, 500: 0.0005}
    counts = {edge: int(total * shares.get(edge, 0)) for edge in LATENESS_EDGES_MS}
    counts |= {-1: early, 2: 311, 1_000: 42, 5_000: late // 2, 30_000: late - late // 2 - 1, 300_000: 1}
    return (
        *(LatenessBucket(up_to_ms=edge, count=counts[edge]) for edge in counts),
        LatenessBucket(up_to_ms=None, count=0),
    )


def _hours(dice: random.Random) -> list[Hour]:
    return [
        Hour(
            day=f"2026-03-{day:02d}",
            hour=hour,
            due=max(
                0, int(50_000 + 37_000 * math.sin((hour - 9) / 24 * 2 * math.pi) - (20_000 if day in (7, 8) else 0))
            ),
            p99_ms=38 + dice.randrange(30) + (4_100 if (day, hour) == (13, 21) else 0),
        )
        for day in range(1, 15)
        for hour in range(24)
        if (day, hour) < (14, 3)
    ]


def _group(name: str, messages: int, retries: int, dead: int, success_ms: int) -> GroupRetries:
    return GroupRetries(
        group=name,
        messages=messages,
        retries=retries,
        max_depth=16 if dead else 4,
        succeeded=messages - dead - 12,
        waiting=12,
        dead_lettered=dead,
        success_p50_ms=success_ms,
        success_p99_ms=success_ms * 31,
    )
