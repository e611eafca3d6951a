"""Redrives: begun with a request, carried out in a thread, looked at while they run.

A redrive that is done soon is answered at once; a longer one with 202 and the place where its progress is told. What a
redrive has moved stands in Kafka (`connectors.dead_letters`), what is told of it only here: after a restart the same
request goes on where it stopped.
"""

import asyncio
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from connectors.clock import Deadline, SystemClock
from connectors.dead_letters import DEFAULT_MAX_REDRIVES, DeadLettersError, Filter, Redriven
from sidecar.errors import to_keep
from sidecar.front.dead_letters import FILTERS_MAX, Group, answered, chosen_by, problem_of
from sidecar.front.kafka import FrontKafka
from sidecar.front.threads import Threads
from sidecar.web.problems import Kind, ProblemError, described

RUNNING_MAX = 2
KEPT_MAX = 100
"""Redrives that are remembered."""
ANSWERED_AFTER_S = 2.0
REASONS_TOLD_MAX = 50
ENDED_WITHIN_S = 0.8
"""How long the end of the process waits for a transaction in hand: a commit takes a few ms, and whoever ends the
process does not wait for long."""

log = structlog.get_logger("timewheel.web")


class State(StrEnum):
    """running -> done | failed | stopped"""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class RedriveRequest(BaseModel):
    """Which letters, where to, and how fast."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    filter: list[Annotated[str, Field(max_length=2_048)]] = Field(
        default=[],
        max_length=FILTERS_MAX,
        description="Only letters that meet all of these; see `filter` of GET.",
        examples=[["reason=GIVEN_UP"]],
    )
    to: str | None = Field(
        default=None, min_length=1, max_length=512, description="Another destination than where each belongs."
    )
    rate: int | None = Field(default=None, ge=1, le=1_000_000, description="Messages a second, at most.")
    max_redrives: int = Field(
        default=DEFAULT_MAX_REDRIVES, ge=1, le=1_000_000, description="A message redriven so often is parked."
    )
    again: bool = Field(default=False, description="Also those that have been redriven.")
    dry_run: bool = Field(default=False, description="Move nothing; tell what would be done.")


class Stayed(BaseModel):
    """Letters that cannot be moved, and why."""

    reason: str
    count: int


class RedriveAnswer(BaseModel):
    """How far a redrive is, or what it has done."""

    id: str
    group: str
    state: Literal["running", "done", "failed", "stopped"]
    dry_run: bool
    gone_through: int = Field(
        description="Offsets of the dead-letter topic, of `total`; markers of transactions have some, too."
    )
    total: int
    reason: str | None = Field(default=None, description="Why it failed.")
    redriven: int | None = Field(default=None, description="None while it runs, as with what follows.")
    destinations: dict[str, int] | None = None
    parked: int | None = None
    stayed: list[Stayed] | None = None
    done_before: int | None = None
    filtered_out: int | None = None


class RedrivesAnswer(BaseModel):
    """The last hundred, the newest first."""

    redrives: list[RedriveAnswer]


class _StopError(Exception):
    """Ends a redrive between two transactions."""


@dataclass(eq=False)
class Job:
    """A redrive. Its thread writes single attributes, and others read them."""

    group: str
    wanted: RedriveRequest
    chosen: Filter
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: State = State.RUNNING
    gone_through: int = 0
    total: int = 0
    error: Exception | None = None
    report: Redriven | None = None
    is_to_stop: threading.Event = field(default_factory=threading.Event)
    has_ended: threading.Event = field(default_factory=threading.Event)

    def run(self, kafka: FrontKafka) -> None:
        """Until all letters have been gone through."""
        try:
            self.report = kafka.dead_letters().redrive(
                self.group,
                self.chosen,
                to=self.wanted.to,
                rate=self.wanted.rate,
                max_redrives=self.wanted.max_redrives,
                again=self.wanted.again,
                dry_run=self.wanted.dry_run,
                on_progress=self._on_progress,
                wait=self.is_to_stop.wait,
            )
            self._end(State.DONE)
        except _StopError:
            self._end(State.STOPPED)
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """It has not been carried out, or not to its end."""
        self.error = to_keep(error)
        self._end(State.FAILED)

    def _end(self, state: State) -> None:
        self.state = state
        log.info("redrive ended", redrive=self.id, group=self.group, state=self.state, reason=self._reason)
        self.has_ended.set()

    def answer(self) -> RedriveAnswer:
        told = {} if self.report is None else self.report.to_dict(REASONS_TOLD_MAX)
        return RedriveAnswer(
            id=self.id,
            group=self.group,
            state=self.state.value,
            dry_run=self.wanted.dry_run,
            gone_through=self.gone_through,
            total=self.total,
            reason=self._reason,
            **told,
        )

    @property
    def _reason(self) -> str | None:
        return None if self.error is None else str(self.error)

    def _on_progress(self, done: int, total: int) -> None:
        self.gone_through, self.total = done, total
        if self.is_to_stop.is_set():
            raise _StopError


class Jobs:
    """The redrives of this process. Any thread may call any method."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def ask_to_stop(self) -> None:
        """The process is about to end: each is to stop after the transaction in hand."""
        with self._lock:
            self._is_closed = True
        for job in self.all():
            job.is_to_stop.set()

    def close(self, within_s: float = ENDED_WITHIN_S) -> None:
        """Have them stop, and wait for that: readers of the destinations wait out a transaction that is left open."""
        self.ask_to_stop()
        deadline = Deadline(SystemClock(), within_s)
        for job in self.all():
            job.has_ended.wait(deadline.left_s)

    def add(self, job: Job) -> None:
        """Raises ProblemError where the group is being redriven, or too many are."""
        with self._lock:
            self._add(job)

    def _add(self, job: Job) -> None:
        if self._is_closed:
            raise ProblemError(Kind.UNAVAILABLE, "the sidecar is stopping; ask for the redrive when it is back")
        running = [one for one in self._jobs.values() if one.state is State.RUNNING]
        for one in running:
            if one.group == job.group:
                raise ProblemError(
                    Kind.IN_PROGRESS,
                    f"group '{job.group}' is being redriven; look at /api/v1/redrives/{one.id}, or DELETE it",
                    redrive=one.id,
                )
        if len(running) >= RUNNING_MAX:
            raise ProblemError(Kind.TOO_MANY, f"{len(running)} groups are being redriven; wait for one of them")
        self._jobs[job.id] = job
        while len(self._jobs) > KEPT_MAX:
            oldest = next(id_ for id_, one in self._jobs.items() if one.state is not State.RUNNING)
            del self._jobs[oldest]

    def find(self, id_: str) -> Job:
        """Raises ProblemError."""
        if (job := self._jobs.get(id_)) is None:
            raise ProblemError(Kind.NO_SUCH_REDRIVE, "this redrive is not known; ask for it again, nothing moves twice")
        return job

    def all(self) -> list[Job]:
        with self._lock:
            return list(reversed(self._jobs.values()))


RedriveId = Annotated[str, Path(max_length=100)]


def redrives_router(kafka: FrontKafka, jobs: Jobs) -> APIRouter:
    """Moves dead letters."""
    router = APIRouter()
    checks = Threads("redrive-checks", RUNNING_MAX)
    running_jobs = Threads("redrives", RUNNING_MAX)

    async def carry_out(job: Job) -> None:
        try:
            await running_jobs.run(lambda: job.run(kafka))
        except RuntimeError as error:  # there may be no more threads: nothing has been done
            job.fail(error)

    @router.post(
        "/api/v1/dead-letters/{group}/redrive",
        summary="Send a group's dead letters where they belong, each once",
        response_model=RedriveAnswer,
        responses={
            202: {"model": RedriveAnswer, "description": "It takes longer; Location tells how far it is."},
            **described(
                Kind.NO_SUCH_GROUP, Kind.IN_PROGRESS, Kind.INVALID, Kind.TOO_MANY, Kind.REFUSED, Kind.UNKNOWN_OUTCOME
            ),
        },
    )
    async def redrive(group: Group, response: Response, wanted: RedriveRequest | None = None) -> RedriveAnswer:
        wanted = wanted or RedriveRequest()
        job = Job(group, wanted, chosen_by(wanted.filter))
        job.group = await answered(checks.run(lambda: kafka.dead_letters().check(group, wanted.to)))
        jobs.add(job)
        # A filter holds keys and headers of messages, which are in no log.
        asked = wanted.model_dump(exclude_defaults=True, exclude={"filter"})
        log.info("redrive begun", redrive=job.id, group=job.group, is_filtered=bool(wanted.filter), **asked)
        await asyncio.wait([asyncio.create_task(carry_out(job))], timeout=ANSWERED_AFTER_S)
        if isinstance(job.error, DeadLettersError):
            problem = problem_of(job.error)
            if problem.kind is Kind.UNAVAILABLE and not wanted.dry_run:  # some may have moved by then
                problem.kind = Kind.UNKNOWN_OUTCOME
            problem.more["redrive"] = job.id
            raise problem
        response.headers["Location"] = f"/api/v1/redrives/{job.id}"
        response.status_code = 202 if job.state is State.RUNNING else 200
        return job.answer()

    @router.get("/api/v1/redrives", summary="Redrives that run, and the last ones that have ended")
    async def redrives() -> RedrivesAnswer:
        return RedrivesAnswer(redrives=[job.answer() for job in jobs.all()])

    @router.get(
        "/api/v1/redrives/{redrive}",
        summary="How far a redrive is, or what it has done",
        responses=described(Kind.NO_SUCH_REDRIVE),
    )
    async def show(redrive: RedriveId) -> RedriveAnswer:
        return jobs.find(redrive).answer()

    @router.delete(
        "/api/v1/redrives/{redrive}",
        status_code=202,
        summary="Stop a redrive after the transaction in hand",
        responses=described(Kind.NO_SUCH_REDRIVE),
    )
    async def stop(redrive: RedriveId) -> RedriveAnswer:
        job = jobs.find(redrive)
        job.is_to_stop.set()
        return job.answer()

    return router
