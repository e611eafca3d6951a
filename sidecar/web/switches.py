"""``/api/v1/switches``: intake and delivery, stopped and started while the sidecar runs."""

import structlog
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, StrictBool

from sidecar.switches import Switches

log = structlog.get_logger("timewheel.web")


class SwitchesAnswer(BaseModel):
    """How the switches stand."""

    stop_enqueue: bool
    stop_dequeue: bool


class SwitchesChange(BaseModel):
    """What is to change; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    stop_enqueue: StrictBool | None = None
    stop_dequeue: StrictBool | None = None


def switches_router(switches: Switches) -> APIRouter:
    """The switches of this process; the loop follows with its next turn."""
    router = APIRouter()

    def answer() -> SwitchesAnswer:
        return SwitchesAnswer(stop_enqueue=switches.stop_enqueue, stop_dequeue=switches.stop_dequeue)

    @router.get("/api/v1/switches", summary="Whether intake and delivery are stopped")
    async def show() -> SwitchesAnswer:
        return answer()

    @router.put("/api/v1/switches", summary="Stop or start intake and delivery, until the sidecar ends")
    async def change(wanted: SwitchesChange) -> SwitchesAnswer:
        if wanted.stop_enqueue is not None:
            switches.stop_enqueue = wanted.stop_enqueue
        if wanted.stop_dequeue is not None:
            switches.stop_dequeue = wanted.stop_dequeue
        log.info("switched", **answer().model_dump())
        return answer()

    return router
