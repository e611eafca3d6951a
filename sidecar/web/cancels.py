"""``GET /api/v1/cancels/{partition}/{offset}``: what became of a cancel."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from sidecar.cancel_outcomes import CancelOutcome, CancelOutcomes, NoOutcome
from sidecar.observability.health import Health
from sidecar.web.problems import Kind, ProblemError, described


class OutcomeAnswer(BaseModel):
    """A cancel that has been decided."""

    topic: str
    partition: int
    offset: int
    outcome: CancelOutcome


Number = Annotated[int, Path(ge=0, lt=2**63)]

WAIT_MAX_MS = 5_000
LOOK_EVERY_S = 0.05


def cancels_router(outcomes: CancelOutcomes, health: Health) -> APIRouter:
    """The outcomes that this process knows.

    Where there is none, the problem says why (``reason``), of which topic, and which partitions are read here.
    """
    router = APIRouter()

    def wheel_partitions() -> list[int]:
        return sorted(number for topic, number in health.places if topic == outcomes.topic)

    def look(partition: int, offset: int) -> CancelOutcome | NoOutcome:
        return outcomes.find(partition, offset) if partition in wheel_partitions() else NoOutcome.NOT_ASSIGNED

    @router.get(
        "/api/v1/cancels/{partition}/{offset}",
        summary="What became of the cancel at this offset of the wheel topic",
        responses=described(Kind.NO_OUTCOME),
    )
    async def cancel_outcome(
        partition: Number,
        offset: Number,
        wait_ms: Annotated[int, Query(ge=0, le=WAIT_MAX_MS, description="How long to wait for the decision.")] = 0,
    ) -> OutcomeAnswer:
        looks = int(wait_ms / 1000 / LOOK_EVERY_S)
        while (found := look(partition, offset)) is NoOutcome.UNDECIDED and looks > 0:
            looks -= 1
            await asyncio.sleep(LOOK_EVERY_S)
        partitions = wheel_partitions()
        if isinstance(found, NoOutcome):
            place = f"{outcomes.topic}-{partition}"
            told = _in_words(found, place, offset, partitions)
            raise ProblemError(Kind.NO_OUTCOME, told, reason=found, topic=outcomes.topic, partitions=partitions)
        return OutcomeAnswer.model_validate(
            {"topic": outcomes.topic, "partition": partition, "offset": offset, "outcome": found}
        )

    return router


def _in_words(reason: NoOutcome, place: str, offset: int, partitions: list[int]) -> str:
    match reason:
        case NoOutcome.NOT_ASSIGNED:
            has = f"it has the wheel partitions {', '.join(map(str, partitions))}" if partitions else "it has none yet"
            return f"this sidecar does not read {place}; {has}"
        case NoOutcome.UNDECIDED:
            return f"the cancel at {place}, offset {offset}, is not decided yet"
        case NoOutcome.UNKNOWN_OFFSET:
            return (
                f"no outcome is on record for {place}, offset {offset}: no cancel stands there, or it waits for a "
                "rolled message, or it was decided long ago or before this sidecar started"
            )
