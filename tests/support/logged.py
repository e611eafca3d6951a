"""Log lines that the code under test writes, whatever other tests have made of the configuration."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.testing import capture_logs


@contextmanager
def logged() -> Iterator[list[structlog.typing.EventDict]]:
    """Every line, of all levels, as it comes."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("debug"))
    try:
        with capture_logs() as lines:
            yield lines  # type: ignore[misc]
    finally:
        structlog.configure(**before)
