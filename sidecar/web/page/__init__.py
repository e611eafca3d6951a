"""``/``: the status page, served from the package. It loads nothing from outside, and asks this sidecar's API alone.

The policy holds the page to it: no script but ours, no inline script or style, no text that becomes markup
(``require-trusted-types-for``), no frame around it.
"""

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Request, Response

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # asked again each time, and answered with 304 until the sidecar is another
}

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/style.css": ("style.css", "text/css; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/static/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("script", "api", "chart", "wheel", "lists", "words")
    },
}


def page_router() -> APIRouter:
    """The page and what belongs to it; holds no data of its own, and so asks for no token."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in FILES.items():
        router.add_api_route(path, _served(files(__name__).joinpath(name).read_bytes(), kind), methods=["GET", "HEAD"])
    return router


def _served(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    async def serve(request: Request) -> Response:
        headers = {**HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "Content-Type": kind})

    return serve
