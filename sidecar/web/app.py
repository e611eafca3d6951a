"""The HTTP interface: health for the orchestrator, metrics for Prometheus."""

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sidecar.health import Health
from sidecar.metrics import Metrics


def make_app(health: Health, metrics: Metrics, version: str) -> FastAPI:
    """The ASGI application; it reads shared state and never waits for the loop."""
    app = FastAPI(title="Timewheel", version=version, openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None)

    @app.get("/healthz", response_class=PlainTextResponse, summary="The process is alive and its loop turns")
    async def healthz() -> Response:
        if health.is_alive():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the loop does not turn\n", status_code=503)

    @app.get("/readyz", summary="Partitions are assigned and recovered")
    async def readyz() -> Response:
        reasons = health.unready_reasons()
        return JSONResponse({"ready": not reasons, "reasons": reasons}, status_code=503 if reasons else 200)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app
