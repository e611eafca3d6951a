"""Several workers' answers made one."""

import json
from typing import Any

import numpy as np
import pytest
from fastapi import Response
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.observability.metrics import Metrics
from sidecar.workers.merge import (
    SILENT,
    Answer,
    merge_cancel,
    merge_healthz,
    merge_metrics,
    merge_pending,
    merge_readyz,
    merge_switched,
    merge_switches,
)
from sidecar.workers.supervisor import BACKOFF_MAX_S, BACKOFF_MIN_S, backoff_s


def answer(worker: int, told: Any, status: int = 200) -> Answer:
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    return Answer(worker, status, body, {"content-type": "application/json"})


def told(response: Response) -> Any:
    return json.loads(response.body)


def text(response: Response) -> str:
    return bytes(response.body).decode()


def message(deliver_ms: int, partition: int, offset: int) -> dict[str, Any]:
    return {
        "id": f"{partition}-{offset}",
        "topic": "orders",
        "deliver_ms": deliver_ms,
        "partition": partition,
        "offset": offset,
        "act_ms": deliver_ms,
    }


def pending(partitions: list[int], *messages: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    return {"total": len(messages) if total is None else total, "messages": list(messages), "partitions": partitions}


# --- healthz and readyz -----------------------------------------------------------------------------------------------


def test_all_alive_is_alive_and_each_tells_its_state() -> None:
    response = merge_healthz({}, [answer(1, b"ok\nhealthy: on time\n"), answer(2, b"ok\nbehind: by 4 s\n")])
    told = "ok\nworker 1 healthy: on time\nworker 2 behind: by 4 s\n"
    assert (response.status_code, text(response)) == (200, told)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (answer(2, b"stuck: the loop has not turned\n", 503), "stuck: the loop has not turned"),
        (answer(2, {"detail": "no answer"}, 504), SILENT),
    ],
)
def test_one_that_is_not_alive_is_named(fault: Answer, words: str) -> None:
    response = merge_healthz({}, [answer(1, b"ok\n"), fault, answer(3, b"ok\n")])
    assert (response.status_code, text(response)) == (503, f"worker 2 {words}\n")


def test_one_that_has_ended_is_no_reason_to_end_the_others() -> None:
    response = merge_healthz({}, [answer(1, b"ok\nhealthy: on time\n"), Answer(2, 0)])
    assert (response.status_code, text(response)) == (200, f"ok\nworker 1 healthy: on time\nworker 2 {SILENT}\n")
    assert merge_healthz({}, [Answer(1, 0), Answer(2, 0)]).status_code == 503, "nobody is alive"


WELL = {"ready": True, "state": "healthy", "words": "on time", "action": "", "progress": None, "reasons": []}


def test_all_ready_is_ready() -> None:
    response = merge_readyz({}, [answer(number, {**WELL, "warnings": []}) for number in (1, 2)])
    assert (response.status_code, told(response)) == (200, {**WELL, "warnings": []})


def test_every_reason_is_told_with_its_worker_and_the_worst_state() -> None:
    unready = {
        **WELL,
        "ready": False,
        "state": "disk_full",
        "words": "no room",
        "reasons": ["a-0 is stopped: retention", "stopping"],
        "warnings": ["wheel-0: no room"],
    }
    response = merge_readyz({}, [answer(1, unready, 503), answer(2, {**WELL, "warnings": ["b"]}), Answer(3, 0)])
    assert response.status_code == 503
    assert told(response) == {
        "ready": False,
        "state": "starting",
        "words": f"worker 3: {SILENT}",
        "action": "",
        "progress": None,
        "reasons": ["worker 1: a-0 is stopped: retention", "worker 1: stopping", f"worker 3: {SILENT}"],
        "warnings": ["worker 1: wheel-0: no room", "worker 2: b"],
    }
    two = told(merge_readyz({}, [answer(1, unready, 503), answer(2, WELL)]))
    assert (two["state"], two["words"]) == ("disk_full", "worker 1: no room")


def test_what_an_operator_has_to_do_is_told_before_what_goes_by() -> None:
    stuck = {
        **WELL,
        "ready": False,
        "state": "stuck",
        "words": "wheel-0 is stopped",
        "action": "choose",
        "reasons": ["a"],
    }
    starting = {**WELL, "ready": False, "state": "starting", "reasons": ["b"]}
    merged = told(merge_readyz({}, [answer(1, stuck, 503), answer(2, starting, 503)]))
    assert (merged["state"], merged["words"], merged["action"]) == ("stuck", "worker 1: wheel-0 is stopped", "choose")


def test_what_else_readiness_tells_is_true_where_one_says_so() -> None:
    answers = [
        answer(number, {**WELL, "a": a, "b": b, "c": False})
        for number, (a, b) in enumerate([(True, False), (False, True)], 1)
    ]
    merged = told(merge_readyz({}, answers))
    assert (merged["a"], merged["b"], merged["c"]) == (True, True, False)


# --- pending ----------------------------------------------------------------------------------------------------------


def test_pending_messages_are_merged_by_time_and_counted_together() -> None:
    answers = [
        answer(1, pending([0, 2], message(10, 0, 5), message(30, 2, 1), total=7)),
        answer(2, pending([1], message(10, 1, 3), message(20, 1, 0), message(10, 1, 2), total=4)),
        answer(3, pending([])),
    ]
    merged = told(merge_pending({}, answers))
    assert merged["total"] == 11
    assert merged["partitions"] == [0, 1, 2]
    assert [one["id"] for one in merged["messages"]] == ["0-5", "1-2", "1-3", "1-0", "2-1"]


def test_the_limit_is_that_of_one() -> None:
    answers = [answer(1, pending([0], *(message(n, 0, n) for n in range(100)), total=500)), answer(2, pending([1]))]
    answers[1] = answer(2, pending([1], *(message(n, 1, n) for n in range(100)), total=500))
    assert len(told(merge_pending({}, answers))["messages"]) == 100
    limited = told(merge_pending({"limit": "3"}, answers))
    assert [one["id"] for one in limited["messages"]] == ["0-0", "1-0", "0-1"]
    assert limited["total"] == 1_000
    assert limited["next"] == "1-0-1"
    assert told(merge_pending({"limit": "3.0"}, answers)) == limited, "which a worker reads as 3"
    assert len(told(merge_pending({"limit": ""}, answers))["messages"]) == 100


def test_there_is_no_next_page_behind_the_last_message() -> None:
    answers = [answer(1, pending([0], message(1, 0, 1))), answer(2, pending([1], message(2, 1, 0)))]
    assert told(merge_pending({"limit": "2"}, answers))["next"] is None
    assert told(merge_pending({}, [answer(1, pending([0]))]))["next"] is None


def test_what_rolls_is_listed_by_the_time_of_its_roll() -> None:
    rolls, soon = {**message(90, 0, 0), "act_ms": 10}, message(20, 1, 0)
    merged = told(merge_pending({"limit": "1"}, [answer(1, pending([0], rolls)), answer(2, pending([1], soon))]))
    assert ([one["id"] for one in merged["messages"]], merged["next"]) == (["0-0"], "10-0-0")


def test_nothing_is_told_while_a_worker_is_silent() -> None:
    response = merge_pending({}, [answer(1, pending([0])), Answer(2, 0)])
    assert response.status_code == 503
    assert told(response)["detail"] == f"worker 2 {SILENT}; ask again"


def test_nothing_is_told_while_two_claim_a_partition() -> None:
    response = merge_pending({}, [answer(1, pending([0, 1])), answer(2, pending([1]))])
    assert response.status_code == 503
    assert "changing hands" in told(response)["detail"]


@pytest.mark.parametrize("status", [401, 422, 503, 504])
def test_a_refusal_is_handed_on_as_it_is(status: int) -> None:
    refusal = Answer(2, status, b'{"detail": "no"}', {"content-type": "application/json", "www-authenticate": "Bearer"})
    response = merge_pending({}, [answer(1, pending([0])), refusal])
    assert (response.status_code, response.body) == (status, refusal.body)
    assert response.headers["www-authenticate"] == "Bearer"


# --- cancels and switches ---------------------------------------------------------------------------------------------

NOT_MINE = answer(1, {"reason": "not_assigned", "detail": "m", "topic": "t", "partitions": [0, 2]}, 404)
UNDECIDED = answer(2, {"reason": "undecided", "detail": "m"}, 404)
CANCELLED = answer(2, {"outcome": "cancelled"})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([NOT_MINE, CANCELLED], CANCELLED),
        ([CANCELLED, NOT_MINE], CANCELLED),
        ([NOT_MINE, UNDECIDED], UNDECIDED),
        ([UNDECIDED, Answer(3, 0)], UNDECIDED),
        ([answer(1, {"detail": []}, 422), answer(2, {"detail": []}, 422)], answer(1, {"detail": []}, 422)),
        ([answer(1, {"detail": "no"}, 401), answer(2, {"detail": "no"}, 401)], answer(1, {"detail": "no"}, 401)),
        ([answer(1, {"detail": "Not Found"}, 404)], answer(1, {"detail": "Not Found"}, 404)),
    ],
)
def test_a_cancels_outcome_is_told_by_the_worker_that_has_it(answers: list[Answer], expected: Answer) -> None:
    response = merge_cancel({}, answers)
    assert (response.status_code, response.body) == (expected.status, expected.body)


def test_a_cancel_of_none_of_the_workers_is_told_with_the_partitions_of_all() -> None:
    other = answer(2, {"reason": "not_assigned", "detail": "m", "topic": "t", "partitions": [1]}, 404)
    response = merge_cancel({}, [NOT_MINE, other])
    assert response.status_code == 404
    problem = told(response)
    assert problem["detail"] == "no worker of this sidecar reads that partition; they have the wheel partitions 0, 1, 2"
    assert (problem["reason"], problem["topic"], problem["partitions"]) == ("not_assigned", "t", [0, 1, 2])


def test_a_cancel_is_not_called_anybody_elses_while_a_worker_is_silent() -> None:
    response = merge_cancel({}, [NOT_MINE, Answer(2, 0)])
    assert response.status_code == 503
    assert "worker 2 does not answer" in told(response)["detail"]


def test_switches_are_told_as_by_one_and_kept_for_those_that_start_later() -> None:
    switched: dict[str, Any] = {}
    on = {"stop_enqueue": True, "stop_dequeue": False}
    response = merge_switched(switched)({}, [answer(1, on), answer(2, on)])
    assert (response.status_code, told(response)) == (200, on)
    assert switched == on
    assert told(merge_switches({}, [answer(1, on), answer(2, on)])) == on
    assert merge_switches({}, [answer(1, on), Answer(2, 0)]).status_code == 503


def test_a_switch_that_one_worker_has_not_heard_of_is_kept_and_who_has_is_told() -> None:
    switched: dict[str, Any] = {}
    on = {"stop_enqueue": True}
    response = merge_switched(switched)({}, [answer(1, on), Answer(2, 0), answer(3, on)])
    assert (response.status_code, told(response)["type"]) == (504, "/api/v1/problems/no-answer")
    assert "workers 1, 3 switched, worker 2 did not answer" in told(response)["detail"]
    assert switched == on


def test_a_switch_that_no_worker_has_heard_of_is_refused() -> None:
    assert merge_switched({})({}, [Answer(1, 0), Answer(2, 0)]).status_code == 503


def test_a_switch_that_a_worker_may_yet_carry_out_is_not_told_as_undone() -> None:
    unsure = answer(1, {"detail": "no answer from worker 1; it may have done what it was asked"}, 504)
    assert merge_switched({})({}, [Answer(2, 0), unsure]).status_code == 504


def test_a_switch_that_is_refused_changes_nothing() -> None:
    switched: dict[str, Any] = {}
    assert merge_switched(switched)({}, [answer(1, {"detail": []}, 422)] * 2).status_code == 422
    assert switched == {}


# --- metrics ----------------------------------------------------------------------------------------------------------


def some_metrics(delivered: int) -> bytes:
    metrics = Metrics("1.2.3")
    metrics.clock_ahead.set(0.25)  # not known it is no number, and as such equals nothing
    metrics.delivered.labels("wheel").inc(delivered)
    metrics.lateness.observe("wheel", np.array([0.002, 0.3]))
    return generate_latest(metrics.registry)


def samples(exposition: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


def test_every_sample_of_every_worker_is_there_with_its_worker() -> None:
    texts = {"1": some_metrics(3), "2": some_metrics(5)}
    merge = merge_metrics(CollectorRegistry())
    merged = samples(text(merge({}, [answer(int(worker), told) for worker, told in texts.items()])))
    expected = {
        (name, labels | {("worker", worker)}): value
        for worker, told in texts.items()
        for (name, labels), value in samples(told.decode()).items()
    }
    up = {("timewheel_worker_up", frozenset({("worker", worker)})): 1.0 for worker in texts}
    assert merged == expected | up


def test_a_family_is_described_once_and_as_the_worker_does() -> None:
    lines = text(merge_metrics(CollectorRegistry())({}, [answer(1, some_metrics(1)), answer(2, some_metrics(1))]))
    described = [line for line in lines.splitlines() if line.startswith("#")]
    assert len(described) == len(set(described))
    assert {line for line in some_metrics(1).decode().splitlines() if line.startswith("#")} <= set(described)


def test_a_silent_worker_is_down_and_the_supervisors_own_are_told() -> None:
    own = CollectorRegistry()
    Counter("timewheel_worker_restarts", "Restarts.", ["worker"], registry=own).labels("2").inc()
    merged = samples(text(merge_metrics(own)({}, [answer(1, some_metrics(1)), Answer(2, 0)])))
    assert merged["timewheel_worker_up", frozenset({("worker", "1")})] == 1
    assert merged["timewheel_worker_up", frozenset({("worker", "2")})] == 0
    assert merged["timewheel_worker_restarts_total", frozenset({("worker", "2")})] == 1


# --- back-off ---------------------------------------------------------------------------------------------------------


def test_each_failure_in_a_row_doubles_the_wait_up_to_a_bound() -> None:
    waits = [backoff_s(failures) for failures in range(5_000)]
    assert waits[:3] == [BACKOFF_MIN_S, 2 * BACKOFF_MIN_S, 4 * BACKOFF_MIN_S]
    assert max(waits) == waits[-1] == BACKOFF_MAX_S
