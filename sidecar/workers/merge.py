"""One answer made of the workers' answers: a function for each thing that is asked of all of them.

Nothing is told by halves: while one worker does not answer, what concerns the store is refused (503), because a message
that is not listed would be taken for one that does not wait.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fastapi import Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from pydantic import TypeAdapter

from sidecar.observability.health import SEVERITY, State
from sidecar.pending import LIMIT_DEFAULT, Cursor
from sidecar.web.problems import Kind, ProblemError

_WHOLE = TypeAdapter(int)
"""Reads a number as each worker has read it: 5.0, too."""


class WorkerAddress(Protocol):
    """Where a worker is found; None while it is not."""

    number: int
    address: str | None


class Answer(NamedTuple):
    """What one worker says."""

    worker: int
    status: int
    """HTTP status; 0 where there is no answer."""
    body: bytes = b""
    headers: Mapping[str, str] = {}

    def json(self) -> Any:
        return json.loads(self.body)

    def response(self) -> Response:
        """The answer as it is."""
        return Response(self.body, self.status, self.headers)


Merge = Callable[[Mapping[str, str], Sequence[Answer]], Response]
"""Makes one answer, given the query's parameters and the answer of every worker, in the order of their numbers."""

SILENT = "does not answer: it hangs, starts, or has ended and is started anew"


def name_of(number: int, processes: int) -> str:
    """How people are told of one of so many processes that deliver."""
    return f"worker {number}" if processes > 1 else "the process that delivers"


def merge_healthz(_query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
    """Alive is a sidecar none of whose workers hangs. One that has ended is started anew: to end the others would not
    help it."""
    running = [answer for answer in answers if answer.status] or answers
    faults = [f"worker {answer.worker} {_fault(answer)}" for answer in running if answer.status != 200]
    if faults:
        return PlainTextResponse("\n".join(faults) + "\n", 503)
    told = {
        answer.worker: answer.body.decode(errors="replace").splitlines()[1:] if answer.status else [SILENT]
        for answer in answers
    }
    states = [f"worker {worker} {line}" for worker, lines in told.items() for line in lines]
    return PlainTextResponse("\n".join(["ok", *states]) + "\n")


def merge_readyz(_query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
    """Ready is a sidecar whose workers are all ready; its state is the worst of theirs. A switch that one tells as off
    is told as off."""
    reasons: list[str] = []
    warnings: list[str] = []
    others: dict[str, Any] = {}
    states: list[dict[str, Any]] = []
    for answer in answers:
        told = answer.json() if answer.status in (200, 503) else {"reasons": [_fault(answer)]}
        reasons += [f"worker {answer.worker}: {reason}" for reason in told.pop("reasons")]
        warnings += [f"worker {answer.worker}: {warning}" for warning in told.pop("warnings", [])]
        state = {name: told.pop(name, None) for name in ("state", "words", "action", "progress")}
        if state["state"] is None:
            state |= {"state": str(State.STARTING), "words": SILENT, "action": ""}
        states.append({**state, "words": f"worker {answer.worker}: {state['words']}"})
        others = {**told, **{name: told.get(name) or value for name, value in others.items()}}
    if all(state["state"] == State.HEALTHY for state in states):
        states = [{**state, "words": state["words"].partition(": ")[2]} for state in states]
    others |= {**min(states, key=lambda state: SEVERITY.index(State(state["state"]))), "warnings": warnings}
    return JSONResponse({**others, "ready": not reasons, "reasons": reasons}, 503 if reasons else 200)


def merge_pending(query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
    """All that waits, the soonest first, up to the limit."""
    if refusal := _refusal(answers):
        return refusal
    told = [answer.json() for answer in answers]
    partitions = sorted(partition for one in told for partition in one["partitions"])
    if len(set(partitions)) < len(partitions):
        return _refuse("partitions are changing hands; ask again")
    messages = [message for one in told for message in one["messages"]]
    messages.sort(key=_cursor)
    messages = messages[: _WHOLE.validate_python(query.get("limit") or LIMIT_DEFAULT)]
    total = sum(one["total"] for one in told)
    following = str(_cursor(messages[-1])) if messages and total > len(messages) else None
    return JSONResponse({"total": total, "messages": messages, "partitions": partitions, "next": following})


def _cursor(message: Mapping[str, Any]) -> Cursor:
    return Cursor(message["act_ms"], message["partition"], message["offset"])


def merge_cancel(_query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
    """What the worker that reads the cancel's partition knows; the others know that it is not theirs."""
    others = [answer for answer in answers if _is_not_assigned(answer)]
    concerned = [answer for answer in answers if answer not in others]
    for answer in concerned:
        if answer.status in (200, 404):
            return answer.response()
    return _refusal(concerned) or _of_none(others)


def merge_switches(_query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
    """How the switches stand: the same with every worker."""
    return _refusal(answers) or answers[0].response()


def merge_switched(switched: dict[str, Any]) -> Merge:
    """How the switches stand now.

    Args:
        switched: takes what any worker has been switched to, so that those that are started anew start with it.
    """

    def merge(_query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
        done = [answer for answer in answers if answer.status == 200]
        for answer in done:
            switched.update(answer.json())
        others = [answer.worker for answer in answers if answer not in done]
        if not done and (unsure := next((one for one in answers if one.status == Kind.NO_ANSWER.status), None)):
            return unsure.response()  # it may yet switch
        if not done or not others:
            return _refusal(answers) or answers[0].response()
        return ProblemError(
            Kind.NO_ANSWER,
            f"{_workers(answer.worker for answer in done)} switched, {_workers(others)} did not answer; one that is "
            "started anew starts so. Repeat the request to be sure",
        ).response()

    return merge


def _workers(numbers: Iterable[int]) -> str:
    told = [str(number) for number in numbers]
    return f"worker{'s' if len(told) > 1 else ''} {', '.join(told)}"


def worker_up() -> GaugeMetricFamily:
    """To be filled."""
    return GaugeMetricFamily("timewheel_worker_up", "Whether the worker answers.", labels=["worker"])


def merge_metrics(own: CollectorRegistry) -> Merge:
    """Every worker's metrics with its number as a label, and the supervisor's own.

    They are not added up: a sum falls when one of its counters begins anew with its worker, and Prometheus takes a fall
    for a reset of the whole, and counts the rest of it again.
    """

    def merge(_query: Mapping[str, str], answers: Sequence[Answer]) -> Response:
        registry = CollectorRegistry()
        registry.register(_Merged(answers, own))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return merge


class _Merged(Collector):
    """Each metric family once, with the samples of all workers; samples without a worker label are the supervisor's."""

    def __init__(self, answers: Iterable[Answer], own: CollectorRegistry) -> None:
        self._answers = answers
        self._own = own

    def collect(self) -> Iterator[Metric]:
        up = worker_up()
        families: dict[str, Metric] = {up.name: up, **{family.name: family for family in self._own.collect()}}
        for answer in self._answers:
            worker = str(answer.worker)
            up.add_metric([worker], float(answer.status == 200))
            if answer.status != 200:
                continue
            for family in text_string_to_metric_families(answer.body.decode()):
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.add_sample(sample.name, {"worker": worker, **sample.labels}, sample.value, sample.timestamp)
        yield from families.values()


def _is_not_assigned(answer: Answer) -> bool:
    return answer.status == 404 and answer.json().get("reason") == "not_assigned"


def _of_none(others: Sequence[Answer]) -> Response:
    told = [answer.json() for answer in others]
    partitions = sorted({partition for one in told for partition in one["partitions"]})
    has = f"they have the wheel partitions {', '.join(map(str, partitions))}" if partitions else "they have none yet"
    message = f"no worker of this sidecar reads that partition; {has}"
    return ProblemError(
        Kind.NO_OUTCOME, message, reason=told[0]["reason"], topic=told[0]["topic"], partitions=partitions
    ).response()


def _fault(answer: Answer) -> str:
    return answer.body.decode(errors="replace").strip() if answer.status == 503 else SILENT


def _refusal(answers: Sequence[Answer]) -> Response | None:
    """Why there is no answer to give: because a worker is silent, before all; or it has refused."""
    for answer in sorted(answers, key=lambda answer: answer.status):
        if answer.status == 0:
            return _refuse(f"worker {answer.worker} {SILENT}; ask again")
        if answer.status != 200:
            return answer.response()
    return None


def _refuse(detail: str) -> Response:
    return ProblemError(Kind.UNAVAILABLE, detail).response()
