"""Structured logs on standard error: one event a fact, for people on a terminal and as JSON elsewhere.

docs/logs.md lists the events. `log_limits` bounds what repeats; the values of secret settings are replaced
wherever they turn up, be it in what librdkafka says.
"""

import asyncio
import atexit
import logging
import sys
from collections.abc import Collection
from typing import Any, Literal

import structlog

from sidecar.clock import SystemClock
from sidecar.observability.log_limits import Limiter, OncePerMinute
from sidecar.settings import MASK

MASKED_FROM_LENGTH = 4
"""A shorter secret is in every other word."""


def configure_logging(
    log_format: Literal["auto", "console", "json"], level: str, secrets: Collection[str] = (), **bound: object
) -> None:
    """Set up structlog and, through it, the standard library's loggers (librdkafka's among them).

    Args:
        secrets: what no line may show.
        bound: what every line of this process says, whatever thread it is of.
    """

    def bind(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**bound, **event}

    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None: whoever has started it has closed it
    console = log_format == "console" or (log_format == "auto" and is_terminal)
    shared: list[structlog.typing.Processor] = [
        bind,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=is_terminal)
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    limiter = Limiter(SystemClock())
    atexit.register(limiter.close)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            limiter,  # before anything that costs
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OncePerMinute())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _Mask(secrets),
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_is_an_event)


_NO_EVENTS = ("Cancel %s running task", "ASGI callable returned without completing response")
"""Of uvicorn's."""


def _is_an_event(record: logging.LogRecord) -> bool:
    """Not that a server of ours ends before requests do: who asked is told, and nobody can do anything about it.

    Nor that a listener has read nothing for so long that the server has let go of it.
    """
    cause = record.exc_info[1] if record.exc_info else None
    return not isinstance(cause, asyncio.CancelledError) and not str(record.msg).startswith(_NO_EVENTS)


def masked(text: str, secrets: Collection[str]) -> str:
    """The text without the secrets."""
    for secret in sorted(secrets, key=len, reverse=True):  # the longest first: one may be part of another
        if len(secret) >= MASKED_FROM_LENGTH:
            text = text.replace(secret, MASK)
    return text


class _Mask:
    """Replaces secrets in whatever text an event holds."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = secrets

    def __call__(self, _logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {name: self._masked(value) for name, value in event.items()} if self._secrets else event

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return masked(value, self._secrets)
        if isinstance(value, list | tuple):
            return [self._masked(one) for one in value]
        if isinstance(value, dict):
            return {name: self._masked(one) for name, one in value.items()}
        return value
