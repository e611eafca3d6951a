"""The sidecar as users run it: a process of its own, with a log and an HTTP address."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.waiting import wait_until


class SidecarProcess:
    """``timewheel run`` with settings as flags (``group_id="g"`` becomes ``--group-id g``).

    Starting it again after `kill` or `terminate` continues with the same directory and settings.
    """

    def __init__(self, bootstrap_servers: str, directory: Path, **settings: Any) -> None:
        self.settings = {
            "bootstrap_servers": bootstrap_servers,
            "data_dir": directory / "data",
            "http_address": "127.0.0.1:0",
            "log_format": "json",
            **settings,
        }
        self._log_path = directory / "sidecar.log"
        self._log_begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "SidecarProcess":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        if error is not None:
            print(f"--- the sidecar's log ({self._log_path}) ---\n{self.log_text()[-8000:]}")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the sidecar is not started"
        return self._process

    def start(self, *, wait_ready: bool = True, env: dict[str, str] | None = None) -> "SidecarProcess":
        command = [sys.executable, "-m", "sidecar", "run"]
        for name, value in self.settings.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                command.append(f"--{option}" if value else f"--no-{option}")
            else:
                command += [f"--{option}", str(value)]
        self._log_begin = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log, env={**os.environ, **(env or {})})
        if wait_ready:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, f"the sidecar ended at once:\n{self.log_text()}"
            return self.http_address is not None and self.get("/readyz")[0] == 200

        wait_until(ready, "the sidecar is ready", timeout_s)

    @property
    def http_address(self) -> str | None:
        """As the log of the current process tells it."""
        return next((event["http_address"] for event in self.events() if event["event"] == "starting"), None)

    def get(self, path: str) -> tuple[int, str]:
        """HTTP status and body; status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://{self.http_address}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """A sample of ``/metrics``; 0 where there is none yet. Labels left out are summed over."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith((f"{name} ", f"{name}{{")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rpartition(" ")[2])
        return total

    def pending(self) -> int | None:
        """How many messages wait on its wheel partitions; None while it does not answer."""
        status, body = self.get("/api/v1/pending?limit=1")
        total: int | None = json.loads(body)["total"] if status == 200 else None
        return total

    def log_text(self) -> str:
        return self._log_path.read_text() if self._log_path.exists() else ""

    def events(self) -> list[dict[str, Any]]:
        """The structured log of the current process."""
        if not self._log_path.exists():
            return []
        with self._log_path.open() as log:
            log.seek(self._log_begin)
            return [json.loads(line) for line in log if line.startswith("{") and line.endswith("\n")]

    def kill(self) -> None:
        """SIGKILL, at once."""
        self.process.kill()
        self.process.wait(timeout=10)

    def terminate(self, timeout_s: float = 10.0) -> tuple[int, float]:
        """SIGTERM; exit code and how long it took in seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=timeout_s)
        return code, time.monotonic() - began
