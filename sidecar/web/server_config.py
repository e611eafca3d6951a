"""How every HTTP server of ours is run."""

import uvicorn
from starlette.types import ASGIApp

from sidecar.web.guard import HEADERS_MAX_BYTES, TARGET_MAX_BYTES
from sidecar.web.protocol import GuardedProtocol


def server_config(app: ASGIApp) -> uvicorn.Config:
    """For an app behind a guard, or one that needs none."""
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        log_config=None,
        log_level="error",  # what strangers send is no event of ours
        access_log=False,
        lifespan="off",
        h11_max_incomplete_event_size=HEADERS_MAX_BYTES + TARGET_MAX_BYTES,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
