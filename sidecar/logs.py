"""Structured logs on standard error: one event a fact, for people on a terminal and as JSON elsewhere."""

import logging
import re
import sys
from typing import Literal

import structlog


def configure_logging(log_format: Literal["auto", "console", "json"], level: str, **bound: object) -> None:
    """Set up structlog and, through it, the standard library's loggers (librdkafka's among them).

    Args:
        bound: what every line of this process says, whatever thread it is of.
    """

    def bind(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**bound, **event}

    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        bind,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("librdkafka").addFilter(_OncePerMinute())


class _OncePerMinute(logging.Filter):
    """Lets librdkafka say a thing once a minute: a client that cannot connect says so many times a second.

    Two messages that differ in numbers only are the same thing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = re.sub(r"[0-9]+(ms|s)?", "#", record.getMessage())
        told_s = self._told_s.get(kind, -60.0)
        if record.created - told_s < 60:
            return False
        if len(self._told_s) > 1_000:
            self._told_s.clear()
        self._told_s[kind] = record.created
        return True
