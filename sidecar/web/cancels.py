"""``GET /api/v1/cancels/{partition}/{offset}``: what became of a cancel."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel

from sidecar.cancel_outcomes import CancelOutcomes, NoOutcome
from sidecar.health import Health
from sidecar.web.problems import Kind, ProblemError, described


class OutcomeAnswer(BaseModel):
    """A cancel that has been decided."""

    topic: str
    partition: int
    offset: int
    outcome: Literal["cancelled", "too_late", "unknown"]


Number = Annotated[int, Path(ge=0, lt=2**63)]


def cancels_router(outcomes: CancelOutcomes, health: Health) -> APIRouter:
    """The outcomes that this process knows.

    Where there is none, the problem says why (``reason``), of which topic, and which partitions are read here.
    """
    router = APIRouter()

    @router.get(
        "/api/v1/cancels/{partition}/{offset}",
        summary="What became of the cancel at this offset of the wheel topic",
        responses=described(Kind.NO_OUTCOME),
    )
    async def cancel_outcome(partition: Number, offset: Number) -> OutcomeAnswer:
        partitions = sorted(number for topic, number in health.places if topic == outcomes.topic)
        found: str | NoOutcome = NoOutcome.NOT_ASSIGNED
        if partition in partitions:
            found = outcomes.find(partition, offset)
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
