"""The sidecar under measurement: the real process, watched from outside."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psutil

from connectors.embedded.ports import any_free

_STOP_TIMEOUT_S = 120.0


class Memory(NamedTuple):
    """Of one process, in bytes, as Linux counts it."""

    rss: int
    peak: int
    """The highest RSS so far."""
    anonymous: int
    """Its own: heaps and stacks."""
    mapped: int
    """Pages of files, its share of those that others map too; the kernel may take them back."""


class Sidecar:
    """``timewheel run`` in a directory, started and stopped as often as it is asked for; ended with the ``with``."""

    def __init__(self, bootstrap_servers: str, directory: Path, **settings: Any) -> None:
        self.data_dir = directory / "data"
        self._address = f"127.0.0.1:{any_free()}"
        self._log_path = directory / "sidecar.log"
        self._command = [sys.executable, "-m", "sidecar", "run", "--bootstrap-servers", bootstrap_servers]
        self._command += ["--data-dir", str(self.data_dir), "--http-address", self._address]
        for name, value in {"group_id": f"bench-{time.time_ns()}", **settings}.items():
            self._command += [f"--{name.replace('_', '-')}", str(value)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill() if error is not None else self.stop()

    def start(self) -> float:
        """Start it, and do not wait; the monotonic time of that in seconds."""
        began_s = time.monotonic()
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)
        self._usage = psutil.Process(self._process.pid)
        return began_s

    def stop(self) -> float:
        """SIGTERM; how long it took in seconds."""
        began_s = time.monotonic()
        self._process.terminate()
        if self._process.wait(_STOP_TIMEOUT_S) != 0:
            self._fail(f"the sidecar ended with {self._process.returncode}")
        return time.monotonic() - began_s

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def cpu_s(self) -> float:
        """User and system time so far of the process and its workers; not of the one that serves HTTP."""
        times = [process.cpu_times() for process in [self._usage, *self._workers()]]
        return float(sum(each.user + each.system for each in times))

    def memory(self) -> Memory:
        """What it takes now; Linux only."""
        process = Path("/proc", str(self._process.pid))
        lines = [
            *(process / "smaps_rollup").read_text().splitlines()[1:],
            *(process / "status").read_text().splitlines(),
        ]
        told = dict(line.split(":", 1) for line in lines)

        def size(name: str) -> int:
            return int(told[name].split()[0]) * 1_024

        return Memory(size("VmRSS"), size("VmHWM"), size("Anonymous"), size("Pss_File"))

    def metric(self, name: str) -> float:
        """Sum over the labels; 0 while there is none. It costs the sidecar some milliseconds: ask seldom."""
        try:
            lines = self._get("/metrics").splitlines()
        except OSError:
            return 0.0
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def wait_for(self, name: str, value: float, timeout_s: float = 120.0, poll_s: float = 0.25) -> float:
        """Wait until a metric has reached a value; the monotonic time of that in seconds."""
        return self.wait_until(lambda: self.metric(name), value, name, timeout_s, poll_s)

    def wait_until(
        self, look: Callable[[], float], value: float, what: str, timeout_s: float = 120.0, poll_s: float = 0.05
    ) -> float:
        """Wait until what is seen of it has reached a value; the monotonic time of that in seconds."""
        deadline_s = time.monotonic() + timeout_s
        while (reached := look()) < value:
            self._check(f"{what} is {reached} of {value}", deadline_s)
            time.sleep(poll_s)
        return time.monotonic()

    def wait_until_assigned(self) -> float:
        """Wait until it has its partitions and begins to read; the monotonic time of that in seconds."""
        return self.wait_for("timewheel_assigned_partitions", 1, poll_s=0.01)

    def wait_until_ready(self, timeout_s: float = 120.0) -> float:
        """Wait for ``/readyz``; the monotonic time of that in seconds."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                self._get("/readyz")
                return time.monotonic()
            except OSError:  # nobody listens yet, or 503
                self._check("the sidecar is not ready", deadline_s)
                time.sleep(0.02)

    def wait_until_idle(self, timeout_s: float = 60.0) -> None:
        """Wait for two seconds in which it does next to nothing."""
        deadline_s = time.monotonic() + timeout_s
        before_s = self.cpu_s()
        while True:
            time.sleep(2)
            used_s, before_s = self.cpu_s() - before_s, self.cpu_s()
            if used_s < 0.1:
                return
            self._check("the sidecar does not come to rest", deadline_s)

    def intake_rate(self, began_s: float, count: int, timeout_s: float) -> float:
        """Records taken in per second: from ``began_s``, when none was, to the last look before ``count`` were.

        By the last look before the end, because the end itself lies anywhere between two.
        """
        deadline_s = time.monotonic() + timeout_s
        rate = 0.0
        while (ingested := self.metric("timewheel_ingested_records_total")) < count:
            if ingested:  # 0 also where it was too busy to answer
                rate = ingested / (time.monotonic() - began_s)
            self._check(f"{ingested} of {count} records taken in", deadline_s)
            time.sleep(0.25)
        return rate or count / (time.monotonic() - began_s)

    def _workers(self) -> list[psutil.Process]:
        return [child for child in self._usage.children() if "sidecar.workers" in child.cmdline()]

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=5) as response:
            return str(response.read().decode())

    def _check(self, why: str, deadline_s: float) -> None:
        if self._process.poll() is not None:
            self._fail(f"the sidecar ended with {self._process.returncode}")
        if time.monotonic() > deadline_s:
            self._fail(why)

    def _fail(self, why: str) -> None:
        raise RuntimeError(f"{why}:\n{self._log_path.read_text()[-3_000:]}")
