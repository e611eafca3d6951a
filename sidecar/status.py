"""What the page, ``timewheel status`` and the API show of a sidecar, made of what its processes tell.

A process tells a `Part`: plain numbers that add up. `present` makes the answer of one part or of several, so that a
sidecar with workers tells the same as one without.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from connectors.contract import DelayLevels
from connectors.durations import format_duration
from sidecar.dispatch.wheel.figures import WheelFigures, added
from sidecar.kafka.backlog import PlaceBacklog
from sidecar.observability.health import SEVERITY, Health, State
from sidecar.observability.history import POINT_MS, Buckets, History, Lateness, Point, totals
from sidecar.observability.metrics import Metrics
from sidecar.switches import Switches
from sidecar.told import PlaceTold, Told

PLACES_MAX = 200
"""Partitions that are told one by one; of more, those with the largest backlog."""


class VerdictPart(msgspec.Struct, frozen=True):
    """See `health.Verdict`."""

    state: State
    words: str
    action: str
    progress: float | None
    for_ms: int


class Part(msgspec.Struct, frozen=True):
    """What one process tells."""

    version: str
    group_id: str
    at_ms: int
    verdict: VerdictPart
    reasons: list[str]
    warnings: list[str]
    stop_enqueue: bool
    stop_dequeue: bool
    behind_ms: int
    assigned: int
    stopped: dict[str, str]
    places: list[PlaceTold]
    wheel: WheelFigures | None
    wheel_partitions: list[int]
    quota_bytes: int
    waiting: dict[str, int]
    delivered: dict[str, int]
    rejected: dict[str, int]
    cancels: dict[str, int]
    rates: dict[str, dict[str, float]]
    minute: dict[str, Buckets]
    """Lateness by queue."""
    point: Point | None
    """The newest of the history."""
    worker: int | None = None


class Reporter:
    """Makes the part of this process."""

    def __init__(
        self,
        version: str,
        group_id: str,
        health: Health,
        metrics: Metrics,
        switches: Switches,
        told: Told,
        history: History,
    ) -> None:
        self._version = version
        self._group_id = group_id
        self._health = health
        self._metrics = metrics
        self._switches = switches
        self._told = told
        self._history = history

    def part(self, wheel_topic: str, quota_bytes: int, now_ms: int) -> Part:
        """The status now; what the loop tells is up to a second old, or older where it waits for Kafka.

        Args:
            quota_bytes: of a wheel as large as was asked for.
        """
        health, metrics, told = self._health, self._metrics, self._told
        verdict = health.verdict()
        points = self._history.points
        return Part(
            version=self._version,
            group_id=self._group_id,
            at_ms=now_ms,
            verdict=VerdictPart(*verdict, for_ms=round(health.state_for_ms(verdict.state))),
            reasons=health.unready_reasons(),
            warnings=health.warnings(),
            stop_enqueue=self._switches.stop_enqueue,
            stop_dequeue=self._switches.stop_dequeue,
            behind_ms=round(health.behind_ms),
            assigned=len(health.places),
            stopped={name: cause.words for name, cause in health.stopped.items()},
            places=list(told.places),
            wheel=told.wheel,
            wheel_partitions=sorted(number for topic, number in health.places if topic == wheel_topic),
            quota_bytes=max(quota_bytes, told.wheel.quota_bytes if told.wheel else 0),
            waiting=_counts(totals(metrics.waiting)),
            delivered=_counts(totals(metrics.delivered)),
            rejected=_counts(totals(metrics.rejected)),
            cancels=_counts(totals(metrics.cancels)),
            rates=self._history.rates(),
            minute=self._history.minute(),
            point=points[-1] if points else None,
        )


def silent_part(worker: int | None, words: str, now_ms: int) -> Part:
    """The status of a worker that does not answer."""
    verdict = VerdictPart(State.STARTING, words, "", None, 0)
    nothing = dict[str, int]()
    return Part(
        *("", "", now_ms, verdict, [words], [], False, False, 0, 0, {}, [], None, [], 0),
        *(nothing, nothing, nothing, nothing, {}, {}, None, worker),
    )


def present(
    parts: Sequence[Part], levels: DelayLevels, topics: Mapping[str, str], backlog: Sequence[PlaceBacklog] | None
) -> dict[str, Any]:
    """The answer: of one process, or of all workers.

    Args:
        parts: at least one.
        topics: the schedule topics by queue.
        backlog: of the whole group; None: not known.
    """
    worst = min(parts, key=lambda part: (SEVERITY.index(part.verdict.state), -part.behind_ms))
    reasons = _told(parts, lambda part: part.reasons)
    figures = [part.wheel for part in parts if part.wheel is not None]
    wheel = added(figures)
    minute = [buckets for part in parts for buckets in part.minute.values()]
    rates = {name: _added(part.rates.get(name, {}) for part in parts) for name in ("ingested", "delivered", "rejected")}
    progress = [part.verdict.progress for part in parts if part.verdict.progress is not None]
    places = _places(parts, backlog)
    return {
        "version": next((part.version for part in parts if part.version), ""),
        "group_id": next((part.group_id for part in parts if part.group_id), ""),
        "at_ms": max(part.at_ms for part in parts),
        "state": worst.verdict.state,
        "state_for_ms": worst.verdict.for_ms,
        "words": _prefixed(worst, worst.verdict.words)
        if worst.verdict.state is not State.HEALTHY
        else worst.verdict.words,
        "action": worst.verdict.action,
        "progress": min(progress, default=None),
        "ready": not reasons,
        "reasons": reasons,
        "warnings": _told(parts, lambda part: part.warnings),
        "stop_enqueue": any(part.stop_enqueue for part in parts),
        "stop_dequeue": any(part.stop_dequeue for part in parts),
        "behind_seconds": max(part.behind_ms for part in parts) / 1000,
        "partitions": {
            "assigned": sum(part.assigned for part in parts),
            "stopped": sum(len(part.stopped) for part in parts),
        },
        "waiting": _added(part.waiting for part in parts),
        "pending": None
        if not figures
        else {
            "total": wheel.pending,
            "partitions": sorted(number for part in parts for number in part.wheel_partitions),
        },
        "pending_by_topic": wheel.by_topic,
        "pending_due_within": wheel.due_within,
        "furthest_due_ms": wheel.furthest_ms,
        "store": {"bytes": wheel.disk_bytes, "quota_bytes": max(part.quota_bytes for part in parts)},
        "cancels": _added(part.cancels for part in parts),
        "delivered": _added(part.delivered for part in parts),
        "rejected": _added(part.rejected for part in parts),
        "rates": {name: round(sum(by_queue.values()), 2) for name, by_queue in rates.items()},
        "lateness": {"minute": Lateness.of(_joined(minute))._asdict()},
        "queues": _queues(parts, places, rates, levels, topics),
        "places": [place for place in places if place["lag"] or place["waiting"] or place["trouble"]][:PLACES_MAX],
        "point": present_point(points) if (points := _newest(parts)) else None,
    }


def present_history(parts: Sequence[Sequence[Point]]) -> dict[str, Any]:
    """The last hour: what the points of all processes add up to, those of the same five seconds together."""
    by_time: defaultdict[int, list[Point]] = defaultdict(list)
    for points in parts:
        for point in points:
            by_time[point.at_ms].append(point)
    hour = Lateness.of(_joined(point.lateness for points in by_time.values() for point in points))
    return {
        "every_ms": POINT_MS,
        "points": [present_point(by_time[at_ms]) for at_ms in sorted(by_time)],
        "hour": hour._asdict(),
    }


def present_point(points: Sequence[Point]) -> dict[str, Any]:
    """One point of the history, of those of all processes."""
    lateness = Lateness.of(_joined(point.lateness for point in points))
    return {
        "at_ms": points[0].at_ms,
        "ingested": sum(point.ingested for point in points),
        "delivered": sum(point.delivered for point in points),
        "rejected": sum(point.rejected for point in points),
        "behind_ms": max(point.behind_ms for point in points),
        "p50_ms": lateness.p50_ms,
        "p99_ms": lateness.p99_ms,
        "max_ms": lateness.max_ms,
    }


def _newest(parts: Iterable[Part]) -> list[Point]:
    """The points of the last five seconds that any process has told of."""
    points = [part.point for part in parts if part.point is not None]
    last_ms = max((point.at_ms for point in points), default=0)
    return [point for point in points if point.at_ms == last_ms]


def _places(parts: Sequence[Part], backlog: Sequence[PlaceBacklog] | None) -> list[dict[str, Any]]:
    """Every partition that is read, or has a backlog; the largest backlog first."""
    lags = {(place.topic, place.partition): place.lag for place in backlog or []}
    rows = []
    for part in parts:
        for place in part.places:
            lag = lags.pop((place.topic, place.partition), None)
            waiting = {"at_hand": place.waiting, "waiting": place.waiting, "lag": lag, "unread": None}
            if lag is not None and place.queue == "wheel":
                waiting |= {"unread": lag, "waiting": place.waiting + lag}
            elif lag is not None:
                waiting |= {"unread": max(0, lag - place.waiting), "waiting": max(lag, place.waiting)}
            rows.append(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "queue": place.queue,
                    **waiting,
                    "next_due_ms": place.next_due_ms or None,
                    "trouble": place.trouble,
                    "worker": part.worker,
                }
            )
    stopped = {name: why for part in parts for name, why in part.stopped.items()}
    for (topic, partition), lag in lags.items():
        why = stopped.get(f"{topic}-{partition}", "")
        unread = {"at_hand": 0, "waiting": lag, "lag": lag, "unread": lag, "next_due_ms": None, "worker": None}
        trouble = f"stopped: {why}" if why else "not read by this sidecar"
        rows.append(
            {"topic": topic, "partition": partition, "queue": None, **unread, "trouble": trouble if lag else ""}
        )
    return sorted(rows, key=lambda row: (-row["waiting"], row["topic"], row["partition"]))


def _queues(
    parts: Sequence[Part],
    places: Sequence[dict[str, Any]],
    rates: Mapping[str, Mapping[str, float]],
    levels: DelayLevels,
    topics: Mapping[str, str],
) -> list[dict[str, Any]]:
    """A row for each schedule topic, in the order of their delays, then the wheel and the send-back topic."""
    rows = []
    for queue, topic in topics.items():
        mine = [place for place in places if place["topic"] == topic]
        late = _joined(buckets for part in parts for name, buckets in part.minute.items() if name == queue)
        due_ms = [place["next_due_ms"] for place in mine if place["next_due_ms"] is not None]
        unread = [place["unread"] for place in mine if place["unread"] is not None]
        rows.append(
            {
                "queue": queue,
                "topic": topic,
                "delay": format_duration(levels.delay_ms(int(queue))) if queue.isdigit() else None,
                "partitions": len(mine),
                "waiting": sum(place["waiting"] for place in mine),
                "unread": sum(unread) if unread else None,
                "next_due_ms": min(due_ms, default=None),
                "ingested_per_s": round(rates["ingested"].get(queue, 0.0), 2),
                "delivered_per_s": round(rates["delivered"].get(queue, 0.0), 2),
                "p99_ms": Lateness.of(late).p99_ms,
            }
        )
    return rows


def _told(parts: Sequence[Part], which: Callable[[Part], list[str]]) -> list[str]:
    return [_prefixed(part, line) for part in parts for line in which(part)]


def _prefixed(part: Part, line: str) -> str:
    return line if part.worker is None else f"worker {part.worker}: {line}"


def _joined(several: Iterable[Buckets]) -> Buckets:
    return [bucket for buckets in several for bucket in buckets]


def _added(several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for one in several:
        total.update(one)
    return dict(total)


def _counts(values: Mapping[str, float]) -> dict[str, int]:
    return {name: int(value) for name, value in values.items()}
