"""The sidecar under measurement: the real process, watched from outside."""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from connectors.embedded.ports import any_free


class Sidecar:
    """``timewheel run`` until the block ends."""

    def __init__(self, bootstrap_servers: str, directory: Path, **settings: Any) -> None:
        self._address = f"127.0.0.1:{any_free()}"
        self._log_path = directory / "sidecar.log"
        self._command = [sys.executable, "-m", "sidecar", "run", "--bootstrap-servers", bootstrap_servers]
        self._command += ["--data-dir", str(directory / "data"), "--http-address", self._address]
        for name, value in {"group_id": f"bench-{time.time_ns()}", **settings}.items():
            self._command += [f"--{name.replace('_', '-')}", str(value)]

    def __enter__(self) -> "Sidecar":
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log)
        self._usage = psutil.Process(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(10)

    def cpu_s(self) -> float:
        """User and system time of the process so far."""
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def rss_bytes(self) -> int:
        return int(self._usage.memory_info().rss)

    def metric(self, name: str) -> float:
        """Sum over the labels; 0 while there is none."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=5) as response:
                lines = response.read().decode().splitlines()
        except OSError:
            return 0.0
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def wait_for(self, name: str, value: float, timeout_s: float = 120.0, poll_s: float = 0.1) -> float:
        """Wait until a metric has reached a value; the monotonic time of that in seconds."""
        deadline = time.monotonic() + timeout_s
        while self.metric(name) < value:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{name} is {self.metric(name)} of {value}:\n{self._log_path.read_text()[-3000:]}")
            time.sleep(poll_s)
        return time.monotonic()
