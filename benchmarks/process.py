"""Processes of this package, each with its interpreter to itself: ``python -m benchmarks.NAME ARGUMENTS``.

They tell on their standard output: ``ready`` once set up, at the end one ``name=value`` a line.
"""

import gc
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Self


class Process:
    """One of them, from the ``with`` on; killed at its end if it still runs."""

    def __init__(self, name: str, *arguments: object) -> None:
        self._name = name
        self._command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]

    def __enter__(self) -> Self:
        self._stderr = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._stderr, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def wait_until_ready(self) -> None:
        """Wait for its ``ready``."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self._fail()

    def result(self, timeout_s: float = 600.0) -> dict[str, float]:
        """Wait for its end; what it told."""
        output, _ = self._process.communicate(timeout=timeout_s)
        if self._process.returncode != 0:
            self._fail()
        told = (line.partition("=") for line in output.splitlines())
        return {name: float(value) for name, separator, value in told if separator}

    def _fail(self) -> None:
        code = self._process.wait(10)
        self._stderr.seek(0)
        raise RuntimeError(f"{self._name} ended with {code}:\n{self._stderr.read()[-3_000:]}")


def ready() -> None:
    """Set up: from here on it is measured."""
    print("ready", flush=True)


def tell(**figures: float) -> None:
    """What was measured."""
    for name, value in figures.items():
        print(f"{name}={value}", flush=True)


def tame_garbage_collection() -> None:
    """As the sidecar does: batches of records are many containers without cycles."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
