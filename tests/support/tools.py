"""Programs of others that a test calls."""

import os
import shutil
from typing import NoReturn

import pytest


def find_tool(name: str) -> str:
    """Its path; `missing` where there is none."""
    path = shutil.which(name)
    if path is None:
        missing(name)
    return path


def missing(program: str) -> NoReturn:
    """Skip the test by the program's name; in CI it fails."""
    message = f"{program} is not installed"
    if os.environ.get("CI"):
        pytest.fail(f"{message}, and CI has to have it")
    pytest.skip(message)
