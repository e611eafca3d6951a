"""Simulations log what they do to themselves, and take a processor each."""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
import structlog

from tests.simulation.histories import be_quiet


@pytest.fixture(scope="package", autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    be_quiet()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="package")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process for each processor; they are new ones, for this one has Kafka's clients and their threads in it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, be_quiet) as pool:
        yield pool
        pool.shutdown(cancel_futures=True)
