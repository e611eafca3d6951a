"""Every input that fuzzing has kept, and the seeds: what each target promises holds, in bounded time and memory."""

import importlib
import resource
import sys
import time
from collections.abc import Iterator

import pytest
import structlog

from tests.fuzz.run import CORPUS, INPUT_MAX_BYTES, be_quiet, names

WITHIN_S = 5.0
"""For one input, on a machine that others use; the slowest takes some 0.1 s."""
GROWTH_MAX_MB = 128
"""For all inputs of a target together."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    be_quiet()
    yield
    structlog.configure(**before)


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@pytest.mark.parametrize("name", names())
def test_what_has_been_tried_before_holds(name: str) -> None:
    target = importlib.import_module(f"tests.fuzz.{name}")
    kept = sorted((CORPUS / name).glob("*"))
    before_mb = _peak_mb()
    for what, data in [*((path.name, path.read_bytes()) for path in kept), *map(_named, target.SEEDS)]:
        assert len(data) <= INPUT_MAX_BYTES, what
        began_s = time.monotonic()
        try:
            target.fuzz_one(data)
        except Exception as error:
            raise AssertionError(f"input {what}: {data!r}") from error
        took_s = time.monotonic() - began_s
        assert took_s < WITHIN_S, f"input {what} took {took_s:.1f} s"
    assert _peak_mb() - before_mb < GROWTH_MAX_MB


def test_nothing_is_kept_for_a_target_that_is_none() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(names())


def _named(seed: bytes) -> tuple[str, bytes]:
    return f"seed {seed[:40]!r}", seed


def test_every_target_says_what_it_is() -> None:
    for name in names():
        target = importlib.import_module(f"tests.fuzz.{name}")
        assert target.__doc__, name
        assert target.SEEDS, name
