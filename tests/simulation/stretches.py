"""A look at the whole wheel takes several turns here, too, as it does where a wheel has half a million slots."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sidecar.store import timer_wheel


@contextmanager
def small_stretches() -> Iterator[None]:
    """For the wheels that are made meanwhile: 64 slots are four steps."""
    with patch.object(timer_wheel, "_FIRST_CHUNK_SLOTS", 4), patch.object(timer_wheel, "_LAST_CHUNK_SLOTS", 16):
        yield
