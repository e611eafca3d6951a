"""Programs of others that a test calls."""

import os
import shutil

import pytest


def find_tool(name: str) -> str:
    """Its path; where it is missing the test is skipped by that name, and in CI it fails."""
    path = shutil.which(name)
    if path is None:
        message = f"{name} is not installed"
        if os.environ.get("CI"):
            pytest.fail(f"{message}, and CI has to have it")
        pytest.skip(message)
    return path
