"""What is shown of a sidecar, of one process and of several."""

import json
from typing import Any

import msgspec
import pytest

from connectors.contract import DelayLevels
from sidecar.cli.status_view import first_of
from sidecar.dispatch.wheel.figures import WheelFigures
from sidecar.kafka.backlog import PlaceBacklog
from sidecar.observability.health import State
from sidecar.observability.history import Point
from sidecar.status import PLACES_MAX, Part, VerdictPart, present, silent_part
from sidecar.told import PlaceTold

LEVELS = DelayLevels.parse("1s 2h")
TOPICS = {"1": "S-1", "2": "S-2", "wheel": "S-wheel", "sendback": "S-sendback"}


def part(
    state: State = State.HEALTHY,
    words: str = "what is due goes out on time",
    *,
    worker: int | None = None,
    progress: float | None = None,
    behind_ms: int = 0,
    reasons: list[str] | None = None,
    places: list[PlaceTold] | None = None,
    wheel: WheelFigures | None = None,
    wheel_partitions: list[int] | None = None,
    minute: dict[str, list[tuple[int, int]]] | None = None,
    point: Point | None = None,
    stopped: dict[str, str] | None = None,
) -> Part:
    return Part(
        version="1.2.3",
        group_id="timewheel",
        at_ms=1_000,
        verdict=VerdictPart(state, words, "do this" if state is State.STUCK else "", progress, 5_000),
        reasons=reasons or [],
        warnings=["careful"] if state is State.DISK_FULL else [],
        stop_enqueue=False,
        stop_dequeue=state is State.HELD,
        behind_ms=behind_ms,
        assigned=len(places or []),
        stopped=stopped or {},
        places=places or [],
        wheel=wheel,
        wheel_partitions=wheel_partitions or [],
        quota_bytes=0,
        waiting={"1": 2, "wheel": 1},
        delivered={"1": 10},
        rejected={"CODE": 1},
        cancels={"cancelled": 1, "too_late": 0},
        rates={"ingested": {"1": 1.5}, "delivered": {"1": 0.5, "wheel": 1.0}, "rejected": {"": 0.0}},
        minute=minute or {},
        point=point,
        worker=worker,
    )


def shown(*parts: Part, backlog: list[PlaceBacklog] | None = None) -> dict[str, Any]:
    """As it goes over the wire."""
    told: dict[str, Any] = json.loads(msgspec.json.encode(present(parts, LEVELS, TOPICS, backlog)))
    return told


def test_one_process_is_told_without_a_number() -> None:
    told = shown(part(State.BEHIND, "behind by 4.0 s because …", behind_ms=4_000, reasons=["so"]))
    assert (told["state"], told["words"], told["behind_seconds"]) == ("behind", "behind by 4.0 s because …", 4.0)
    assert (told["ready"], told["reasons"], told["version"], told["group_id"]) == (False, ["so"], "1.2.3", "timewheel")
    assert told["delivered"] == {"1": 10}
    assert told["rates"] == {"ingested": 1.5, "delivered": 1.5, "rejected": 0.0}
    assert told["pending"] is None, "not known before the first look"


def test_of_several_the_worst_speaks_and_says_who_it_is() -> None:
    told = shown(part(worker=1), part(State.STUCK, "a-0 is stopped: retention", worker=2, reasons=["a-0 is stopped"]))
    assert (told["state"], told["words"]) == ("stuck", "worker 2: a-0 is stopped: retention")
    assert (told["action"], told["reasons"], told["ready"]) == ("do this", ["worker 2: a-0 is stopped"], False)
    assert (told["delivered"], told["rejected"], told["waiting"]) == ({"1": 20}, {"CODE": 2}, {"1": 4, "wheel": 2})
    assert told["cancels"] == {"cancelled": 2, "too_late": 0}


def test_of_two_that_are_behind_the_one_further_behind_speaks() -> None:
    one, other = (part(State.BEHIND, f"by {ms}", worker=ms, behind_ms=ms) for ms in (2_000, 9_000))
    told = shown(one, other)
    assert (told["words"], told["behind_seconds"]) == ("worker 9000: by 9000", 9.0)


def test_all_well_is_told_of_all() -> None:
    assert shown(part(worker=1), part(worker=2))["words"] == "what is due goes out on time"


def test_recovery_is_as_far_as_the_last_of_them() -> None:
    told = shown(*(part(State.RECOVERING, "…", worker=n, progress=n / 10) for n in (7, 3)))
    assert told["progress"] == 0.3


def test_a_switch_that_one_has_off_and_warnings_are_told() -> None:
    told = shown(part(worker=1), part(State.HELD, worker=2), part(State.DISK_FULL, worker=3))
    assert (told["stop_dequeue"], told["stop_enqueue"], told["warnings"]) == (True, False, ["worker 3: careful"])


def test_a_worker_that_does_not_answer_is_no_reason_to_say_nothing() -> None:
    told = shown(part(worker=1), silent_part(2, "does not answer", 2_000))
    assert (told["state"], told["words"], told["ready"]) == ("starting", "worker 2: does not answer", False)
    assert told["version"] == "1.2.3"
    assert told["delivered"] == {"1": 10}


def test_pending_is_known_of_those_that_have_looked() -> None:
    figures = WheelFigures(7, {"orders": 7}, {"1m": 3, "later": 4}, 9_000, 100, 0)
    told = shown(part(wheel=figures, wheel_partitions=[2]), part(wheel=figures, wheel_partitions=[0]))
    assert told["pending"] == {"total": 14, "partitions": [0, 2]}
    assert (told["pending_by_topic"], told["furthest_due_ms"]) == ({"orders": 14}, 9_000)
    assert told["store"] == {"bytes": 200, "quota_bytes": 0}


def test_percentiles_are_those_of_all_deliveries_and_not_of_percentiles() -> None:
    many_quick, few_slow = {"1": [(0, 990)]}, {"1": [(100, 11)]}
    lateness = shown(part(minute=many_quick), part(minute=few_slow))["lateness"]["minute"]
    assert lateness["deliveries"] == 1_001
    assert lateness["p50_ms"] <= 1
    assert lateness["p99_ms"] > 1_000


def test_points_of_the_same_seconds_are_one() -> None:
    points = [Point(5_000, 1, 2, 0, 10, [(5, 2)]), Point(5_000, 3, 4, 1, 20, [(5, 4)]), Point(0, 9, 9, 9, 99, [])]
    told = shown(*(part(point=point) for point in points))["point"]
    assert (told["at_ms"], told["ingested"], told["delivered"], told["rejected"], told["behind_ms"]) == (
        5_000,
        4,
        6,
        1,
        20,
    )


def test_the_backlog_is_what_kafka_has_and_the_loop_does_not() -> None:
    places = [PlaceTold("S-1", 0, "1", 40, 2_000, ""), PlaceTold("S-wheel", 0, "wheel", 1_000, 0, "intake is paused")]
    backlog = [
        PlaceBacklog("S-1", 0, 900, 1_000),
        PlaceBacklog("S-1", 1, -1, 30),
        PlaceBacklog("S-2", 0, 7, 7),
        PlaceBacklog("S-wheel", 0, 20, 25),
    ]
    told = shown(part(places=places, stopped={"S-1-1": "retention"}), backlog=backlog)
    rows = {row["queue"]: row for row in told["queues"]}
    assert list(rows) == ["1", "2", "wheel", "sendback"]
    assert (rows["1"]["waiting"], rows["1"]["unread"], rows["1"]["partitions"]) == (130, 90, 2)
    assert (rows["wheel"]["waiting"], rows["wheel"]["unread"]) == (1_005, 5)
    assert (rows["1"]["delay"], rows["2"]["delay"], rows["wheel"]["delay"]) == ("1s", "2h", None)
    assert (rows["1"]["next_due_ms"], rows["wheel"]["next_due_ms"]) == (2_000, None)
    by_place = {(row["topic"], row["partition"]): row for row in told["places"]}
    assert by_place["S-wheel", 0]["trouble"] == "intake is paused"
    assert by_place["S-1", 1]["trouble"] == "stopped: retention"
    assert ("S-2", 0) not in by_place, "nothing waits there"


@pytest.mark.parametrize("backlog", [None, []])
def test_without_kafkas_word_it_tells_what_the_loop_has(backlog: list[Any] | None) -> None:
    told = shown(part(places=[PlaceTold("S-1", 0, "1", 40, None, "")]), backlog=backlog)
    assert (told["queues"][0]["waiting"], told["queues"][0]["unread"]) == (40, None)


def test_of_many_partitions_those_with_the_largest_backlog_are_told() -> None:
    places = [PlaceTold("S-1", number, "1", number, None, "") for number in range(1, 1_000)]
    told = shown(part(places=places))
    assert len(told["places"]) == PLACES_MAX
    assert told["places"][0]["waiting"] == 999
    assert told["queues"][0]["waiting"] == sum(range(1_000))


def test_a_part_survives_the_way_to_the_supervisor() -> None:
    figures = WheelFigures(7, {"orders": 7}, {"1m": 3}, 9_000, 100, 0)
    sent = part(
        State.RECOVERING,
        progress=0.5,
        places=[PlaceTold("S-1", 0, "1", 4, None, "")],
        wheel=figures,
        minute={"1": [(3, 4)]},
        point=Point(5_000, 1, 2, 0, 10, [(5, 2)]),
    )
    assert msgspec.json.decode(msgspec.json.encode(sent), type=Part) == sent


def test_of_many_reasons_the_first_are_shown_and_how_many_more_there_are() -> None:
    assert first_of(["a", "b"]) == ["a", "b"]
    assert first_of(["a", "b", "c"]) == ["a", "b", "c"]
    assert first_of(["a", "b", "c", "d", "e"]) == ["a", "b", "c", "and 2 more"]
