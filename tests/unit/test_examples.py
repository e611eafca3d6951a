"""The examples in docstrings: what they show is what happens."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("connectors", "sidecar", "spark")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text()
]


def test_there_are_some() -> None:
    assert {"connectors.consumer", "connectors.producer", "connectors.receipt"} <= set(SHOWN)


@pytest.mark.parametrize("module", SHOWN)
def test_the_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
