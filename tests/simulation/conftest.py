"""Simulations log what they do to themselves, thousands of lines of no interest."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="package", autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
    structlog.configure(**before)
